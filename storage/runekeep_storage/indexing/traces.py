"""Reads the traces of the commits that background work belongs to. Queries the store only if this process traces."""

from runekeep_common.telemetry import tracing
from runekeep_storage.database import Space, SpaceDatabase, Tx


async def of_revisions(database: SpaceDatabase, space: Space, first: int, last: int) -> list[str]:
    """Returns traceparents of the commits that made revisions `first` to `last` of a space, at most as many as a span
    may link. Writes by hand have none."""
    return await database.read(_of_revisions, space, first, last) if tracing.is_on() else []


async def of_job(database: SpaceDatabase, space: Space, job_id: str) -> list[str]:
    """Returns the traceparent of a job, if it exists and has one."""
    return await database.read(_of_job, space, job_id) if tracing.is_on() else []


async def _of_revisions(tx: Tx, space: Space, first: int, last: int) -> list[str]:
    rows = await tx.fetch(
        "SELECT j.traceparent FROM commits c"
        " JOIN jobs j ON j.account = c.account AND j.user_id = c.user_id AND j.job_id = c.job_id"
        " WHERE c.account = $1 AND c.user_id = $2 AND c.revision >= $3 AND c.revision <= $4 AND c.job_id <> ''"
        " ORDER BY c.revision LIMIT $5",
        space.account,
        space.user,
        first,
        last,
        tracing.MAX_LINKS,
    )
    return [row["traceparent"] for row in rows]


async def _of_job(tx: Tx, space: Space, job_id: str) -> list[str]:
    row = await tx.fetchrow(
        "SELECT traceparent FROM jobs WHERE account = $1 AND user_id = $2 AND job_id = $3",
        space.account,
        space.user,
        job_id,
    )
    return [row["traceparent"]] if row else []
