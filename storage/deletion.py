"""A session or a user deleted for good: gone at once, in one transaction, and nothing of it comes back.

What is still under way for it finds out in its own transaction: a worker whose job is cancelled holds no lease, a relay
that wrote points looks at their rows again (`storage.recheck`), a repeated request finds its answer void.

Points leave the index by the outbox, each by its own id. An id is of one row and never of another (`storage.points`),
so a removal may be late, or be repeated by a second server, and takes nothing of what the user writes afterwards;
`VectorIndex.delete_space` would, for a relay that stops between reading the outbox and calling it. Every point that can
be in the index is named: those of current memories here, those of older versions since they were superseded, and those
of passages by the archives, whether their rows are there yet or not.

What takes long follows in slices: `storage.leftovers`, `storage.blob_sweeps`, and for a user with very many rows
`storage.emptying`, behind a space that is shut (`storage.shut_spaces`).
"""

from dataclasses import dataclass

from schemas.turns.stored import BUCKET
from storage import blob_sweeps, emptying, jobs, leftovers, outbox, sessions, shut_spaces, spaces, turn_jobs
from storage.database import Space, Tx
from storage.records import Job

AT_ONCE = 5000
"""Rows of a user that go in the transaction of the deletion itself: some quarter of a second of SQLite's writer."""
SLICE = 2000
"""Rows that each one takes away that follows: some 50 ms."""

_OF_SESSION = ("usages", "recalled", "usage_totals", "image_descriptions", "archives", "sessions")


@dataclass(frozen=True, slots=True)
class DeletedUser:
    """What was there: sessions, memories (not counting older versions), and the jobs that were cancelled."""

    sessions: int
    memories: int
    cancelled: list[Job]


async def delete_session(tx: Tx, space: Space, session_id: str, reason: str) -> list[Job]:
    """Takes the session away and gives the jobs that this cancelled, for `reason`. Its tasks stay, and so do memories
    that its commits made. Raises NotFound.
    """
    await sessions.get(tx, space, session_id)
    await spaces.lost(tx, space)
    cancelled = [await jobs.cancel(tx, space, id, reason) for id in await jobs.open_of(tx, space, session_id)]
    # The rows of jobs stay as long as their tasks do.
    await turn_jobs.forget_queries_of_session(tx, space, session_id)
    archives = await tx.fetch(
        "SELECT task_id, first_sequence, last_sequence FROM archives"
        " WHERE account = $1 AND user_id = $2 AND session_id = $3",
        space.account,
        space.user,
        session_id,
    )
    await outbox.add(tx, space, 0, [emptying.passages_of(row) for row in archives])
    of_session = "WHERE account = $1 AND user_id = $2 AND session_id = $3"
    outputs = await tx.execute(f"DELETE FROM tool_outputs {of_session}", space.account, space.user, session_id)
    buckets = await tx.fetch(
        f"SELECT 1 FROM turn_artifacts {of_session} AND kind = $4 LIMIT 1",
        space.account,
        space.user,
        session_id,
        BUCKET,
    )
    if outputs or buckets:
        await blob_sweeps.ask(tx, space)
    for table in _OF_SESSION:
        await tx.execute(f"DELETE FROM {table} {of_session}", space.account, space.user, session_id)
    await leftovers.leave(tx, space, session_id)
    await leftovers.clear(tx, space)
    return cancelled


async def delete_user(tx: Tx, space: Space, reason: str) -> DeletedUser:
    """Empties the space, cancelling open jobs for `reason`; for a user who has nothing that is nothing.

    Of a user with more than AT_ONCE rows the rest is left to `empty`, and the space is shut until then. The space
    itself stays, and its revision goes up: watermarks, points and readers who wait for a revision depend on its never
    going back.
    """
    there = await tx.execute(
        "UPDATE spaces SET revision = revision + 1, losses = losses + 1 WHERE account = $1 AND user_id = $2",
        space.account,
        space.user,
    )
    if not there:
        return DeletedUser(0, 0, [])
    await tx.execute("DELETE FROM space_usage WHERE account = $1 AND user_id = $2", space.account, space.user)
    gone = DeletedUser(
        await _count(tx, space, "sessions"),
        await _count(tx, space, "memories", " AND rev_to = 0"),
        [await jobs.cancel(tx, space, id, reason) for id in await jobs.open_of(tx, space)],
    )
    if await emptying.take(tx, space, AT_ONCE):
        await shut_spaces.shut(tx, space)
        return gone
    await leftovers.clear(tx, space)
    await blob_sweeps.ask(tx, space)
    return gone


async def empty(tx: Tx, space: Space) -> bool:
    """Takes away some more of a deleted user, or of an import whose server died; whether there is more. The last time
    opens the space again."""
    await shut_spaces.lapse(tx, space)
    if not await shut_spaces.is_deleted(tx, space):
        return False
    if await emptying.take(tx, space, SLICE):
        return True
    await shut_spaces.open_again(tx, space)
    await blob_sweeps.ask(tx, space)
    return False


async def _count(tx: Tx, space: Space, table: str, only: str = "") -> int:
    row = await tx.fetchrow(
        f"SELECT COUNT(*) AS count FROM {table} WHERE account = $1 AND user_id = $2{only}", space.account, space.user
    )
    return int(row["count"]) if row else 0
