"""How attempts end: an output applied, a failure, a lease given back; and the verdict that the worker gets."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import structlog
from google.rpc import code_pb2

from runekeep.v1 import common_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from server.answer_sizes import MAX_PAGE_BYTES
from server.apply.applier import Applier
from server.apply.output import Output, Unusable
from server.apply.repair import NeedsRepair
from server.shortening import shorten
from server.telemetry import work as telemetry
from server.wire.tasks import commit_outcome, left_out, usage_json
from server.work.answers import cancelled, lost, not_applied, store_away
from server.work.buffers import Arriving
from server.work.connection import wire_lease
from server.work.failures import Ended, FailurePolicy, class_name
from server.work.recording import Recorder
from storage import apply as storage_apply
from storage import extraction_records, jobs, sharing, tasks
from storage.database import Database, Space, Tx
from storage.errors import LeaseLost, NotFound, StoreUnavailable, VersionConflict
from storage.extraction_records import Made
from storage.leases import may_use
from storage.records import Job, LeaseId

LONGEST_WAIT = 86_400
"""Seconds that a worker may ask its job to wait."""
MOST_ENTRIES = 64
LONGEST_MODEL = 256
LONGEST_PHASE = 64
"""Bounds of the contract for what a worker tells of its tokens."""

log = structlog.get_logger(__name__)

_Work = Callable[[Tx, Space | None], Awaitable[Ended]]
"""A transaction that ends an attempt, in the lane of the lease's account where that is known."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What an attempt was, to be kept however it ends. `output_id`: of the output that ended it, if one did."""

    usage: Sequence[dict[str, Any]] = ()
    made: Made | None = None
    output_id: str = ""


@dataclass(frozen=True, slots=True)
class _Why:
    """The status of a verdict that applies nothing. `outcome`: of the attempt, for metrics."""

    code: code_pb2.Code.ValueType
    message: str
    outcome: str


