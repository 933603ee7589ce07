"""Calls that nobody waits for any more, on every store: what is not begun, and what is left in the middle."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from runekeep_storage import deadline
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.drivers.common import fair_turns
from runekeep_storage.drivers.sqlite.driver import READERS, SqliteDatabase
from runekeep_storage.errors import DeadlinePassed, NotFound
from runekeep_storage.sessions import sessions
from tests.support.storage.databases import ANN, BOB
from tests.support.waiting import until

WITHIN = 8.0
"""Seconds in which what is free must be served; what runs without being stopped would take hours."""
_ENDLESS = (
    "SELECT found FROM (WITH RECURSIVE n(i) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT i + 1 FROM n"
    " WHERE i < 1000000000000) SELECT COUNT(*) AS found FROM n) endless"
)


async def endless(tx: Tx, space: Space) -> Any:
    return await tx.fetch(_ENDLESS)


async def short(tx: Tx, space: Space) -> None:
    await tx.fetch("SELECT 1 AS one")


class Held:
    """A write that keeps its account's writer until it is let go."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._free = threading.Event()
        self._begun = threading.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Held":
        self._task = asyncio.create_task(self._database.write(self._hold, ANN))
        await asyncio.to_thread(self._begun.wait)
        return self

    async def _hold(self, tx: Tx, space: Space) -> None:
        self._begun.set()
        if isinstance(self._database, SqliteDatabase):
            # In the writer's own thread, where nothing may be awaited.
            self._free.wait()
        else:
            await asyncio.to_thread(self._free.wait)

    async def __aexit__(self, *_: object) -> None:
        self._free.set()
        assert self._task is not None
        await self._task


async def is_there(database: Database, session: str) -> bool:
    try:
        await database.read(sessions.get, ANN, session)
    except NotFound:
        return False
    return True


@pytest.mark.parametrize("kind", ["read", "write"])
async def test_a_call_whose_time_is_over_is_not_begun(database: Database, kind: str) -> None:
    begun: list[str] = []

    async def work(tx: Tx, space: Space) -> None:
        begun.append(kind)

    async def call() -> None:
        deadline.begin(0.0)
        await getattr(database, kind)(work, ANN)

    with pytest.raises(DeadlinePassed):
        await asyncio.create_task(call())
    assert begun == []
    await getattr(database, kind)(work, ANN)
    assert begun == [kind], "of the call alone"


async def test_a_write_that_waits_is_not_begun_once_its_caller_is_gone(database: Database) -> None:
    async with Held(database):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await database.write(sessions.create, ANN, "gone")
        later = asyncio.create_task(database.write(sessions.create, ANN, "there"))
    await later
    assert not await is_there(database, "gone") and await is_there(database, "there")


async def test_a_write_that_waits_is_not_begun_once_it_is_late(database: Database) -> None:
    """Also where the loop had no time yet to cancel it."""

    ends: list[float | None] = []

    async def late() -> None:
        deadline.begin(0.02)
        ends.append(deadline.until())
        await database.write(sessions.create, ANN, "late")

    async with Held(database):
        waiting = asyncio.create_task(late())
        await asyncio.sleep(0)
        until(lambda: deadline.is_over(ends[0]))
    with pytest.raises(DeadlinePassed):
        await waiting
    assert not await is_there(database, "late")


async def test_reads_that_nobody_waits_for_are_interrupted(database: Database) -> None:
    """As many as there are readers of the smaller store, so that one that went on would be in the way."""

    async def left() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await database.read(endless, ANN)

    for _ in range(3):
        await asyncio.gather(*(left() for _ in range(READERS)))
    async with asyncio.timeout(WITHIN):
        await asyncio.gather(*(database.read(short, ANN) for _ in range(READERS)))
        while await _still_runs(database):  # noqa: ASYNC110  # the store tells nobody that a statement has ended
            await asyncio.sleep(0.02)


async def test_reads_of_one_account_leave_a_connection_for_another(database: Database) -> None:
    begun: list[Space] = []
    free = threading.Event()

    async def hold(tx: Tx, space: Space) -> None:
        begun.append(space)
        if isinstance(database, SqliteDatabase):
            # Blocks the reader's own thread.
            free.wait()
        while not free.is_set():  # noqa: ASYNC110  # a thread sets it
            await asyncio.sleep(0.01)

    async def read(account: str, work: Callable[[Tx, Space], Awaitable[None]], space: Space) -> None:
        fair_turns.begin(account)
        await database.read(work, space)

    greedy = [asyncio.create_task(read("greedy", hold, ANN)) for _ in range(20)]
    try:
        async with asyncio.timeout(WITHIN):
            while not begun:  # noqa: ASYNC110  # a thread appends
                await asyncio.sleep(0.01)
            await asyncio.create_task(read("modest", short, BOB))
    finally:
        free.set()
        await asyncio.gather(*greedy)
    assert len(begun) == len(greedy)


async def test_a_read_of_many_statements_is_left_between_two(database: Database) -> None:
    steps = 0

    async def many(tx: Tx, space: Space) -> None:
        nonlocal steps
        while True:
            await short(tx, space)
            steps += 1

    reading = asyncio.create_task(database.read(many, ANN))
    async with asyncio.timeout(WITHIN):
        # Its first statement may be long in coming.
        while not steps:  # noqa: ASYNC110  # told to nobody
            await asyncio.sleep(0.01)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        done = -1
        while done != steps:
            done = steps
            await asyncio.sleep(0.05)


async def test_an_interrupt_meets_no_other_read(database: Database) -> None:
    """Reads that are left and reads that are wanted take turns on the same connections."""

    async def wanted() -> None:
        for _ in range(60):
            await database.read(short, ANN)

    async def left() -> None:
        for _ in range(30):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.005):
                    await database.read(endless, ANN)

    async with asyncio.timeout(60):
        await asyncio.gather(wanted(), wanted(), left())


async def _still_runs(database: Database) -> bool:
    if isinstance(database, SqliteDatabase):
        return False

    async def look(tx: Tx) -> bool:
        return bool(
            await tx.fetch(
                "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND state = 'active'"
                " AND pid <> pg_backend_pid() AND query LIKE '%) endless'"
            )
        )

    return await database.read_global(look)


async def test_a_statement_of_a_write_ends_with_its_time(database: Database) -> None:
    """PostgreSQL alone: SQLite has no statement in a write that could be left without its neighbours."""
    if isinstance(database, SqliteDatabase):
        pytest.skip("of PostgreSQL")

    async def late() -> None:
        deadline.begin(0.05)
        await database.write(endless, ANN)

    running = asyncio.create_task(late())
    async with asyncio.timeout(WITHIN):
        await asyncio.sleep(0)
        await database.write(sessions.create, ANN, "behind")
        with pytest.raises(Exception, match=r"took too long|deadline"):
            await running
        assert not await _still_runs(database)
    assert await is_there(database, "behind")
