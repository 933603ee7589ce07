"""A session deleted for good: its open commits, what search knows of it, and its rows, in one transaction."""

from storage import jobs, outbox, passages, sessions
from storage.database import Space, Tx
from storage.records import Job


async def delete_session(tx: Tx, space: Space, session_id: str, reason: str) -> list[Job]:
    """Gives the jobs that this cancelled, for `reason`. Points of passages leave the index by the relay.

    Raises NotFound.
    """
    await sessions.get(tx, space, session_id)
    cancelled = []
    for job_id in await jobs.open_of_session(tx, space, session_id):
        cancelled.append(await jobs.cancel(tx, space, job_id, reason))
    points = await passages.points_of_session(tx, space, session_id)
    await outbox.add(tx, space, 0, [outbox.Entry("delete", point_id=point) for point in points])
    await sessions.delete(tx, space, session_id)
    return cancelled
