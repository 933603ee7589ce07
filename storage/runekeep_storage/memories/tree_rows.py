"""Reads the rows that the document tree shows, page by page and in the order of the tree."""

from dataclasses import dataclass

from runekeep_schemas.turns.stored import BUCKET
from runekeep_storage.database import Space, Tx
from runekeep_storage.memories import statements
from runekeep_storage.records import Message
from runekeep_storage.sessions import sessions
from runekeep_storage.sessions.image_descriptions import captioned, messages_page


@dataclass(frozen=True, slots=True)
class ListedSession:
    """A session as a directory. `archives`: index of its newest archive; `archived_at`: when that archive was made or
    its commit done; `buckets`: whether it has memory buckets."""

    session_id: str
    abstract: str
    updated_at: int
    archives: int
    archived_at: int
    buckets: bool


@dataclass(frozen=True, slots=True)
class ListedArchive:
    """An archive as a directory. `done`: whether its commit is done; `updated_at`: when it was done, or until then when
    the archive was made."""

    index: int
    abstract: str
    done: bool
    updated_at: int


@dataclass(frozen=True, slots=True)
class LogPage:
    """Lines of a message log with the messages around them. `number`: the number of the first line, from 0; `more`:
    whether more lines follow."""

    before: list[Message]
    lines: list[Message]
    after: list[Message]
    number: int
    more: bool


async def sessions_after(tx: Tx, space: Space, after: str, limit: int, only: str = "") -> list[ListedSession]:
    """Returns up to `limit` sessions after `after`, by id; with `only`, only that session."""
    rows = await tx.fetch(
        statements.sessions_of_tree(bool(only)),
        space.account,
        space.user,
        after,
        limit,
        *([only] if only else []),
    )
    return [
        ListedSession(
            row["session_id"],
            row["abstract"],
            row["updated_at"],
            row["compression_index"],
            row["archived_at"],
            bool(row["buckets"]),
        )
        for row in rows
    ]


async def session_names(tx: Tx, space: Space, limit: int) -> list[str]:
    """Returns the ids of the first `limit` sessions, by id."""
    rows = await tx.fetch(statements.SESSION_NAMES, space.account, space.user, limit)
    return [row["session_id"] for row in rows]


async def last_activity(tx: Tx, space: Space) -> int:
    """Returns when a session was last updated, in microseconds since 1970; 0 if there is none."""
    row = await tx.fetchrow(statements.LAST_ACTIVITY, space.account, space.user)
    return int(row["active"]) if row else 0


async def archives_from(tx: Tx, space: Space, session_id: str, first: int, limit: int) -> list[ListedArchive]:
    """Returns archives from the index `first` on, oldest first."""
    rows = await tx.fetch(statements.ARCHIVES_OF_TREE, space.account, space.user, session_id, first, limit)
    return [
        ListedArchive(row["archive_index"], row["abstract"], row["state"] == "done", row["updated_at"]) for row in rows
    ]


async def archived_between(tx: Tx, space: Space, session_id: str, first: int, last: int) -> list[tuple[int, int, int]]:
    """Returns (index, first sequence, last sequence) of the archives that overlap messages `first` to `last`, oldest
    first."""
    rows = await tx.fetch(statements.ARCHIVES_BETWEEN, space.account, space.user, session_id, first, last)
    return [(row["archive_index"], row["first_sequence"], row["last_sequence"]) for row in rows]


async def log_page(
    tx: Tx,
    space: Space,
    session_id: str,
    log: tuple[int, int],
    start: int,
    limit: int,
    most_bytes: int,
    context: int,
    number: int | None = None,
) -> LogPage:
    """Returns the messages of `log` (first and last sequence) from `start` on, and `context` messages on each side;
    known image captions are filled in. Returns at most `limit` lines and about `most_bytes`, but at least one.

    Erased messages are not lines. `number`: the number of the first line, if known; otherwise it is counted over
    everything before `start`.
    """
    first, last = log
    lines, more, _ = await messages_page(tx, space, session_id, start, last, limit, most_bytes)
    after: list[Message] = []
    if context and more:
        after = await sessions.messages_between(tx, space, session_id, lines[-1].sequence + 1, last, context)
    before: list[Message] = []
    if number is None:
        counted = await tx.fetchrow(statements.COUNT_LINES, space.account, space.user, session_id, first, start)
        number = int(counted["lines"]) if counted else 0
    if context and number:
        rows = await tx.fetch(statements.LINES_BEFORE, space.account, space.user, session_id, first, start, context)
        before = await sessions.messages_between(tx, space, session_id, rows[-1]["sequence"], start - 1)
    return LogPage(
        await captioned(tx, space, before),
        lines,
        await captioned(tx, space, after),
        number,
        more,
    )


async def buckets_from(tx: Tx, space: Space, session_id: str, first: str, limit: int) -> list[str]:
    """Returns the ids of the session's memory buckets from `first` on, in order."""
    rows = await tx.fetch(statements.BUCKETS_FROM, space.account, space.user, session_id, BUCKET, first, limit)
    return [row["name"] for row in rows]
