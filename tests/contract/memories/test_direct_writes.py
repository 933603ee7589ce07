"""What happens to a write by hand while its texts are being embedded, which is outside any transaction."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

import grpc
import pytest

from runekeep.v1 import memory_service_pb2 as pb
from runekeep_schemas.type_files.registry import Registry
from runekeep_server.memories import direct_writes
from runekeep_server.protocol.api_error import ApiError
from runekeep_server.protocol.idempotency import MAX_PREPARATIONS
from runekeep_storage.database import Database
from runekeep_storage.errors import NotFound, VersionConflict
from runekeep_storage.indexing.space_embedders import SpaceEmbedders
from runekeep_storage.memories import memories
from runekeep_storage.relay.relay import Relay
from runekeep_storage.store import Store
from tests.support.changes import put, remove
from tests.support.storage.databases import ANN, ON_SQLITE
from tests.support.storage.search import Search

pytestmark = ON_SQLITE

TEA = "viking://user/ann/memories/preferences/Tea.md"
BREAD = "viking://user/ann/memories/preferences/Bread.md"


@dataclass
class Parts:
    """Of a store, what a write by hand needs."""

    database: Database
    registry: Registry
    embedders: SpaceEmbedders
    relay: Relay

    async def write(self, *changes: pb.MemoryMutation) -> pb.WriteMemoriesResponse:
        request = pb.WriteMemoriesRequest(changes=changes)
        return await direct_writes.write(cast(Store, self), ANN, request, withhold_secrets=True)


@pytest.fixture
def store(search: Search, registry: Registry) -> Parts:
    return Parts(search.database, registry, search.embedders, search.relay)


@pytest.fixture
def beside(search: Search, registry: Registry) -> Parts:
    """The same store, as a writer sees it who does not wait for the embedder."""
    return Parts(search.database, registry, SpaceEmbedders(search.database, search.attachment, None), search.relay)


def tea(content: str, base: int = 0) -> pb.MemoryMutation:
    return put("preferences", base, topic="Tea", content=content)


async def meanwhile(
    search: Search, writing: Awaitable[Any], change: Callable[[], Awaitable[Any]], times: int = 1
) -> Any:
    """What becomes of `writing` when `change` happens between its preparations and their transactions."""
    search.embedder.go.clear()
    search.embedder.working.clear()
    task = asyncio.ensure_future(writing)
    for _ in range(times):
        async with asyncio.timeout(30):
            await search.embedder.working.wait()
        search.embedder.working.clear()
        await change()
        search.embedder.go.set()
        search.embedder.go.clear()
    search.embedder.go.set()
    return await task


async def test_whoever_comes_first_stays(search: Search, store: Parts, beside: Parts) -> None:
    await beside.write(tea("one"))
    with pytest.raises(ApiError, match="is at version 2, not 1") as caught:
        await meanwhile(search, store.write(tea("slow", 1)), lambda: beside.write(tea("quick", 1)))
    assert caught.value.code is grpc.StatusCode.ABORTED
    assert (await store.database.read(memories.get, ANN, TEA)).content == "quick"


async def test_a_memory_that_a_request_leaves_as_it_is_must_stay_so(
    search: Search, store: Parts, beside: Parts
) -> None:
    await beside.write(tea("one"))
    changes = (tea("one", 1), put("preferences", topic="Bread", content="Rye."))
    with pytest.raises(ApiError, match="is at version 2, not 1"):
        await meanwhile(search, store.write(*changes), lambda: beside.write(tea("two", 1)))
    with pytest.raises(NotFound):
        await store.database.read(memories.get, ANN, BREAD)


async def made_and_removed(beside: Parts) -> None:
    made = await beside.write(tea("x"))
    await beside.write(remove(TEA, made.memories[0].version))


async def test_where_the_base_version_still_holds_it_is_prepared_anew(
    search: Search, store: Parts, beside: Parts
) -> None:
    answer = await meanwhile(search, store.write(tea("one")), lambda: made_and_removed(beside))
    assert (answer.memories[0].version, answer.memories[0].content, answer.revision) == (3, "one", 3)


async def test_a_memory_that_never_rests_is_given_up(search: Search, store: Parts, beside: Parts) -> None:
    times = MAX_PREPARATIONS
    with pytest.raises(VersionConflict):
        await meanwhile(search, store.write(tea("one")), lambda: made_and_removed(beside), times)
    assert await store.database.read(memories.newest_version, ANN, TEA) == 2 * times


async def test_the_vector_follows_when_the_embedder_is_up_again(search: Search, store: Parts) -> None:
    search.embedder.down = True
    search.relay.start()
    await store.write(tea("Likes green tea."))
    await search.caught_up(ANN)
    assert await dense(search) == ""
    search.embedder.down = False
    search.relay.wake()
    await search.until(lambda: has_vector(search))


async def has_vector(search: Search) -> bool:
    return await dense(search) == search.embedder.model


async def dense(search: Search) -> str:
    async def model(tx: Any) -> str:
        row = await tx.fetchrow(
            "SELECT dense_model FROM memories WHERE account = $1 AND user_id = $2 AND rev_to = 0", ANN.account, ANN.user
        )
        return str(row["dense_model"])

    return await search.database.read_global(model)
