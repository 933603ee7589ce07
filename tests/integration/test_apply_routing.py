"""Where operations go: a test for each row of the table, through the real stream."""

from collections.abc import Sequence
from typing import Any

import grpc
import pytest

from runekeep.v1 import common_pb2, task_service_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from tests.support.callers import Caller, policy, said
from tests.support.worker import Worker, delete, edit, write

# Sequences 1 to 6; `a b` is no safe id, and Dora says nothing in it.
BATCH = (
    said("I moved to Bergen"),
    said("noted", role=common_pb2.ROLE_ASSISTANT),
    said("I like skiing", peer="anna"),
    said("I like sailing", peer="bert"),
    said("I like chess", peer="a b"),
    said("and skating", peer="anna"),
)
TOPIC = "memories/preferences/Sport.md"


def note(**place: Any) -> pb.MemoryOperation:
    return write("preferences", topic="Sport", content="Likes skiing.", **place)


async def worked(
    caller: Caller, channel: grpc.aio.Channel, allowed: common_pb2.MemoryPolicy, *operations: pb.MemoryOperation
) -> task_service_pb2.CommitResult:
    """The result of a commit of the batch with these operations."""
    committed = await caller.committed(*BATCH, policy=allowed)
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        verdict = await worker.deliver(lease, *operations)
        if verdict.outcome == pb.JOB_OUTCOME_NEEDS_REPAIR:
            verdict = await worker.deliver(lease, *operations)
        assert verdict.outcome == pb.JOB_OUTCOME_APPLIED
    result: task_service_pb2.CommitResult = (await caller.task(committed.task_id)).result
    return result


async def written(caller: Caller) -> list[str]:
    """Paths of the memories in the caller's space, without the profile that every space begins with."""
    entries = (await caller.listing(depth=8)).entries
    root = caller.uri("")
    paths = [entry.uri.removeprefix(root) for entry in entries if entry.memory_type]
    return [path for path in paths if path != "memories/profile.md"]


EVERYBODY = policy(peer=True)
SELF_ONLY = policy()
PEERS_ONLY = policy(self=False, peer=True)
NOBODY = policy(self=False, peer=False)
ANNA, BERT = f"peers/anna/{TOPIC}", f"peers/bert/{TOPIC}"


