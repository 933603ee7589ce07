"""Blobs that no row names any more: spaces where there may be some are marked, and looked through behind the deletion.

The mark is written in the transaction that takes the rows away, so a server that dies before it has looked leaves the
work to the next one. Which blobs go is decided by what the rows say then, and by age: see `storage.cleaner`.

Who puts a blob marks the space before (`expect`): a server may die, or the call be refused, before a row names it. That
mark stands until the grace of blobs is over, whatever sweeps come in between: they may have listed the blobs before
this one was there, or read the rows while they still named the one that it is to replace.
"""

import json
from dataclasses import dataclass

from schemas.turns.stored import BUCKET
from storage.blobs import GRACE_SECONDS
from storage.database import Space, Tx
from storage.leftovers import without
from storage.records import STORED_OUTPUT

_GRACE = round(GRACE_SECONDS * 1_000_000)


@dataclass(frozen=True, slots=True)
class Sweep:
    """A space to look through. `asked`: how often that was asked for so far."""

    space: Space
    asked: int


async def ask(tx: Tx, space: Space) -> None:
    """Marks the space, to be looked through at once."""
    await _mark(tx, space, due_at=tx.now(), expected_at=0)


async def expect(tx: Tx, space: Space) -> None:
    """Marks a space in which a blob is about to be put, to be looked through when its grace is over."""
    now = tx.now()
    await _mark(tx, space, due_at=now + _GRACE, expected_at=now)


async def _mark(tx: Tx, space: Space, *, due_at: int, expected_at: int) -> None:
    # One sweep serves all who asked: the first to be due, and of blobs to come the last.
    await tx.execute(
        "INSERT INTO blob_sweeps (account, user_id, due_at, expected_at) VALUES ($1, $2, $3, $4)"
        " ON CONFLICT (account, user_id) DO UPDATE SET asked = blob_sweeps.asked + 1,"
        " due_at = CASE WHEN blob_sweeps.due_at < excluded.due_at THEN blob_sweeps.due_at ELSE excluded.due_at END,"
        " expected_at = CASE WHEN blob_sweeps.expected_at > excluded.expected_at"
        " THEN blob_sweeps.expected_at ELSE excluded.expected_at END",
        space.account,
        space.user,
        due_at,
        expected_at,
    )


async def waiting(tx: Tx) -> Sweep | None:
    """A space, of any account, that is to be looked through now. Its leftovers go first: they name blobs. One that is
    imported waits: its blobs come before the rows that name them."""
    row = await tx.fetchrow(
        "SELECT account, user_id, asked FROM blob_sweeps b WHERE due_at <= $1 AND NOT EXISTS ("
        "   SELECT 1 FROM leftovers l WHERE l.account = b.account AND l.user_id = b.user_id)"
        " AND NOT EXISTS (SELECT 1 FROM shut_spaces s WHERE s.account = b.account AND s.user_id = b.user_id"
        "   AND s.import_id <> '')"
        " ORDER BY due_at LIMIT 1",
        tx.now(),
    )
    return Sweep(Space(row["account"], row["user_id"]), row["asked"]) if row else None


async def named(tx: Tx, space: Space) -> set[str]:
    """Names of all blobs that rows of the space name: messages their own, tool outputs the last of a call id, buckets
    what they hold now."""
    rows = await tx.fetch(
        "SELECT blob FROM tool_outputs WHERE account = $1 AND user_id = $2", space.account, space.user
    )
    found = {row["blob"] for row in rows}
    rows = await tx.fetch(
        "SELECT a.blob FROM turn_tags t CROSS JOIN turn_artifacts a WHERE t.account = $1 AND t.user_id = $2"
        " AND t.tag = $3 AND a.account = t.account AND a.user_id = t.user_id AND a.session_id = t.session_id"
        f" AND a.kind = t.kind AND a.name = t.name{without('t')}",
        space.account,
        space.user,
        BUCKET,
    )
    found |= {row["blob"] for row in rows}
    rows = await tx.fetch(
        f"SELECT parts FROM messages WHERE account = $1 AND user_id = $2 AND outputs > 0{without('messages')}",
        space.account,
        space.user,
    )
    return found | {part[STORED_OUTPUT] for row in rows for part in json.loads(row["parts"]) if STORED_OUTPUT in part}


async def done(tx: Tx, space: Space, sweep: Sweep, *, whole: bool) -> None:
    """Takes the mark away, or puts it off by the grace when the sweep left something to remove, and to the end of the
    grace of a blob that was said to come; neither when it was asked for anew meanwhile."""
    of_this_one = "account = $1 AND user_id = $2 AND asked = $3"
    key = (space.account, space.user, sweep.asked)
    if whole:
        await tx.execute(f"DELETE FROM blob_sweeps WHERE {of_this_one} AND expected_at <= $4", *key, tx.now() - _GRACE)
        await tx.execute(f"UPDATE blob_sweeps SET due_at = expected_at + $4 WHERE {of_this_one}", *key, _GRACE)
    else:
        await tx.execute(f"UPDATE blob_sweeps SET due_at = $4 WHERE {of_this_one}", *key, tx.now() + _GRACE)
