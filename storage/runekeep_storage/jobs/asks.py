"""Questions of callers as jobs, so that they have leases, budgets and turns like all others.

Nothing of a question is kept. The server that serves the caller deletes the job when the call ends, however it ends.
What a killed server leaves behind is found by `stale`.
"""

import json
from uuid import uuid4

from runekeep_storage.database import Space, Tx
from runekeep_storage.errors import BacklogFull, NotFound
from runekeep_storage.jobs import jobs, retention, statements, tasks
from runekeep_storage.records import Job
from runekeep_storage.spaces import spaces

AHEAD = 1000
"""Priority of questions: their callers wait, and nobody waits for a commit."""
MAX_SECONDS = 3600.0
"""Longest time that a caller may wait for an answer."""
BATCH = 100
"""Maximum number of questions that `stale` returns."""


async def queue(tx: Tx, space: Space, question: str, time: int, traceparent: str, max_open: int) -> str:
    """Queues a question ahead of the account's commits, in a lane of its own; returns the id of its job. `time`:
    microseconds within which it must be answered. Raises BacklogFull if the user has `max_open` questions open."""
    already = await jobs.open_jobs(tx, space, jobs.ASK)
    if already >= max_open:
        raise BacklogFull(already)
    # A user may ask before anything is remembered.
    await spaces.ensure(tx, space)
    job_id = str(uuid4())
    await tasks.create(tx, space, job_id, jobs.ASK, "")
    await jobs.enqueue(
        tx,
        space,
        job_id,
        kind=jobs.ASK,
        lane=f"ask:{job_id}",
        session_id="",
        archive_index=0,
        plan=json.dumps({"question": question, "until": tx.now() + time}, ensure_ascii=False),
        traceparent=traceparent,
        priority=AHEAD,
    )
    return job_id


def question_of(job: Job) -> str:
    question: str = json.loads(job.plan)["question"]
    return question


def until(job: Job) -> int:
    """Returns the time of the store's clock, in microseconds, after which nobody waits for the answer."""
    time: int = json.loads(job.plan)["until"]
    return time


async def forget(tx: Tx, space: Space, job_id: str, reason: str) -> Job | None:
    """Deletes a question with its answer. Returns its job if it was open, which is thereby cancelled."""
    try:
        task = await tasks.get(tx, space, job_id)
    except NotFound:
        # The user was deleted.
        return None
    cancelled = None if task.ended else await jobs.cancel(tx, space, job_id, reason)
    await retention.forget_task(tx, space, job_id)
    return cancelled


async def forget_ended(tx: Tx, space: Space) -> None:
    """Deletes the answers of the user that no caller has read yet."""
    for row in await tx.fetch(statements.ENDED_ASKS, space.account, space.user):
        await retention.forget_task(tx, space, row["job_id"])


async def stale(tx: Tx, age: int) -> list[tuple[Space, str]]:
    """Returns questions that are older than `age` microseconds, at most BATCH. Runs over all accounts, and over all
    jobs: do not call it in a transaction that writes."""
    rows = await tx.fetch(statements.STALE_ASKS, tx.now() - age, BATCH)
    return [(Space(row["account"], row["user_id"]), row["job_id"]) for row in rows]
