"""One transaction on one connection of PostgreSQL: its statements, its notices, and how it ends."""

import contextlib
from asyncio import CancelledError
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import asyncpg
import structlog

from storage import telemetry
from storage.database import Row, Space, Topic
from storage.errors import DatabaseDamaged, StoreReadOnly, StoreUnavailable

CHANNEL = "runekeep"
"""Payload of a notice: topic, a space, subject."""

LOCKS = 0x52756E65
"""First half of the key of every advisory lock taken here, so that no other program on the database has it by chance.
The second half: 0 for the whole store, 1 and on for the lanes of `storage.postgres_writer`, -1 for the index."""

SETTINGS = {
    "application_name": "runekeep",
    # Tables of a young store grow faster than what the planner knows of them: a plan that scans one, made while it was
    # small, would be kept. Every statement here has an index.
    "enable_seqscan": "off",
    "jit": "off",
    # A server that is stopped or cut off in the middle of a transaction holds the others up for this long (ms) and no
    # longer. Between two statements of a transaction nothing is waited for but the event loop.
    "idle_in_transaction_session_timeout": "3000",
    # Of a server whose machine is gone, the locks that its sessions hold go after 25 s, and not after two hours.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}

_UNREACHABLE = (
    asyncpg.PostgresConnectionError,
    # Shutdown, not yet started, cancelled by a timeout.
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
"""What a connection that ends may raise at whoever uses it. The third comes of a farewell that PostgreSQL, going down,
sent between two statements."""

log = structlog.get_logger(__name__)


@contextlib.contextmanager
def unreachable(doing: str, connection: Any = None) -> Iterator[None]:
    """Errors unrelated to the statement become StoreUnavailable, those of damaged files DatabaseDamaged."""
    try:
        yield
    except _DAMAGED as error:
        telemetry.DAMAGED_DATA.labels("database").inc()
        # Without the text of the error, which may quote a row.
        log.error("database_damaged", code=error.sqlstate)
        raise DatabaseDamaged from error
    except asyncpg.ReadOnlySQLTransactionError as error:
        # The former primary is a standby now, or was made read-only. A new connection may lead to the new primary.
        give_up(connection)
        raise StoreReadOnly(f"PostgreSQL takes no writes: {told(error)}") from error
    except _UNREACHABLE as error:
        raise StoreUnavailable(f"PostgreSQL: {doing}: {told(error)}") from error
    except asyncpg.InternalClientError as error:
        give_up(connection)
        raise StoreUnavailable(f"PostgreSQL: {doing}: the connection ended: {error}") from error
    except asyncpg.InterfaceError as error:
        # The same class tells of calls that are wrong; those are ours to mend.
        if connection is not None and not is_gone(connection):
            raise
        raise StoreUnavailable(f"PostgreSQL: {doing}: {error}") from error


def told(error: BaseException) -> str:
    """What an error says; some say nothing but their name."""
    return str(error) or type(error).__name__


def is_gone(connection: Any) -> bool:
    try:
        return bool(connection.is_closed())
    except asyncpg.InterfaceError:
        # The pool took it back when it broke.
        return True


def give_up(connection: Any) -> None:
    """Ends a connection whose state is unknown; the pool makes another one."""
    if connection is not None and not is_gone(connection):
        connection.terminate()


@dataclass(frozen=True, slots=True)
class Outset:
    """What a transaction knows from its beginning: the time in microseconds, and the spaces that are shut."""

    now: int
    shut: frozenset[str]


# In one answer: shut spaces are seldom any, and each call has to know.
_OUTSET = (
    "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT) AS now,"
    " ARRAY(SELECT account || ' ' || user_id FROM shut_spaces) AS shut"
)


async def outset(connection: Any, clock: Callable[[], int] | None) -> Outset:
    """By the database's clock, unless there is another."""
    row = await connection.fetchrow(_OUTSET)
    return Outset(row["now"] if clock is None else clock(), frozenset(row["shut"]))


class PostgresTx:
    """A transaction, or a request's share of one. In text, U+FFFD stands for NUL, which PostgreSQL refuses.

    With `account`, statements that change rows must name that account as their first argument: the locks that the
    transaction holds cover no other.
    """

    def __init__(self, connection: Any, outset: Outset, account: str | None = None) -> None:
        self._connection = connection
        self._outset = outset
        self._account = account
        self.notices: dict[str, None] = {}
        """What is told at the commit, once each."""
        self.is_torn = False
        """Whether the latest statement was not answered: it failed, or was cut short."""
        self.has_changed = False
        """Whether a statement changed rows, as far as they were answered."""
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
        # "INSERT 0 1", "UPDATE 3"; of a statement that counts nothing, its name alone.
        count = status.rpartition(" ")[2]
        self._end(reads or count == "0")
        return int(count) if count.isdigit() else 0

    def now(self) -> int:
        return self._outset.now

    def is_shut(self, space: Space) -> bool:
        return _shut_name(space) in self._outset.shut

    def tell_shut(self, space: Space) -> None:
        self._shut |= {_shut_name(space)}

    def tell_open(self, space: Space) -> None:
        self._shut -= {_shut_name(space)}

    def outset_of_next(self) -> Outset:
        """What a transaction knows that follows this one under the same locks."""
        return self._outset if self._shut is self._outset.shut else replace(self._outset, shut=self._shut)

    async def ensure_durable(self) -> None:
        await self.fetch(
            "SELECT set_config('synchronous_commit', 'local', true) WHERE current_setting('synchronous_commit') = 'off'"
        )

    def notify(self, topic: Topic, subject: str = "") -> None:
        self.notices[f"{topic} {subject}"] = None

    def _begin(self, sql: str, args: tuple[Any, ...]) -> bool:
        """Whether the statement only reads; one that begins otherwise is taken for one that changes rows."""
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
    """Raises what PostgreSQL says when nothing was written; StoreUnavailable when nobody knows."""
    # Notices go in the same message as the COMMIT, and are sent by PostgreSQL only when it succeeds.
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
        # PostgreSQL answers so when a statement had failed and the transaction went on regardless.
        raise RuntimeError(f"a transaction swallowed an error of the store, and was not written: {status}")


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


async def roll_back(connection: Any) -> None:
    """Leaves no transaction open; a connection that cannot even do that is given up."""
    if is_gone(connection):
        return
    try:
        # Asked even when none seems open: after a cancelled BEGIN the answer may still be on its way.
        await connection.execute("ROLLBACK")
    except BROKEN as error:
        log.warning("rollback_failed", error=told(error))
        give_up(connection)
    except CancelledError:
        give_up(connection)
        raise
