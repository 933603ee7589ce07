"""Parts of transactions that compute for long: the event loop goes on meanwhile, and statements work as everywhere. On
every driver."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from runekeep_storage.database import Database, Tx
from runekeep_storage.errors import NotFound
from runekeep_storage.sessions import sessions
from tests.support.storage.databases import ANN

PATIENCE_SECONDS = 20.0


async def computed(database: Database, work: Callable[[], None]) -> list[str]:
    """Runs `work` between two reads of one transaction. Returns the sessions before and after."""

    async def part(tx: Tx) -> list[str]:
        before = await sessions.page(tx, ANN, None, 10)
        work()
        return [one.session_id for one in (*before, *await sessions.page(tx, ANN, None, 10))]

    return await database.read_global(lambda tx: tx.compute(part))


async def test_the_event_loop_goes_on_and_the_snapshot_stays(database: Database) -> None:
    await database.write(sessions.create, ANN, "first")
    began, written = threading.Event(), threading.Event()

    def wait() -> None:
        began.set()
        assert written.wait(PATIENCE_SECONDS), "the event loop stands still"

    computing = asyncio.ensure_future(computed(database, wait))
    assert await asyncio.to_thread(began.wait, PATIENCE_SECONDS)
    await database.write(sessions.create, ANN, "second")
    written.set()

    assert await computing == ["first", "first"]


async def test_an_error_is_raised_as_it_was(database: Database) -> None:
    async def part(tx: Tx) -> None:
        await sessions.get(tx, ANN, "none")

    with pytest.raises(NotFound):
        await database.read_global(lambda tx: tx.compute(part))


async def test_a_cancelled_part_ends_at_its_next_statement(database: Database) -> None:
    began, cancelled, ends = threading.Event(), threading.Event(), []

    async def part(tx: Tx) -> None:
        began.set()
        assert cancelled.wait(PATIENCE_SECONDS)
        try:
            await sessions.page(tx, ANN, None, 10)
        finally:
            ends.append("ended")

    computing = asyncio.ensure_future(database.read_global(lambda tx: tx.compute(part)))
    assert await asyncio.to_thread(began.wait, PATIENCE_SECONDS)
    computing.cancel()
    asyncio.get_running_loop().call_later(0.01, cancelled.set)
    with pytest.raises(asyncio.CancelledError):
        await computing
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not ends:
            await asyncio.sleep(0.01)

    await database.write(sessions.create, ANN, "after")
    assert await computed(database, lambda: None) == ["after", "after"]
