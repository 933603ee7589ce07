"""Counts what accounts have stored, behind everybody's back: space by space, in small reads, by one server at a time.

A space whose mark is the one that it was counted at is not looked into again. The mark is made of what changes with
the space (revision, losses, sessions and their last change, turns, what a sweep is still to take away), so that a pass
costs little more than a walk over the spaces and sessions. Reads hold up no writer on either engine; between two of
them this rests for nine times as long as they took.

The statements that walk run over all accounts.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Final, TypeVar

import structlog

from storage.accounts import Usage
from storage.blobs import Blobs
from storage.database import Database, Row, Space, Tx
from storage.errors import StoreUnavailable
from storage.leftovers import without

SPACES: Final = 20
"""Of which one read makes the marks, as far as they have no more than ROWS sessions."""
ROWS: Final = 500
"""That one read measures, and sessions of a space that one read looks at."""
REST: Final = 9.0
"""Times as long as a read took, this rests after it."""

T = TypeVar("T")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Table:
    """`key`: orders the rows of a space, all of which come after `first`. `size`: the columns whose bytes are summed.
    `one`: 1 for a row that is counted as one of Usage's `kind`."""

    name: str
    key: tuple[str, ...]
    first: tuple[str | int, ...]
    size: tuple[str, ...]
    kind: str = ""
    one: str = "0"
    only: str = ""


_TABLES: Final = (
    _Table("messages", ("session_id", "sequence"), ("", 0), ("parts",), "messages", "1 - erased", without("messages")),
    _Table(
        "memories",
        ("uri", "version"),
        ("", 0),
        ("fields", "content", "abstract", "overview"),
        "memories",
        "CASE WHEN rev_to = 0 AND deleted = 0 THEN 1 ELSE 0 END",
    ),
    _Table("turns", ("session_id", "turn_id"), ("", ""), ("summary",), only=without("turns")),
    _Table("turn_artifacts", ("session_id", "kind", "name"), ("", "", ""), ("text",), only=without("turn_artifacts")),
)

_OF_SPACE = "x.account = s.account AND x.user_id = s.user_id"
_SOME_SESSIONS = f"(SELECT x.updated_at, x.turn_version FROM sessions x WHERE {_OF_SPACE} LIMIT $4) y"
_SPACES = (
    "SELECT s.account, s.user_id, s.revision, s.losses, s.imported_at,"
    f" (SELECT COUNT(*) FROM {_SOME_SESSIONS}) AS session_count,"
    f" (SELECT COALESCE(MAX(y.updated_at), 0) FROM {_SOME_SESSIONS}) AS changed_at,"
    f" (SELECT COALESCE(SUM(y.turn_version), 0) FROM {_SOME_SESSIONS}) AS turn_versions,"
    f" (SELECT COALESCE(MAX(x.due_at), 0) FROM blob_sweeps x WHERE {_OF_SPACE}) AS swept_at,"
    " COALESCE(u.mark, '') AS mark, u.sessions, u.messages, u.memories, u.stored_bytes"
    " FROM spaces s LEFT JOIN space_usage u ON u.account = s.account AND u.user_id = s.user_id"
    " WHERE (s.account, s.user_id) > ($1, $2) ORDER BY s.account, s.user_id LIMIT $3"
)


@dataclass(frozen=True, slots=True)
class Sessions:
    """Of a space, or some of it: how many, the last change of any, and the sum of the versions of their turns."""

    count: int = 0
    changed_at: int = 0
    turn_versions: int = 0

    def __add__(self, other: "Sessions") -> "Sessions":
        return Sessions(
            self.count + other.count,
            max(self.changed_at, other.changed_at),
            self.turn_versions + other.turn_versions,
        )


@dataclass(frozen=True, slots=True)
class Seen:
    """A space as a pass meets it. `state`: its part of the mark beside the sessions; `counted`: what it had when its
    mark was `counted_mark`. `sessions` None: there are more than one read looks at, see `some_sessions`."""

    space: Space
    state: str
    counted_mark: str
    counted: Usage
    sessions: Sessions | None

    def mark(self, sessions: Sessions) -> str:
        return f"{self.state} {sessions.count} {sessions.changed_at} {sessions.turn_versions}"


