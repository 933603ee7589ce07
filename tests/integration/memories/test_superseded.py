"""An experience that supersedes others takes their place, unless they are kept for review."""

import json
from collections.abc import Callable
from typing import Any

import grpc

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import task_service_pb2
from runekeep_server.merging.operations import MAX_SUPERSEDED
from tests.support.callers import Caller, used_tool
from tests.support.server_process import ServerProcess
from tests.support.worker import Worker, edit, write

Servers = Callable[..., ServerProcess]
APPLIED = task_service_pb2.COMMIT_OUTCOME_APPLIED


def lesson(name: str, supersedes: str = "", **more: Any) -> pb.MemoryOperation:
    fields = {"supersedes": supersedes} if supersedes else {}
    return write("experiences", experience_name=name, content=f"{name}.", **fields, **more)


async def worked(
    caller: Caller, *operations: pb.MemoryOperation
) -> tuple[task_service_pb2.CommitResult, dict[str, Any]]:
    """The result and the diff of a commit of one tool call with these operations."""
    committed = await caller.committed(used_tool("t1", "done"))
    async with Worker(caller.channel) as worker:
        verdict = await worker.deliver((await worker.take()).lease, *operations)
        assert verdict.outcome == pb.JOB_OUTCOME_APPLIED
    result = (await caller.task(committed.task_id)).result
    return result, json.loads((await caller.read(f"{committed.archive_uri}/memory_diff.json")).text)["operations"]


async def lessons(caller: Caller) -> set[str]:
    entries = (await caller.listing(caller.uri("memories/experiences"))).entries
    return {entry.name.removesuffix(".md") for entry in entries if entry.memory_type}


def uri(caller: Caller, name: str) -> str:
    return caller.uri(f"memories/experiences/{name}.md")


def left(result: task_service_pb2.CommitResult) -> list[tuple[str, str, int]]:
    return [(one.reason, one.uri.rpartition("/")[2], one.operation_index) for one in result.skipped]


async def test_what_is_superseded_is_deleted_with_the_reason(caller: Caller, channel: grpc.aio.Channel) -> None:
    await worked(caller, *map(lesson, ("Check twice", "Check late", "Check never", "Ask first")))
    named = f"- Check twice\n{uri(caller, 'Check late')}\n\nCheck once"
    result, diff = await worked(caller, lesson("Check once", named, ranges=[(1, 1)], reason="one check is enough"))
    assert await lessons(caller) == {"Check once", "Check never", "Ask first"}
    assert (result.outcome, result.total_adds, result.total_deletes, list(result.skipped)) == (APPLIED, 1, 2, [])
    assert {one["uri"]: one["reason"] for one in diff["deletes"]} == dict.fromkeys(
        (uri(caller, "Check twice"), uri(caller, "Check late")),
        f"superseded by {uri(caller, 'Check once')}: one check is enough",
    )
    assert all(one["deleted_content"] and len(one["message_ids"]) == 1 for one in diff["deletes"])

    result, _ = await worked(caller, edit(uri(caller, "Ask first"), supersedes="Check never"))
    assert await lessons(caller) == {"Check once", "Ask first"} and result.total_deletes == 1
    result, diff = await worked(caller, lesson("Check once", named))
    assert not result.skipped and not diff["deletes"], "what was said before is not said again"


async def test_what_cannot_be_deleted_stays_and_is_named_and_costs_the_new_one_nothing(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    many = [f"Lesson {number}" for number in range(11)]
    await worked(caller, *map(lesson, many))
    own = lesson("Written here")
    elsewhere = "viking://user/somebody/memories/experiences/Lesson 1.md"
    result, _ = await worked(
        caller, own, lesson("All in one", "\n".join(["Written here", "No such", elsewhere, *many]))
    )
    assert left(result) == [
        ("written_then_deleted", "Written here.md", 1),
        ("not_found", "No such.md", 1),
        ("too_many_deletes", "Lesson 10.md", 1),
    ]
    assert (result.outcome, result.total_adds, result.total_deletes) == (APPLIED, 2, 10)
    assert await lessons(caller) == {"Written here", "All in one", "Lesson 10"}


async def test_of_very_many_that_are_named_some_are_looked_at_and_the_rest_is_named_once(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    """Each costs a look into the store, and an output may name tens of thousands."""
    await worked(caller, lesson("Check twice"))
    many = "\n".join(f"No {number}" for number in range(1000))
    named = lesson("All in one", f"Check twice\n{many}"), lesson("And another", many)
    result, _ = await worked(caller, *named)
    found = left(result)
    assert found[: MAX_SUPERSEDED - 1] == [("not_found", f"No {at}.md", 0) for at in range(MAX_SUPERSEDED - 1)]
    assert found[MAX_SUPERSEDED - 1 :] == [
        ("too_many_deletes", "All in one.md", 0),
        ("too_many_deletes", "And another.md", 1),
    ]
    assert (result.outcome, result.total_deletes) == (APPLIED, 1)
    assert await lessons(caller) == {"All in one", "And another"}


async def test_a_lesson_of_another_type_or_owner_is_not_superseded(caller: Caller, channel: grpc.aio.Channel) -> None:
    await worked(caller, write("preferences", topic="Tea", content="Likes tea."))
    tea = caller.uri("memories/preferences/Tea.md")
    result, diff = await worked(caller, lesson("Ask first", f"{tea}\nviking://user/sessions/s/messages.jsonl"))
    assert {one.reason for one in result.skipped} == {"not_found"} and not diff["deletes"]
    assert (await caller.memory(tea)).content == "Likes tea."


async def test_where_review_is_asked_for_it_is_kept_and_named(own_server: Servers) -> None:
    server = own_server({"RUNEKEEP_REVIEW_SUPERSEDED": "true"})
    async with grpc.aio.insecure_channel(server.address) as channel:
        caller = Caller(channel, "ann")
        await worked(caller, lesson("Check twice"))
        result, diff = await worked(caller, lesson("Check once", "Check twice"))
        assert left(result) == [("review_asked", "Check twice.md", 0)]
        assert (result.outcome, diff["deletes"]) == (APPLIED, [])
        assert await lessons(caller) == {"Check once", "Check twice"}
