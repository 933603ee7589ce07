"""Ends attempts: an applied output, a failure or a released lease. Returns the verdict that the worker gets."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakValueDictionary

import structlog
from google.rpc import code_pb2

from runekeep.v1 import common_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from runekeep_server.apply import telemetry
from runekeep_server.apply.applier import Applier
from runekeep_server.apply.output import Output, Unusable
from runekeep_server.apply.repair import NeedsRepair
from runekeep_server.leases.attempt_records import AttemptRecorder
from runekeep_server.leases.failure_policy import AttemptEnd, AttemptFailure, FailurePolicy, class_name
from runekeep_server.leases.lease_table import held_space, wire_lease
from runekeep_server.leases.output_buffers import OutputBuffer
from runekeep_server.leases.verdict_messages import job_cancelled, lease_lost, not_applied, store_unavailable
from runekeep_server.protocol.answer_sizes import MAX_PAGE_BYTES
from runekeep_server.protocol.truncation import shorten
from runekeep_server.wire.tasks import commit_outcome, left_out, usage_json
from runekeep_storage.database import Space, SpaceDatabase, Tx
from runekeep_storage.drivers.common import fair_turns
from runekeep_storage.errors import LeaseLost, NotFound, StoreUnavailable, VersionConflict
from runekeep_storage.jobs import extraction_records, jobs, tasks
from runekeep_storage.jobs.extraction_records import AttemptRecord
from runekeep_storage.jobs.lease_holders import may_use
from runekeep_storage.memories import apply as storage_apply
from runekeep_storage.memories.apply import Applied
from runekeep_storage.records import Job, LeaseId

MAX_RETRY_AFTER_SECONDS = 86_400
"""Longest wait that a worker may ask for its job."""
MAX_MESSAGE_CHARS = 500
MAX_USAGE_ENTRIES = 64
MAX_MODEL_CHARS = 256
MAX_PHASE_CHARS = 64
"""Limits of the contract for token usage that a worker reports."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What is stored of an attempt however it ends. `output_id`: the output that ended it, if any. `is_counted`: the
    server failed on it, and is writing this."""

    lease: LeaseId
    usage: Sequence[dict[str, Any]] = ()
    record: AttemptRecord | None = None
    output_id: str = ""
    is_counted: bool = False


class Verdicts:
    """One per server. Messages about one lease are processed in the order of their arrival: if a worker sends an output
    and then releases the lease, or sends the output twice, the first output is applied first.

    `space_of`: returns the space of a lease of this server's workers, without a read. `on_end` is called with the job
    of each attempt that ended.
    """

    def __init__(
        self,
        database: SpaceDatabase,
        applier: Applier,
        failures: FailurePolicy,
        recorder: AttemptRecorder,
        space_of: Callable[[LeaseId], Space | None],
        on_end: Callable[[Job], None],
    ) -> None:
        self._database = database
        self._applier = applier
        self._failures = failures
        self._recorder = recorder
        self._space_of = space_of
        self._on_end = on_end
        # Weak values: a lock exists while a task holds it or waits for it.
        self._locks: WeakValueDictionary[tuple[LeaseId, str, str], asyncio.Lock] = WeakValueDictionary()

    async def complete(self, lease: LeaseId, complete: pb.JobComplete, buffer: OutputBuffer) -> pb.JobVerdict:
        # The stream counts as the worker's. The output is applied for an account, so that accounts take turns.
        if (space := self._space_of(lease)) is not None:
            fair_turns.begin(space.account)
        async with self._lock(lease):
            output = Output(
                lease=lease,
                output_id=complete.output_id,
                operations=buffer.operations,
                summary=buffer.summary,
                usage=_usage_entries(complete.usage),
                extractor=complete.extractor,
                dropped_items=complete.dropped_items,
                made=await self._recorder.build_record(complete.extractor, complete.model_calls),
                duplicates=complete.duplicates,
                skipped_rules=dict(complete.skipped_rules),
                image_descriptions=buffer.image_descriptions,
                turn_memories=buffer.turn_memories,
                bucket_changes=buffer.bucket_changes,
                selections=buffer.selections,
                feedback=buffer.feedback,
                answers=buffer.answers,
                traceparent=complete.traceparent,
            )
            return await self._apply(output)

    async def _apply(self, output: Output) -> pb.JobVerdict:
        attempt = _Attempt(output.lease, output.usage, output.made, output.output_id)
        try:
            applied = await self._applier.apply(output)
        except VersionConflict as conflict:
            failure = AttemptFailure(pb.FAILURE_CLASS_CONFLICT, str(conflict))
            # The failure names a URI. The verdict holds no user content.
            message = "memories or buckets changed while the output was made or applied"
            return await self._fail(attempt, failure, code_pb2.ABORTED, message)
        except Exception as error:
            return await self._recover(attempt, error)
        if isinstance(applied, Unusable):
            failure = AttemptFailure(pb.FAILURE_CLASS_REJECTED_OUTPUT, applied.why, left_out=applied.left_out)
            return await self._fail(attempt, failure, code_pb2.INVALID_ARGUMENT)
        if isinstance(applied, NeedsRepair):
            verdict = pb.JobVerdict(lease=wire_lease(output.lease), outcome=pb.JOB_OUTCOME_NEEDS_REPAIR)
            verdict.refused.extend(left_out(entry) for entry in applied.refused)
            # Entries that are cut here stay wrong, and the task names them.
            shorten(verdict, MAX_PAGE_BYTES)
            return verdict
        return self._applied(output.lease, applied)

    def _applied(self, lease: LeaseId, applied: Applied) -> pb.JobVerdict:
        job = applied.job
        self._on_end(job)
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
        verdict = pb.JobVerdict(lease=wire_lease(lease), outcome=outcome, revision=applied.revision)
        if job.kind == jobs.COMMIT and applied.result:
            verdict.commit_outcome = commit_outcome(applied.result)
            verdict.skipped.extend(map(left_out, applied.result.get("skipped", ())))
            verdict.rejected.extend(map(left_out, applied.result.get("rejected", ())))
            # The task's result contains all of them.
            shorten(verdict, MAX_PAGE_BYTES)
        return verdict

    async def find(self, lease: LeaseId, output_id: str = "") -> pb.JobVerdict | None:
        """Returns the verdict of a lease that is no longer held, or None if it is held. `output_id`: the output that
        was to be applied under it, so that a repeat of an applied output gets that verdict."""
        try:
            return await self._database.read_global(_find, lease, output_id)
        except StoreUnavailable:
            return store_unavailable(wire_lease(lease))

    async def fail(self, lease: LeaseId, fail: pb.JobFail, extractor: common_pb2.ExtractorInfo) -> pb.JobVerdict:
        """Ends an attempt that its worker failed. `extractor`: from the worker's Hello."""
        reported = fail.failure
        log.info("attempt_failed", job=lease.job_id, failure_class=int(reported.failure_class))
        retry_after = reported.retry_after.seconds + reported.retry_after.nanos / 1e9
        failure = AttemptFailure(
            reported.failure_class,
            reported.status.message,
            is_retryable=reported.retryable,
            retry_after=min(max(retry_after, 0.0), MAX_RETRY_AFTER_SECONDS),
            waiting_for=reported.waiting_for,
        )
        message = f"the worker reported a failure: {class_name(reported.failure_class)}"
        async with self._lock(lease):
            record = await self._recorder.build_record(extractor, fail.model_calls)
            attempt = _Attempt(lease, _usage_entries(fail.usage), record)
            return await self._fail(attempt, failure, code_pb2.ABORTED, message)

    async def reject(
        self,
        lease: LeaseId,
        reason: str,
        extractor: common_pb2.ExtractorInfo,
        usage: Sequence[common_pb2.TokenUsage] = (),
    ) -> pb.JobVerdict:
        """Ends an attempt whose worker broke the contract. The worker and the next one get the reason. `extractor`: see
        `fail`; `usage` may break the contract."""
        async with self._lock(lease):
            attempt = _Attempt(lease, _usage_entries(usage), await self._recorder.build_record(extractor))
            failure = AttemptFailure(pb.FAILURE_CLASS_REJECTED_OUTPUT, reason)
            return await self._fail(attempt, failure, code_pb2.INVALID_ARGUMENT)

    async def add_late_usage(
        self, lease: LeaseId, usage: Sequence[common_pb2.TokenUsage], complete: pb.JobComplete | None
    ) -> None:
        """Adds usage and record to an attempt that `reject` ended: its worker reports them only after the output.

        `usage` as in `reject`; `complete`: None if the worker sent no valid one.
        """
        record = None
        if complete is not None:
            record = await self._recorder.build_record(complete.extractor, complete.model_calls)

        async def write(tx: Tx, space: Space) -> None:
            job = await jobs.get(tx, lease.job_id)
            if not may_use(job, lease):
                raise LeaseLost(lease.job_id)
            await tasks.spent(tx, space, job.job_id, lease.token, _usage_entries(usage))
            if record is not None:
                await extraction_records.complete(tx, space, lease, record)

        try:
            job = await self._database.read_global(jobs.get, lease.job_id)
            await self._database.write(write, jobs.space_of(job))
        except (LeaseLost, NotFound, StoreUnavailable) as error:
            log.warning("usage_not_counted", job=lease.job_id, error=str(error))

    async def release(self, lease: LeaseId) -> pb.JobVerdict:
        """Releases the lease. The job returns to the queue, and no attempt is counted."""

        async def write(tx: Tx, space: Space) -> AttemptEnd:
            job = await jobs.held(tx, lease, space)
            await jobs.requeue(tx, job, None, delay=0, counts=None)
            return AttemptEnd(job, given_up=False)

        async with self._lock(lease):
            return await self._end(
                _Attempt(lease), write, "released", code_pb2.CANCELLED, "the worker released its lease"
            )

    def _lock(self, lease: LeaseId) -> asyncio.Lock:
        # Keyed by holder and secret, so that a caller who names a foreign lease does not block its holder.
        return self._locks.setdefault((lease, lease.holder, lease.digest), asyncio.Lock())

    async def _fail(
        self, attempt: _Attempt, failure: AttemptFailure, code: code_pb2.Code.ValueType, message: str = ""
    ) -> pb.JobVerdict:
        """Ends an attempt that failed. `message`: that of the verdict, if it is not the failure's."""
        failure = replace(failure, message=failure.message[:MAX_MESSAGE_CHARS])

        async def write(tx: Tx, space: Space) -> AttemptEnd:
            return await self._failures.fail(
                tx, space, attempt.lease, failure, usage=attempt.usage, record=attempt.record
            )

        return await self._end(attempt, write, class_name(failure.failure_class), code, message or failure.message)

    async def _end(
        self,
        attempt: _Attempt,
        write: Callable[[Tx, Space], Awaitable[AttemptEnd]],
        outcome: str,
        code: code_pb2.Code.ValueType,
        message: str,
    ) -> pb.JobVerdict:
        """Ends an attempt without an applied output. `outcome`: for metrics; `code` and `message`: the status of the
        verdict."""
        try:
            space = await held_space(self._database, attempt.lease, self._space_of(attempt.lease))
            end = await self._database.write(write, space)
        except Exception as error:
            return await self._recover(attempt, error)
        self._on_end(end.job)
        telemetry.ended(end.job.kind, outcome, given_up=end.given_up)
        result = pb.JOB_OUTCOME_FAILED if end.given_up else pb.JOB_OUTCOME_REQUEUED
        return not_applied(wire_lease(attempt.lease), result, code, message)

    async def _recover(self, attempt: _Attempt, error: Exception) -> pb.JobVerdict:
        """Returns the verdict if an output or an end could not be written. If the server itself failed, the attempt is
        counted, so that an output that the server cannot process becomes a dead letter, not an endless loop. Raises the
        error if the attempt cannot be counted in any way."""
        lease = attempt.lease
        if isinstance(error, LeaseLost):
            return await self.find(lease, attempt.output_id) or lease_lost(wire_lease(lease))
        if isinstance(error, StoreUnavailable):
            log.warning("verdict_delayed", job=lease.job_id, error=str(error))
            return store_unavailable(wire_lease(lease))
        if isinstance(error, NotFound) and (verdict := await self.find(lease, attempt.output_id)) is not None:
            # The session or the user was deleted while the output was prepared.
            return verdict
        log.error("verdict_failed", job=lease.job_id, exc_info=error)
        if attempt.is_counted:
            if not attempt.usage and attempt.record is None:
                raise error
            # The reported usage or record may be what cannot be written. The attempt must end in any case.
            attempt = _Attempt(lease, output_id=attempt.output_id)
        failure = AttemptFailure(pb.FAILURE_CLASS_INTERNAL, "the server failed on this output")
        return await self._fail(replace(attempt, is_counted=True), failure, code_pb2.INTERNAL)


