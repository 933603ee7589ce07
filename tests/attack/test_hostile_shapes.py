"""Requests that are cheap to send and expensive to parse are refused before they are parsed."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from runekeep.v1 import common_pb2, memory_service_pb2, session_service_pb2, task_service_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import space_service_pb2 as space_pb
from tests.support.callers import Caller, failure, said, unique
from tests.support.server_process import ServerProcess
from tests.support.worker import Worker, write

NULL = b"\x0a\x02\x08\x00"
"""An item of a ListValue."""
ADD = "/runekeep.v1.SessionService/AddMessages"


@pytest.fixture
def hostile(channel: grpc.aio.Channel) -> Caller:
    return Caller(channel, unique("user"), unique("hostile"))


def send(caller: Caller, method: str, request: bytes) -> Any:
    metadata = (("x-runekeep-account", caller.account), ("x-runekeep-user", caller.user))
    return caller.channel.unary_unary(method)(request, metadata=metadata, timeout=600)


def with_nulls(session: str, nulls: int) -> session_service_pb2.AddMessagesRequest:
    """Returns a request with a message whose tool input is a list of that many nulls."""
    tool = common_pb2.ToolPart(tool_id="t", tool_name="ls")
    tool.input.fields["a"].list_value.ParseFromString(NULL * nulls)
    message = common_pb2.Message(role=common_pb2.ROLE_ASSISTANT, parts=[common_pb2.Part(tool=tool)])
    return session_service_pb2.AddMessagesRequest(session=session, messages=[message])


async def test_millions_of_nulls_are_refused_unread(hostile: Caller) -> None:
    session = await hostile.session()
    refused = await failure(send(hostile, ADD, with_nulls(session, 1_000_000).SerializeToString()))
    assert refused.seen == ("INVALID_ARGUMENT", "FIELD_INVALID")
    assert refused.fields == ["messages.parts.tool.input"]
    assert "more than 65536 fields" in refused.message


async def test_many_nulls_are_stored(hostile: Caller) -> None:
    session = await hostile.session()
    await send(hostile, ADD, with_nulls(session, 32_000).SerializeToString())
    listed = await hostile.sessions.ListMessages(session_service_pb2.ListMessagesRequest(session=session))
    assert len(listed.messages[0].parts[0].tool.input.fields["a"].list_value.values) == 32_000


@pytest.mark.parametrize(
    "tail",
    [
        pytest.param(b"\x12\x00" * 100_000, id="empty"),
        pytest.param(b"\x08" + b"\xff" * 100_000, id="varint"),
        pytest.param(b"\x13" * 100_000, id="groups"),
        pytest.param(b"\xfa\x01\x00" * 100_000, id="unknown"),
        pytest.param(b"\x92\x00\x00" * 100_000, id="overlong tags"),
    ],
)
async def test_other_shapes_are_refused(hostile: Caller, tail: bytes) -> None:
    session = await hostile.session()
    request = session_service_pb2.AddMessagesRequest(session=session, messages=[said("tea")]).SerializeToString()
    refused = await failure(send(hostile, ADD, request + tail))
    assert refused.seen == ("INVALID_ARGUMENT", "FIELD_INVALID")
    assert "more than 65536 fields" in refused.message or "cannot be read" in refused.message


async def test_numbers_of_one_field_are_counted(hostile: Caller) -> None:
    states = task_service_pb2.ListTasksRequest(states=[task_service_pb2.TASK_STATE_PENDING] * 100_000)
    refused = await failure(hostile.tasks.ListTasks(states))
    assert refused.seen == ("INVALID_ARGUMENT", "FIELD_INVALID")
    assert "more than 65536 fields" in refused.message


async def test_nesting_is_bounded(hostile: Caller) -> None:
    request = with_nulls(await hostile.session(), 0)
    # Makes the request large enough to be scanned.
    request.messages.append(said("x" * 100_000))
    value = request.messages[0].parts[0].tool.input.fields["a"]
    for _ in range(60):
        value = value.list_value.values.add()
    refused = await failure(send(hostile, ADD, request.SerializeToString()))
    assert refused.seen == ("INVALID_ARGUMENT", "FIELD_INVALID")
    assert refused.fields == ["messages.parts.tool.input"] and "deeper than 100" in refused.message


async def test_messages_of_a_stream_are_looked_at_too(hostile: Caller) -> None:
    async def requests() -> AsyncIterator[bytes]:
        yield space_pb.ImportSpaceRequest(options=space_pb.ImportOptions()).SerializeToString()
        # Unknown fields.
        yield b"\xfa\x01\x00" * 100_000

    metadata = (("x-runekeep-account", hostile.account), ("x-runekeep-user", hostile.user))
    call = hostile.channel.stream_unary("/runekeep.v1.SpaceService/ImportSpace")(requests(), metadata=metadata)
    refused = await failure(call)
    assert refused.seen == ("INVALID_ARGUMENT", "FIELD_INVALID")
    assert "more than 65536 fields" in refused.message


def write_request(topic: str, content: str) -> memory_service_pb2.WriteMemoriesRequest:
    fields = {name: common_pb2.FieldValue(string_value=text) for name, text in (("topic", topic), ("content", content))}
    put = memory_service_pb2.PutMemory(memory_type="preferences", fields=fields)
    return memory_service_pb2.WriteMemoriesRequest(changes=[memory_service_pb2.MemoryMutation(put=put)])


async def test_a_text_that_is_too_large_is_not_looked_through_for_secrets(hostile: Caller) -> None:
    text = "The PIN is 4711. " + "PIN for " * (3 * 1024 * 1024 // 8)
    refused = await failure(hostile.memories.WriteMemories(write_request("doors", text), timeout=600))
    assert refused.seen == ("RESOURCE_EXHAUSTED", "TOO_LARGE")
    assert refused.fields == ['changes[0].put.fields["content"]']


async def test_others_are_served_while_a_text_is_looked_through_for_secrets(
    hostile: Caller, server: ServerProcess
) -> None:
    own = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(server.address, options=own) as channel:
        probe = Caller(channel, unique("user"), unique("probe"))
        session = await probe.session()
        text = "PIN for " * (1900 * 1024 // 8) + "The PIN is 4711."
        call = asyncio.ensure_future(failure(hostile.memories.WriteMemories(write_request("doors", text), timeout=600)))
        answered = 0
        while not call.done():
            await probe.sessions.GetSession(session_service_pb2.GetSessionRequest(session=session))
            answered += 1
        assert "looks like a password" in (await call).message
    # Thousands of calls are answered while another process searches the text, and a few if a search blocks this one.
    assert answered >= 30


async def test_a_patch_of_many_blocks_on_a_long_text_is_refused(hostile: Caller) -> None:
    marks = [f"<{number}>" for number in range(500)]
    made = await hostile.memories.WriteMemories(write_request("long", "a" * 950 * 1024 + "".join(marks)))
    blocks = [common_pb2.SearchReplaceBlock(search=mark, replace="-") for mark in marks]
    patch = common_pb2.FieldPatch(field="content", search_replace=common_pb2.SearchReplace(blocks=blocks))
    edit = memory_service_pb2.EditMemory(uri=made.memories[0].uri, patches=[patch])
    change = memory_service_pb2.MemoryMutation(edit=edit, base_version=1)
    refused = await failure(
        hostile.memories.WriteMemories(memory_service_pb2.WriteMemoriesRequest(changes=[change]), timeout=600)
    )
    assert refused.seen == ("FAILED_PRECONDITION", "PATCH_NOT_APPLICABLE")
    assert "too long for so many blocks" in refused.message


async def test_many_ranges_over_the_same_messages_are_applied_soon(hostile: Caller, channel: grpc.aio.Channel) -> None:
    """If each range visited each of its messages, this would take minutes. The worker does not wait that long."""
    session = await hostile.session()
    for _ in range(40):
        await hostile.add(session, *[said("tea")] * 100)
    await hostile.commit(session)
    everything = [(1, 4000)] * 256
    operation = write("preferences", ranges=everything, topic="t", content="tea")
    items = [pb.OutputItem(operation=operation)] * 500
    async with Worker(channel) as worker:
        job = await worker.take()
        # A chunk has more fields than other requests may have. It is of a legal size, so the stream goes on.
        for index in range(5):
            await worker.chunk(job.lease, "o", index, items[100 * index : 100 * (index + 1)])
        verdict = await worker.complete(job.lease, "o", 5)
    assert verdict.outcome == pb.JOB_OUTCOME_APPLIED
