"""What is left of deleted sessions: messages and passages, taken away in slices behind the deletion.

To delete a hundred thousand messages with their vectors takes seconds, and SQLite has one writer for everybody. So the
deletion takes the rows away by which a session is known, and all of it is gone at once: messages are read through their
session and archives. What still stands is named in `leftovers`; the few statements that reach such rows by themselves
leave out what is named there (`without`). A session made anew under the name begins with nothing, see `clear_session`.
"""

from storage.database import Space, Tx

SLICE = 500
"""Messages, and as many passages, that one transaction takes away: some 20 ms of SQLite's writer."""
TABLES = ("passages", "messages")


def without(table: str) -> str:
    """A condition to append: rows of `messages` or `passages` whose session is not deleted."""
    return (
        f" AND NOT EXISTS (SELECT 1 FROM leftovers l WHERE l.account = {table}.account"
        f" AND l.user_id = {table}.user_id AND l.session_id = {table}.session_id)"
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


async def leave_all(tx: Tx, space: Space) -> int:
    """Names all sessions of the space; how many there are."""
    return await tx.execute(
        "INSERT INTO leftovers (account, user_id, session_id)"
        " SELECT account, user_id, session_id FROM sessions WHERE account = $1 AND user_id = $2"
        " ON CONFLICT (account, user_id, session_id) DO NOTHING",
        space.account,
        space.user,
    )


async def waiting(tx: Tx) -> Space | None:
    """A space with leftovers, of any account."""
    row = await tx.fetchrow("SELECT account, user_id FROM leftovers LIMIT 1")
    return Space(row["account"], row["user_id"]) if row else None


async def clear(tx: Tx, space: Space, most: int = SLICE) -> bool:
    """Takes away up to `most` leftovers of each kind in the space; whether more are left."""
    left = dict.fromkeys(TABLES, most)
    rows = await tx.fetch(
        "SELECT session_id FROM leftovers WHERE account = $1 AND user_id = $2 ORDER BY session_id LIMIT $3",
        space.account,
        space.user,
        most + 1,
    )
    for row in rows:
        for table in TABLES:
            left[table] -= await _take(tx, space, table, row["session_id"], left[table])
        if min(left.values()) <= 0:
            return True
        await _forget(tx, space, row["session_id"])
    return len(rows) > most


async def clear_session(tx: Tx, space: Space, session_id: str) -> None:
    """Takes away all that is left of a session of this name; nothing, most of the time."""
    if await _forget(tx, space, session_id):
        for table in TABLES:
            await tx.execute(
                f"DELETE FROM {table} WHERE account = $1 AND user_id = $2 AND session_id = $3",
                space.account,
                space.user,
                session_id,
            )


async def _take(tx: Tx, space: Space, table: str, session_id: str, most: int) -> int:
    return await tx.execute(
        f"DELETE FROM {table} WHERE account = $1 AND user_id = $2 AND session_id = $3 AND sequence <= ("
        f" SELECT MAX(s.sequence) FROM (SELECT sequence FROM {table}"
        "   WHERE account = $1 AND user_id = $2 AND session_id = $3 ORDER BY sequence LIMIT $4) s)",
        space.account,
        space.user,
        session_id,
        most,
    )


async def _forget(tx: Tx, space: Space, session_id: str) -> int:
    return await tx.execute(
        "DELETE FROM leftovers WHERE account = $1 AND user_id = $2 AND session_id = $3",
        space.account,
        space.user,
        session_id,
    )
