"""The repair of an output: kept with its job, so that any server knows that a lease had the one that it may have."""

import json
from typing import Any

from storage import jobs
from storage.database import Space, Tx
from storage.records import Job, LeaseId


async def ask(tx: Tx, space: Space, lease: LeaseId, repair: dict[str, Any]) -> Job:
    """Keeps what was refused of an output. Raises LeaseLost."""
    job = await jobs.held(tx, lease, space)
    await tx.execute(
        "UPDATE jobs SET repair = $4 WHERE account = $1 AND user_id = $2 AND job_id = $3",
        job.account,
        job.user,
        job.job_id,
        json.dumps({**repair, "token": lease.token}, ensure_ascii=False),
    )
    return job


async def asked(tx: Tx, job: Job) -> dict[str, Any] | None:
    """What `ask` kept under the lease that the job has now; None when no repair was asked."""
    row = await tx.fetchrow(
        "SELECT repair FROM jobs WHERE account = $1 AND user_id = $2 AND job_id = $3", job.account, job.user, job.job_id
    )
    repair: dict[str, Any] | None = json.loads(row["repair"]) if row and row["repair"] else None
    return repair if repair and repair["token"] == job.token else None
