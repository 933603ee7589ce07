"""Reads the traces of the commits that background work belongs to. Queries the store only if this process traces."""

from runekeep_common.telemetry import tracing
from runekeep_storage.database import Space, SpaceDatabase, Tx
from runekeep_storage.indexing import statements


async def of_revisions(database: SpaceDatabase, space: Space, first: int, last: int) -> list[str]:
    """Returns traceparents of the commits that made revisions `first` to `last` of a space, at most as many as a span
    may link. Writes by hand have none."""
    return await database.read(_of_revisions, space, first, last) if tracing.is_on() else []


async def of_job(database: SpaceDatabase, space: Space, job_id: str) -> list[str]:
    """Returns the traceparent of a job, if it exists and has one."""
    return await database.read(_of_job, space, job_id) if tracing.is_on() else []


async def _of_revisions(tx: Tx, space: Space, first: int, last: int) -> list[str]:
    rows = await tx.fetch(statements.TRACES_OF_REVISIONS, space.account, space.user, first, last, tracing.MAX_LINKS)
    return [row["traceparent"] for row in rows]


async def _of_job(tx: Tx, space: Space, job_id: str) -> list[str]:
    row = await tx.fetchrow(statements.TRACE_OF_JOB, space.account, space.user, job_id)
    return [row["traceparent"]] if row else []