async def seen(tx: Tx, after: Space) -> list[Seen]:
    """The next SPACES spaces, by account and user."""
    rows = await tx.fetch(_SPACES, after.account, after.user, SPACES, ROWS + 1)
    return [_seen(tx, row) for row in rows]


def _seen(tx: Tx, row: Row) -> Seen:
    space = Space(row["account"], row["user_id"])
    parts = ("revision", "losses", "imported_at", "swept_at")
    state = " ".join(str(int(row[part])) for part in parts) + f" {int(tx.is_shut(space))}"
    counted = Usage(1, *(row[name] or 0 for name in ("sessions", "messages", "memories", "stored_bytes")))
    sessions = Sessions(row["session_count"], int(row["changed_at"]), int(row["turn_versions"]))
    return Seen(space, state, row["mark"], counted, sessions if sessions.count <= ROWS else None)


async def some_sessions(tx: Tx, space: Space, after: str) -> tuple[str, Sessions]:
    """The next ROWS sessions of the space: the id of the last one (empty: that was all), and they together."""
    rows = await tx.fetch(
        "SELECT session_id, updated_at, turn_version FROM sessions"
        " WHERE account = $1 AND user_id = $2 AND session_id > $3 ORDER BY session_id LIMIT $4",
        space.account,
        space.user,
        after,
        ROWS,
    )
    together = Sessions(
        len(rows), max((row["updated_at"] for row in rows), default=0), sum(row["turn_version"] for row in rows)
    )
    return rows[-1]["session_id"] if len(rows) == ROWS else "", together


async def measured(tx: Tx, space: Space, table: _Table, after: Sequence[str | int]) -> tuple[list[str | int], int, int]:
    """Of the next ROWS rows of the space: the key of the last one (empty: that was all), how many count, and bytes."""
    keys = ", ".join(table.key)
    places = ", ".join(f"${number}" for number in range(3, 3 + len(table.key)))
    size = " + ".join(f"octet_length({column})" for column in table.size)
    rows = await tx.fetch(
        f"SELECT {keys}, {size} AS size, {table.one} AS one FROM {table.name}"
        f" WHERE account = $1 AND user_id = $2 AND ({keys}) > ({places}){table.only} ORDER BY {keys} LIMIT {ROWS}",
        space.account,
        space.user,
        *after,
    )
    last = [rows[-1][column] for column in table.key] if len(rows) == ROWS else []
    return last, sum(row["one"] for row in rows), sum(row["size"] for row in rows)


async def keep(tx: Tx, space: Space, mark: str, usage: Usage) -> None:
    """Of one space."""
    await tx.execute(
        "INSERT INTO space_usage (account, user_id, mark, sessions, messages, memories, stored_bytes)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (account, user_id) DO UPDATE SET mark = excluded.mark,"
        " sessions = excluded.sessions, messages = excluded.messages, memories = excluded.memories,"
        " stored_bytes = excluded.stored_bytes",
        space.account,
        space.user,
        mark,
        usage.sessions,
        usage.messages,
        usage.memories,
        usage.stored_bytes,
    )


async def keep_account(tx: Tx, account: Space, usage: Usage) -> None:
    """Of a whole account; `account` is one of its spaces."""
    await tx.execute(
        "INSERT INTO account_usage (account, users, sessions, messages, memories, stored_bytes, counted_at)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (account) DO UPDATE SET users = excluded.users,"
        " sessions = excluded.sessions, messages = excluded.messages, memories = excluded.memories,"
        " stored_bytes = excluded.stored_bytes, counted_at = excluded.counted_at",
        account.account,
        usage.users,
        usage.sessions,
        usage.messages,
        usage.memories,
        usage.stored_bytes,
        tx.now(),
    )


async def due_in(tx: Tx) -> int:
    """Microseconds until the next pass over all accounts is due; 0 or less: it is."""
    row = await tx.fetchrow("SELECT due_at FROM usage_counts WHERE slot = 1")
    return int(row["due_at"]) - tx.now() if row else 0


