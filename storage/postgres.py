"""PostgreSQL driver: any number of servers on one database.

Reads run on a pool, each on one snapshot; writes run in the lanes of `storage.postgres_writer`.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any, Concatenate, ParamSpec, TypeVar

import asyncpg
import structlog

from storage import deadline, telemetry
from storage.damage import Damage
from storage.database import Heard, Item, JointWork, Space, Tx
from storage.errors import StoreReadOnly, StoreUnavailable
from storage.postgres_kept import IndexLock, KeptConnection, Listener
from storage.postgres_tx import SETTINGS, PostgresTx, commit, outset, roll_back, unreachable
from storage.postgres_wait import answered_within
from storage.postgres_writer import WRITERS, Writer
from storage.sharing import FairSlots
from storage.write_requests import Joint

P = ParamSpec("P")
T = TypeVar("T")

READERS = 10
KEPT_CONNECTIONS = 2
"""One that listens, and one that holds the lock of the index."""
CONNECT_SECONDS = 5.0
COMMAND_SECONDS = 10.0
"""For each statement, for a free connection, and for calls under way when the store closes."""

_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# Milliseconds. Reads hold no locks that stand in other calls' way, and may take long between two statements: outputs
# are worked into what they read. But one that stands still in a read must not keep migrations and VACUUM out for ever.
_OF_READERS = {"idle_in_transaction_session_timeout": "30000"}

log = structlog.get_logger(__name__)


class _Connection(asyncpg.Connection):  # type: ignore[misc]  # asyncpg has no types
    """Transactions leave nothing behind in a session, so that the pool need not spend a round trip on a reset."""

    def get_reset_query(self) -> str:
        return ""


async def _check_takes_writes(tx: Tx) -> None:
    """Raises StoreReadOnly on a standby, and if sessions are read-only by default. It is of no account."""
    row = await tx.fetchrow(
        "SELECT pg_is_in_recovery() AS standby, current_setting('default_transaction_read_only')::boolean AS read_only"
    )
    if row is not None and row["standby"]:
        raise StoreReadOnly("PostgreSQL takes no writes: it is a standby; name the primary")
    if row is not None and row["read_only"]:
        raise StoreReadOnly("PostgreSQL takes no writes: default_transaction_read_only is on")


class PostgresDatabase:
    """See storage.database.Database. `url` is in libpq's form, such as postgresql://user:password@host/name.

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
        from storage.migrate import migrate_postgres

        with unreachable("cannot connect"):
            await answered_within(self._wait_seconds, lambda: migrate_postgres(self._url))
            for size, own in ((self._readers, _OF_READERS), (WRITERS, {})):
                self._pools.append(await self._new_pool(size, SETTINGS | own))
        telemetry.CONNECTION_LIMIT.labels("read").set(self._readers)
        telemetry.CONNECTION_LIMIT.labels("write").set(WRITERS)
        self._writer = Writer(self._pools[1], self._clock)
        await self.probe()

    async def probe(self) -> None:
        await self.read(_check_takes_writes)

    async def _new_pool(self, size: int, settings: dict[str, str]) -> Any:
        return await asyncpg.create_pool(
            self._url,
            # None is kept ready: the pool would log its attempts to make one while PostgreSQL is away.
            min_size=0,
            max_size=size,
            timeout=CONNECT_SECONDS,
            command_timeout=COMMAND_SECONDS,
            statement_cache_size=512,
            max_cached_statement_lifetime=0,
            server_settings=settings,
            connection_class=_Connection,
        )

    async def write(self, work: Callable[Concatenate[Tx, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        account = args[0].account if args and isinstance(args[0], Space) else None
        with self._entered(), telemetry.Transaction(writes=True):
            assert self._writer is not None
            return await self._writer.write(lambda tx: work(tx, *args, **kwargs), account)

    async def write_jointly(self, work: JointWork[Item, T], space: Space, item: Item) -> T:
        with self._entered(), telemetry.Transaction(writes=True):
            assert self._writer is not None
            joint = Joint(work, space, item)
            return await self._writer.write(joint.alone, space.account, joint)

    async def read(self, work: Callable[Concatenate[Tx, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await self._read(work, *args, **kwargs)
        except asyncpg.InvalidCachedStatementError:
            # A migration by another server changed a table behind a prepared statement, which asyncpg has dropped now.
            return await self._read(work, *args, **kwargs)

    async def _read(self, work: Callable[Concatenate[Tx, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
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
                value = await work(PostgresTx(connection, began), *args, **kwargs)
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
        """Nothing that a client could be sure of: other sessions, replicas and archives keep what they have."""

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
        # Last: until here this server may have written.
        for kept in self._kept:
            await kept.stop()
        self._kept.clear()

    @contextlib.contextmanager
    def _entered(self) -> Iterator[None]:
        """The store stays open until all that entered have left."""
        if self._writer is None:
            raise StoreUnavailable("the store is closed")
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            self._left.set()
