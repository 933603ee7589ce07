"""Memories that turned out wrong, moved, or got another name."""

import json
from typing import Any

import grpc
import pytest

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import memory_service_pb2
from runekeep.v1 import space_service_pb2 as spaces_pb
from tests.support.callers import CALLED, Caller, failure, policy, said
from tests.support.worker import Worker, edit, write

MOVE = "memories/events/2026-05-01_Anna moves.md"
MOVED = "memories/events/2026-06_Anna moves.md"


def move(**more: Any) -> pb.MemoryOperation:
    return write("events", event_name="Anna moves", event_time="2026-05-01", content="To Oslo, into Bo's flat.", **more)


class Commits:
    """A caller whose commits end with the given operations."""

    def __init__(self, caller: Caller, channel: grpc.aio.Channel) -> None:
        self.caller = caller
        self.channel = channel
        self.session = ""

    async def apply(self, *operations: pb.MemoryOperation, message: Any = None) -> dict[str, Any]:
        """The operations of the diff."""
        self.session = await self.caller.session(policy())
        committed = await self.caller.committed(message or said("x", id="m1"), session=self.session)
        async with Worker(self.channel) as worker:
            verdict = await worker.deliver((await worker.take()).lease, *operations)
            assert verdict.outcome == pb.JOB_OUTCOME_APPLIED, verdict
        diff = json.loads((await self.caller.read(f"{committed.archive_uri}/memory_diff.json")).text)
        operations_made: dict[str, Any] = diff["operations"]
        return operations_made

    async def refused(self, operation: pb.MemoryOperation) -> tuple[str, str]:
        """Reason and message."""
        await self.caller.committed(policy=policy())
        async with Worker(self.channel) as worker:
            lease = (await worker.take()).lease
            verdict = await worker.deliver(lease, operation)
            assert verdict.outcome == pb.JOB_OUTCOME_NEEDS_REPAIR
            await worker.deliver(lease)
        return verdict.refused[0].reason, verdict.refused[0].message


@pytest.fixture
def commits(caller: Caller, channel: grpc.aio.Channel) -> Commits:
    return Commits(caller, channel)


async def test_an_event_that_was_wrong_is_corrected_and_its_versions_stay(commits: Commits) -> None:
    caller = commits.caller
    await commits.apply(move(abstract="Anna moves to Oslo."))
    uri = caller.uri(MOVE)
    await commits.apply(edit(uri, content=[("Oslo", "Bergen")]))
    event = await caller.memory(uri)
    assert (event.content, event.abstract) == (
        "To Bergen, into Bo's flat.",
        "2026-05-01 Anna moves: To Bergen, into Bo's flat.",
    )
    request = memory_service_pb2.ListMemoryVersionsRequest(uri=uri)
    versions = (await caller.memories.ListMemoryVersions(request)).memories
    assert [one.content.split(",")[0] for one in versions] == ["To Bergen", "To Oslo"]


async def test_a_renamed_memory_moves_with_all_it_is(commits: Commits) -> None:
    caller = commits.caller
    await commits.apply(move())
    old = await caller.memory(caller.uri(MOVE))
    later = edit(
        old.uri,
        rename={"event_time": "2026-06"},
        content=[("flat.", "flat, a month late.")],
        ranges=[(1, 1)],
        reason="it moved",
    )
    diff = await commits.apply(later)
    event = await caller.memory(caller.uri(MOVED))
    assert event.content == "To Oslo, into Bo's flat, a month late."
    assert (event.fields["event_time"].string_value, event.version) == ("2026-06", 1)
    assert event.create_time == old.create_time and len(event.sources) == 2
    assert (await failure(caller.memory(old.uri))).seen[0] == "NOT_FOUND"
    assert (await caller.memory(old.uri, version=1)).content == old.content
    assert [one["uri"] for one in diff["adds"]] == [event.uri] and not diff["updates"]
    assert "it moved" in diff["adds"][0]["reason"] and old.uri in diff["adds"][0]["reason"]
    assert event.uri in diff["deletes"][0]["reason"]


async def test_what_may_not_be_renamed(commits: Commits) -> None:
    caller = commits.caller
    await commits.apply(move(), write("preferences", topic="Tea", content="Green."))
    await commits.apply(write("preferences", topic="Drinks", content="Hot."))
    await commits.apply(message=CALLED)
    tea = caller.uri("memories/preferences/Tea.md")
    taken, why = await commits.refused(edit(tea, rename={"topic": "Drinks"}))
    assert taken == "name_taken" and "Drinks.md" in why
    for wrong in (
        edit(caller.uri("memories/tools/grep.md"), rename={"tool_name": "sed"}),
        edit(tea, rename={"content": "Black."}),
        edit(tea, rename={"topic": " "}),
        edit(tea, topic="Herbal tea"),
    ):
        assert (await commits.refused(wrong))[0] == "field_invalid"
    assert (await caller.memory(tea)).version == 1


async def test_erasing_what_a_memory_came_from_erases_it_under_its_new_name(commits: Commits) -> None:
    caller = commits.caller
    await commits.apply(move())
    first = commits.session
    await commits.apply(edit(caller.uri(MOVE), rename={"event_time": "2026-06"}, ranges=[(1, 1)]))
    assert (await caller.memory(caller.uri(MOVED))).version == 1
    messages = spaces_pb.MessageSet(session=first, message_ids=["m1"])
    await caller.spaces.EraseData(spaces_pb.EraseDataRequest(messages=messages))
    assert (await failure(caller.memory(caller.uri(MOVED)))).seen[0] == "NOT_FOUND"


async def test_erasing_the_message_that_renamed_a_memory_gives_it_its_old_name_back(commits: Commits) -> None:
    caller = commits.caller
    await commits.apply(move())
    before = await caller.memory(caller.uri(MOVE))
    await commits.apply(edit(caller.uri(MOVE), rename={"event_time": "2026-06"}, ranges=[(1, 1)]))
    messages = spaces_pb.MessageSet(session=commits.session, message_ids=["m1"])
    await caller.spaces.EraseData(spaces_pb.EraseDataRequest(messages=messages))
    assert (await failure(caller.memory(caller.uri(MOVED)))).seen[0] == "NOT_FOUND"
    after = await caller.memory(caller.uri(MOVE))
    assert (after.content, after.create_time) == (before.content, before.create_time)
