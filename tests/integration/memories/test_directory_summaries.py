"""What a directory of memories says of itself follows each commit: at every level, for self and for peers."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import memory_service_pb2, session_service_pb2
from tests.support.callers import Caller, failure, policy, said
from tests.support.worker import Worker, delete, edit, value, write


class Space:
    """A caller whose commits apply what a test gives."""

    def __init__(self, caller: Caller, channel: grpc.aio.Channel) -> None:
        self.caller = caller
        self._channel = channel

    async def apply(self, *operations: pb.MemoryOperation) -> None:
        await self.caller.committed(said("I, the user"), said("I, Bob", peer="bob"), policy=policy(peer=True))
        await self.deliver(*operations)

    async def deliver(self, *operations: pb.MemoryOperation) -> None:
        async with Worker(self._channel) as worker:
            verdict = await worker.deliver((await worker.take()).lease, *operations)
            assert verdict.outcome == pb.JOB_OUTCOME_APPLIED

    async def views(self, directory: str) -> tuple[str, str]:
        """L0 and L1 of a directory."""
        abstract, overview = [
            await self.caller.read(self.caller.uri(f"{directory}{name}")) for name in (".abstract.md", ".overview.md")
        ]
        return abstract.text, overview.text

    async def gone(self, directory: str) -> bool:
        request = memory_service_pb2.ReadDocumentRequest(uri=self.caller.uri(f"{directory}.overview.md"))
        return (await failure(self.caller.memories.ReadDocument(request))).code is grpc.StatusCode.NOT_FOUND


OWNERS: dict[str, tuple[str, dict[str, Any]]] = {
    "self": ("", {"ranges": [(1, 1)]}),
    "peer": ("peers/bob/", {"peer": "bob", "ranges": [(2, 2)]}),
}


@pytest.fixture(params=OWNERS)
async def owner(request: pytest.FixtureRequest) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """Where an owner's memories lie, and what an operation about it carries."""
    yield OWNERS[request.param]


@pytest.fixture
def space(caller: Caller, channel: grpc.aio.Channel) -> Space:
    return Space(caller, channel)


def tea(abstract: str, **place: Any) -> pb.MemoryOperation:
    return write("preferences", topic="Tea", content="Drinks tea.", abstract=abstract, **place)


async def test_views_change_with_the_commit_that_changes_a_child(
    space: Space, owner: tuple[str, dict[str, Any]]
) -> None:
    root, place = owner
    preferences = f"{root}memories/preferences/"
    assert await space.gone(preferences)

    await space.apply(tea("Drinks green tea.", **place))
    assert await space.views(preferences) == ("1 memory: Tea: Drinks green tea", "- Tea: Drinks green tea.")

    await space.apply(write("preferences", topic="Music", content="Likes fado.", **place))
    assert await space.views(preferences) == (
        "2 memories: Music: Likes fado; Tea: Drinks green tea",
        "- Music: Likes fado.\n- Tea: Drinks green tea.",
    )

    uri = space.caller.uri(f"{preferences}Tea.md")
    await space.apply(edit(uri, abstract="Drinks black tea.", **place))
    assert (await space.views(preferences))[1] == "- Tea: Drinks black tea.\n- Music: Likes fado.", "newest first"

    await space.apply(delete(uri, **place))
    assert await space.views(preferences) == ("1 memory: Music: Likes fado", "- Music: Likes fado.")

    await space.apply(delete(space.caller.uri(f"{preferences}Music.md"), **place))
    assert await space.gone(preferences)


async def test_each_level_above_says_what_is_below(space: Space, owner: tuple[str, dict[str, Any]]) -> None:
    root, place = owner
    memories = f"{root}memories/"
    await space.apply(write("profile", content="# User profile\n- Is Bob.", abstract="Who it is.", **place))
    await space.apply(
        tea("Drinks green tea.", **place), write("entities", entity_name="Rex", content="A dog.", **place)
    )
    assert await space.views(memories) == (
        "3 memories: Rex: A dog; Tea: Drinks green tea; profile: Who it is",
        "- entities/: 1 memory: Rex: A dog\n- preferences/: 1 memory: Tea: Drinks green tea\n- profile: Who it is.",
    )

    await space.apply(write("entities", entity_name="Acme", content="A firm.", **place))
    above = "4 memories: Acme: A firm; Rex: A dog; Tea: Drinks green tea; profile: Who it is"
    assert await space.views(memories) == (
        above,
        "- entities/: 2 memories: Acme: A firm; Rex: A dog\n- preferences/: 1 memory: Tea: Drinks green tea\n"
        "- profile: Who it is.",
    )
    if root:
        assert await space.views(root) == (above, f"- memories/: {above}")
        assert await space.views("peers/") == (above, f"- bob/: {above}")


async def test_what_was_used_comes_first_beside_what_is_new(space: Space) -> None:
    preferences = "memories/preferences/"
    for topic in ("Tea", "Jazz", "Music"):
        await space.apply(write("preferences", topic=topic, content=f"Likes {topic}.", ranges=[(1, 1)]))
    session = await space.caller.session()
    uris = [space.caller.uri(f"{preferences}Tea.md")]
    await space.caller.sessions.RecordUsage(session_service_pb2.RecordUsageRequest(session=session, context_uris=uris))
    await space.caller.committed(said("Which tea?"), session=session)
    await space.deliver()
    assert await space.views(preferences) == (
        "3 memories: Music: Likes Music; Tea: Likes Tea; Jazz: Likes Jazz",
        "- Music: Likes Music.\n- Tea: Likes Tea.\n- Jazz: Likes Jazz.",
    )


async def test_nothing_of_a_peer_shows_in_the_users_own_views_and_the_other_way_round(space: Space) -> None:
    await space.apply(tea("Of the user.", ranges=[(1, 1)]), tea("Of Bob.", peer="bob", ranges=[(2, 2)]))
    assert (await space.views("memories/preferences/"))[1] == "- Tea: Of the user."
    assert (await space.views("peers/bob/memories/preferences/"))[1] == "- Tea: Of Bob."


async def test_a_job_reads_the_views_of_its_base_revision(
    space: Space, channel: grpc.aio.Channel, caller: Caller
) -> None:
    """A commit of the same space that is applied meanwhile does not show in them."""
    await space.apply(tea("Drinks green tea.", ranges=[(1, 1)]))
    uri = caller.uri("memories/preferences/.overview.md")
    await caller.committed(said("More."), policy=policy(peer=True))
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        fields = {"topic": value("Jazz"), "content": value("Likes it.")}
        change = memory_service_pb2.MemoryMutation(
            put=memory_service_pb2.PutMemory(memory_type="preferences", fields=fields)
        )
        await caller.memories.WriteMemories(memory_service_pb2.WriteMemoriesRequest(changes=[change]))
        assert (await space.views("memories/preferences/"))[0] == "2 memories: Jazz: Likes it; Tea: Drinks green tea"
        wanted = memory_service_pb2.ReadDocumentRequest(uri=uri)
        read = await worker.calls.ReadForJob(pb.ReadForJobRequest(lease=lease, read=wanted))
        assert read.document.text == "- Tea: Drinks green tea."
