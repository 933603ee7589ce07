"""Counts in the background what accounts have stored: space by space, in small reads, on one server at a time.

Each count stores a mark of the space, and a space with an unchanged mark is not counted again. The mark contains what
changes with the space (revision, losses, sessions and their last change, turns, pending blob sweeps), so a pass costs
little more than a walk over the spaces and sessions. Reads block no writer on either engine; after each read the task
rests for nine times as long as the read took.

The statements that walk run over all accounts.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Final, TypeVar

import structlog

from runekeep_storage.accounts import statements
from runekeep_storage.accounts.accounts import Usage
from runekeep_storage.blobs.blobs import Blobs
from runekeep_storage.database import Database, Row, Space, Tx
from runekeep_storage.errors import StoreUnavailable
from runekeep_storage.tables import TABLES, Table

SPACES: Final = 20
"""Spaces whose marks one read computes, unless they have more than ROWS sessions."""
ROWS: Final = 500
"""Rows that one read measures, and sessions of a space that one read checks."""
REST: Final = 9.0
"""Rest after a read, as a multiple of its duration."""

T = TypeVar("T")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Sessions:
    """Summary of a space's sessions, or some of them: their number, the latest change, and the sum of their turn
    versions."""

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
class SpaceCount:
    """A space during a pass. `state`: the part of its mark without the sessions; `counted`: its usage when its mark was
    `counted_mark`. `sessions` None: more sessions than one read checks, see `some_sessions`."""

    space: Space
    state: str
    counted_mark: str
    counted: Usage
    sessions: Sessions | None

    def mark(self, sessions: Sessions) -> str:
        return f"{self.state} {sessions.count} {sessions.changed_at} {sessions.turn_versions}"


async def seen(tx: Tx, after: Space) -> list[SpaceCount]:
    """Returns the next SPACES spaces, by account and user."""
    rows = await tx.fetch(statements.SPACES_WITH_MARKS, after.account, after.user, SPACES, ROWS + 1)
    return [_seen(tx, row) for row in rows]


def _seen(tx: Tx, row: Row) -> SpaceCount:
    space = Space(row["account"], row["user_id"])
    parts = ("revision", "losses", "imported_at", "swept_at")
    state = " ".join(str(int(row[part])) for part in parts) + f" {int(tx.is_shut(space))}"
    counted = Usage(1, *(row[name] or 0 for name in ("sessions", "messages", "memories", "stored_bytes")))
    sessions = Sessions(row["session_count"], int(row["changed_at"]), int(row["turn_versions"]))
    return SpaceCount(space, state, row["mark"], counted, sessions if sessions.count <= ROWS else None)


async def some_sessions(tx: Tx, space: Space, after: str) -> tuple[str, Sessions]:
    """Returns a summary of the next ROWS sessions of the space, after the id of the last one (empty if no more
    follow)."""
    rows = await tx.fetch(statements.SESSIONS_AFTER, space.account, space.user, after, ROWS)
    together = Sessions(
        len(rows), max((row["updated_at"] for row in rows), default=0), sum(row["turn_version"] for row in rows)
    )
    return rows[-1]["session_id"] if len(rows) == ROWS else "", together


async def measured(
    tx: Tx, space: Space, table: Table, after: Sequence[str | int]
) -> tuple[list[str | int] | None, int, int]:
    """Measures the next ROWS rows of the space, after a key (empty: from the first). Returns the key of the last one
    (None if no more follow), how many count, and their bytes."""
    statement = statements.row_sizes(table, is_first=not after, limit=ROWS)
    rows = await tx.fetch(statement, space.account, space.user, *after)
    last = [rows[-1][column] for column in table.key] if len(rows) == ROWS else None
    return last, sum(row["one"] for row in rows), sum(row["size"] for row in rows)


async def keep(tx: Tx, space: Space, mark: str, usage: Usage) -> None:
    """Stores the usage of one space."""
    await tx.execute(
        statements.STORE_SPACE_USAGE,
        space.account,
        space.user,
        mark,
        usage.sessions,
        usage.messages,
        usage.memories,
        usage.stored_bytes,
    )


async def keep_account(tx: Tx, account: str, usage: Usage) -> None:
    """Stores the usage of a whole account."""
    await tx.execute(
        statements.STORE_ACCOUNT_USAGE,
        account,
        usage.users,
        usage.sessions,
        usage.messages,
        usage.memories,
        usage.stored_bytes,
        tx.now(),
    )


async def due_in(tx: Tx) -> int:
    """Returns the microseconds until the next pass over all accounts; 0 or less: it is due."""
    row = await tx.fetchrow(statements.COUNT_DUE)
    return int(row["due_at"]) - tx.now() if row else 0


async def take(tx: Tx, period: int) -> bool:
    """Claims the pass if it is due; returns whether the caller got it. One server gets it in each `period`, in
    microseconds."""
    await tx.execute(statements.ADD_COUNT)
    now = tx.now()
    return bool(await tx.execute(statements.TAKE_COUNT, now + period, now))


async def go_on(tx: Tx, period: int) -> None:
    """Records that the claimed pass is still running."""
    await tx.execute(statements.GO_ON_COUNTING, tx.now() + period)


class _Rest:
    """Limits a pass to a tenth of a reader's time, and keeps its claim: calls `go_on` whenever `seconds` have passed
    since the last call."""

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
    """A background task on every server; one of them counts at a time. `seconds`: time between two passes."""

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
        """Counts all accounts if a pass is due and no other server runs it; returns whether it did. Raises
        StoreUnavailable."""
        if await self._database.read_global(due_in) > 0 or not await self._database.write_global(take, self._period):
            return False
        rest = _Rest(self._period / 4_000_000, partial(self._database.write_global, go_on, self._period))
        last, total = Space("", ""), Usage()
        while page := await rest.after(self._database.read_global(seen, last)):
            for one in page:
                if last.account and one.space.account != last.account:
                    await self._database.write_in_account(keep_account, last.account, total)
                    total = Usage()
                last = one.space
                total = _sum(total, await self._space(one, rest))
        if last.account:
            await self._database.write_in_account(keep_account, last.account, total)
        return True

    async def _space(self, one: SpaceCount, rest: _Rest) -> Usage:
        sessions = one.sessions or await self._sessions(one.space, rest)
        mark = one.mark(sessions)
        if mark == one.counted_mark:
            return one.counted
        usage = Usage(users=1, sessions=sessions.count)
        for table in TABLES:
            after: Sequence[str | int] | None = () if table.sizes else None
            while after is not None:
                after, rows, size = await rest.after(self._database.read(measured, one.space, table, after))
                usage = replace(usage, stored_bytes=usage.stored_bytes + size)
                if table.is_in_usage:
                    usage = replace(usage, **{table.name: getattr(usage, table.name) + rows})
        try:
            blobs = await rest.after(asyncio.to_thread(self._blobs.size, one.space))
        except (OSError, StoreUnavailable) as error:
            # Count the space without its blobs, and again in the next pass.
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
                pause = max((await self._database.read_global(due_in)) / 1_000_000, 0.0)
            except StoreUnavailable as error:
                log.warning("counting_waits", error=str(error))
            except Exception:
                # Only quotas depend on the counts, and they use the previous ones.
                log.exception("counting_failed")
            await asyncio.sleep(min(max(pause, 0.05), self._period / 1_000_000))
