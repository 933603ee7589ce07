"""Questions of callers as jobs, so that they have leases, budgets and turns like all others.

Nothing of a question is kept. The server that serves the caller deletes the job when the call ends, however it ends.
What a killed server leaves behind is found by `stale`.
"""

import json
from uuid import uuid4

from runekeep_storage.database import Space, Tx
from runekeep_storage.errors import NotFound, TooManyQuestions
from runekeep_storage.jobs import jobs, retention, statements, tasks
from runekeep_storage.jobs.spending import COUNTERS
from runekeep_storage.records import Job
from runekeep_storage.spaces import spaces

ASK_PRIORITY = 1000
"""Above that of commits: a caller waits for an answer, and nobody waits for a commit."""
MAX_SECONDS = 3600.0
"""Longest time that a caller may wait for an answer."""
BATCH = 1000
"""Maximum number of questions that `stale` reads."""
PHASE, UNREPORTED = "answer", "unreported"
"""Phase and model of the tokens that are counted for a cancelled attempt."""


async def queue(tx: Tx, space: Space, question: str, time: int, traceparent: str, max_open: int) -> str:
    """Queues a question ahead of the account's commits, in a lane of its own; returns the id of its job. `time`:
    microseconds within which it must be answered. Raises TooManyQuestions if the user has `max_open` questions open,
    and NotFound for an unknown space: a misspelt user name must create none."""
    if await jobs.open_jobs(tx, space, jobs.ASK) >= max_open:
        raise TooManyQuestions(max_open)
    if not await spaces.exists(tx, space):
        raise NotFound("user", space.user)
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
        priority=ASK_PRIORITY,
    )
    return job_id


def question_of(job: Job) -> str:
    question: str = json.loads(job.plan)["question"]
    return question


def answer_deadline(job: Job) -> int:
    """Returns the time of the store's clock, in microseconds, after which nobody waits for the answer."""
    return _deadline(job.plan)


def _deadline(plan: str) -> int:
    time: int = json.loads(plan)["until"]
    return time


async def forget(tx: Tx, space: Space, job_id: str, reason: str) -> None:
    """Deletes a question with its answer; an open one is thereby cancelled. If an attempt was under way, the tokens
    that it was given count as spent: its worker no longer reports what it has spent, and a caller who asks and hangs up
    must not pass the budgets by."""
    try:
        task = await tasks.get(tx, space, job_id)
    except NotFound:
        # The user was deleted.
        return
    cancelled = None if task.ended else await jobs.cancel(tx, space, job_id, reason)
    if cancelled is not None and cancelled.state == "leased" and cancelled.token_budget:
        counters = {**dict.fromkeys(COUNTERS, 0), "calls": 1, "input_tokens": cancelled.token_budget}
        entry = {"phase": PHASE, "model": UNREPORTED, **counters}
        await tasks.spent(tx, space, job_id, cancelled.token, [entry])
    await retention.forget_task(tx, space, job_id)


async def forget_ended(tx: Tx, space: Space) -> None:
    """Deletes the answers of the user that no caller has read yet."""
    for row in await tx.fetch(statements.ENDED_ASKS, space.account, space.user):
        await retention.forget_task(tx, space, row["job_id"])


async def stale(tx: Tx, grace: int) -> list[tuple[Space, str]]:
    """Returns questions whose deadline passed `grace` microseconds ago, among the BATCH oldest. Reads over all accounts
    and all jobs: do not call it in a transaction that writes."""
    rows = await tx.fetch(statements.ASKS, BATCH)
    over = tx.now() - grace
    return [(Space(row["account"], row["user_id"]), row["job_id"]) for row in rows if _deadline(row["plan"]) < over]