def _usage_entries(usage: Sequence[common_pb2.TokenUsage]) -> list[dict[str, Any]]:
    """Returns the usage in its stored form. Tokens count even if a name is too long or cannot be stored."""
    entries = [usage_json(one) for one in usage[:MAX_USAGE_ENTRIES]]
    for entry in entries:
        entry["model"] = _storable(entry["model"], MAX_MODEL_CHARS)
        entry["phase"] = _storable(entry["phase"], MAX_PHASE_CHARS)
    return entries


def _storable(name: str, max_chars: int) -> str:
    return name[:max_chars].replace("\0", "\N{REPLACEMENT CHARACTER}")


async def _find(tx: Tx, lease: LeaseId, output_id: str) -> pb.JobVerdict | None:
    wire = wire_lease(lease)
    try:
        job = await jobs.get(tx, lease.job_id)
    except NotFound:
        return lease_lost(wire)
    if not may_use(job, lease):
        return lease_lost(wire)
    if job.state == "leased" and job.token == lease.token:
        return None
    applied = await storage_apply.applied_before(tx, lease, output_id)
    if applied is not None:
        return pb.JobVerdict(lease=wire, outcome=pb.JOB_OUTCOME_ALREADY_APPLIED, revision=applied.revision)
    if job.state == "cancelled" and job.token == lease.token + 1:
        return job_cancelled(wire)
    return lease_lost(wire)
