"""Jobs: serial within a lane, leased with a fencing token, ended exactly once.

    pending --claim--> leased --succeed--> succeeded
       ^                 |----- requeue (failure, expiry, release) back to pending, token + 1
       |                 `----- give_up --> failed                 cancel --> cancelled

A lane has one head at a time: its oldest job that has not ended. A head is ready when it is pending and its wait is
over; each account counts its ready jobs. For claims see `runekeep_storage.jobs.claiming`. Two functions read over all
accounts: `expired`, and `get`, which finds a job by its id alone.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runekeep_storage.database import Row, Space, Topic, Tx
from runekeep_storage.drivers.common.statement_lists import in_rows
from runekeep_storage.errors import LeaseLost, NotFound, WrongTaskState
from runekeep_storage.jobs import statements, tasks
from runekeep_storage.jobs.lease_holders import may_use
from runekeep_storage.jobs.task_sessions import has_session
from runekeep_storage.records import Job, LeaseId

KEPT_FAILURES = 3
WAITING_FOR = "waiting_for"
"""Key under which a failure stores the part that was unavailable."""

COMMIT, TURN_FINGERPRINT, BUCKET_RECONCILE, ASK = "commit", "turn_fingerprint", "bucket_reconcile", "ask"
"""Kinds of jobs."""
COMMITS = "commits"
"""The lane of all commits and bucket reconciliations of a user; each turn and each question has one of its own."""


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """Durations in microseconds: until the first renewal, after each renewal, and of a whole attempt."""

    first: int
    renewed: int
    attempt: int


def job_of(row: Row) -> Job:
    return Job(**dict(row))


def space_of(job: Job) -> Space:
    return Space(job.account, job.user)


async def enqueue(
    tx: Tx,
    space: Space,
    job_id: str,
    *,
    kind: str,
    lane: str,
    session_id: str,
    archive_index: int,
    plan: str,
    traceparent: str,
    priority: int = 0,
) -> None:
    """Puts a job at the end of its lane."""
    row = await tx.fetchrow(
        statements.ADD_JOB,
        space.account,
        space.user,
        job_id,
        kind,
        lane,
        session_id,
        archive_index,
        plan,
        traceparent,
        priority,
        tx.now(),
    )
    await _joined(tx, space, row)


async def _join_lane(tx: Tx, space: Space, job_id: str, lane: str) -> None:
    """Makes an ended job pending again, at the end of its lane."""
    row = await tx.fetchrow(statements.REVIVE_JOB, space.account, space.user, job_id, lane)
    await _joined(tx, space, row)


async def _joined(tx: Tx, space: Space, row: Row | None) -> None:
    if row is not None and row["is_ready"]:
        await count_ready(tx, space.account, 1)
    tx.notify(Topic.JOBS)


async def count_ready(tx: Tx, account: str, more: int) -> None:
    """Adds `more` to the account's count of ready jobs."""
    await tx.execute(statements.ADD_READY_JOBS, account, more)


async def open_jobs(tx: Tx, space: Space, kind: str) -> int:
    """Returns the number of the user's jobs of that kind that have not ended."""
    row = await tx.fetchrow(statements.COUNT_OPEN_JOBS, space.account, space.user, kind)
    return row["n"] if row else 0


async def get(tx: Tx, job_id: str) -> Job:
    """Returns a job by its id alone, because workers name jobs and not users. Raises NotFound."""
    row = await tx.fetchrow(statements.JOB, job_id)
    if row is None:
        raise NotFound("job", job_id)
    return job_of(row)


async def held(tx: Tx, lease: LeaseId, space: Space | None = None) -> Job:
    """Returns the job of a lease that its caller holds now. A lease that expired but was not given to another worker is
    still held.

    `space`: the expected space of the job, if the caller knows it and its transaction is of that account; a job of
    another space is not held. Raises LeaseLost.
    """
    try:
        job = await get(tx, lease.job_id)
    except NotFound:
        raise LeaseLost(lease.job_id) from None
    if job.state != "leased" or job.token != lease.token or not may_use(job, lease):
        raise LeaseLost(lease.job_id)
    if space not in (None, space_of(job)):
        raise LeaseLost(lease.job_id)
    return job


