"""`Tx.compute` on every driver: the event loop is not blocked, and statements in it see the transaction's snapshot."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from runekeep_storage.database import Database, Tx
from runekeep_storage.drivers.sqlite.driver import SqliteDatabase
from runekeep_storage.errors import NotFound
from runekeep_storage.sessions import sessions
from tests.support.storage.databases import ANN

TIMEOUT_SECONDS = 20.0


async def sessions_around(database: Database, work: Callable[[], None]) -> list[str]:
    """Runs `work` between two reads of one transaction. Returns the session ids before and after."""

    async def part(tx: Tx) -> list[str]:
        before = await sessions.page(tx, ANN, None, 10)
        work()
        return [one.session_id for one in (*before, *await sessions.page(tx, ANN, None, 10))]

    return await database.read_global(lambda tx: tx.compute(part))


async def test_other_calls_run_during_a_computation_and_its_snapshot_stays(database: Database) -> None:
    await database.write(sessions.create, ANN, "first")
    began, written = threading.Event(), threading.Event()

    def wait() -> None:
        began.set()
        assert written.wait(TIMEOUT_SECONDS), "the event loop stands still"

    computing = asyncio.ensure_future(sessions_around(database, wait))
    assert await asyncio.to_thread(began.wait, TIMEOUT_SECONDS)
    await database.write(sessions.create, ANN, "second")
    written.set()

    assert await computing == ["first", "first"]


async def test_an_error_in_a_computation_reaches_the_caller(database: Database) -> None:
    async def part(tx: Tx) -> None:
        await sessions.get(tx, ANN, "none")

    with pytest.raises(NotFound):
        await database.read_global(lambda tx: tx.compute(part))


async def test_a_computation_that_is_cancelled_twice_keeps_its_connection_until_it_ends(database: Database) -> None:
    began, cancelled, ended = threading.Event(), threading.Event(), threading.Event()

    async def part(tx: Tx) -> None:
        began.set()
        try:
            assert cancelled.wait(TIMEOUT_SECONDS)
            await sessions.page(tx, ANN, None, 10)
        finally:
            ended.set()

    computing = asyncio.ensure_future(database.read_global(lambda tx: tx.compute(part)))
    assert await asyncio.to_thread(began.wait, TIMEOUT_SECONDS)
    computing.cancel()
    asyncio.get_running_loop().call_later(0.01, computing.cancel)
    asyncio.get_running_loop().call_later(0.05, cancelled.set)
    with pytest.raises(asyncio.CancelledError):
        await computing
    # A thread of SQLite has a connection of its own.
    assert ended.is_set() or isinstance(database, SqliteDatabase)
    assert await asyncio.to_thread(ended.wait, TIMEOUT_SECONDS)

    await database.write(sessions.create, ANN, "after")
    assert await sessions_around(database, lambda: None) == ["after", "after"]
