"""Marks spaces that may contain blobs that no row names, so that a sweep removes those blobs later.

The transaction that deletes the rows also writes the mark, so that the next server continues if this one dies. The
sweep decides by the rows at that time and by age which blobs to remove: see `runekeep_storage.erasure.cleanup`.

A caller that puts a blob marks the space first (`expect`), because the server may die, or the call may be refused,
before a row names the blob. That mark stays until the grace period of the blob is over, regardless of sweeps in
between: they may have listed the blobs before this one existed, or read the rows while they still named the blob that
it replaces.
"""

import json
from dataclasses import dataclass

from runekeep_schemas.turns.stored import BUCKET
from runekeep_storage.blobs.blobs import GRACE_SECONDS
from runekeep_storage.database import Space, Tx
from runekeep_storage.records import STORED_OUTPUT
from runekeep_storage.spaces.statements import without

_GRACE = round(GRACE_SECONDS * 1_000_000)


@dataclass(frozen=True, slots=True)
class Sweep:
    """A space to sweep. `asked`: how often a sweep was requested so far."""

    space: Space
    asked: int


async def ask(tx: Tx, space: Space) -> None:
    """Marks the space for an immediate sweep."""
    await _mark(tx, space, due_at=tx.now(), expected_at=0)


async def expect(tx: Tx, space: Space) -> None:
    """Marks a space that is about to get a blob for a sweep after the grace period."""
    now = tx.now()
    await _mark(tx, space, due_at=now + _GRACE, expected_at=now)


async def _mark(tx: Tx, space: Space, *, due_at: int, expected_at: int) -> None:
    # One sweep serves all requests: the earliest due time counts, and the latest expected blob.
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
    """Returns a space of any account whose sweep is due. Skips spaces with leftovers, whose rows name blobs, and spaces
    of imports, whose blobs arrive before the rows that name them."""
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
    """Returns the names of all blobs that rows of the space name: those of messages, the latest output of each tool
    call, and the current content of buckets."""
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
    """Removes the mark. Postpones it by the grace period instead if the sweep left something to remove, or to the end
    of the grace period of an expected blob. Does neither if another sweep was requested meanwhile."""
    of_this_one = "account = $1 AND user_id = $2 AND asked = $3"
    key = (space.account, space.user, sweep.asked)
    if whole:
        await tx.execute(f"DELETE FROM blob_sweeps WHERE {of_this_one} AND expected_at <= $4", *key, tx.now() - _GRACE)
        await tx.execute(f"UPDATE blob_sweeps SET due_at = expected_at + $4 WHERE {of_this_one}", *key, _GRACE)
    else:
        await tx.execute(f"UPDATE blob_sweeps SET due_at = $4 WHERE {of_this_one}", *key, tx.now() + _GRACE)
