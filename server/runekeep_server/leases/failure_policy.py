"""Decides what follows an attempt that ends without a result: wait, retry or give up."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep_server.leases.part_watch import PartWatch
from runekeep_server.leases.worker_records import LossPolicy
from runekeep_server.settings import Settings
from runekeep_storage.database import Space, Tx
from runekeep_storage.jobs import asks, claiming, extraction_records, jobs, tasks
from runekeep_storage.jobs.budgets import TokenLimits
from runekeep_storage.jobs.claiming import NOBODY, AtLimit, Holder, OutOfBudget, Unwanted
from runekeep_storage.jobs.extraction_records import AttemptRecord
from runekeep_storage.jobs.jobs import Failure, LeaseTerms
from runekeep_storage.jobs.worker_records import WorkerRecord
from runekeep_storage.records import Job, LeaseId

SECOND = 1_000_000

MODEL, STORE = "model", "store"
"""Dependencies that may be unavailable, named as in Task.waiting_for."""
# An outage of the model or of a part of the server is not a failure of the job: the job waits for its end, up to the
# age limit. This maps a failure class to the unavailable part, for workers that do not name it.
_PARTS: dict[int, str] = {
    pb.FAILURE_CLASS_RATE_LIMITED: MODEL,
    pb.FAILURE_CLASS_MODEL_UNAVAILABLE: MODEL,
    pb.FAILURE_CLASS_DEPENDENCY_UNAVAILABLE: "server",
}
MAX_PART_WAIT_SECONDS = 15.0
"""Maximum delay between two attempts while a watched part of the server is unavailable. The watch wakes its jobs when
the part is back."""
MAX_UNWATCHED_WAIT_SECONDS = 1.0
"""The same for a part without a watch, such as the store: it is already back when the failure can be written."""
_FINAL = {
    pb.FAILURE_CLASS_MODEL_REFUSED,
    pb.FAILURE_CLASS_INPUT_TOO_LARGE,
    pb.FAILURE_CLASS_INPUT_INVALID,
    pb.FAILURE_CLASS_OUT_OF_BUDGET,
}


def class_name(number: int) -> str:
    return pb.FailureClass.Name(number).removeprefix("FAILURE_CLASS_").lower()  # type: ignore[arg-type]  # a number of the enum


_OUTCOMES = {
    class_name(pb.FAILURE_CLASS_INVALID_OUTPUT): "unparseable",
    class_name(pb.FAILURE_CLASS_REJECTED_OUTPUT): "unparseable",
    class_name(pb.FAILURE_CLASS_CONFLICT): "conflict",
    class_name(pb.FAILURE_CLASS_TIME_BUDGET): "out_of_budget",
    class_name(pb.FAILURE_CLASS_OUT_OF_BUDGET): "out_of_budget",
}


@dataclass(frozen=True, slots=True)
class AttemptFailure:
    """Why an attempt failed, as reported by its worker or the server. `retry_after` in seconds; `waiting_for`: the part
    whose outage ended the attempt, if the worker names it; `left_out`: what the task's result says about its output, if
    this is its last attempt."""

    failure_class: int
    message: str
    is_retryable: bool = True
    retry_after: float = 0.0
    waiting_for: str = ""
    left_out: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """How an attempt ended. `given_up`: there is no further attempt. `paused`: workers that are paused because of
    it."""

    job: Job
    given_up: bool
    paused: tuple[WorkerRecord, ...] = ()


class FailurePolicy:
    """Decides what follows a failed attempt, and writes the decision in the given transaction."""

    def __init__(self, settings: Settings, watch: PartWatch | None = None, losses: LossPolicy | None = None) -> None:
        """`watch` wakes jobs when the part that they wait for is back. Without it they are retried often."""
        self._settings = settings
        self._watch = watch
        self._losses = losses or LossPolicy(settings)

    async def fail(
        self,
        tx: Tx,
        space: Space,
        lease: LeaseId,
        failure: AttemptFailure,
        *,
        usage: Sequence[dict[str, Any]] = (),
        record: AttemptRecord | None = None,
    ) -> AttemptEnd:
        """Records that an attempt failed. Raises LeaseLost. `usage`: what it spent."""
        job = await jobs.held(tx, lease, space)
        await tasks.spent(tx, space, job.job_id, job.token, usage)
        class_ = failure.failure_class
        away = (failure.waiting_for or _PARTS[class_]) if class_ in _PARTS else ""
        stored = Failure(class_name(class_), failure.message, away)
        if record is not None:
            await extraction_records.keep(tx, job, record, stored)
        if away:
            return await self._wait(tx, job, stored, failure.retry_after)
        # What is left of a question's time would be spent for nothing.
        is_over = job.kind == jobs.ASK and class_ == pb.FAILURE_CLASS_TIME_BUDGET
        if class_ in _FINAL or is_over or not failure.is_retryable:
            return await self._give_up(tx, job, stored)
        if class_ == pb.FAILURE_CLASS_CONFLICT:
            if job.conflicts + 1 >= self._settings.max_conflicts:
                return await self._give_up(tx, job, stored)
            return await self._retry(tx, job, stored, "conflicts", failure.retry_after)
        if job.attempts >= self._settings.max_attempts:
            return await self._give_up(tx, job, stored, failure.left_out)
        return await self._retry(tx, job, stored, "attempts", failure.retry_after)

    async def reap(
        self, tx: Tx, claimed_since: int = 0, expired_before: int = 0, served_since: int = 0
    ) -> list[AttemptEnd]:
        """Takes back expired leases of all servers, but only of jobs claimed after `claimed_since` and of leases that
        expired before `expired_before`. `served_since`: since when this server has had its store without a gap. An
        attempt that started earlier had less time than promised, and is not counted."""
        ended = []
        attempt = round(self._settings.attempt_seconds * SECOND)
        for job in await jobs.expired(tx, claimed_since + attempt if claimed_since else 0, expired_before):
            if tx.now() >= job.attempt_ends and job.attempt_ends - attempt < served_since:
                reason = "the time for the attempt ran out while the server or its store was away"
                outage = Failure(class_name(pb.FAILURE_CLASS_DEPENDENCY_UNAVAILABLE), reason, STORE)
                ended.append(await self._wait(tx, job, outage))
                continue
            out_of_time = tx.now() >= job.attempt_ends
            loss = await self._losses.record_loss(tx, job, silent=not out_of_time)
            if out_of_time:
                failure = Failure(class_name(pb.FAILURE_CLASS_TIME_BUDGET), "the time for one attempt ran out")
                attempts_are_over = job.attempts >= self._settings.max_attempts
                if job.kind == jobs.ASK or (attempts_are_over if loss.counts else self._is_too_old(tx, job)):
                    ended.append(await self._give_up(tx, job, failure))
                else:
                    counts = "attempts" if loss.counts else None
                    retry = await self._retry(tx, job, failure, counts, 0.0)
                    ended.append(replace(retry, paused=loss.paused))
                continue
            failure = Failure(class_name(pb.FAILURE_CLASS_LEASE_EXPIRED), "the worker sent no heartbeat in time")
            if loss.gives_up:
                await jobs.give_up(tx, job, failure, _result(failure), lost_lease=True)
                ended.append(AttemptEnd(job, True))
            else:
                # The job is not at fault, so it is queued without a delay.
                await jobs.requeue(tx, job, failure, delay=0, counts="lost_leases", lost_by=loss.lost_by)
                ended.append(AttemptEnd(job, False, loss.paused))
        return ended

    async def _wait(self, tx: Tx, job: Job, failure: Failure, retry_after: float = 0.0) -> AttemptEnd:
        """Requeues the job until the outage ends, up to the job's age limit. The attempt is not counted."""
        if self._is_too_old(tx, job):
            return await self._give_up(tx, job, failure)
        if failure.waiting_for == MODEL:
            max_delay = self._settings.backoff_max_seconds
        elif self._watch is not None and self._watch.covers(failure.waiting_for):
            max_delay = MAX_PART_WAIT_SECONDS
            self._watch.wait_for(failure.waiting_for)
        else:
            max_delay = MAX_UNWATCHED_WAIT_SECONDS
        return await self._retry(tx, job, failure, None, retry_after, max_delay)

    def _is_too_old(self, tx: Tx, job: Job) -> bool:
        return tx.now() - job.created_at > self._settings.job_max_age_seconds * SECOND

    async def _give_up(
        self, tx: Tx, job: Job, failure: Failure, left_out: Mapping[str, Any] | None = None
    ) -> AttemptEnd:
        await jobs.give_up(tx, job, failure, {**_result(failure), **(left_out or {})})
        return AttemptEnd(job, True)

    async def _retry(
        self, tx: Tx, job: Job, failure: Failure, counts: str | None, retry_after: float, max_delay: float | None = None
    ) -> AttemptEnd:
        started = (await tasks.get(tx, jobs.space_of(job), job.job_id)).attempt
        backoff = self._backoff(started)
        delay = max(backoff if max_delay is None else min(backoff, max_delay), retry_after)
        await jobs.requeue(tx, job, failure, delay=round(delay * SECOND), counts=counts)
        return AttemptEnd(job, False)

    def _backoff(self, started: int) -> float:
        """Returns the delay in seconds: it doubles with each started attempt, counted or not, with full jitter."""
        doublings = min(max(started - 1, 0), 16)
        ceiling = min(self._settings.backoff_first_seconds * 2**doublings, self._settings.backoff_max_seconds)
        return random.uniform(0, ceiling)


