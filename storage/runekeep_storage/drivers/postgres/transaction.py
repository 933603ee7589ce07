"""One transaction on one PostgreSQL connection: its statements, its notices and its end."""

import contextlib
from asyncio import CancelledError
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import asyncpg
import structlog

from runekeep_storage import telemetry
from runekeep_storage.database import Row, Space, Topic, Tx
from runekeep_storage.drivers.postgres import statements
from runekeep_storage.drivers.postgres.computing import compute
from runekeep_storage.errors import DatabaseDamaged, StoreReadOnly, StoreUnavailable

T = TypeVar("T")

CHANNEL = "runekeep"
"""The payload of a notice is the topic, a space character and the subject."""

LOCKS = 0x52756E65
"""First half of the key of every advisory lock, so that no other program on the database uses the same key by chance.
Second half: 0 for the whole store, 1 and up for the lanes of `runekeep_storage.drivers.postgres.writer`, -1 for the
index."""

SETTINGS = {
    "application_name": "runekeep",
    # Tables of a young store grow faster than the planner's statistics: PostgreSQL would keep a sequential scan that it
    # planned while the table was small. Every statement here has an index.
    "enable_seqscan": "off",
    "jit": "off",
    # In milliseconds. A server that is stopped or cut off in a transaction blocks the others for this long at most.
    # Between two statements, a transaction waits for nothing but the event loop.
    "idle_in_transaction_session_timeout": "3000",
    # If the machine of a server is gone, PostgreSQL releases the locks of its sessions after 25 s, not after two hours.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}

_UNREACHABLE = (
    asyncpg.PostgresConnectionError,
    # Shutdown, still starting, or cancelled by a timeout.
    asyncpg.OperatorInterventionError,
    # Too many connections, out of memory or disk.
    asyncpg.InsufficientResourcesError,
    asyncpg.PostgresSystemError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    OSError,
    TimeoutError,
)

_DAMAGED = (asyncpg.DataCorruptedError, asyncpg.IndexCorruptedError)

BROKEN = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)
"""Errors of a connection that ends. The third occurs when PostgreSQL sends a message between two statements as it shuts
down."""

log = structlog.get_logger(__name__)


@contextlib.contextmanager
def unreachable(doing: str, connection: Any = None) -> Iterator[None]:
    """Maps errors unrelated to the statement to StoreUnavailable or StoreReadOnly, and errors of damaged files to
    DatabaseDamaged."""
    try:
        yield
    except _DAMAGED as error:
        telemetry.DAMAGED_DATA.labels("database").inc()
        # Omit the text of the error, which may quote a row.
        log.error("database_damaged", code=error.sqlstate)
        raise DatabaseDamaged from error
    except asyncpg.ReadOnlySQLTransactionError as error:
        # The former primary is a standby now, or was made read-only. A new connection may reach the new primary.
        give_up(connection)
        raise StoreReadOnly(f"PostgreSQL takes no writes: {told(error)}") from error
    except _UNREACHABLE as error:
        raise StoreUnavailable(f"PostgreSQL: {doing}: {told(error)}") from error
    except asyncpg.InternalClientError as error:
        give_up(connection)
        raise StoreUnavailable(f"PostgreSQL: {doing}: the connection ended: {error}") from error
    except asyncpg.InterfaceError as error:
        # The same class also reports wrong calls, which are bugs in this code.
        if connection is not None and not is_gone(connection):
            raise
        raise StoreUnavailable(f"PostgreSQL: {doing}: {error}") from error


def told(error: BaseException) -> str:
    """Returns the message of an error, or its class name if it has no message."""
    return str(error) or type(error).__name__


def is_gone(connection: Any) -> bool:
    try:
        return bool(connection.is_closed())
    except asyncpg.InterfaceError:
        # The pool took back the broken connection.
        return True


def give_up(connection: Any) -> None:
    """Closes a connection whose state is unknown; the pool opens another one."""
    if connection is not None and not is_gone(connection):
        connection.terminate()


@dataclass(frozen=True, slots=True)
class TransactionStart:
    """What a transaction knows at its start: the time in microseconds, and the locked spaces."""

    now: int
    shut: frozenset[str]


async def outset(connection: Any, clock: Callable[[], int] | None) -> TransactionStart:
    """Reads the start of a transaction. Uses the database's clock unless `clock` is given."""
    row = await connection.fetchrow(statements.START)
    return TransactionStart(row["now"] if clock is None else clock(), frozenset(row["shut"]))


