"""A session or a user deleted for good: gone at once, in one transaction, and nothing of it comes back.

What is still under way for it finds out in its own transaction: a worker whose job is cancelled holds no lease, a relay
that wrote points looks at their rows again (`storage.recheck`), a repeated request finds its answer void.

Points leave the index by the outbox, each by its own id. An id is of one row and never of another (`storage.points`),
so a removal may be late, or be repeated by a second server, and takes nothing of what the user writes afterwards;
`VectorIndex.delete_space` would, for a relay that stops between reading the outbox and calling it. Every point that can
be in the index is named: those of current memories here, those of older versions since they were superseded, and those
of passages by the archives, whether their rows are there yet or not.

What takes long follows in slices: `storage.leftovers`, `storage.blob_sweeps`.
"""

from dataclasses import dataclass

from storage import blob_sweeps, jobs, leftovers, outbox, requests, sessions
from storage.database import Row, Space, Tx
from storage.outbox import Entry
from storage.points import memory_point
from storage.records import Job

_OF_SESSION = ("usages", "archives", "sessions")
_OF_USER = ("tool_outputs", *_OF_SESSION, "active_counts", "memories", "commits", "jobs", "task_events", "tasks")

DELETE_USER = "DeleteUser"
"""The method whose answers outlive the user: a repeat must not delete what the user wrote after the first one."""


_POINTS = 200
"""Memories that one entry of the outbox takes out of the index."""


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
    cancelled = [await jobs.cancel(tx, space, id, reason) for id in await jobs.open_of(tx, space, session_id)]
    archives = await tx.fetch(
        "SELECT task_id, first_sequence, last_sequence FROM archives"
        " WHERE account = $1 AND user_id = $2 AND session_id = $3",
        space.account,
        space.user,
        session_id,
    )
    await outbox.add(tx, space, 0, [_passages(row) for row in archives])
    of_session = "WHERE account = $1 AND user_id = $2 AND session_id = $3"
    if await tx.execute(f"DELETE FROM tool_outputs {of_session}", space.account, space.user, session_id):
        await blob_sweeps.ask(tx, space)
    for table in _OF_SESSION:
        await tx.execute(f"DELETE FROM {table} {of_session}", space.account, space.user, session_id)
    await leftovers.leave(tx, space, session_id)
    await leftovers.clear(tx, space)
    return cancelled


async def delete_user(tx: Tx, space: Space, reason: str) -> DeletedUser:
    """Empties the space, cancelling open jobs for `reason`; for a user who has nothing that is nothing.

    The space itself stays, and its revision goes up: watermarks, points and readers who wait for a revision depend on
    its never going back.
    """
    there = await tx.execute(
        "UPDATE spaces SET revision = revision + 1 WHERE account = $1 AND user_id = $2", space.account, space.user
    )
    if not there:
        return DeletedUser(0, 0, [])
    cancelled = [await jobs.cancel(tx, space, id, reason) for id in await jobs.open_of(tx, space)]
    await leftovers.leave_all(tx, space)
    memories = await _put_out(tx, space)
    gone = {}
    for table in _OF_USER:
        gone[table] = await tx.execute(
            f"DELETE FROM {table} WHERE account = $1 AND user_id = $2", space.account, space.user
        )
    await requests.void(tx, space, but=DELETE_USER)
    await leftovers.clear(tx, space)
    await blob_sweeps.ask(tx, space)
    return DeletedUser(gone["sessions"], memories, cancelled)


async def _put_out(tx: Tx, space: Space) -> int:
    """Leaves nothing in the outbox but removals, and adds those of all that is current; the number of memories."""
    await tx.execute(
        "DELETE FROM outbox WHERE account = $1 AND user_id = $2 AND op NOT IN ('delete', 'delete_passages')",
        space.account,
        space.user,
    )
    current = await tx.fetch(
        "SELECT uri, rev_from FROM memories WHERE account = $1 AND user_id = $2 AND rev_to = 0",
        space.account,
        space.user,
    )
    archives = await tx.fetch(
        "SELECT task_id, first_sequence, last_sequence FROM archives WHERE account = $1 AND user_id = $2",
        space.account,
        space.user,
    )
    points = [memory_point(space, row["uri"], row["rev_from"]) for row in current]
    # Few entries: until the relay is through with them, what the user writes next is not to be found.
    memories = [Entry("delete", point_id=" ".join(some)) for some in _groups(points)]
    await outbox.add(tx, space, 0, [*memories, *(_passages(row) for row in archives)])
    return len(points)


def _groups(points: list[str]) -> list[list[str]]:
    return [points[start : start + _POINTS] for start in range(0, len(points), _POINTS)]


def _passages(archive: Row) -> Entry:
    return Entry(
        "delete_passages",
        task_id=archive["task_id"],
        first_sequence=archive["first_sequence"],
        last_sequence=archive["last_sequence"],
    )