async def renew(tx: Tx, space: Space, lease: LeaseId, terms: LeaseTerms) -> Job:
    """Extends a lease, but never beyond the end of the attempt. Raises LeaseLost, also for a job of another space."""
    renewed = await renew_all(tx, space.account, [(space.user, lease)], terms)
    if lease not in renewed:
        raise LeaseLost(lease.job_id)
    return renewed[lease]


async def renew_all(
    tx: Tx, account: str, leases: Sequence[tuple[str, LeaseId]], terms: LeaseTerms
) -> dict[LeaseId, Job]:
    """Like `renew`, for leases of one account, each with the user of its job. Returns the jobs of the leases that are
    held."""
    renewed: dict[LeaseId, Job] = {}
    for some in in_rows(list(dict.fromkeys(leases))):
        shown = {lease: lease for _, lease in some}
        keys = [value for user, lease in some for value in (user, lease.job_id, lease.token)]
        found = [job_of(row) for row in await tx.fetch(statements.leased_jobs(len(some)), account, *keys)]
        held_here = [job for job in found if may_use(job, shown[job.lease])]
        if not held_here:
            continue
        values = [
            value
            for job in held_here
            for value in (job.user, job.job_id, job.token, shown[job.lease].holder or job.holder)
        ]
        for row in await tx.fetch(statements.renew_leases(len(held_here)), account, tx.now() + terms.renewed, *values):
            job = job_of(row)
            renewed[job.lease] = job
    return renewed


