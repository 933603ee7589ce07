"""Blobs that no row names any more: spaces where there may be some are marked, and looked through behind the deletion.

The mark is written in the transaction that takes the rows away, so a server that dies before it has looked leaves the
work to the next one. Which blobs go is decided by what the rows say then, and by age: see `storage.cleaner`.
"""

import json
from dataclasses import dataclass

from storage.database import Space, Tx
from storage.leftovers import without
from storage.records import STORED_OUTPUT


@dataclass(frozen=True, slots=True)
class Sweep:
    """A space to look through. `asked`: how often that was asked for so far."""

    space: Space
    asked: int


async def ask(tx: Tx, space: Space) -> None:
    """Marks the space, to be looked through at once."""
    await tx.execute(
        "INSERT INTO blob_sweeps (account, user_id, due_at) VALUES ($1, $2, $3) ON CONFLICT (account, user_id)"
        " DO UPDATE SET due_at = excluded.due_at, asked = blob_sweeps.asked + 1",
        space.account,
        space.user,
        tx.now(),
    )


async def waiting(tx: Tx) -> Sweep | None:
    """A space, of any account, that is to be looked through now. Its leftovers go first: they name blobs."""
    row = await tx.fetchrow(
        "SELECT account, user_id, asked FROM blob_sweeps b WHERE due_at <= $1 AND NOT EXISTS ("
        "   SELECT 1 FROM leftovers l WHERE l.account = b.account AND l.user_id = b.user_id)"
        " ORDER BY due_at LIMIT 1",
        tx.now(),
    )
    return Sweep(Space(row["account"], row["user_id"]), row["asked"]) if row else None


async def named(tx: Tx, space: Space) -> set[str]:
    """Names of all blobs that rows of the space name. Messages name their own, tool outputs the last of a call id."""
    rows = await tx.fetch(
        "SELECT blob FROM tool_outputs WHERE account = $1 AND user_id = $2", space.account, space.user
    )
    found = {row["blob"] for row in rows}
    rows = await tx.fetch(
        f"SELECT parts FROM messages WHERE account = $1 AND user_id = $2 AND parts LIKE $3{without('messages')}",
        space.account,
        space.user,
        f'%"{STORED_OUTPUT}"%',
    )
    return found | {part[STORED_OUTPUT] for row in rows for part in json.loads(row["parts"]) if STORED_OUTPUT in part}


async def done(tx: Tx, space: Space, sweep: Sweep, again_after: int | None) -> None:
    """Takes the mark away, or puts it off by so many microseconds; not when it was asked for anew meanwhile."""
    of_this_one = "account = $1 AND user_id = $2 AND asked = $3"
    if again_after is None:
        await tx.execute(f"DELETE FROM blob_sweeps WHERE {of_this_one}", space.account, space.user, sweep.asked)
        return
    await tx.execute(
        f"UPDATE blob_sweeps SET due_at = $4 WHERE {of_this_one}",
        space.account,
        space.user,
        sweep.asked,
        tx.now() + again_after,
    )
