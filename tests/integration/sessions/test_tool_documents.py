"""`tools/{call}/tool.json`: every tool call of a session, live or archived, with what was recorded of it."""

import json
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Struct

from runekeep.v1 import common_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import space_service_pb2 as spaces_pb
from tests.support.callers import Caller, failure, said
from tests.support.exports import exported, imported
from tests.support.worker import Worker

pytestmark = pytest.mark.postgres_long

COMPLETED, ERROR = common_pb2.TOOL_STATUS_COMPLETED, common_pb2.TOOL_STATUS_ERROR
PENDING = common_pb2.TOOL_STATUS_PENDING
LONG = "a line of output\n" * 2000


@pytest.fixture(scope="module")
def server_settings(either_store: dict[str, str]) -> dict[str, str]:
    return either_store


def called(id: str, message_id: str = "", **fields: Any) -> common_pb2.Message:
    fields = {"tool_name": "grep", "status": COMPLETED} | fields
    part = common_pb2.Part(tool=common_pb2.ToolPart(tool_id=id, **fields))
    return common_pb2.Message(id=message_id, role=common_pb2.ROLE_ASSISTANT, parts=[part])


async def talk(caller: Caller) -> str:
    """A session `s` of calls; the task of its commit."""
    await caller.session(session_id="s")
    await caller.add(
        "s",
        said("look it up", id="m1"),
        called("call-1", "m2", status=PENDING, input=ParseDict({"pattern": "tea", "depth": 2}, Struct())),
        called(
            "call-1",
            "m3",
            input=ParseDict({"pattern": "tea", "depth": 2}, Struct()),
            output="found it",
            duration=Duration(nanos=40_000_000),
            total_tokens=7,
        ),
        called("", "m4", tool_name="ls", status=ERROR, output="no such directory"),
        called("call 2/strange", "m5", output=LONG, skill_name="dig"),
        said("done", id="m6"),
    )
    return str((await caller.commit("s")).task_id)


async def calls(caller: Caller) -> dict[str, dict[str, Any]]:
    """The calls of the session, by the names of their folders."""
    folder = caller.uri("sessions/s/tools")
    entries = (await caller.listing(folder, depth=2)).entries
    found = {}
    for entry in entries:
        if entry.name == "tool.json":
            found[entry.uri.split("/")[-2]] = json.loads((await caller.read(entry.uri)).text)
    assert [entry.name for entry in entries if entry.directory] == sorted(found)
    return found


async def test_every_call_is_a_document_once_with_its_last_record(caller: Caller, channel: grpc.aio.Channel) -> None:
    await talk(caller)
    found = await calls(caller)
    strange = next(name for name in found if name.startswith("tool_") and name != "tool_m4_0")
    assert found == {
        "call-1": {
            "tool_id": "call-1", "tool_name": "grep", "skill_name": "", "status": "completed", "duration_ms": 40,
            "total_tokens": 7, "message_id": "m3", "sequence": 3, "input": {"pattern": "tea", "depth": 2},
            "length": 8, "output": "found it",
        },
        "tool_m4_0": {
            "tool_id": "tool_m4_0", "tool_name": "ls", "skill_name": "", "status": "error", "duration_ms": None,
            "total_tokens": None, "message_id": "m4", "sequence": 4, "input": {},
            "length": 17, "output": "no such directory",
        },
        strange: {
            "tool_id": "call 2/strange", "tool_name": "grep", "skill_name": "dig", "status": "completed",
            "duration_ms": None, "total_tokens": None, "message_id": "m5", "sequence": 5, "input": {},
            "length": len(LONG), "output": LONG,
        },
    }  # fmt: skip
    folder = caller.uri("sessions/s/tools")
    assert [one.name for one in (await caller.listing(f"{folder}/call-1")).entries] == ["tool.json"]
    assert [one.name for one in (await caller.listing(f"{folder}/{strange}")).entries] == ["output.txt", "tool.json"]
    for missing in ("call-2/tool.json", "call-1/output.txt", "call_1/tool.json", "%/tool.json"):
        assert (await failure(caller.read(f"{folder}/{missing}"))).code is grpc.StatusCode.NOT_FOUND
    pages = []
    for node_limit in (1, 2, 100):
        pages.append([one.name for one in (await caller.listing(folder, depth=1, node_limit=node_limit)).entries])
    assert pages == [sorted(found)[:1], sorted(found)[:2], sorted(found)]

    # The commit changes nothing about them, and a live call comes to them.
    async with Worker(channel) as worker:
        assert (await worker.deliver((await worker.take()).lease)).outcome == pb.JOB_OUTCOME_APPLIED
    await caller.add("s", called("call-9", "m7", status=PENDING))
    assert await calls(caller) == {**found, "call-9": (await calls(caller))["call-9"]}
    assert (await calls(caller))["call-9"]["status"] == "pending"


async def test_an_erased_message_takes_its_calls_along(caller: Caller) -> None:
    await talk(caller)
    gone = spaces_pb.MessageSet(session="s", message_ids=["m3", "m4"])
    await caller.spaces.EraseData(spaces_pb.EraseDataRequest(messages=gone))
    found = await calls(caller)
    assert "tool_m4_0" not in found and len(found) == 2
    assert (found["call-1"]["message_id"], found["call-1"]["status"]) == ("m2", "pending"), "the record that is left"


async def test_an_import_brings_them(caller: Caller, callers: Any) -> None:
    await talk(caller)
    other = callers()
    await imported(other, await exported(caller))
    assert await calls(other) == await calls(caller)
