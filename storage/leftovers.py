"""What is left of deleted sessions: messages, passages, turn memory and answers that are kept for repeated requests,
taken away in slices behind the deletion.

To delete a hundred thousand messages with their vectors takes seconds, and SQLite has one writer for everybody. So the
deletion takes the rows away by which a session is known, and all of it is gone at once: messages and turns are read
through their session and archives. What still stands is named in `leftovers`; the few statements that reach such rows
by themselves leave out what is named there (`without`). A session made anew under the name begins with nothing, and so
waits for the last of them, see `out_of_the_way`.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from storage import requests
from storage.database import Database, Space, Tx
from storage.errors import SpaceBusy

T = TypeVar("T")

SLICE = 500
"""Messages, and as many passages, that one transaction takes away: some 20 ms of SQLite's writer."""
PAGE = 20
"""Messages whose sizes are read at once. Few long messages fill a slice, and reading the sizes of 500 would take longer
than deleting those few."""
MESSAGE_TOKENS = 2_000
"""A message counts as one more for each of so many tokens, because a long one takes as long to delete as several."""
TURNS = 100
"""Turns, and as many artifacts and tags, that one transaction takes away: these have more indexes. Of artifacts and
tags some more: those of one turn go together, and so do those of the session itself."""
RECORDS = 20
"""Records of attempts that one transaction takes away: each may hold some hundred kilobytes of raw answers."""
ANSWERS = 100
"""Kept answers that one transaction empties: each may hold some ten kilobytes."""
REQUESTS = "requests"
TABLES = ("passages", "messages", "turn_tags", "turn_artifacts", "turns", "extraction_records", REQUESTS)
BEFORE_ALL = Space("", "")
"""Where a walk over the spaces begins."""


