"""A server that stands still in the middle of a transaction holds its locks; the others must get past it."""

import asyncio

import asyncpg
import pytest

from runekeep_storage.database import Space, Tx
from runekeep_storage.drivers.postgres import driver
from runekeep_storage.drivers.postgres.transaction import LOCKS, SETTINGS
from runekeep_storage.errors import StoreUnavailable
from runekeep_storage.sessions import sessions
from tests.support.storage.databases import ANN
from tests.support.storage.postgres_servers import Servers


@pytest.mark.parametrize("stage", ["between_statements", "before_the_values"])
async def test_locks_of_a_server_that_stands_still_come_free(servers: Servers, url: str, stage: str) -> None:
    """Its connection stays open and says nothing more, as that of a stopped process does."""
    for server in servers:
        await server.listen(lambda topic, subject: None)
    still = await asyncpg.connect(url, server_settings=SETTINGS)
    ended = asyncio.Event()
    still.add_termination_listener(lambda connection: ended.set())
    await still.execute(f"BEGIN;SELECT pg_advisory_xact_lock({LOCKS}, 0)")
    if stage == "before_the_values":
        # The client asks for what is ready with a Flush, and PostgreSQL then waits for the rest of the message.
        await still.prepare("SELECT $1::int")
        states = "SELECT state FROM pg_stat_activity WHERE pid = $1"
        observer = await asyncpg.connect(url)
        assert await observer.fetchval(states, still.get_server_pid()) == "active"
        await observer.close()

    await servers[0].write(sessions.create, ANN, "s")

    async with asyncio.timeout(10):
        await ended.wait()
    assert len(await servers[1].read(sessions.page, ANN, None, 10)) == 1


async def test_a_server_that_stands_still_in_a_read_is_given_up(
    servers: Servers, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps its locks on the tables from migrations, and its snapshot from VACUUM."""
    await servers[0].write(sessions.create, ANN, "s")
    monkeypatch.setattr(driver, "_OF_READERS", dict.fromkeys(driver._OF_READERS, "1000"))
    server = driver.PostgresDatabase(url)
    await server.open()
    begun, ended = asyncio.Event(), asyncio.Event()

    async def still(tx: Tx, space: Space) -> None:
        await sessions.page(tx, space, None, 10)
        begun.set()
        await ended.wait()
        await sessions.page(tx, space, None, 10)

    migration = await asyncpg.connect(url)
    try:
        async with asyncio.timeout(30):
            reading = asyncio.create_task(server.read(still, ANN))
            await begun.wait()
            async with migration.transaction():
                await migration.execute("LOCK TABLE sessions IN ACCESS EXCLUSIVE MODE")
        ended.set()
        with pytest.raises(StoreUnavailable):
            await reading
    finally:
        await migration.close()
        await server.close()


async def test_a_read_may_take_its_time_and_a_write_may_not(
    servers: Servers, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a server does with what it has read, between two statements, may take longer than locks are left to it."""
    # By a server that has its time: on a busy machine every write may take longer than the little that is set here.
    await servers[0].write(sessions.create, ANN, "s")
    monkeypatch.setattr(driver, "SETTINGS", SETTINGS | {"idle_in_transaction_session_timeout": "200"})
    server = driver.PostgresDatabase(url)
    await server.open()
    try:

        async def slow(tx: Tx, space: Space) -> int:
            before = len(await sessions.page(tx, space, None, 10))
            await asyncio.sleep(0.6)
            return before + len(await sessions.page(tx, space, None, 10))

        assert await server.read(slow, ANN) == 2
        with pytest.raises(StoreUnavailable):
            await server.write(slow, ANN)
    finally:
        await server.close()