async def expired(tx: Tx, ending_from: int = 0, expired_before: int = 0, limit: int = 100) -> list[Job]:
    """Returns jobs whose lease expired, over all accounts: only those whose attempt ends at `ending_from` or later, or
    whose lease expired before `expired_before`. Times in microseconds."""
    found = await tx.fetch(statements.EXPIRED_LEASES, tx.now(), ending_from, expired_before, limit)
    return [job_of(row) for row in found]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt ended. `failure_class` is a FailureClass name of the contract in lower case; `waiting_for` is the
    part whose outage ended the attempt, if there was one."""

    failure_class: str
    message: str
    waiting_for: str = ""

    def as_json(self) -> dict[str, Any]:
        told = {"class": self.failure_class, "message": self.message}
        # This must be the last key: `end_wait` finds jobs by the end of the failure's text.
        return {**told, WAITING_FOR: self.waiting_for} if self.waiting_for else told


async def requeue(
    tx: Tx, job: Job, failure: Failure | None, *, delay: int, counts: str | None, lost_by: str | None = None
) -> None:
    """Ends an attempt and makes the job wait for the next one. `lost_by`: which workers lost it; None: unchanged.

    `counts` names the counter that keeps its increment (`attempts`) or gains one (`lost_leases`, `conflicts`); None:
    the attempt does not count. `delay` in microseconds. `failure` None: the job was released.
    """
    failures = _with(job.failures, failure)
    await tx.execute(
        statements.REQUEUE_JOB,
        job.account,
        job.user,
        job.job_id,
        tx.now() + delay,
        job.attempts - (counts != "attempts"),
        job.lost_leases + (counts == "lost_leases"),
        job.conflicts + (counts == "conflicts"),
        failures,
        int(delay <= 0),
        job.lost_by if lost_by is None else lost_by,
    )
    if delay <= 0:
        await count_ready(tx, job.account, 1)
    space = space_of(job)
    columns: dict[str, Any] = {"lost_leases": job.lost_leases + (counts == "lost_leases")}
    if failure is not None:
        columns["error"] = json.dumps(failure.as_json())
        await tasks.add_event(tx, space, job.job_id, "attempt_failed", failure.as_json())
    await tasks.set_state(tx, space, job.job_id, "pending", **columns)
    tx.notify(Topic.JOBS)


def _with(failures: str, failure: Failure | None) -> str:
    if failure is None:
        return failures
    return json.dumps([*json.loads(failures), failure.as_json()][-KEPT_FAILURES:])


async def end_wait(tx: Tx, part: str, limit: int = 1000) -> int:
    """Makes jobs of all accounts due that wait because of an outage of that part. Returns how many; fewer than `limit`
    means that none are left."""
    rows = await tx.fetch(
        statements.END_WAIT,
        tx.now(),
        # A message earlier in the text cannot end like this, because its quotes are escaped.
        f"%{json.dumps({WAITING_FOR: part})[1:]}]",
        limit,
    )
    if rows:
        tx.notify(Topic.JOBS)
    return len(rows)


async def succeed(tx: Tx, job: Job, output_id: str, revision: int, result: dict[str, Any]) -> None:
    """Ends a job whose output is applied in the same transaction. The next job of its lane becomes head."""
    await _end(tx, job, "succeeded", output_id=output_id, revision=revision)
    await tasks.set_state(
        tx, space_of(job), job.job_id, "completed", result=json.dumps(result), error="", ended_at=tx.now()
    )


async def give_up(tx: Tx, job: Job, failure: Failure, result: dict[str, Any], *, lost_lease: bool = False) -> None:
    """Ends a job as failed: a dead letter that RetryTask can revive. The next job of its lane becomes head."""
    await _end(tx, job, "failed", failures=_with(job.failures, failure))
    await _archive_failed(tx, job)
    error = json.dumps(failure.as_json())
    lost_leases = job.lost_leases + lost_lease
    await tasks.set_state(
        tx,
        space_of(job),
        job.job_id,
        "failed",
        result=json.dumps(result),
        error=error,
        lost_leases=lost_leases,
        ended_at=tx.now(),
    )


async def cancel(tx: Tx, space: Space, task_id: str, reason: str) -> Job:
    """Ends an open job at once; later messages of its worker are refused. Raises NotFound, WrongTaskState."""
    task = await tasks.get(tx, space, task_id)
    if task.ended:
        raise WrongTaskState(task_id, task.state)
    job = await get(tx, task_id)
    await _end(tx, job, "cancelled")
    await _archive_failed(tx, job)
    error = json.dumps({"class": "cancelled", "message": reason or "cancelled by the caller"})
    await tasks.set_state(tx, space, task_id, "cancelled", error=error, ended_at=tx.now())
    return job


async def retry(tx: Tx, space: Space, task_id: str) -> None:
    """Queues a failed or cancelled job again, at the end of its lane, with its counters at 0. Raises NotFound,
    WrongTaskState."""
    task = await tasks.get(tx, space, task_id)
    if task.state not in ("failed", "cancelled"):
        raise WrongTaskState(task_id, task.state)
    if not await has_session(tx, space, task):
        raise NotFound("session", task.session_id)
    await _set_archive_state(tx, space, task_id, task.session_id, task.archive_index, "pending")
    await tx.execute(statements.RESET_JOB, space.account, space.user, task_id, tx.now())
    row = await tx.fetchrow(statements.LANE_OF_JOB, space.account, space.user, task_id)
    if row is None:
        raise NotFound("job", task_id)
    await _join_lane(tx, space, task_id, row["lane"])
    await tasks.set_state(tx, space, task_id, "pending", attempt=0, lost_leases=0, ended_at=0, result="", error="")


async def open_of(tx: Tx, space: Space, session_id: str = "") -> list[str]:
    """Returns the ids of open jobs of the user, or of one session."""
    found = await tx.fetch(statements.OPEN_JOBS, space.account, space.user, session_id)
    return [row["job_id"] for row in found]


async def _end(tx: Tx, job: Job, state: str, **columns: Any) -> None:
    if job.state == "pending":
        await tx.execute(statements.SUBTRACT_READY_JOB, job.account, job.user, job.job_id)
    await tx.execute(statements.end_job(columns), job.account, job.user, job.job_id, state, *columns.values())
    # Only heads are requeued with a delay, so the new head is ready at once.
    following = await tx.fetchrow(statements.PROMOTE_NEXT_JOB, job.account, job.user, job.job_id)
    if following is not None:
        await count_ready(tx, job.account, 1)
    tx.notify(Topic.JOBS)


async def _archive_failed(tx: Tx, job: Job) -> None:
    await _set_archive_state(tx, space_of(job), job.job_id, job.session_id, job.archive_index, "failed")


async def _set_archive_state(tx: Tx, space: Space, task_id: str, session_id: str, index: int, state: str) -> None:
    """Does nothing for a job without an archive."""
    await tx.execute(statements.SET_ARCHIVE_STATE, space.account, space.user, session_id, index, state, task_id)
