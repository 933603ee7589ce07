"""PostgreSQL driver: a pool of connections, every write SERIALIZABLE and done again when it loses to another.

Any number of servers may work on one database. None of them locks anything by hand: a transaction that did not see what
another one did is refused by PostgreSQL, and runs anew on what is there then.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

import asyncpg
import structlog

from storage.database import Heard, Row, Topic, Tx
from storage.errors import StoreUnavailable
from storage.postgres_listener import CHANNEL, Listener

P = ParamSpec("P")
T = TypeVar("T")

POOL = 16
CONNECT_SECONDS = 5.0
COMMAND_SECONDS = 10.0
"""For each statement, for a free connection, and for calls under way when the store closes."""
RETRY_SECONDS = 10.0
"""After this long a transaction that keeps losing is given up."""
COLLISIONS = 10
"""Times that one key is found taken before it is believed: the row may be of a transaction that ran beside this one."""

SETTINGS = {
    "application_name": "runekeep",
    # Every statement here has an index. A scan of a table, which the planner likes while the table is small, would
    # make each write depend on all rows of it, and so on every other write.
    "enable_seqscan": "off",
    "jit": "off",
    # A server that hangs in the middle of a transaction must not hold up the others for ever.
    "idle_in_transaction_session_timeout": "60000",
}

_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WRITE = "BEGIN ISOLATION LEVEL SERIALIZABLE"
_NOW = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)"

_LOST = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.UniqueViolationError,
    # A migration by another server changed a table behind a prepared statement.
    asyncpg.InvalidCachedStatementError,
)
_UNREACHABLE = (
    asyncpg.PostgresConnectionError,
    # Shutdown, not yet started, cancelled by a timeout.
    asyncpg.OperatorInterventionError,
    # Too many connections, out of memory or disk.
    asyncpg.InsufficientResourcesError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    OSError,
    TimeoutError,
)

log = structlog.get_logger(__name__)


class _Connection(asyncpg.Connection):  # type: ignore[misc]  # asyncpg has no types
    """Transactions leave nothing behind in a session, so that the pool need not spend a round trip on a reset."""

    def get_reset_query(self) -> str:
        return ""


@contextlib.contextmanager
def unreachable(doing: str, connection: Any = None) -> Iterator[None]:
    """Errors that say nothing of the statement become StoreUnavailable."""
    try:
        yield
    except _UNREACHABLE as error:
        raise StoreUnavailable(f"PostgreSQL: {doing}: {str(error) or type(error).__name__}") from error
    except asyncpg.InterfaceError as error:
        # The same class tells of calls that are wrong; those are ours to mend.
        if connection is not None and not _is_gone(connection):
            raise
        raise StoreUnavailable(f"PostgreSQL: {doing}: {error}") from error


def _is_gone(connection: Any) -> bool:
    try:
        return bool(connection.is_closed())
    except asyncpg.InterfaceError:
        # The pool took it back when it broke.
        return True


class PostgresTx:
    """A transaction on one connection. In text, U+FFFD stands for NUL, which PostgreSQL refuses."""

    def __init__(self, connection: Any, now: int) -> None:
        self._connection = connection
        self._now = now
        self.notices: dict[str, None] = {}
        """What is told at the commit, once each."""

    async def fetch(self, sql: str, *args: Any) -> list[Row]:
        with unreachable("a statement failed", self._connection):
            rows: list[Row] = await self._connection.fetch(sql, *_storable(args))
            return rows

    async def fetchrow(self, sql: str, *args: Any) -> Row | None:
        with unreachable("a statement failed", self._connection):
            return await self._connection.fetchrow(sql, *_storable(args))

    async def execute(self, sql: str, *args: Any) -> int:
        with unreachable("a statement failed", self._connection):
            status: str = await self._connection.execute(sql, *_storable(args))
        # "INSERT 0 1", "UPDATE 3"
        count = status.rpartition(" ")[2]
        return int(count) if count.isdigit() else 0

    def now(self) -> int:
        return self._now

    def notify(self, topic: Topic, subject: str = "") -> None:
        self.notices[f"{topic} {subject}"] = None


def _storable(args: tuple[Any, ...]) -> list[Any]:
    return [arg.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(arg, str) else arg for arg in args]


class PostgresDatabase:
    """See storage.database.Database. `url` is what libpq takes, such as postgresql://user:password@host/name.

    `clock` in place of the database's own is for tests.
    """

    def __init__(self, url: str, *, pool_size: int = POOL, clock: Callable[[], int] | None = None) -> None:
        self._url = url
        self._pool_size = pool_size
        self._clock = clock
        self._pool: Any = None
        self._calls = 0
        self._idle = asyncio.Event()
        self._turnstile = asyncio.Lock()
        self._listener: Listener | None = None

    async def open(self) -> None:
        from storage.migrate import migrate_postgres

        with unreachable("cannot connect"):
            await migrate_postgres(self._url)
            self._pool = await asyncpg.create_pool(
                self._url,
                min_size=1,
                max_size=self._pool_size,
                timeout=CONNECT_SECONDS,
                command_timeout=COMMAND_SECONDS,
                statement_cache_size=512,
                max_cached_statement_lifetime=0,
                server_settings=SETTINGS,
                connection_class=_Connection,
            )

    async def write(self, work: Callable[Concatenate[Tx, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        deadline = asyncio.get_running_loop().time() + RETRY_SECONDS
        losses = 0
        with self._entered() as pool:
            while True:
                try:
                    async with self._turnstile:
                        if losses:
                            # One that lost goes through alone: nobody of this server starts beside it.
                            return await self._transaction(pool, _WRITE, lambda tx: work(tx, *args, **kwargs))
                    return await self._transaction(pool, _WRITE, lambda tx: work(tx, *args, **kwargs))
                except _LOST as error:
                    losses += 1
                    if isinstance(error, asyncpg.UniqueViolationError) and losses >= COLLISIONS:
                        raise
                    if asyncio.get_running_loop().time() > deadline:
                        raise StoreUnavailable(
                            f"PostgreSQL: the transaction lost to others {losses} times: {error}"
                        ) from error
                await asyncio.sleep(random.uniform(0, min(0.002 * losses, 0.1)))

    async def read(self, work: Callable[Concatenate[Tx, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        with self._entered() as pool:
            return await self._transaction(pool, _READ, lambda tx: work(tx, *args, **kwargs))

    async def listen(self, heard: Heard) -> None:
        self._listener = Listener(self._url, heard, SETTINGS)
        await self._listener.start()

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if self._listener is not None:
            await self._listener.stop()
            self._listener = None
        if pool is None:
            return
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                while self._calls:
                    self._idle.clear()
                    await self._idle.wait()
                await pool.close()
        except TimeoutError:
            log.warning("store_closed_hard", calls=self._calls)
            pool.terminate()

    @contextlib.contextmanager
    def _entered(self) -> Iterator[Any]:
        """The pool, which stays open until all that entered have left."""
        if self._pool is None:
            raise StoreUnavailable("the store is closed")
        self._calls += 1
        try:
            yield self._pool
        finally:
            self._calls -= 1
            self._idle.set()

    async def _transaction(self, pool: Any, begin: str, work: Callable[[Tx], Awaitable[T]]) -> T:
        with unreachable("no connection"):
            connection = await pool.acquire(timeout=COMMAND_SECONDS)
        try:
            with unreachable("no transaction", connection):
                await connection.execute(begin)
                now = await connection.fetchval(_NOW) if self._clock is None else self._clock()
            tx = PostgresTx(connection, now)
            value = await work(tx)
            await _commit(connection, tx)
            return value
        except BaseException:
            await _roll_back(connection)
            raise
        finally:
            await pool.release(connection)


async def _commit(connection: Any, tx: PostgresTx) -> None:
    """Raises what PostgreSQL says when nothing was written; StoreUnavailable when nobody knows."""
    # Notices go in the same message as the COMMIT, and are sent by PostgreSQL only when it succeeds.
    notices = "".join(f"NOTIFY {CHANNEL}, {_literal(notice)};" for notice in tx.notices)
    try:
        status = await connection.execute(f"{notices}COMMIT")
    except (*_UNREACHABLE, asyncpg.InterfaceError) as error:
        if not _is_gone(connection):
            connection.terminate()
        raise StoreUnavailable(
            "PostgreSQL: the connection broke during COMMIT, so it is unknown whether the change was written; ask, or"
            f" send the same request again: {str(error) or type(error).__name__}"
        ) from error
    if status != "COMMIT":
        # PostgreSQL answers so when a statement had failed and the transaction went on regardless.
        raise RuntimeError(f"a transaction swallowed an error of the store, and was not written: {status}")


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


async def _roll_back(connection: Any) -> None:
    """Leaves no transaction open; a connection that cannot even do that is given up."""
    if _is_gone(connection):
        return
    try:
        # Asked even when none seems open: after a cancelled BEGIN the answer may still be on its way.
        await connection.execute("ROLLBACK")
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
        log.warning("rollback_failed", error=str(error) or type(error).__name__)
        if not _is_gone(connection):
            connection.terminate()
    except asyncio.CancelledError:
        if not _is_gone(connection):
            connection.terminate()
        raise
