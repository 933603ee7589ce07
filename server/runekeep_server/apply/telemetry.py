"""Metrics and spans of jobs, from claim to verdict, as this server sees them."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Final

from runekeep_common.attempts import attempt_span_id
from runekeep_common.telemetry import metrics, tracing
from runekeep_common.telemetry.tracing import Kind
from runekeep_server.apply.output import Unusable
from runekeep_server.apply.repair import NeedsRepair
from runekeep_storage.errors import LeaseLost, StoreUnavailable, VersionConflict
from runekeep_storage.memories.apply import Applied
from runekeep_storage.records import Job

_MICROSECONDS: Final = 1e6

CLAIMS = metrics.counter("runekeep_claims_total", "Jobs given to workers, by `kind`.", ["kind"])
WAITS = metrics.histogram(
    "runekeep_job_wait_seconds",
    "From when a job was queued to its first claim, by `kind`.",
    ["kind"],
    buckets=metrics.JOB_SECONDS,
)
ATTEMPTS = metrics.counter(
    "runekeep_attempts_total",
    "Attempts that ended, by `kind` of job and `outcome`: `applied`, `already_applied`, `released`, or why it failed.",
    ["kind", "outcome"],
)
DEAD = metrics.counter(
    "runekeep_jobs_given_up_total", "Jobs that failed for good, by `kind` and the `outcome` of their last attempt.",
    ["kind", "outcome"],
)  # fmt: skip
LEASES_LOST = metrics.counter(
    "runekeep_leases_lost_total", "Leases that ran out and were taken back, by `kind`.", ["kind"]
)
PAUSES = metrics.counter(
    "runekeep_worker_pauses_total",
    "Pauses of workers that lost several different jobs in a row, as this server saw it.",
)
PAUSED = metrics.gauge("runekeep_workers_paused", "Workers that are paused now, of all servers.")
APPLY = metrics.histogram(
    "runekeep_apply_seconds",
    "Outputs worked into memory, by `kind` and `result`: `applied`, `already_applied`, `needs_repair`, `unusable`,"
    " `conflict`, `lease_lost`, `store_away` or `error`.",
    ["kind", "result"],
)
CONFLICTS = metrics.counter(
    "runekeep_apply_conflicts_total", "Preparations of an output that were in vain, for a memory moved meanwhile."
)
WORKERS = metrics.gauge("runekeep_workers", "Workers with an open stream to this server.")


def claimed(job: Job, attempt: int, attempt_seconds: float) -> None:
    """Records the claim of a job. `attempt`: its number; `attempt_seconds`: maximum duration of an attempt."""
    CLAIMS.labels(job.kind).inc()
    if attempt == 1:
        waited = _claimed_at(job, attempt_seconds) - job.created_at
        WAITS.labels(job.kind).observe(max(waited, 0) / _MICROSECONDS)


def ended(kind: str, outcome: str, *, given_up: bool = False) -> None:
    """Records the end of an attempt."""
    ATTEMPTS.labels(kind, outcome).inc()
    if given_up:
        DEAD.labels(kind, outcome).inc()


def lease_lost(job: Job, attempt_seconds: float, *, given_up: bool) -> None:
    """Records an expired lease. Its worker may be dead, so the server writes the span of the attempt. A living worker
    writes it too, with the same id, so the trace shows both."""
    LEASES_LOST.labels(job.kind).inc()
    # Renewals never reach beyond the end of the attempt. If the lease lasts that long, the time budget is used up,
    # whether or not the worker lives.
    outcome = "time_budget" if job.lease_expires >= job.attempt_ends else "lease_expired"
    ended(job.kind, outcome, given_up=given_up)
    about = {**_about(job), "runekeep.worker.id": job.worker_id}
    with tracing.span(
        f"lost attempt {job.kind}",
        parent=job.traceparent,
        attributes=about,
        span_id=attempt_span_id(job.job_id, job.token),
        started_at=_claimed_at(job, attempt_seconds),
        # Not the current time: the next attempt may have started before.
        ended_at=job.lease_expires,
    ) as span:
        span.fail(outcome)


class Applying:
    """An output that is being applied."""

    def __init__(self) -> None:
        self.result = "error"
        self.revision = 0

    def came_to(self, applied: Applied | NeedsRepair | Unusable) -> None:
        """Sets the outcome."""
        match applied:
            case Applied():
                self.result = "already_applied" if applied.again else "applied"
                self.revision = applied.revision
            case NeedsRepair():
                self.result = "needs_repair"
            case Unusable():
                self.result = "unusable"


@contextmanager
def applying(job: Job, traceparent: str) -> Iterator[Applying]:
    """Measures one attempt to apply an output. `traceparent`: the trace context that the worker reports. It is used
    only if it belongs to the job's trace."""
    began = perf_counter()
    outcome = Applying()
    same = traceparent if traceparent[3:35] == job.traceparent[3:35] else ""
    with tracing.span(f"apply {job.kind}", Kind.CONSUMER, _about(job), parent=same or job.traceparent) as span:
        try:
            yield outcome
        except VersionConflict:
            outcome.result = "conflict"
            raise
        except LeaseLost:
            outcome.result = "lease_lost"
            raise
        except StoreUnavailable:
            outcome.result = "store_away"
            raise
        finally:
            APPLY.labels(job.kind, outcome.result).observe(perf_counter() - began)
            span.set("runekeep.apply.result", outcome.result)
            if outcome.revision:
                span.set("runekeep.revision", outcome.revision)
            if outcome.result in ("unusable", "conflict", "lease_lost", "store_away", "error"):
                span.fail(outcome.result)


def _about(job: Job) -> dict[str, tracing.Value]:
    return {
        "runekeep.account": job.account,
        "runekeep.job.id": job.job_id,
        "runekeep.job.kind": job.kind,
        "runekeep.job.attempt": job.started,
    }


def _claimed_at(job: Job, attempt_seconds: float) -> int:
    return job.attempt_ends - round(attempt_seconds * _MICROSECONDS)
