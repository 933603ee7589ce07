"""Which traces the commits belong to whose work goes on behind them. Asked only where this process traces."""

from schemas.telemetry import tracing
from storage.database import Database, Space, Tx


async def of_revisions(database: Database, space: Space, first: int, last: int) -> list[str]:
    """Traceparents of the commits that made the revisions of a space from `first` to `last`, as many as one span
    names. What callers write by hand has none."""
    return await database.read(_of_revisions, space, first, last) if tracing.is_on() else []


async def of_job(database: Database, space: Space, job_id: str) -> list[str]:
    """The traceparent of a job, if it is there and has one."""
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
        tracing.MOST_LINKS,
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
