"""Each lease may be repaired once. The repair is stored with its job, so that every server knows whether the lease has
used it."""

import json
from typing import Any

from runekeep_storage.database import Space, Tx
from runekeep_storage.jobs import jobs, statements
from runekeep_storage.records import Job, LeaseId


async def ask(tx: Tx, space: Space, lease: LeaseId, repair: dict[str, Any]) -> Job:
    """Stores the refused parts of an output. Raises LeaseLost."""
    job = await jobs.held(tx, lease, space)
    await tx.execute(
        statements.STORE_REPAIR,
        job.account,
        job.user,
        job.job_id,
        json.dumps({**repair, "token": lease.token}, ensure_ascii=False),
    )
    return job


async def asked(tx: Tx, job: Job) -> dict[str, Any] | None:
    """Returns what `ask` stored under the job's current lease; None if no repair was requested."""
    row = await tx.fetchrow(statements.REPAIR, job.account, job.user, job.job_id)
    repair: dict[str, Any] | None = json.loads(row["repair"]) if row and row["repair"] else None
    return repair if repair and repair["token"] == job.token else None
