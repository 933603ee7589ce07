"""Rows as the tree of documents shows them, some at a time and in its order."""

from dataclasses import dataclass

from schemas.turns.stored import BUCKET
from storage import sessions
from storage.database import Space, Tx
from storage.image_descriptions import captioned, messages_page
from storage.records import Message

_UPDATED = "CASE WHEN a.done_at > 0 THEN a.done_at ELSE a.created_at END"


@dataclass(frozen=True, slots=True)
class ListedSession:
    """A session as a directory. `archives`: the index of its newest one; `archived_at`: when that one was made or its
    commit done; `buckets`: whether it has memory buckets."""

    session_id: str
    abstract: str
    updated_at: int
    archives: int
    archived_at: int
    buckets: bool


@dataclass(frozen=True, slots=True)
class ListedArchive:
    """An archive as a directory; `done` once its commit is. `updated_at`: when that was, before it when it was made."""

    index: int
    abstract: str
    done: bool
    updated_at: int


@dataclass(frozen=True, slots=True)
class LogPage:
    """Some lines of a log of messages, and the messages around them. `number`: of the first line, from 0; `more`:
    whether there are lines behind them."""

    before: list[Message]
    lines: list[Message]
    after: list[Message]
    number: int
    more: bool


async def sessions_after(tx: Tx, space: Space, after: str, limit: int, only: str = "") -> list[ListedSession]:
    """By id, those after `after`; of `only` that one session."""
    rows = await tx.fetch(
        "SELECT s.session_id, s.updated_at, s.compression_index, COALESCE((SELECT a.abstract FROM archives a"
        " WHERE a.account = s.account AND a.user_id = s.user_id AND a.session_id = s.session_id AND a.state = 'done'"
        " ORDER BY a.archive_index DESC LIMIT 1), '') AS abstract,"
        f" COALESCE((SELECT {_UPDATED} FROM archives a WHERE a.account = s.account AND a.user_id = s.user_id"
        " AND a.session_id = s.session_id ORDER BY a.archive_index DESC LIMIT 1), 0) AS archived_at,"
        " CASE WHEN EXISTS (SELECT 1 FROM turn_artifacts b WHERE b.account = s.account AND b.user_id = s.user_id"
        f" AND b.session_id = s.session_id AND b.kind = '{BUCKET}') THEN 1 ELSE 0 END AS buckets"
        " FROM sessions s WHERE s.account = $1 AND s.user_id = $2 AND s.session_id > $3"
        f"{' AND s.session_id = $5' if only else ''} ORDER BY s.session_id LIMIT $4",
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
    """Ids of the first sessions, by id."""
    rows = await tx.fetch(
        "SELECT session_id FROM sessions WHERE account = $1 AND user_id = $2 ORDER BY session_id LIMIT $3",
        space.account,
        space.user,
        limit,
    )
    return [row["session_id"] for row in rows]


async def last_activity(tx: Tx, space: Space) -> int:
    """Of the session that was used last; 0 for none."""
    row = await tx.fetchrow(
        "SELECT COALESCE(MAX(updated_at), 0) AS active FROM sessions WHERE account = $1 AND user_id = $2",
        space.account,
        space.user,
    )
    return int(row["active"]) if row else 0


async def archives_from(tx: Tx, space: Space, session_id: str, first: int, limit: int) -> list[ListedArchive]:
    """Oldest first, those with the index `first` or a higher one."""
    rows = await tx.fetch(
        f"SELECT archive_index, abstract, state, {_UPDATED} AS updated_at FROM archives a"
        " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND archive_index >= $4"
        " ORDER BY archive_index LIMIT $5",
        space.account,
        space.user,
        session_id,
        first,
        limit,
    )
    return [
        ListedArchive(row["archive_index"], row["abstract"], row["state"] == "done", row["updated_at"]) for row in rows
    ]


async def archived_between(tx: Tx, space: Space, session_id: str, first: int, last: int) -> list[tuple[int, int, int]]:
    """(index, first sequence, last sequence) of the archives that hold messages `first` to `last`, oldest first."""
    rows = await tx.fetch(
        "SELECT archive_index, first_sequence, last_sequence FROM archives"
        " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND last_sequence >= $4 AND first_sequence <= $5"
        " ORDER BY archive_index",
        space.account,
        space.user,
        session_id,
        first,
        last,
    )
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
    """Of the messages in `log`, first to last sequence, the first `limit` from `start` on, or as many as take about
    `most_bytes`, at least one; and `context` around them; images with the captions that are known.

    Messages that are erased are no lines. `number`: of the first line when it is known; it is counted otherwise, over
    everything before it.
    """
    first, last = log
    lines, more, _ = await messages_page(tx, space, session_id, start, last, limit, most_bytes)
    after: list[Message] = []
    if context and more:
        after = await sessions.messages_between(tx, space, session_id, lines[-1].sequence + 1, last, context)
    before: list[Message] = []
    if number is None:
        counted = await tx.fetchrow(
            "SELECT COUNT(*) AS lines FROM messages WHERE account = $1 AND user_id = $2 AND session_id = $3"
            " AND sequence >= $4 AND sequence < $5 AND erased = 0",
            space.account,
            space.user,
            session_id,
            first,
            start,
        )
        number = int(counted["lines"]) if counted else 0
    if context and number:
        rows = await tx.fetch(
            "SELECT sequence FROM messages WHERE account = $1 AND user_id = $2 AND session_id = $3"
            " AND sequence >= $4 AND sequence < $5 AND erased = 0 ORDER BY sequence DESC LIMIT $6",
            space.account,
            space.user,
            session_id,
            first,
            start,
            context,
        )
        before = await sessions.messages_between(tx, space, session_id, rows[-1]["sequence"], start - 1)
    return LogPage(
        await captioned(tx, space, before),
        lines,
        await captioned(tx, space, after),
        number,
        more,
    )


async def buckets_from(tx: Tx, space: Space, session_id: str, first: str, limit: int) -> list[str]:
    """Ids of the session's memory buckets, in order, from `first` on."""
    rows = await tx.fetch(
        "SELECT name FROM turn_artifacts WHERE account = $1 AND user_id = $2 AND session_id = $3 AND kind = $4"
        " AND name >= $5 ORDER BY name LIMIT $6",
        space.account,
        space.user,
        session_id,
        BUCKET,
        first,
        limit,
    )
    return [row["name"] for row in rows]
