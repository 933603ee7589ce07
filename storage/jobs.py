"""Jobs: serial in a lane, leased with a fencing token, ended exactly once.

    pending --claim--> leased --succeed--> succeeded
       ^                 |----- requeue (failure, expiry, release) back to pending, token + 1
       |                 `----- give_up --> failed                 cancel --> cancelled

A lane has one head at a time: its oldest job that has not ended. A head is ready when it is pending and the time that
it has to wait is over; each account counts its ready jobs. How one is claimed: `storage.claiming`. Statements that run
over all accounts: `expired`; `get` finds a job by its id alone.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from storage import tasks
from storage.database import Row, Space, Topic, Tx
from storage.errors import LeaseLost, NotFound, WrongTaskState
from storage.leases import may_use
from storage.records import Job, LeaseId
from storage.statement_lists import by_keys, in_rows, rows
from storage.task_sessions import has_session

KEPT_FAILURES = 3
WAITING_FOR = "waiting_for"
"""Key under which a failure stores the part that was away."""

COMMIT, TURN_FINGERPRINT, BUCKET_RECONCILE = "commit", "turn_fingerprint", "bucket_reconcile"
"""Kinds of jobs."""
COMMITS = "commits"
"""The lane of all commits and bucket reconciliations of a user; each turn has one of its own."""

COLUMNS = (
    'account, user_id AS "user", job_id, kind, session_id, archive_index, plan, traceparent, state, attempts,'
    " lost_leases, conflicts, lease_epoch AS token, lease_expires, attempt_ends, worker_id, output_id, revision,"
    " failures, created_at, started, token_budget, bound_epoch AS bound_token, lease_holder AS holder,"
    " lease_digest AS digest, lost_by"
)
"""What `job_of` reads."""


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """Microseconds: until the first renewal, after each renewal, and of one attempt in all."""

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
        "INSERT INTO jobs (account, user_id, job_id, kind, lane, session_id, archive_index, plan, traceparent,"
        " priority, state, created_at, is_head, is_ready, lane_sequence)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'pending', $11,"
        f" {_LANE_IS_FREE.format('$5')}, {_LANE_IS_FREE.format('$5')}, {_LANE_END.format('$5')}) RETURNING is_ready",
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


# Of a job that joins a lane: whether it is head, and ready at once, as when nobody else waits there, and its place.
_LANE_IS_FREE = (
    "CASE WHEN EXISTS (SELECT 1 FROM jobs h WHERE h.account = $1 AND h.user_id = $2 AND h.lane = {} AND h.is_head = 1)"
    " THEN 0 ELSE 1 END"
)
_LANE_END = (
    "1 + (SELECT COALESCE(MAX(o.lane_sequence), 0) FROM jobs o WHERE o.account = $1 AND o.user_id = $2 AND o.lane = {})"
)


async def _join_lane(tx: Tx, space: Space, job_id: str, lane: str) -> None:
    """Makes a job that ended pending at the tail of its lane."""
    row = await tx.fetchrow(
        f"UPDATE jobs SET state = 'pending', is_head = {_LANE_IS_FREE.format('$4')},"
        f" is_ready = {_LANE_IS_FREE.format('$4')}, lane_sequence = {_LANE_END.format('$4')}"
        " WHERE account = $1 AND user_id = $2 AND job_id = $3 RETURNING is_ready",
        space.account,
        space.user,
        job_id,
        lane,
    )
    await _joined(tx, space, row)


async def _joined(tx: Tx, space: Space, row: Row | None) -> None:
    if row is not None and row["is_ready"]:
        await count_ready(tx, space.account, 1)
    tx.notify(Topic.JOBS)


async def count_ready(tx: Tx, account: str, more: int) -> None:
    """Adds to the ready jobs that the account counts."""
    await tx.execute("UPDATE accounts SET ready_jobs = ready_jobs + $2 WHERE account = $1", account, more)


async def open_jobs(tx: Tx, space: Space, kind: str) -> int:
    """Jobs of that kind of one user that have not ended."""
    row = await tx.fetchrow(
        "SELECT COUNT(*) AS n FROM jobs WHERE account = $1 AND user_id = $2 AND state IN ('pending', 'leased')"
        " AND kind = $3",
        space.account,
        space.user,
        kind,
    )
    return row["n"] if row else 0


async def get(tx: Tx, job_id: str) -> Job:
    """A job by its id alone, for workers, who name jobs and not users. Raises NotFound."""
    row = await tx.fetchrow(f"SELECT {COLUMNS} FROM jobs WHERE job_id = $1", job_id)
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


async def renew(tx: Tx, lease: LeaseId, terms: LeaseTerms, space: Space | None = None) -> Job:
    """Moves the end of a lease on, never past the end of the attempt; `space` as in `held`. Raises LeaseLost."""
    if space is None:
        space = space_of(await held(tx, lease))
    renewed = await renew_all(tx, space.account, [(space.user, lease)], terms)
    if lease not in renewed:
        raise LeaseLost(lease.job_id)
    return renewed[lease]


async def renew_all(
    tx: Tx, account: str, leases: Sequence[tuple[str, LeaseId]], terms: LeaseTerms
) -> dict[LeaseId, Job]:
    """As `renew`, of leases of one account, each with the user whose job it is of: the jobs of those that are held."""
    renewed: dict[LeaseId, Job] = {}
    for some in in_rows(list(dict.fromkeys(leases))):
        shown = {lease: lease for _, lease in some}
        keys = [value for user, lease in some for value in (user, lease.job_id, lease.token)]
        found = [job_of(row) for row in await tx.fetch(_leased(len(some)), account, *keys)]
        held_here = [job for job in found if may_use(job, shown[job.lease])]
        if not held_here:
            continue
        values = [
            value
            for job in held_here
            for value in (job.user, job.job_id, job.token, shown[job.lease].holder or job.holder)
        ]
        for row in await tx.fetch(_renew(len(held_here)), account, tx.now() + terms.renewed, *values):
            job = job_of(row)
            renewed[job.lease] = job
    return renewed


@cache
def _leased(count: int) -> str:
    leased = f"SELECT {COLUMNS} FROM jobs WHERE account = $1 AND state = 'leased'"
    return by_keys(leased, ("user_id", "job_id", "lease_epoch"), count, 2)


@cache
def _renew(count: int) -> str:
    # A lease that is not bound yet, see storage.leases, is bound to the principal that renews it.
    return (
        "UPDATE jobs SET lease_expires = CASE WHEN attempt_ends < $2 THEN attempt_ends ELSE $2 END,"
        " lease_digest = CASE WHEN bound_epoch = lease_epoch OR k.column4 = '' THEN lease_digest ELSE '' END,"
        " bound_epoch = CASE WHEN k.column4 = '' THEN bound_epoch ELSE lease_epoch END, lease_holder = k.column4"
        f" FROM (VALUES {rows('(?, ?, CAST(? AS BIGINT), ?)', count, 3)}) AS k"
        " WHERE account = $1 AND user_id = k.column1 AND job_id = k.column2 AND lease_epoch = k.column3"
        f" AND state = 'leased' RETURNING {COLUMNS}"
    )


async def expired(tx: Tx, ending_from: int = 0, expired_before: int = 0, limit: int = 100) -> list[Job]:
    """Jobs whose lease ran out, over all accounts; of attempts alone that end at `ending_from` or later, or whose lease
    ran out before `expired_before`."""
    found = await tx.fetch(
        f"SELECT {COLUMNS} FROM jobs WHERE state = 'leased' AND lease_expires < $1"
        " AND (attempt_ends >= $2 OR lease_expires < $3) ORDER BY lease_expires LIMIT $4",
        tx.now(),
        ending_from,
        expired_before,
        limit,
    )
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
        "UPDATE jobs SET state = 'pending', lease_epoch = lease_epoch + 1, worker_id = '', not_before = $4,"
        " attempts = $5, lost_leases = $6, conflicts = $7, failures = $8, is_ready = $9, lost_by = $10"
        " WHERE account = $1 AND user_id = $2 AND job_id = $3",
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
    """Makes jobs due that wait because of an outage of that part, in all accounts. Returns how many; fewer than `limit`
    means that none are left."""
    rows = await tx.fetch(
        "UPDATE jobs SET not_before = $1 WHERE job_id IN (SELECT job_id FROM jobs"
        "   WHERE is_head = 1 AND is_ready = 0 AND state = 'pending' AND not_before > $1 AND failures LIKE $2 LIMIT $3)"
        " RETURNING job_id",
        tx.now(),
        # A message earlier in the text cannot end like this, because its quotes are escaped.
        f"%{json.dumps({WAITING_FOR: part})[1:]}]",
        limit,
    )
    if rows:
        tx.notify(Topic.JOBS)
    return len(rows)


async def succeed(tx: Tx, job: Job, output_id: str, revision: int, result: dict[str, Any]) -> None:
    """Ends a job whose output is applied in this same transaction, and lets the next of its lane go."""
    await _end(tx, job, "succeeded", output_id=output_id, revision=revision)
    await tasks.set_state(
        tx, space_of(job), job.job_id, "completed", result=json.dumps(result), error="", ended_at=tx.now()
    )


async def give_up(tx: Tx, job: Job, failure: Failure, result: dict[str, Any], *, lost_lease: bool = False) -> None:
    """Puts a job aside for good: a dead letter that RetryTask can wake. The next of its lane goes on."""
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
    """Ends an open job at once; what its worker still sends is refused. Raises NotFound, WrongTaskState."""
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
    """Queues a failed or cancelled job again, behind its lane, counters at 0. Raises NotFound, WrongTaskState."""
    task = await tasks.get(tx, space, task_id)
    if task.state not in ("failed", "cancelled"):
        raise WrongTaskState(task_id, task.state)
    if not await has_session(tx, space, task):
        raise NotFound("session", task.session_id)
    await _set_archive_state(tx, space, task_id, task.session_id, task.archive_index, "pending")
    await tx.execute(
        "UPDATE jobs SET attempts = 0, lost_leases = 0, lost_by = '', conflicts = 0, tokens_spent = 0, not_before = 0,"
        " created_at = $4 WHERE account = $1 AND user_id = $2 AND job_id = $3",
        space.account,
        space.user,
        task_id,
        tx.now(),
    )
    row = await tx.fetchrow(
        "SELECT lane FROM jobs WHERE account = $1 AND user_id = $2 AND job_id = $3", space.account, space.user, task_id
    )
    if row is None:
        raise NotFound("job", task_id)
    await _join_lane(tx, space, task_id, row["lane"])
    await tasks.set_state(tx, space, task_id, "pending", attempt=0, lost_leases=0, ended_at=0, result="", error="")


async def open_of(tx: Tx, space: Space, session_id: str = "") -> list[str]:
    """Ids of jobs of the user, or of one session, that have not ended."""
    found = await tx.fetch(
        "SELECT job_id FROM jobs WHERE account = $1 AND user_id = $2 AND ($3 = '' OR session_id = $3)"
        " AND state IN ('pending', 'leased')",
        space.account,
        space.user,
        session_id,
    )
    return [row["job_id"] for row in found]


async def _end(tx: Tx, job: Job, state: str, **columns: Any) -> None:
    if job.state == "pending":
        await tx.execute(
            "UPDATE accounts SET ready_jobs = ready_jobs - (SELECT is_ready FROM jobs"
            " WHERE account = $1 AND user_id = $2 AND job_id = $3) WHERE account = $1",
            job.account,
            job.user,
            job.job_id,
        )
    sets = "".join(f", {name} = ${number}" for number, name in enumerate(columns, 5))
    await tx.execute(
        f"UPDATE jobs SET state = $4, is_head = 0, is_ready = 0, lease_epoch = lease_epoch + 1{sets}"
        " WHERE account = $1 AND user_id = $2 AND job_id = $3",
        job.account,
        job.user,
        job.job_id,
        state,
        *columns.values(),
    )
    # Who is no head yet has nothing to wait for but its turn.
    following = await tx.fetchrow(
        "UPDATE jobs SET is_head = 1, is_ready = 1 WHERE account = $1 AND user_id = $2 AND job_id = ("
        " SELECT n.job_id FROM jobs n WHERE n.account = $1 AND n.user_id = $2 AND n.state = 'pending' AND n.lane = ("
        "   SELECT d.lane FROM jobs d WHERE d.account = $1 AND d.user_id = $2 AND d.job_id = $3)"
        " ORDER BY n.lane_sequence LIMIT 1)"
        " AND NOT EXISTS (SELECT 1 FROM jobs h WHERE h.account = $1 AND h.user_id = $2 AND h.is_head = 1"
        "   AND h.lane = (SELECT d.lane FROM jobs d WHERE d.account = $1 AND d.user_id = $2 AND d.job_id = $3))"
        " RETURNING job_id",
        job.account,
        job.user,
        job.job_id,
    )
    if following is not None:
        await count_ready(tx, job.account, 1)
    tx.notify(Topic.JOBS)


async def _archive_failed(tx: Tx, job: Job) -> None:
    await _set_archive_state(tx, space_of(job), job.job_id, job.session_id, job.archive_index, "failed")


async def _set_archive_state(tx: Tx, space: Space, task_id: str, session_id: str, index: int, state: str) -> None:
    """Nothing for a job without an archive."""
    await tx.execute(
        "UPDATE archives SET state = $5"
        " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND archive_index = $4 AND task_id = $6",
        space.account,
        space.user,
        session_id,
        index,
        state,
        task_id,
    )