@pytest.mark.parametrize(
    ("allowed", "operation", "places", "reason"),
    [
        # No peer, no ranges
        (EVERYBODY, note(), [TOPIC], ""),
        (PEERS_ONLY, note(), [], "self_disabled"),
        # A safe peer of the batch
        (EVERYBODY, note(peer="anna"), [ANNA], ""),
        (SELF_ONLY, note(peer="anna"), [], "peer_disabled"),
        # An unsafe peer, and one that is not of the batch
        (EVERYBODY, note(peer="a b"), [], "invalid_peer"),
        (EVERYBODY, note(peer="../anna"), [], "invalid_peer"),
        (EVERYBODY, note(peer="dora"), [], "peer_not_in_batch"),
        (SELF_ONLY, note(peer="dora"), [], "peer_not_in_batch"),
        # Ranges: the owners of the messages, as far as they may be written
        (EVERYBODY, note(ranges=[(1, 2)]), [TOPIC], ""),
        (EVERYBODY, note(ranges=[(1, 6)]), [TOPIC, ANNA, BERT], ""),
        (EVERYBODY, note(ranges=[(3, 3), (6, 6)]), [ANNA], ""),
        (EVERYBODY, note(ranges=[(5, 5)]), [], "invalid_peer"),
        (SELF_ONLY, note(ranges=[(1, 6)]), [TOPIC], ""),
        (SELF_ONLY, note(ranges=[(3, 4)]), [], "peer_disabled"),
        (PEERS_ONLY, note(ranges=[(2, 3)]), [ANNA], ""),
        (PEERS_ONLY, note(ranges=[(1, 2)]), [], "self_disabled"),
        (PEERS_ONLY, note(ranges=[(1, 1), (5, 5)]), [], "nothing_writable"),
        # A peer beside ranges only narrows them
        (EVERYBODY, note(peer="anna", ranges=[(1, 6)]), [ANNA], ""),
        (EVERYBODY, note(peer="anna", ranges=[(1, 2), (4, 4)]), [], "nothing_writable"),
        (EVERYBODY, note(peer="dora", ranges=[(1, 6)]), [], "peer_not_in_batch"),
        # Ranges that leave the batch, or run backwards
        (EVERYBODY, note(ranges=[(1, 7)]), [], "invalid_ranges"),
        (EVERYBODY, note(ranges=[(0, 1)]), [], "invalid_ranges"),
        (EVERYBODY, note(ranges=[(2, 1)]), [], "invalid_ranges"),
        (EVERYBODY, note(ranges=[(1, 2), (-(2**62), 2**62)]), [], "invalid_ranges"),
        # Execution types are the agent's own, whatever the ranges say
        (
            EVERYBODY,
            write("experiences", experience_name="Skiing", content="Go.", ranges=[(3, 3)]),
            ["memories/experiences/Skiing.md"],
            "",
        ),
        (
            EVERYBODY,
            write("experiences", experience_name="Skiing", content="Go.", peer="anna"),
            ["memories/experiences/Skiing.md"],
            "",
        ),
        (PEERS_ONLY, write("experiences", experience_name="Skiing", content="Go."), [], "type_filtered"),
        # Types
        (policy(types=["events"]), note(), [], "type_filtered"),
        (policy(types=[]), note(), [], "type_filtered"),
        (EVERYBODY, write("session_skills", skill_name="ski"), [], "type_filtered"),
        (
            policy(skills=True),
            write("session_skills", skill_name="ski", steps="1. Go", peer="anna", ranges=[(3, 3)]),
            ["skills/ski.md"],
            "",
        ),
        (NOBODY, note(), [], "type_filtered"),
    ],
)
async def test_a_new_memory_goes_where_the_table_says(
    caller: Caller,
    channel: grpc.aio.Channel,
    allowed: common_pb2.MemoryPolicy,
    operation: pb.MemoryOperation,
    places: Sequence[str],
    reason: str,
) -> None:
    result = await worked(caller, channel, allowed, operation)
    assert sorted(await written(caller)) == sorted(places)
    assert [(one.reason, one.operation_index) for one in result.skipped] == ([(reason, 0)] if reason else [])
    assert not result.rejected
    if reason:
        assert result.skipped[0].memory_type == operation.write.memory_type and result.skipped[0].message


@pytest.mark.parametrize(
    ("operation", "allowed", "reason"),
    [
        (("self", {}), EVERYBODY, ""),
        (("self", {"ranges": [(1, 6)]}), EVERYBODY, ""),
        (("anna", {}), EVERYBODY, ""),
        (("anna", {"peer": "anna"}), EVERYBODY, ""),
        (("anna", {"ranges": [(3, 4)]}), EVERYBODY, ""),
        (("self", {}), PEERS_ONLY, "self_disabled"),
        (("self", {"ranges": [(1, 6)]}), PEERS_ONLY, "self_disabled"),
        (("anna", {}), SELF_ONLY, "peer_disabled"),
        (("dora", {}), EVERYBODY, "peer_not_in_batch"),
        (("self", {"ranges": [(1, 99)]}), EVERYBODY, "invalid_ranges"),
        (("self", {"peer": "dora"}), EVERYBODY, "peer_not_in_batch"),
        # What one person said changes nothing about another.
        (("self", {"peer": "anna"}), EVERYBODY, "nothing_writable"),
        (("self", {"ranges": [(3, 4)]}), EVERYBODY, "nothing_writable"),
        (("anna", {"ranges": [(1, 2)]}), EVERYBODY, "nothing_writable"),
        (("anna", {"peer": "bert"}), EVERYBODY, "nothing_writable"),
    ],
)
@pytest.mark.parametrize("kind", ["edit", "delete"])
async def test_a_memory_that_is_there_is_reached_by_the_same_table(
    caller: Caller,
    channel: grpc.aio.Channel,
    kind: str,
    operation: tuple[str, dict[str, Any]],
    allowed: common_pb2.MemoryPolicy,
    reason: str,
) -> None:
    owner, place = operation
    uri = caller.uri(TOPIC if owner == "self" else f"peers/{owner}/{TOPIC}")
    await self_and_peers(caller, channel)
    evidence = {"ranges": [(3, 4) if owner == "anna" else (1, 1)]} | place
    change = edit(uri, content="Changed.", **place) if kind == "edit" else delete(uri, **evidence)
    result = await worked(caller, channel, allowed, change)
    assert [one.reason for one in result.skipped] == ([reason] if reason else [])
    assert not result.rejected
    if reason:
        assert result.skipped[0].uri == uri and (await caller.memory(uri)).version == 1
    else:
        versions = await caller.memory(uri, version=2)
        assert versions.deleted == (kind == "delete")