class PostgresTx:
    """A transaction, or a request's share of one. In text, U+FFFD replaces NUL, which PostgreSQL refuses.

    With `account`, statements that change rows must pass that account as their first argument, because the locks of the
    transaction cover no other account.
    """

    def __init__(self, connection: Any, outset: TransactionStart, account: str | None = None) -> None:
        self._connection = connection
        self._outset = outset
        self._account = account
        self.notices: dict[str, None] = {}
        """Notices to send at the commit, each once."""
        self.is_torn = False
        """Whether the latest statement has no result: it failed or was interrupted."""
        self.has_changed = False
        """Whether a statement that returned has changed rows."""
        self._shut = outset.shut

    async def fetch(self, sql: str, *args: Any) -> list[Row]:
        reads = self._begin(sql, args)
        with unreachable("a statement failed", self._connection):
            rows: list[Row] = await self._connection.fetch(sql, *_storable(args))
        self._end(reads or (not rows and "RETURNING" in sql))
        return rows

    async def fetchrow(self, sql: str, *args: Any) -> Row | None:
        reads = self._begin(sql, args)
        with unreachable("a statement failed", self._connection):
            row = await self._connection.fetchrow(sql, *_storable(args))
        self._end(reads or (row is None and "RETURNING" in sql))
        return row

    async def execute(self, sql: str, *args: Any) -> int:
        reads = self._begin(sql, args)
        with unreachable("a statement failed", self._connection):
            status: str = await self._connection.execute(sql, *_storable(args))
        # "INSERT 0 1", "UPDATE 3"; only the name for a statement that counts no rows.
        count = status.rpartition(" ")[2]
        self._end(reads or count == "0")
        return int(count) if count.isdigit() else 0

    async def compute(self, work: Callable[[Tx], Coroutine[Any, Any, T]]) -> T:
        return await compute(self, work)

    def now(self) -> int:
        return self._outset.now

    def is_shut(self, space: Space) -> bool:
        return _shut_name(space) in self._outset.shut

    def tell_shut(self, space: Space) -> None:
        self._shut |= {_shut_name(space)}

    def tell_open(self, space: Space) -> None:
        self._shut -= {_shut_name(space)}

    def outset_of_next(self) -> TransactionStart:
        """Returns the start of the next transaction under the same locks."""
        return self._outset if self._shut is self._outset.shut else replace(self._outset, shut=self._shut)

    async def ensure_durable(self) -> None:
        await self.fetch(statements.ENSURE_DURABLE)

    def notify(self, topic: Topic, subject: str = "") -> None:
        self.notices[f"{topic} {subject}"] = None

    def _begin(self, sql: str, args: tuple[Any, ...]) -> bool:
        """Returns whether the statement only reads. A statement that does not begin with SELECT counts as one that
        changes rows."""
        reads = sql.lstrip()[:6].upper() == "SELECT"
        if not reads and self._account is not None and (not args or args[0] != self._account):
            raise RuntimeError(f"a transaction of one account changes rows of another: {sql[:60]}")
        self.is_torn = True
        return reads

    def _end(self, unchanged: bool) -> None:
        self.is_torn = False
        if not unchanged:
            self.has_changed = True


def _shut_name(space: Space) -> str:
    return f"{space.account} {space.user}"


def _storable(args: tuple[Any, ...]) -> list[Any]:
    return [arg.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(arg, str) else arg for arg in args]


async def commit(connection: Any, notices: Iterable[str] = ()) -> None:
    """Commits and sends the notices. Raises PostgreSQL's error if nothing was written, StoreUnavailable if the outcome
    is unknown."""
    # Notices go in the same message as the COMMIT. PostgreSQL sends them only if it succeeds.
    telling = "".join(f"NOTIFY {CHANNEL}, {_literal(notice)};" for notice in notices)
    try:
        status = await connection.execute(f"{telling}COMMIT")
    except (*_UNREACHABLE, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        give_up(connection)
        raise StoreUnavailable(
            "PostgreSQL: the connection broke during COMMIT, so it is unknown whether the change was written; ask, or"
            f" send the same request again: {told(error)}"
        ) from error
    if status != "COMMIT":
        # PostgreSQL returns this if a statement failed and the transaction continued anyway.
        raise RuntimeError(f"a transaction swallowed an error of the store, and was not written: {status}")


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


async def roll_back(connection: Any) -> None:
    """Ends any open transaction. Closes the connection if even that fails."""
    if is_gone(connection):
        return
    try:
        # Sent even if no transaction seems open: after a cancelled BEGIN the response may still be on its way.
        await connection.execute("ROLLBACK")
    except BROKEN as error:
        log.warning("rollback_failed", error=told(error))
        give_up(connection)
    except CancelledError:
        give_up(connection)
        raise
