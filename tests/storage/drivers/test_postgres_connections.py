"""PostgreSQL: connections that are kept whatever happens to them, and writers that stop and leave nobody waiting."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from runekeep_storage.database import Space, Topic, Tx
from runekeep_storage.drivers.postgres import kept_connections
from runekeep_storage.drivers.postgres.driver import PostgresDatabase
from runekeep_storage.drivers.postgres.kept_connections import IndexLock, KeptConnection, Listener
from runekeep_storage.drivers.postgres.writer import Writer
from runekeep_storage.errors import IndexHeld, StoreUnavailable
from runekeep_storage.sessions import sessions
from tests.support.storage.databases import ANN, BOB
from tests.support.storage.postgres_servers import Servers

PATIENCE = 30


@pytest.fixture(autouse=True)
def soon_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_connections, "RECONNECT_SECONDS", 0.01)


@pytest.mark.parametrize("error", [ValueError("nobody thought of this"), OSError("the network is gone")])
async def test_a_kept_connection_is_made_again_whatever_went_wrong(
    url: str, capfd: pytest.CaptureFixture[str], error: Exception
) -> None:
    tries = 0
    prepared = asyncio.Event()

    async def prepare(connection: Any) -> None:
        nonlocal tries
        tries += 1
        if tries <= 2:
            raise error
        assert await connection.fetchval("SELECT 1") == 1
        prepared.set()

    kept = KeptConnection("test", url, prepare)
    async with asyncio.timeout(PATIENCE):
        await kept.start()
        await prepared.wait()
    await kept.stop()

    assert tries == 3
    said = capfd.readouterr().out
    assert said.count(str(error)) >= 2 and "purpose=test" in said.replace("\x1b[0m", "").replace("\x1b[36m", "")


async def test_a_server_hears_again_after_its_listener_failed(
    url: str, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = asyncio.Event()
    listen = Listener._listen
    failed: list[Listener] = []

    async def fails_once(self: Listener, connection: Any) -> None:
        if not failed:
            failed.append(self)
            raise KeyError("a defect")
        await listen(self, connection)

    monkeypatch.setattr(Listener, "_listen", fails_once)
    await servers[0].listen(lambda topic, subject: heard.set())

    async def tell(tx: Tx) -> None:
        tx.notify(Topic.INDEX)

    async with asyncio.timeout(PATIENCE):
        while not heard.is_set():
            await servers[1].write_global(tell)
            await asyncio.sleep(0.01)
    assert failed


async def test_a_lock_that_cannot_be_asked_for_is_not_said_to_be_held(
    url: str, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreUnavailable, match="no connection for the index lock"):
        await IndexLock("postgresql://postgres@127.0.0.1:1/x", alone=True).acquire()

    with monkeypatch.context() as short:
        short.setattr(kept_connections, "LOCK_SECONDS", 0.2)
        with pytest.raises(StoreUnavailable, match="no answer"):
            await IndexLock(silent, alone=True).acquire()

    holder = IndexLock(url, alone=True)
    await holder.acquire()
    # Time enough for an answer, also where the machine is busy.
    monkeypatch.setattr(kept_connections, "LOCK_SECONDS", 1.5)
    with pytest.raises(IndexHeld, match="another server works on this database"):
        await IndexLock(url, alone=True).acquire()

    monkeypatch.setattr(kept_connections, "LOCK_SECONDS", PATIENCE)
    refused = asyncio.Event()
    sleep = asyncio.sleep

    async def told(seconds: float) -> None:
        if seconds == kept_connections.LOCK_RETRY_SECONDS:
            refused.set()
        await sleep(seconds)

    monkeypatch.setattr(asyncio, "sleep", told)
    asked = asyncio.create_task(IndexLock(url, alone=True).acquire())
    async with asyncio.timeout(PATIENCE):
        await refused.wait()
    control = await asyncpg.connect(url)
    await control.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid()"
    )
    await control.close()
    with pytest.raises(StoreUnavailable):
        await asked
    await holder.stop()


@pytest.fixture
async def silent() -> AsyncIterator[str]:
    """The URL of something that takes connections and never says a word."""
    closed = asyncio.Event()

    async def nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await closed.wait()
        writer.close()

    server = await asyncio.start_server(nothing, "127.0.0.1", 0)
    yield f"postgresql://postgres@127.0.0.1:{server.sockets[0].getsockname()[1]}/x"
    closed.set()
    server.close()
    await server.wait_closed()


def writer_of(database: PostgresDatabase) -> Writer:
    assert database._writer is not None
    return database._writer


async def unavailable(*calls: "asyncio.Future[Any]") -> None:
    """Every one of the calls is told that the store is closed."""
    async with asyncio.timeout(PATIENCE):
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(outcome, StoreUnavailable) for outcome in outcomes), outcomes


async def test_a_writer_that_stops_before_a_lane_has_begun_tells_those_who_wait(servers: Servers) -> None:
    calls: list[asyncio.Task[Any]] = [
        asyncio.create_task(servers[0].write(sessions.create, space, "s")) for space in (ANN, BOB)
    ]
    calls.append(asyncio.create_task(servers[0].write_global(_nothing)))
    await asyncio.sleep(0)
    assert len(writer_of(servers[0])._running) == 2

    writer_of(servers[0]).stop()

    await unavailable(*calls)
    assert await servers[1].read(sessions.page, ANN, None, 10) == []


async def _nothing(tx: Tx) -> None: ...


async def test_a_writer_that_stops_between_two_tries_tells_those_who_wait(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = asyncio.Event()

    def long(low: float, high: float) -> float:
        pauses.set()
        return 3600.0

    monkeypatch.setattr(random, "uniform", long)

    async def refused(tx: Tx, space: Space) -> None:
        raise asyncpg.SerializationError("could not serialize")

    calls = [asyncio.create_task(servers[0].write(refused, ANN))]
    async with asyncio.timeout(PATIENCE):
        await pauses.wait()
    calls.append(asyncio.create_task(servers[0].write(refused, ANN)))
    await asyncio.sleep(0)

    writer_of(servers[0]).stop()

    await unavailable(*calls)


async def test_a_writer_that_stops_in_a_transaction_tells_those_who_wait(servers: Servers) -> None:
    begun = asyncio.Event()

    async def stays(tx: Tx, space: Space) -> None:
        await sessions.create(tx, space, "s")
        begun.set()
        await asyncio.Event().wait()

    calls: list[asyncio.Task[Any]] = [asyncio.create_task(servers[0].write(stays, ANN))]
    async with asyncio.timeout(PATIENCE):
        await begun.wait()
    calls.append(asyncio.create_task(servers[0].write(sessions.create, ANN, "t")))
    await asyncio.sleep(0)

    writer_of(servers[0]).stop()

    await unavailable(*calls)
    assert await servers[1].read(sessions.page, ANN, None, 10) == []