class Verdicts:
    """One a server. What is said of one lease is worked off in the order in which it came: a worker that gives a lease
    back after it has sent its output gets the output applied first, and so does one that sends it twice.

    `space_of`: the space of a lease, where it is known; the store then lets other accounts write meanwhile. `over` is
    told of each job that an attempt has ended of.
    """

    def __init__(
        self,
        database: Database,
        applier: Applier,
        failures: FailurePolicy,
        recorder: Recorder,
        space_of: Callable[[LeaseId], Space | None],
        over: Callable[[Job], None],
    ) -> None:
        self._database = database
        self._applier = applier
        self._failures = failures
        self._recorder = recorder
        self._space_of = space_of
        self._over = over
        # Each lasts for as long as somebody has it or waits for it.
        self._turns: WeakValueDictionary[tuple[LeaseId, str, str], asyncio.Lock] = WeakValueDictionary()

    async def complete(self, lease: LeaseId, complete: pb.JobComplete, arrived: Arriving) -> pb.JobVerdict:
        # The stream counts as the worker's. The output is applied for an account, so that accounts take turns.
        if (space := self._space_of(lease)) is not None:
            sharing.begin(space.account)
        async with self._turn(lease):
            output = Output(
                lease=lease,
                output_id=complete.output_id,
                operations=arrived.operations,
                summary=arrived.summary,
                usage=_entries(complete.usage),
                extractor=complete.extractor,
                dropped_items=complete.dropped_items,
                made=await self._recorder.made(complete.extractor, complete.model_calls),
                duplicates=complete.duplicates,
                skipped_rules=dict(complete.skipped_rules),
                image_descriptions=arrived.image_descriptions,
                turn_memories=arrived.turn_memories,
                bucket_changes=arrived.bucket_changes,
                selections=arrived.selections,
                feedback=arrived.feedback,
                traceparent=complete.traceparent,
            )
            return await self._complete(output)

    async def _complete(self, output: Output) -> pb.JobVerdict:
        wire = wire_lease(output.lease)
        try:
            applied = await self._applier.apply(output)
        except VersionConflict as conflict:
            why = _Why(
                code_pb2.ABORTED,
                "memories or buckets changed while the output was made or applied",
                class_name(pb.FAILURE_CLASS_CONFLICT),
            )
            return await self._no_use(output, pb.FAILURE_CLASS_CONFLICT, str(conflict), why)
        except Exception as error:
            return await self._not_ended(output.lease, error, _attempt_of(output))
        if isinstance(applied, Unusable):
            rejected = class_name(pb.FAILURE_CLASS_REJECTED_OUTPUT)
            why = _Why(code_pb2.INVALID_ARGUMENT, applied.why[:500], rejected)
            return await self._no_use(output, pb.FAILURE_CLASS_REJECTED_OUTPUT, applied.why, why, applied.left_out)
        if isinstance(applied, NeedsRepair):
            verdict = pb.JobVerdict(lease=wire, outcome=pb.JOB_OUTCOME_NEEDS_REPAIR)
            verdict.refused.extend(left_out(entry) for entry in applied.refused)
            # What it does not name stays wrong, and is named by the task.
            shorten(verdict, MAX_PAGE_BYTES)
            return verdict
        self._over(applied.job)
        job = applied.job
        telemetry.ended(job.kind, "already_applied" if applied.again else "applied")
        log.info(
            "output_applied",
            job=job.job_id,
            kind=job.kind,
            revision=applied.revision,
            again=applied.again,
            nothing_applied="nothing_applied" in applied.result,
        )
        outcome = pb.JOB_OUTCOME_ALREADY_APPLIED if applied.again else pb.JOB_OUTCOME_APPLIED
        verdict = pb.JobVerdict(lease=wire, outcome=outcome, revision=applied.revision)
        if job.kind == jobs.COMMIT and applied.result:
            verdict.commit_outcome = commit_outcome(applied.result)
            verdict.skipped.extend(map(left_out, applied.result.get("skipped", ())))
            verdict.rejected.extend(map(left_out, applied.result.get("rejected", ())))
            # The task's result names all of them.
            shorten(verdict, MAX_PAGE_BYTES)
        return verdict

    async def ended(self, lease: LeaseId, output_id: str = "") -> pb.JobVerdict | None:
        """How a lease ended that is not held any more; None while it is held. `output_id`: of what was to be applied
        under it, so that a repeat of what was applied is told so.
        """
        try:
            return await self._database.read(_ended, lease, output_id)
        except StoreUnavailable:
            return store_away(wire_lease(lease))

    async def fail(self, lease: LeaseId, fail: pb.JobFail, extractor: common_pb2.ExtractorInfo) -> pb.JobVerdict:
        """`extractor`: as its worker said Hello."""
        failure = fail.failure
        log.info("attempt_failed", job=lease.job_id, failure_class=int(failure.failure_class))

        async def work(tx: Tx, space: Space | None) -> Ended:
            return await self._failures.failed(
                tx,
                lease,
                failure.failure_class,
                failure.status.message[:500],
                failure.retryable,
                min(max(failure.retry_after.seconds + failure.retry_after.nanos / 1e9, 0.0), LONGEST_WAIT),
                attempt.usage,
                made=attempt.made,
                space=space,
                waiting_for=failure.waiting_for,
            )

        said = class_name(failure.failure_class)
        why = _Why(code_pb2.ABORTED, f"the attempt failed, as its worker said: {said}", said)
        async with self._turn(lease):
            attempt = _Attempt(_entries(fail.usage), await self._recorder.made(extractor, fail.model_calls))
            return await self._end_attempt(lease, work, attempt, why)

    async def reject(
        self,
        lease: LeaseId,
        why: str,
        extractor: common_pb2.ExtractorInfo,
        usage: Sequence[common_pb2.TokenUsage] = (),
    ) -> pb.JobVerdict:
        """Ends an attempt whose worker broke the contract; it and the next one are told why. `extractor`: see `fail`;
        `usage` need not keep to the contract."""

        async def work(tx: Tx, space: Space | None) -> Ended:
            return await self._failures.failed(
                tx, lease, pb.FAILURE_CLASS_REJECTED_OUTPUT, why[:500], True, 0.0, attempt.usage,
                made=attempt.made, space=space,
            )  # fmt: skip

        async with self._turn(lease):
            attempt = _Attempt(_entries(usage), await self._recorder.made(extractor))
            rejected = _Why(code_pb2.INVALID_ARGUMENT, why[:500], class_name(pb.FAILURE_CLASS_REJECTED_OUTPUT))
            return await self._end_attempt(lease, work, attempt, rejected)

    async def told_late(
        self, lease: LeaseId, usage: Sequence[common_pb2.TokenUsage], complete: pb.JobComplete | None
    ) -> None:
        """Counts and records what an attempt was that ended by `reject`: its worker says so only after the output.

        `usage` as in `reject`; `complete`: where it keeps to the contract.
        """
        made = await self._recorder.made(complete.extractor, complete.model_calls) if complete is not None else None

        async def write(tx: Tx) -> None:
            job = await jobs.get(tx, lease.job_id)
            if not may_use(job, lease):
                raise LeaseLost(lease.job_id)
            space = jobs.space_of(job)
            await tasks.spent(tx, space, job.job_id, lease.token, _entries(usage))
            if made is not None:
                await extraction_records.complete(tx, space, lease, made)

        try:
            await self._database.write(write)
        except (LeaseLost, NotFound, StoreUnavailable) as error:
            log.warning("usage_not_counted", job=lease.job_id, error=str(error))

    async def release(self, lease: LeaseId) -> pb.JobVerdict:
        """Gives the job back to the queue; no attempt is counted."""

        async def give_back(tx: Tx, space: Space | None) -> Ended:
            job = await jobs.held(tx, lease, space)
            await jobs.requeue(tx, job, None, delay=0, counts=None)
            return Ended(job, given_up=False)

        why = _Why(code_pb2.CANCELLED, "the worker gave its lease back", "released")
        async with self._turn(lease):
            return await self._end_attempt(lease, give_back, _Attempt(), why)

    def _turn(self, lease: LeaseId) -> asyncio.Lock:
        # Keyed by holder and secret, so that a caller who names somebody else's lease does not block its holder.
        return self._turns.setdefault((lease, lease.holder, lease.digest), asyncio.Lock())

    async def _no_use(
        self, output: Output, failure_class: int, reason: str, why: _Why, left_out: dict[str, Any] | None = None
    ) -> pb.JobVerdict:
        """Ends an attempt whose output came whole and is not applied. `reason`: for the attempts that follow."""

        async def work(tx: Tx, space: Space | None) -> Ended:
            return await self._failures.failed(
                tx, output.lease, failure_class, reason[:500], True, 0.0, output.usage, left_out,
                made=output.made, space=space,
            )  # fmt: skip

        return await self._end_attempt(output.lease, work, _attempt_of(output), why)

    async def _end_attempt(self, lease: LeaseId, work: _Work, attempt: _Attempt, why: _Why) -> pb.JobVerdict:
        try:
            return self._told(lease, await self._database.write(work, self._space_of(lease)), why)
        except Exception as error:
            return await self._not_ended(lease, error, attempt)

    async def _not_ended(self, lease: LeaseId, error: Exception, attempt: _Attempt) -> pb.JobVerdict:
        """The verdict when an output or an end could not be written. Raises what no way of counting it gets past."""
        wire = wire_lease(lease)
        if isinstance(error, LeaseLost):
            return await self.ended(lease, attempt.output_id) or lost(wire)
        if isinstance(error, StoreUnavailable):
            log.warning("verdict_delayed", job=lease.job_id, error=str(error))
            return store_away(wire)
        if isinstance(error, NotFound) and (over := await self.ended(lease, attempt.output_id)) is not None:
            # Its session or its user was deleted while the output was prepared.
            return over
        log.error("verdict_failed", job=lease.job_id, exc_info=error)
        try:
            return await self._count(lease, attempt)
        except (LeaseLost, StoreUnavailable) as late:
            return await self._not_ended(lease, late, attempt)
        except Exception as again:
            if not attempt.usage and attempt.made is None:
                raise
            # What the worker told of it may be what cannot be written: the attempt is to end in any case.
            return await self._not_ended(lease, again, _Attempt(output_id=attempt.output_id))

    async def _count(self, lease: LeaseId, attempt: _Attempt) -> pb.JobVerdict:
        """Ends an attempt that the server failed on: counted, so that an output that the server cannot take ends as a
        dead letter and not as a loop."""
        why = _Why(code_pb2.INTERNAL, "the server failed on this output", class_name(pb.FAILURE_CLASS_INTERNAL))

        async def count(tx: Tx, space: Space | None) -> Ended:
            return await self._failures.failed(
                tx, lease, pb.FAILURE_CLASS_INTERNAL, why.message, True, 0.0, attempt.usage,
                made=attempt.made, space=space,
            )  # fmt: skip

        return self._told(lease, await self._database.write(count, self._space_of(lease)), why)

    def _told(self, lease: LeaseId, ended: Ended, why: _Why) -> pb.JobVerdict:
        self._over(ended.job)
        telemetry.ended(ended.job.kind, why.outcome, given_up=ended.given_up)
        outcome = pb.JOB_OUTCOME_FAILED if ended.given_up else pb.JOB_OUTCOME_REQUEUED
        return not_applied(wire_lease(lease), outcome, why.code, why.message)