async def take(tx: Tx, period: int) -> bool:
    """Whether the caller is to make the pass that is due: one server is told so in `period`, microseconds."""
    await tx.execute("INSERT INTO usage_counts (slot, due_at) VALUES (1, 0) ON CONFLICT (slot) DO NOTHING")
    now = tx.now()
    return bool(
        await tx.execute("UPDATE usage_counts SET due_at = $1 WHERE slot = 1 AND due_at <= $2", now + period, now)
    )


async def go_on(tx: Tx, period: int) -> None:
    """Says that the pass that was taken is still under way."""
    await tx.execute("UPDATE usage_counts SET due_at = $1 WHERE slot = 1", tx.now() + period)


class _Rest:
    """Keeps a pass from taking more than a tenth of the time of a reader, and from being taken for dead: `go_on` is
    called when `seconds` have passed since it was called last."""

    def __init__(self, seconds: float, go_on: Callable[[], Awaitable[None]]) -> None:
        self._longest = seconds
        self._go_on = go_on
        self._began = monotonic()

    @property
    def seconds(self) -> float:
        return monotonic() - self._began

    async def after(self, reading: Awaitable[T]) -> T:
        began = monotonic()
        value = await reading
        await asyncio.sleep(REST * (monotonic() - began))
        if self.seconds > self._longest:
            self._began = monotonic()
            await self._go_on()
        return value


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(
        one.users + other.users,
        one.sessions + other.sessions,
        one.messages + other.messages,
        one.memories + other.memories,
        one.stored_bytes + other.stored_bytes,
    )


class Counting:
    """A background task a server, of which one counts at a time. `seconds`: from one pass to the next.

    `database` with all spaces, those that are shut among them.
    """

    def __init__(self, database: Database, blobs: Blobs, seconds: float) -> None:
        self._database = database
        self._blobs = blobs
        self._period = round(seconds * 1_000_000)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._forever())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def count(self) -> bool:
        """Counts all accounts, if that is due and no other server does it; whether it did. Raises StoreUnavailable."""
        if await self._database.read(due_in) > 0 or not await self._database.write(take, self._period):
            return False
        rest = _Rest(self._period / 4_000_000, partial(self._database.write, go_on, self._period))
        last, total = Space("", ""), Usage()
        while page := await rest.after(self._database.read(seen, last)):
            for one in page:
                if last.account and one.space.account != last.account:
                    await self._database.write(keep_account, last, total)
                    total = Usage()
                last = one.space
                total = _sum(total, await self._space(one, rest))
        if last.account:
            await self._database.write(keep_account, last, total)
        return True

    async def _space(self, one: Seen, rest: _Rest) -> Usage:
        sessions = one.sessions or await self._sessions(one.space, rest)
        mark = one.mark(sessions)
        if mark == one.counted_mark:
            return one.counted
        usage = Usage(users=1, sessions=sessions.count)
        for table in _TABLES:
            after: Sequence[str | int] = table.first
            while after:
                after, rows, size = await rest.after(self._database.read(measured, one.space, table, after))
                usage = replace(usage, stored_bytes=usage.stored_bytes + size)
                if table.kind:
                    usage = replace(usage, **{table.kind: getattr(usage, table.kind) + rows})
        try:
            blobs = await rest.after(asyncio.to_thread(self._blobs.size, one.space))
        except (OSError, StoreUnavailable) as error:
            # Counted without them, and again at the next pass.
            log.warning("blobs_not_counted", account=one.space.account, user=one.space.user, error=str(error))
            return usage
        usage = replace(usage, stored_bytes=usage.stored_bytes + blobs)
        await self._database.write(keep, one.space, mark, usage)
        return usage

    async def _sessions(self, space: Space, rest: _Rest) -> Sessions:
        last, sessions = await rest.after(self._database.read(some_sessions, space, ""))
        while last:
            last, more = await rest.after(self._database.read(some_sessions, space, last))
            sessions += more
        return sessions

    async def _forever(self) -> None:
        while True:
            pause = self._period / 1_000_000
            try:
                await self.count()
                pause = max((await self._database.read(due_in)) / 1_000_000, 0.0)
            except StoreUnavailable as error:
                log.warning("counting_waits", error=str(error))
            except Exception:
                # Nothing but quotas depends on it; they go by what was counted before.
                log.exception("counting_failed")
            await asyncio.sleep(min(max(pause, 0.05), self._period / 1_000_000))
