"""PostgreSQL driver: any number of servers on one database.

Reads run on a pool, each on one snapshot. Writes run in the lanes of `runekeep_storage.drivers.postgres.writer`.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any, ParamSpec, TypeVar

import asyncpg
import structlog

from runekeep_storage import deadline, telemetry
from runekeep_storage.damage import Damage
from runekeep_storage.database import Heard, Tx
from runekeep_storage.drivers.common.fair_turns import FairSlots
from runekeep_storage.drivers.common.transactions import Transactions
from runekeep_storage.drivers.common.write_requests import Joint
from runekeep_storage.drivers.postgres import statements
from runekeep_storage.drivers.postgres.kept_connections import IndexLock, KeptConnection, Listener
from runekeep_storage.drivers.postgres.startup_wait import answered_within
from runekeep_storage.drivers.postgres.transaction import (
    SETTINGS,
    PostgresTx,
    commit,
    outset,
    roll_back,
    unreachable,
)
from runekeep_storage.drivers.postgres.writer import WRITERS, Writer
from runekeep_storage.errors import StoreReadOnly, StoreUnavailable

P = ParamSpec("P")
T = TypeVar("T")

READERS = 10
KEPT_CONNECTIONS = 2
"""One listens, and one holds the lock of the index."""
CONNECT_SECONDS = 5.0
COMMAND_SECONDS = 10.0
"""Limit for each statement, for the wait for a free connection, and for calls in progress when the store closes."""

_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# In milliseconds. Reads hold no locks that block other calls, and may pause long between two statements while an
# extractor's output is processed against their data. But a read that stalls must not block migrations and VACUUM
# forever.
_OF_READERS = {"idle_in_transaction_session_timeout": "30000"}

log = structlog.get_logger(__name__)


class _Connection(asyncpg.Connection):  # type: ignore[misc]  # asyncpg has no types
    """A connection without a reset query: transactions leave nothing behind in a session, so the reset would waste a
    round trip."""

    def get_reset_query(self) -> str:
        return ""


async def _check_takes_writes(tx: Tx) -> None:
    """Raises StoreReadOnly on a standby, and if sessions are read-only by default. Touches no account."""
    row = await tx.fetchrow(statements.WRITABILITY)
    if row is not None and row["standby"]:
        raise StoreReadOnly("PostgreSQL takes no writes: it is a standby; name the primary")
    if row is not None and row["read_only"]:
        raise StoreReadOnly("PostgreSQL takes no writes: default_transaction_read_only is on")


class PostgresDatabase(Transactions):
    """See runekeep_storage.database.Database. `url` is in libpq's form, such as postgresql://user:password@host/name.

    Holds up to `readers` connections for reads, WRITERS for writes, and KEPT_CONNECTIONS. `open` waits up to
    `wait_seconds` for a database that does not answer. `clock` replaces the database's clock in tests.
    """

    def __init__(
        self,
        url: str,
        *,
        readers: int = READERS,
        wait_seconds: float = 0.0,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self._url = url
        self._wait_seconds = wait_seconds
        self._readers = readers
        # One account gets at most all connections but one, so that another account need not wait for its reads to end.
        self._connection_slots = FairSlots(readers, max(1, readers - 1))
        self._clock = clock
        self.damage = Damage()
        self._pools: list[Any] = []
        self._writer: Writer | None = None
        self._calls = 0
        self._left = asyncio.Event()
        self._kept: list[KeptConnection] = []

    async def open(self) -> None:
        from runekeep_storage.migrations.migrate import migrate_postgres

        with unreachable("cannot connect"):
            await answered_within(self._wait_seconds, lambda: migrate_postgres(self._url))
            for size, own in ((self._readers, _OF_READERS), (WRITERS, {})):
                self._pools.append(await self._new_pool(size, SETTINGS | own))
        telemetry.CONNECTION_LIMIT.labels("read").set(self._readers)
        telemetry.CONNECTION_LIMIT.labels("write").set(WRITERS)
        self._writer = Writer(self._pools[1], self._clock)
        await self.probe()

    async def probe(self) -> None:
        await self.read_global(_check_takes_writes)

    async def _new_pool(self, size: int, settings: dict[str, str]) -> Any:
        return await asyncpg.create_pool(
            self._url,
            # Keep no connection ready: the pool would log its failed attempts while PostgreSQL is away.
            min_size=0,
            max_size=size,
            timeout=CONNECT_SECONDS,
            command_timeout=COMMAND_SECONDS,
            statement_cache_size=512,
            max_cached_statement_lifetime=0,
            server_settings=settings,
            connection_class=_Connection,
        )

    async def _write(
        self, work: Callable[[Tx], Awaitable[T]], account: str | None, joint: Joint[Any, T] | None = None
    ) -> T:
        with self._entered(), telemetry.Transaction(writes=True):
            assert self._writer is not None
            return await self._writer.write(work, account, joint)

    async def _read(self, work: Callable[[Tx], Awaitable[T]]) -> T:
        try:
            return await self._read_once(work)
        except asyncpg.InvalidCachedStatementError:
            # A migration by another server changed a table of a prepared statement. asyncpg has dropped that statement
            # by now.
            return await self._read_once(work)

    async def _read_once(self, work: Callable[[Tx], Awaitable[T]]) -> T:
        deadline.check(deadline.until())
        with self._entered(), telemetry.Transaction(writes=False):
            pool = self._pools[0]
            with unreachable("no connection"):
                async with AsyncExitStack() as slot:
                    async with asyncio.timeout(COMMAND_SECONDS):
                        await slot.enter_async_context(self._connection_slots.take())
                        connection = await pool.acquire()
                    held_slot = slot.pop_all()
            telemetry.CONNECTIONS.labels("read").inc()
            try:
                with unreachable("no transaction", connection):
                    await connection.execute(_READ)
                    began = await outset(connection, self._clock)
                value = await work(PostgresTx(connection, began))
                await commit(connection)
                return value
            except BaseException:
                await roll_back(connection)
                raise
            finally:
                telemetry.CONNECTIONS.labels("read").dec()
                async with held_slot:
                    await pool.release(connection, timeout=COMMAND_SECONDS)

    async def listen(self, heard: Heard) -> None:
        listener = Listener(self._url, heard)
        self._kept.append(listener)
        await listener.start()

    async def hold_index(self, *, alone: bool) -> None:
        lock = IndexLock(self._url, alone=alone)
        await lock.acquire()
        self._kept.append(lock)

    async def purge(self) -> None:
        """Does nothing: a client cannot purge other sessions, replicas and archives."""

    @property
    def left_to_operator(self) -> tuple[str, ...]:
        return (
            "PostgreSQL keeps deleted rows in its files: run VACUUM (FULL) on the store's database.",
            "Its write-ahead log, archives of that log, replicas and backups from before the erasure hold what was"
            " erased: let them expire, or remove them.",
        )

    @property
    def changes(self) -> int:
        return self._writer.changes if self._writer is not None else 0

    async def close(self) -> None:
        writer, self._writer = self._writer, None
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                while self._calls:
                    self._left.clear()
                    await self._left.wait()
                for pool in self._pools:
                    await pool.close()
        except TimeoutError:
            log.warning("store_closed_hard", calls=self._calls)
            if writer is not None:
                writer.stop()
            for pool in self._pools:
                pool.terminate()
        self._pools.clear()
        # Last, because this server may write until here.
        for kept in self._kept:
            await kept.stop()
        self._kept.clear()

    @contextlib.contextmanager
    def _entered(self) -> Iterator[None]:
        """Keeps the store open until all calls in this block have ended."""
        if self._writer is None:
            raise StoreUnavailable("the store is closed")
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            self._left.set()
