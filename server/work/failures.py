"""What follows when an attempt ends without a result: wait and try again, or give up."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from runekeep.v1 import extractor_service_pb2 as pb
from server.settings import Settings
from server.work.part_watch import PartWatch
from server.work.standings import Losses
from storage import claiming, extraction_records, jobs, tasks
from storage.budgets import TokenLimits
from storage.claiming import NOBODY, AtLimit, Holder, OutOfBudget, Unwanted
from storage.database import Space, Tx
from storage.extraction_records import Made
from storage.jobs import Failure, LeaseTerms
from storage.records import Job, LeaseId
from storage.worker_standings import WorkerStanding

SECOND = 1_000_000

MODEL, STORE = "model", "store"
"""Parts that may be away, with their names in Task.waiting_for."""
# An outage of the model or of a part of the server is no failure of the job: the job waits for its end, up to the age
# limit. This maps the class of a failure to the part that is away, for workers that do not name it.
_PARTS: dict[int, str] = {
    pb.FAILURE_CLASS_RATE_LIMITED: MODEL,
    pb.FAILURE_CLASS_MODEL_UNAVAILABLE: MODEL,
    pb.FAILURE_CLASS_DEPENDENCY_UNAVAILABLE: "server",
}
MAX_PART_WAIT_SECONDS = 15.0
"""Delay between two attempts while a watched part of the server is away. Its jobs are woken when it is back."""
MAX_UNWATCHED_WAIT_SECONDS = 1.0
"""The same for a part that nobody watches, such as the store: it is back already when the failure can be written."""
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
class Ended:
    """How an attempt ended; `given_up`: there is no further attempt; `paused`: workers that are paused because of
    it."""

    job: Job
    given_up: bool
    paused: tuple[WorkerStanding, ...] = ()


class FailurePolicy:
    """Decides, and writes the decision, in the transaction that it is given."""

    def __init__(self, settings: Settings, watch: PartWatch | None = None, losses: Losses | None = None) -> None:
        """`watch` wakes jobs when the part that they wait for is back. Without it they are tried again often."""
        self._settings = settings
        self._watch = watch
        self._losses = losses or Losses(settings)

    async def failed(
        self,
        tx: Tx,
        lease: LeaseId,
        failure_class: int,
        message: str,
        retryable: bool,
        retry_after: float,
        usage: Sequence[dict[str, Any]] = (),
        left_out: Mapping[str, Any] | None = None,
        *,
        made: Made | None = None,
        space: Space | None = None,
        waiting_for: str = "",
    ) -> Ended:
        """Records that an attempt failed, as its worker or the server reports. Raises LeaseLost.

        `retry_after` in seconds; `usage`: what the attempt spent; `left_out`: what the task's result says about its
        output, if this is its last attempt; `made`: what is recorded of the attempt; `space`: see `jobs.held`;
        `waiting_for`: the part whose outage ended the attempt, if the worker names it.
        """
        job = await jobs.held(tx, lease, space)
        await tasks.spent(tx, jobs.space_of(job), job.job_id, job.token, usage)
        away = (waiting_for or _PARTS[failure_class]) if failure_class in _PARTS else ""
        failure = Failure(class_name(failure_class), message, away)
        if made is not None:
            await extraction_records.keep(tx, job, made, failure)
        if away:
            return await self._wait(tx, job, failure, retry_after)
        if failure_class in _FINAL or not retryable:
            return await self._give_up(tx, job, failure)
        if failure_class == pb.FAILURE_CLASS_CONFLICT:
            if job.conflicts + 1 >= self._settings.max_conflicts:
                return await self._give_up(tx, job, failure)
            return await self._again(tx, job, failure, "conflicts", retry_after)
        if job.attempts >= self._settings.max_attempts:
            return await self._give_up(tx, job, failure, left_out)
        return await self._again(tx, job, failure, "attempts", retry_after)

    async def reap(self, tx: Tx, claimed_since: int = 0, expired_before: int = 0, served_since: int = 0) -> list[Ended]:
        """Takes back all expired leases, whichever server gave them, but only of jobs claimed after `claimed_since` and
        of leases that expired before `expired_before`. `served_since`: from when on this server has had its store
        without a gap. An attempt that started earlier had less time than it was given, and is not counted.
        """
        ended = []
        attempt = round(self._settings.attempt_seconds * SECOND)
        for job in await jobs.expired(tx, claimed_since + attempt if claimed_since else 0, expired_before):
            if tx.now() >= job.attempt_ends and job.attempt_ends - attempt < served_since:
                why = "the time for the attempt ran out while the server or its store was away"
                lost = Failure(class_name(pb.FAILURE_CLASS_DEPENDENCY_UNAVAILABLE), why, STORE)
                ended.append(await self._wait(tx, job, lost))
                continue
            out_of_time = tx.now() >= job.attempt_ends
            loss = await self._losses.note(tx, job, silent=not out_of_time)
            if out_of_time:
                failure = Failure(class_name(pb.FAILURE_CLASS_TIME_BUDGET), "the time for one attempt ran out")
                attempts_are_over = job.attempts >= self._settings.max_attempts
                if attempts_are_over if loss.counts else self._is_too_old(tx, job):
                    ended.append(await self._give_up(tx, job, failure))
                else:
                    counts = "attempts" if loss.counts else None
                    again = await self._again(tx, job, failure, counts, 0.0)
                    ended.append(replace(again, paused=loss.paused))
                continue
            failure = Failure(class_name(pb.FAILURE_CLASS_LEASE_EXPIRED), "the worker was not heard of in time")
            if loss.gives_up:
                await jobs.give_up(tx, job, failure, _result(failure), lost_lease=True)
                ended.append(Ended(job, True))
            else:
                # The job did nothing wrong: it waits for nothing but the next worker.
                await jobs.requeue(tx, job, failure, delay=0, counts="lost_leases", lost_by=loss.lost_by)
                ended.append(Ended(job, False, loss.paused))
        return ended

    async def _wait(self, tx: Tx, job: Job, failure: Failure, retry_after: float = 0.0) -> Ended:
        """Lets the job wait for the end of an outage, up to the job's age limit. The attempt is not counted."""
        if self._is_too_old(tx, job):
            return await self._give_up(tx, job, failure)
        if failure.waiting_for == MODEL:
            most = self._settings.backoff_max_seconds
        elif self._watch is not None and self._watch.covers(failure.waiting_for):
            most = MAX_PART_WAIT_SECONDS
            self._watch.wait_for(failure.waiting_for)
        else:
            most = MAX_UNWATCHED_WAIT_SECONDS
        return await self._again(tx, job, failure, None, retry_after, most)

    def _is_too_old(self, tx: Tx, job: Job) -> bool:
        return tx.now() - job.created_at > self._settings.job_max_age_seconds * SECOND

    async def _give_up(self, tx: Tx, job: Job, failure: Failure, left_out: Mapping[str, Any] | None = None) -> Ended:
        await jobs.give_up(tx, job, failure, {**_result(failure), **(left_out or {})})
        return Ended(job, True)

    async def _again(
        self, tx: Tx, job: Job, failure: Failure, counts: str | None, retry_after: float, most: float | None = None
    ) -> Ended:
        started = (await tasks.get(tx, jobs.space_of(job), job.job_id)).attempt
        backoff = self._backoff(started)
        delay = max(backoff if most is None else min(backoff, most), retry_after)
        await jobs.requeue(tx, job, failure, delay=round(delay * SECOND), counts=counts)
        return Ended(job, False)

    def _backoff(self, started: int) -> float:
        """Seconds: doubling with each attempt that was started, counted or not, with full jitter."""
        doublings = min(max(started - 1, 0), 16)
        most = min(self._settings.backoff_first_seconds * 2**doublings, self._settings.backoff_max_seconds)
        return random.uniform(0, most)


async def claim(
    tx: Tx,
    worker_id: str,
    terms: LeaseTerms,
    limits: TokenLimits,
    unwanted: Mapping[str, str],
    holder: Holder = NOBODY,
) -> tuple[Job, int] | OutOfBudget | Unwanted | AtLimit | None:
    """As `claiming.claim`; a job that may spend nothing fails closed, and one of a kind that is not worked on is
    cancelled, neither with a worker having seen it. `unwanted`: such kinds, and why."""
    claimed = await claiming.claim(tx, worker_id, terms, limits, unwanted, holder)
    if isinstance(claimed, OutOfBudget):
        failure = Failure(class_name(pb.FAILURE_CLASS_OUT_OF_BUDGET), claimed.why)
        await jobs.give_up(tx, claimed.job, failure, _result(failure))
    elif isinstance(claimed, Unwanted):
        job = claimed.job
        await jobs.cancel(tx, jobs.space_of(job), job.job_id, unwanted[job.kind])
    return claimed


def _result(failure: Failure) -> dict[str, Any]:
    """The result of a task that ends with this failure; what is told of one about turns leaves the word out."""
    return {"outcome": _OUTCOMES.get(failure.failure_class, "given_up")}
