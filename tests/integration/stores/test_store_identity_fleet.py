"""Servers on PostgreSQL with a shared index: none of them serves a store that lacks what any of them has seen."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import grpc
import pytest

from runekeep_storage.index.base import SPARSE_ONLY
from runekeep_storage.index.qdrant import QdrantIndex
from tests.doubles.qdrant import QdrantDouble
from tests.support.callers import Caller, said
from tests.support.lost_stores import LOST, accepted_losses, code_in, mark, talk, texts
from tests.support.postgres import PostgresServer
from tests.support.server_process import ServerProcess
from tests.support.waiting import until

Servers = Callable[..., ServerProcess]


@pytest.fixture
async def double(tmp_path: Path) -> AsyncIterator[QdrantDouble]:
    made = QdrantDouble(tmp_path / "qdrant")
    await made.start()
    yield made
    await made.stop()
    made.drop()


class Backing:
    """A database that servers share, its blobs, and copies of it."""

    def __init__(self, server: PostgresServer, blobs: Path) -> None:
        self._server = server
        self.name = server.create()
        self.blobs = blobs

    def settings(self, double: QdrantDouble) -> dict[str, str]:
        return {
            "RUNEKEEP_STORE_URL": self._server.url(self.name),
            "RUNEKEEP_INDEX_URL": f"grpc://127.0.0.1:{double.port}",
            "RUNEKEEP_BLOB_DIR": str(self.blobs),
        }

    def copy(self) -> str:
        """Copies this database as it is now. Returns the name of the copy, which no server has open."""
        return self._server.create(self.name)

    def become(self, copy: str) -> None:
        """Replaces the database by an older one, as in a failover to a standby that lacked the last transactions:
        connections break, and new ones reach the older database."""
        self._server.sql(f"ALTER DATABASE {self.name} ALLOW_CONNECTIONS false")
        self._server.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{self.name}'")
        self._server.sql(f"ALTER DATABASE {self.name} RENAME TO {self.name}_lost_{copy}")
        self._server.sql(f"ALTER DATABASE {copy} RENAME TO {self.name}")


@pytest.fixture
def backing(postgres_server: PostgresServer, tmp_path: Path) -> Iterator[Backing]:
    made = Backing(postgres_server, tmp_path / "blobs")
    yield made
    postgres_server.drop(made.name)


async def started(server: ServerProcess, *arguments: str) -> ServerProcess:
    """Runs in a thread, because the double answers on this event loop."""
    return await asyncio.to_thread(server.start, "127.0.0.1:0", *arguments)


async def commit(server: ServerProcess) -> None:
    """Stores something to search for later: one point."""
    async with grpc.aio.insecure_channel(server.address) as channel:
        await Caller(channel, "bob").committed(said("to be found"))


async def points(double: QdrantDouble) -> int:
    index = QdrantIndex(f"grpc://127.0.0.1:{double.port}")
    try:
        await index.open(SPARSE_ONLY)
        return await index.count("acme", "bob")
    finally:
        await index.close()


async def seen(backing: Backing, revision: int) -> None:
    """Waits until a mark has a higher revision than that."""
    await asyncio.to_thread(until, lambda: mark(backing.blobs).get("revision", 0) > revision)


async def test_a_fleet_does_not_serve_an_older_database(
    own_server: Servers, backing: Backing, double: QdrantDouble
) -> None:
    settings = backing.settings(double)
    first = await asyncio.to_thread(own_server, settings, "first")
    await talk(first, "one")
    await asyncio.to_thread(first.stop)
    older = backing.copy()
    before = mark(backing.blobs)
    second = await asyncio.to_thread(own_server, settings, "second")
    await talk(second, "two")
    await asyncio.to_thread(second.stop)
    assert mark(backing.blobs)["revision"] > before["revision"]
    backing.become(older)

    # Also by a server that never saw the missing data.
    refusal = await asyncio.to_thread(first.refused)
    assert f"is store {before['store']} at revision {before['revision']}" in refusal
    assert f"(collection 'runekeep' of Qdrant at 127.0.0.1:{double.port}) saw revision" in refusal
    assert f"({backing.blobs}) saw revision" in refusal
    assert "postgres@" not in refusal

    await started(first, "--accept-data-loss", code_in(refusal))
    await started(second)
    assert await texts(second) == ["one"] == await texts(first)
    assert len(await accepted_losses(second)) == 1
    await talk(second, "three")
    for server in (first, second):
        await asyncio.to_thread(server.stop)
    assert mark(backing.blobs)["store"] != before["store"]
    await started(first)
    assert await texts(first) == ["one", "three"]
    await asyncio.to_thread(first.stop)


async def test_a_server_ends_when_its_database_goes_back_in_time(
    own_server: Servers, backing: Backing, double: QdrantDouble
) -> None:
    """It ends before its revision is back at the old value, when nobody could notice any more."""
    settings = backing.settings(double)
    writing = await asyncio.to_thread(own_server, settings, "writing")
    await talk(writing, "one")
    await asyncio.to_thread(writing.stop)
    older = backing.copy()
    await started(writing)
    watching = await asyncio.to_thread(own_server, settings, "watching")
    for text in ("two", "three"):
        before = mark(backing.blobs)["revision"]
        await talk(writing, text)
        await seen(backing, before)

    await asyncio.to_thread(backing.become, older)
    # Its own memory shows it, or the first mark that it reads: it must not write before it has looked.
    ended = asyncio.create_task(asyncio.to_thread(until, lambda: "store_lost" in writing.log()))
    while not ended.done():
        with contextlib.suppress(grpc.aio.AioRpcError):
            await talk(writing, "four")
    await ended

    for server in (writing, watching):
        end = await asyncio.to_thread(server.gave_up)
        assert f"The server cannot go on: {LOST}" in end and "store_lost" in end
    refusal = await asyncio.to_thread(writing.refused)
    assert LOST in refusal and code_in(refusal)


async def test_the_index_of_another_store_is_not_taken(
    own_server: Servers, backing: Backing, double: QdrantDouble, tmp_path: Path
) -> None:
    """Two stores have one `index_url`: the points of one would be orphans of the other."""
    ours = await asyncio.to_thread(own_server, backing.settings(double), "ours")
    await talk(ours, "one")
    await commit(ours)
    async with asyncio.timeout(60):
        while True:
            if await points(double):
                break
            await asyncio.sleep(0.05)
    await asyncio.to_thread(ours.stop)
    # With its own database and blobs.
    theirs = ServerProcess(tmp_path / "theirs", {"RUNEKEEP_INDEX_URL": f"grpc://127.0.0.1:{double.port}"})

    assert LOST in await asyncio.to_thread(theirs.refused)

    # While the index is away nothing contradicts a start. The index is checked when it is back, before it is used.
    await double.stop()
    await started(theirs)
    await commit(theirs)
    await double.start()
    assert f"The server cannot go on: {LOST}" in await asyncio.to_thread(theirs.gave_up)
    assert await points(double) == 1
    await started(ours)
    assert await texts(ours) == ["one"]
    await asyncio.to_thread(ours.stop)