def _attempt_of(output: Output) -> _Attempt:
    return _Attempt(output.usage, output.made, output.output_id)


def _entries(usage: Sequence[common_pb2.TokenUsage]) -> list[dict[str, Any]]:
    """As they are kept. What was spent counts also where a name is too long, or none that a store could take."""
    entries = [usage_json(one) for one in usage[:MOST_ENTRIES]]
    for entry in entries:
        entry["model"] = _name(entry["model"], LONGEST_MODEL)
        entry["phase"] = _name(entry["phase"], LONGEST_PHASE)
    return entries


def _name(told: str, longest: int) -> str:
    return told[:longest].replace("\0", "\N{REPLACEMENT CHARACTER}")


async def _ended(tx: Tx, lease: LeaseId, output_id: str) -> pb.JobVerdict | None:
    wire = wire_lease(lease)
    try:
        job = await jobs.get(tx, lease.job_id)
    except NotFound:
        return lost(wire)
    if not may_use(job, lease):
        return lost(wire)
    if job.state == "leased" and job.token == lease.token:
        return None
    applied = await storage_apply.applied_before(tx, lease, output_id)
    if applied is not None:
        return pb.JobVerdict(lease=wire, outcome=pb.JOB_OUTCOME_ALREADY_APPLIED, revision=applied.revision)
    if job.state == "cancelled" and job.token == lease.token + 1:
        return cancelled(wire)
    return lost(wire)
