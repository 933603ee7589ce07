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
from runekeep_storage.blobs import statements
from runekeep_storage.blobs.blobs import GRACE_SECONDS
from runekeep_storage.database import Space, Tx
from runekeep_storage.records import STORED_OUTPUT

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
    await tx.execute(statements.ASK_FOR_SWEEP, space.account, space.user, due_at, expected_at)


async def waiting(tx: Tx) -> Sweep | None:
    """Returns a space of any account whose sweep is due. Skips spaces with leftovers, whose rows name blobs, and spaces
    of imports, whose blobs arrive before the rows that name them."""
    row = await tx.fetchrow(statements.NEXT_SWEEP, tx.now())
    return Sweep(Space(row["account"], row["user_id"]), row["asked"]) if row else None


async def named(tx: Tx, space: Space) -> set[str]:
    """Returns the names of all blobs that rows of the space name: those of messages, the latest output of each tool
    call, and the current content of buckets."""
    rows = await tx.fetch(statements.BLOBS_OF_OUTPUTS, space.account, space.user)
    found = {row["blob"] for row in rows}
    rows = await tx.fetch(statements.BLOBS_OF_BUCKETS, space.account, space.user, BUCKET)
    found |= {row["blob"] for row in rows}
    rows = await tx.fetch(statements.PARTS_WITH_OUTPUTS, space.account, space.user)
    return found | {part[STORED_OUTPUT] for row in rows for part in json.loads(row["parts"]) if STORED_OUTPUT in part}


async def done(tx: Tx, space: Space, sweep: Sweep, *, whole: bool) -> None:
    """Removes the mark. Postpones it by the grace period instead if the sweep left something to remove, or to the end
    of the grace period of an expected blob. Does neither if another sweep was requested meanwhile."""
    key = (space.account, space.user, sweep.asked)
    if whole:
        await tx.execute(statements.END_SWEEP, *key, tx.now() - _GRACE)
        await tx.execute(statements.DELAY_SWEEP_FOR_EXPECTED, *key, _GRACE)
    else:
        await tx.execute(statements.DELAY_SWEEP, *key, tx.now() + _GRACE)
