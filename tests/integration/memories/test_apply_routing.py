"""Where operations go, through the real stream; `test_routing_table.py` tests every combination of the table."""

from typing import Any

import grpc
import pytest

from runekeep.v1 import common_pb2, memory_service_pb2, task_service_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from tests.support.callers import Caller, policy, said
from tests.support.worker import Worker, delete, edit, value, write

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
    """Paths of the memories in the caller's space."""
    entries = (await caller.listing(depth=8)).entries
    root = caller.uri("")
    return [entry.uri.removeprefix(root) for entry in entries if entry.memory_type]


EVERYBODY = policy(peer=True)
SELF_ONLY = policy()
PEERS_ONLY = policy(self=False, peer=True)
NOBODY = policy(self=False, peer=False)
ANNA, BERT = f"peers/anna/{TOPIC}", f"peers/bert/{TOPIC}"


@pytest.mark.parametrize(
    ("allowed", "operation"),
    [
        (policy(types=["events"]), note()),
        (policy(types=[]), note(peer="../anna", ranges=[(9, 9)])),
        (EVERYBODY, write("session_skills", skill_name="ski")),
        (NOBODY, note()),
    ],
)
async def test_a_type_that_the_policy_leaves_out_goes_nowhere(
    caller: Caller, channel: grpc.aio.Channel, allowed: common_pb2.MemoryPolicy, operation: pb.MemoryOperation
) -> None:
    result = await worked(caller, channel, allowed, operation)
    assert await written(caller) == []
    (skipped,) = result.skipped
    assert (skipped.reason, skipped.memory_type) == ("type_filtered", operation.write.memory_type)
    assert skipped.message and not result.rejected


async def test_session_skills_are_the_users_whatever_they_name(caller: Caller, channel: grpc.aio.Channel) -> None:
    skill = write("session_skills", skill_name="ski", steps="1. Go", peer="anna", ranges=[(3, 3)])
    result = await worked(caller, channel, policy(skills=True), skill)
    assert await written(caller) == ["skills/ski.md"] and not result.skipped


async def test_sources_are_the_messages_of_each_owner(caller: Caller, channel: grpc.aio.Channel) -> None:
    await worked(caller, channel, EVERYBODY, note(ranges=[(1, 6)], reason="said so"))
    for path, sequences, peer in ((TOPIC, [1, 2], ""), (ANNA, [3, 6], "anna"), (BERT, [4], "bert")):
        memory = await caller.memory(caller.uri(path))
        assert [source.sequence for source in memory.sources] == sequences
        assert memory.peer_id == peer and all(source.message_id.startswith("msg_") for source in memory.sources)


async def test_what_the_user_says_about_a_peer_is_the_peers_and_rests_on_the_users_words(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    result = await worked(caller, channel, EVERYBODY, note(peer="anna", ranges=[(1, 1), (4, 4)]))
    assert await written(caller) == [ANNA] and not result.skipped
    assert [source.sequence for source in (await caller.memory(caller.uri(ANNA))).sources] == [1, 4]
    change = edit(caller.uri(ANNA), content="Skis no more.", ranges=[(1, 1)])
    result = await worked(caller, channel, EVERYBODY, change)
    assert (await caller.memory(caller.uri(ANNA))).content == "Skis no more." and not result.skipped


async def test_a_profile_is_made_once_there_is_something_to_say(caller: Caller, channel: grpc.aio.Channel) -> None:
    """Not with the first commit, and not by a write without words: nothing empty is stored, indexed or recalled."""
    nothing = await worked(caller, channel, EVERYBODY, write("profile"), write("profile", content=" ", peer="anna"))
    assert (nothing.total_adds, nothing.unchanged, await written(caller)) == (0, 2, [])
    found = await caller.find("profile", min_revision=nothing.revision, kinds=[memory_service_pb2.FOUND_KIND_MEMORY])
    assert list(found.results) == []

    said_so = await worked(caller, channel, EVERYBODY, write("profile", content="Lives in Ghent."))
    assert dict(said_so.memories_extracted) == {"profile": 1} and await written(caller) == ["memories/profile.md"]


@pytest.mark.parametrize(
    "content", ["# User profile\n## Alice, nurse in Leeds", "#1 priority: ship v2", "\U0001f9d7\U0001f6b2"]
)
async def test_a_profile_of_headings_or_without_words_is_made(
    caller: Caller, channel: grpc.aio.Channel, content: str
) -> None:
    made = await worked(caller, channel, EVERYBODY, write("profile", content=content))
    assert (dict(made.memories_extracted), made.unchanged) == ({"profile": 1}, 0)
    asked = memory_service_pb2.RecallRequest(query="user profile", min_revision=made.revision)
    recalled = [entry.uri for entry in (await caller.memories.Recall(asked)).entries]
    assert caller.uri("memories/profile.md") in recalled


async def test_an_empty_profile_of_the_release_before_is_not_recalled_and_goes_with_the_next_commit(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    fields = {"content": value("# User profile")}
    empty = memory_service_pb2.PutMemory(memory_type="profile", fields=fields)
    change = memory_service_pb2.MemoryMutation(put=empty)
    made = await caller.memories.WriteMemories(memory_service_pb2.WriteMemoriesRequest(changes=[change]))
    asked = memory_service_pb2.RecallRequest(query="user profile", min_revision=made.revision)
    assert list((await caller.memories.Recall(asked)).entries) == []

    # Whoever may not write about the user takes nothing of the user's away.
    await worked(caller, channel, PEERS_ONLY, note(peer="anna"))
    assert "memories/profile.md" in await written(caller)
    result = await worked(caller, channel, SELF_ONLY, note())
    assert (result.total_deletes, await written(caller)) == (1, [TOPIC, ANNA])


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