class InTheWay(SpaceBusy):
    """More is left of a deleted session than the transaction that makes one of its name can take away."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"what a deleted session named {session_id} left is still being taken away")
        self.session_id = session_id


def without(table: str) -> str:
    """A condition to append: rows of that one of TABLES whose session is not deleted."""
    # With an OFFSET PostgreSQL asks it of each row. Without one it makes a join of it, for which it guesses so many
    # leftovers that it would rather read all rows and sort them than stop at a LIMIT.
    return (
        f" AND NOT EXISTS (SELECT 1 FROM leftovers l WHERE l.account = {table}.account"
        f" AND l.user_id = {table}.user_id AND l.session_id = {table}.session_id LIMIT 1 OFFSET 0)"
    )


async def leave(tx: Tx, space: Space, session_id: str) -> None:
    """Names the session, whose row its deletion takes away in this same transaction."""
    await tx.execute(
        "INSERT INTO leftovers (account, user_id, session_id) VALUES ($1, $2, $3)"
        " ON CONFLICT (account, user_id, session_id) DO NOTHING",
        space.account,
        space.user,
        session_id,
    )


async def leave_up_to(tx: Tx, space: Space, session_id: str) -> None:
    """Names the sessions up to this one, by name; their rows, which still stand, go in this same transaction."""
    await tx.execute(
        "INSERT INTO leftovers (account, user_id, session_id)"
        " SELECT account, user_id, session_id FROM sessions WHERE account = $1 AND user_id = $2 AND session_id <= $3"
        " ON CONFLICT (account, user_id, session_id) DO NOTHING",
        space.account,
        space.user,
        session_id,
    )


async def waiting(tx: Tx, after: Space = BEFORE_ALL) -> Space | None:
    """The next space with leftovers, by name; not one that is shut, whose archives may still get passages."""
    row = await tx.fetchrow(
        "SELECT account, user_id FROM leftovers l WHERE (account, user_id) > ($1, $2) AND NOT EXISTS ("
        " SELECT 1 FROM shut_spaces s WHERE s.account = l.account AND s.user_id = l.user_id)"
        " ORDER BY account, user_id LIMIT 1",
        after.account,
        after.user,
    )
    return Space(row["account"], row["user_id"]) if row else None


async def of_space(tx: Tx, space: Space, session_id: str) -> bool:
    """Whether anything is left of the session, or of any one of the space when that is empty."""
    row = await tx.fetchrow(
        "SELECT 1 FROM leftovers WHERE account = $1 AND user_id = $2 AND ($3 = '' OR session_id = $3) LIMIT 1",
        space.account,
        space.user,
        session_id,
    )
    return row is not None


async def clear(tx: Tx, space: Space) -> bool:
    """Takes away up to a slice of leftovers of each kind in the space; whether more are left."""
    left = {table: _slice(table) for table in TABLES}
    rows = await tx.fetch(
        "SELECT session_id FROM leftovers WHERE account = $1 AND user_id = $2 ORDER BY session_id LIMIT $3",
        space.account,
        space.user,
        SLICE + 1,
    )
    for row in rows:
        for table in TABLES:
            left[table] -= await _take(tx, space, table, row["session_id"], left[table])
        if min(left.values()) <= 0:
            return True
        await _forget(tx, space, row["session_id"])
    return len(rows) > SLICE


async def clear_session(tx: Tx, space: Space, session_id: str) -> None:
    """Takes away all that is left of a session of this name; nothing, most of the time. Raises InTheWay, when that is
    more than a slice: one that is made under the name now would show it."""
    if await clear_some_of(tx, space, session_id):
        raise InTheWay(session_id)


async def clear_some_of(tx: Tx, space: Space, session_id: str) -> bool:
    """Takes away up to a slice of leftovers of each kind of the session; whether more are left."""
    # Another server may have been through with them, and somebody have made the session since.
    if not await _is_named(tx, space, session_id):
        return False
    full = [await _take(tx, space, table, session_id, _slice(table)) >= _slice(table) for table in TABLES]
    if any(full):
        return True
    await _forget(tx, space, session_id)
    return False


async def out_of_the_way(database: Database, space: Space, make: Callable[[], Awaitable[T]]) -> T:
    """What `make` gives, which makes a session: what is in its way is taken away first, a slice a transaction."""
    while True:
        try:
            return await make()
        except InTheWay as error:
            while await database.write(clear_some_of, space, error.session_id):
                pass


def _slice(table: str) -> int:
    most = {
        "turn_tags": TURNS,
        "turn_artifacts": TURNS,
        "turns": TURNS,
        "extraction_records": RECORDS,
        REQUESTS: ANSWERS,
    }
    return min(SLICE, most.get(table, SLICE))


async def _take(tx: Tx, space: Space, table: str, session_id: str, most: int) -> int:
    """Returns how many rows it took away; if that is less than `most`, none is left. Long messages count as several."""
    if table == REQUESTS:
        # That they were given stays known.
        return await requests.void_of_session(tx, space, session_id, most)
    if table == "messages":
        return await _take_messages(tx, space, session_id, most)
    return await tx.execute(
        f"DELETE FROM {table} WHERE account = $1 AND user_id = $2 AND session_id = $3 AND sequence <= ("
        f" SELECT MAX(s.sequence) FROM (SELECT sequence FROM {table}"
        "   WHERE account = $1 AND user_id = $2 AND session_id = $3 ORDER BY sequence LIMIT $4) s)",
        space.account,
        space.user,
        session_id,
        most,
    )


async def _take_messages(tx: Tx, space: Space, session_id: str, most: int) -> int:
    of_session = (space.account, space.user, session_id)
    taken = last = 0
    is_end = False
    while taken < most and not is_end:
        rows = await tx.fetch(
            "SELECT sequence, tokens FROM messages WHERE account = $1 AND user_id = $2 AND session_id = $3"
            " AND sequence > $4 ORDER BY sequence LIMIT $5",
            *of_session,
            last,
            PAGE,
        )
        is_end = len(rows) < PAGE
        for row in rows:
            if taken >= most:
                break
            taken += 1 + row["tokens"] // MESSAGE_TOKENS
            last = row["sequence"]
    if last:
        await tx.execute(
            "DELETE FROM messages WHERE account = $1 AND user_id = $2 AND session_id = $3 AND sequence <= $4",
            *of_session,
            last,
        )
    return taken


async def _is_named(tx: Tx, space: Space, session_id: str) -> bool:
    row = await tx.fetchrow(
        "SELECT 1 FROM leftovers WHERE account = $1 AND user_id = $2 AND session_id = $3",
        space.account,
        space.user,
        session_id,
    )
    return row is not None


async def _forget(tx: Tx, space: Space, session_id: str) -> None:
    await tx.execute(
        "DELETE FROM leftovers WHERE account = $1 AND user_id = $2 AND session_id = $3",
        space.account,
        space.user,
        session_id,
    )
