"""Deletes a session or a user for good: gone at once, in one transaction, and nothing of it comes back.

Work that is under way for it finds out in its own transaction: a worker whose job is cancelled holds no lease, a relay
that wrote points checks their rows again (`runekeep_storage.indexing.stale_points`), a repeated request finds its
response void.

Points leave the index through the outbox, each by its own id. An id belongs to one row and never to another
(`runekeep_storage.indexing.points`), so a removal may be late, or be repeated by a second server, and removes nothing
that the user writes afterwards. `VectorIndex.delete_space` would, if a relay stops between reading the outbox and
calling it. Every point that can be in the index is named: those of current memories here, those of older versions when
they were superseded, and those of passages by their archives, whether or not their rows exist yet.

Slow work follows in slices: `runekeep_storage.spaces.pending_deletions`, `runekeep_storage.blobs.sweeps`, and for a
user with very many rows `runekeep_storage.erasure.purge`, while the space is locked
(`runekeep_storage.spaces.space_locks`).
"""

from dataclasses import dataclass

from runekeep_schemas.turns.stored import BUCKET
from runekeep_storage.blobs import sweeps
from runekeep_storage.database import Space, Tx
from runekeep_storage.erasure import purge, statements
from runekeep_storage.indexing import outbox
from runekeep_storage.jobs import jobs
from runekeep_storage.records import Job
from runekeep_storage.sessions import sessions
from runekeep_storage.spaces import pending_deletions, space_locks, spaces
from runekeep_storage.tables import BY_NAME, TABLES, PlainDelete
from runekeep_storage.turns import jobs as turn_jobs

AT_ONCE = 5000
"""Maximum number of a user's rows removed in the transaction of the deletion itself: some quarter of a second of
SQLite's writer."""
SLICE = 2000
"""Maximum number of rows removed by each later transaction: some 50 ms."""


@dataclass(frozen=True, slots=True)
class DeletedUser:
    """What was deleted: sessions, memories (older versions not counted), and the jobs that were cancelled."""

    sessions: int
    memories: int
    cancelled: list[Job]


async def delete_session(tx: Tx, space: Space, session_id: str, reason: str) -> list[Job]:
    """Deletes the session and returns the jobs that this cancelled, for `reason`. Its tasks stay, and so do memories
    that its commits made. Raises NotFound."""
    await sessions.get(tx, space, session_id)
    await spaces.lost(tx, space)
    cancelled = [await jobs.cancel(tx, space, id, reason) for id in await jobs.open_of(tx, space, session_id)]
    # The rows of jobs stay as long as their tasks do.
    await turn_jobs.forget_queries_of_session(tx, space, session_id)
    key = (space.account, space.user, session_id)
    archives = await tx.fetch(statements.ARCHIVES_OF_SESSION, *key)
    await outbox.add(tx, space, 0, [purge.passages_of(row) for row in archives])
    removed = {
        table.name: await tx.execute(statements.delete_with_session(table.name), *key)
        for table in TABLES
        if isinstance(table.session, PlainDelete)
    }
    buckets = await tx.fetch(statements.HAS_ARTIFACT, *key, BUCKET)
    if removed["tool_outputs"] or buckets:
        await sweeps.ask(tx, space)
    await pending_deletions.leave(tx, space, session_id)
    await pending_deletions.clear(tx, space)
    return cancelled


async def delete_user(tx: Tx, space: Space, reason: str) -> DeletedUser:
    """Empties the space and cancels open jobs for `reason`; does nothing for a user who has nothing.

    If the user has more than AT_ONCE rows, the rest is left to `empty`, and the space is locked until then. The space
    itself stays, and its revision increases: watermarks, points and readers who wait for a revision rely on its never
    going back.
    """
    if not await tx.execute(statements.COUNT_DELETION, space.account, space.user):
        return DeletedUser(0, 0, [])
    await tx.execute(statements.DELETE_SPACE_USAGE, space.account, space.user)
    gone = DeletedUser(
        await count(tx, space, "sessions"),
        await count(tx, space, "memories", BY_NAME["memories"].current),
        [await jobs.cancel(tx, space, id, reason) for id in await jobs.open_of(tx, space)],
    )
    if await purge.take(tx, space, AT_ONCE):
        await space_locks.lock(tx, space)
        return gone
    await pending_deletions.clear(tx, space)
    await sweeps.ask(tx, space)
    return gone


async def empty(tx: Tx, space: Space) -> bool:
    """Removes some more of a deleted user, or of an import whose server died. Returns whether there is more. The last
    call unlocks the space."""
    await space_locks.expire(tx, space)
    if not await space_locks.is_deleted(tx, space):
        return False
    if await purge.take(tx, space, SLICE):
        return True
    await space_locks.unlock(tx, space)
    await sweeps.ask(tx, space)
    return False


async def count(tx: Tx, space: Space, table: str, only: str = "TRUE", *args: object) -> int:
    """Returns the number of the space's rows that meet the condition `only`, whose arguments begin with $3."""
    row = await tx.fetchrow(statements.count(table, only), space.account, space.user, *args)
    return int(row["n"]) if row else 0