async def self_and_peers(caller: Caller, channel: grpc.aio.Channel) -> None:
    """One memory about the user and one about each of Anna, Bert and Dora."""
    people = (said("I like skiing", peer=name) for name in ("anna", "bert", "dora"))
    await caller.committed(said("me too"), *people, policy=EVERYBODY)
    async with Worker(channel) as worker:
        await worker.deliver((await worker.take()).lease, note(ranges=[(1, 4)]))


async def test_sources_are_the_messages_of_each_owner(caller: Caller, channel: grpc.aio.Channel) -> None:
    await worked(caller, channel, EVERYBODY, note(ranges=[(1, 6)], reason="said so"))
    for path, sequences, peer in ((TOPIC, [1, 2], ""), (ANNA, [3, 6], "anna"), (BERT, [4], "bert")):
        memory = await caller.memory(caller.uri(path))
        assert [source.sequence for source in memory.sources] == sequences
        assert memory.peer_id == peer and all(source.message_id.startswith("msg_") for source in memory.sources)


async def test_the_profile_begins_only_where_the_user_may_be_written_about(
    callers: Any, channel: grpc.aio.Channel
) -> None:
    for allowed, expected in (
        (EVERYBODY, True),
        (SELF_ONLY, True),
        (PEERS_ONLY, False),
        (policy(types=["events"]), False),
    ):
        caller = callers()
        result = await worked(caller, channel, allowed, note(peer="anna") if allowed is not SELF_ONLY else note())
        uris = [entry.uri for entry in (await caller.listing(depth=8)).entries]
        assert (caller.uri("memories/profile.md") in uris) == expected
        assert "profile" not in result.memories_extracted


async def test_a_type_that_does_not_exist_is_wrong_and_not_skipped(caller: Caller, channel: grpc.aio.Channel) -> None:
    result = await worked(caller, channel, EVERYBODY, write("dreams", content="x"), note())
    assert [(one.reason, one.operation_index) for one in result.rejected] == [("field_invalid", 0)]
    assert await written(caller) == [TOPIC]


@pytest.mark.parametrize(
    "uri",
    [
        "viking://user/somebody/memories/preferences/Sport.md",
        "viking://user/memories/../../x.md",
        "https://a.test/x",
        "viking://user/sessions/s/messages.jsonl",
        "viking://user/memories",
    ],
)
async def test_no_operation_leaves_the_memories_of_its_space(
    caller: Caller, channel: grpc.aio.Channel, uri: str
) -> None:
    result = await worked(caller, channel, EVERYBODY, delete(uri), edit(uri, content="x"), note())
    assert [one.reason for one in result.rejected] in (["uri_invalid"] * 2, ["not_found"] * 2)
    assert await written(caller) == [TOPIC]