async def claim(
    tx: Tx,
    worker_id: str,
    terms: LeaseTerms,
    limits: TokenLimits,
    unwanted: Mapping[str, str],
    holder: Holder = NOBODY,
) -> tuple[Job, int] | OutOfBudget | Unwanted | AtLimit | None:
    """Claims a job like `claiming.claim`. A job without a token budget fails, and a job of an unwanted kind is
    cancelled, before any worker has seen them; so is a question whose time is over. `unwanted`: these kinds, with the
    reason."""
    claimed = await claiming.claim(tx, worker_id, terms, limits, unwanted, holder)
    if isinstance(claimed, OutOfBudget):
        failure = Failure(class_name(pb.FAILURE_CLASS_OUT_OF_BUDGET), claimed.why)
        await jobs.give_up(tx, claimed.job, failure, _result(failure))
    elif isinstance(claimed, Unwanted):
        job = claimed.job
        await jobs.cancel(tx, jobs.space_of(job), job.job_id, unwanted[job.kind])
    elif isinstance(claimed, tuple) and claimed[0].kind == jobs.ASK and asks.answer_deadline(claimed[0]) <= tx.now():
        # The server of its caller was killed.
        job = claimed[0]
        await jobs.cancel(tx, jobs.space_of(job), job.job_id, "its time is over")
        return Unwanted(job)
    return claimed


def _result(failure: Failure) -> dict[str, Any]:
    """Returns the result of a task that ends with this failure. Results about turns leave out the outcome."""
    return {"outcome": _OUTCOMES.get(failure.failure_class, "given_up")}
