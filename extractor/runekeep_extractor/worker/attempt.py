"""One attempt at one job: it runs the engine, then delivers the output or reports the failure, until the verdict."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import structlog
from google.protobuf.duration_pb2 import Duration

from runekeep.v1 import common_pb2, extractor_service_pb2, extractor_service_pb2_grpc, task_service_pb2
from runekeep_common import failpoints
from runekeep_common.telemetry import tracing
from runekeep_extractor import telemetry
from runekeep_extractor.engine.interface import Engine, EngineOutput, JobFailed
from runekeep_extractor.engine.tool_counts import counting_operations
from runekeep_extractor.rpc.calls import LeaseLost
from runekeep_extractor.rpc.channel import Metadata
from runekeep_extractor.worker.delivery import Delivery
from runekeep_extractor.worker.job import RemoteJob
from runekeep_extractor.worker.lease import LeaseTimer, Watchdog
from runekeep_extractor.worker.output import OutputMessages, failure_request
from runekeep_extractor.worker.progress import ProgressReporter
from runekeep_extractor.worker.stream import Streams

_log = structlog.get_logger(__name__)

T = TypeVar("T")

# Share of an attempt's time. If outages took more than this, running out of time is not the job's failure.
_MAX_WAIT_SHARE: Final = 0.1
_APPLIED: Final = frozenset(
    {extractor_service_pb2.JOB_OUTCOME_APPLIED, extractor_service_pb2.JOB_OUTCOME_ALREADY_APPLIED}
)


class Attempt:
    """Runs the engine on a job and delivers its result.

    `task` runs the attempt. `timer` and `watchdog` decide how long it may keep its lease.
    """

    def __init__(
        self,
        assignment: extractor_service_pb2.JobAssignment,
        engine: Engine,
        streams: Streams,
        stub: extractor_service_pb2_grpc.ExtractorServiceAsyncStub,
        metadata: Metadata,
        stall_timeout: float,
    ) -> None:
        self.assignment = assignment
        self.lease = assignment.lease
        self.timer = LeaseTimer(self._on_lease_expired)
        self.watchdog = Watchdog(stall_timeout)
        self._engine = engine
        self._streams = streams
        self._delivery = Delivery(streams)
        self._progress = ProgressReporter(assignment.lease, streams)
        self._job = RemoteJob(stub, metadata, assignment, self.watchdog.record_activity, self._progress.report)
        self._deadline = _deadline(assignment.time_budget)
        self._stop_reason = ""
        self.task = asyncio.create_task(self._run(), name=f"job {self.lease.job_id}")

    def stop(self, reason: str) -> None:
        """Stops at once, without any further message to the server about the lease."""
        if not self._stop_reason:
            self._stop_reason = reason
            self.task.cancel()

    def receive_verdict(self, verdict: extractor_service_pb2.JobVerdict) -> None:
        """Receives a verdict, from any stream."""
        self._delivery.receive(verdict)

    def _on_lease_expired(self) -> None:
        """Stops the attempt, unless no server is reachable. A server that was away keeps the leases that it could not
        renew, and its Welcome states what became of them. If the lease was given away meanwhile, some work is done
        twice, but nothing is applied twice: the fencing token causes the output to be refused.
        """
        if self._streams.find_open() is not None:
            self.stop("lease_expired")
        else:
            _log.info("lease_unconfirmed", job_id=self.lease.job_id, task_id=self.assignment.task_id)

    async def _run(self) -> None:
        """Takes the job to its verdict, and records the outcome in the log and the span."""
        with telemetry.attempt(self.assignment) as record:
            trace = (record.traceparent or self.assignment.traceparent)[3:35]
            structlog.contextvars.bind_contextvars(
                job_id=self.lease.job_id, task_id=self.assignment.task_id, trace=trace
            )
            _log.info("job_started", attempt=self.assignment.attempt, fencing_token=self.lease.fencing_token)
            try:
                verdict = await self._take_to_verdict(record)
                record.set_verdict(verdict)
                _log_verdict(verdict)
            except LeaseLost:
                record.set_stopped("lease_lost")
                _log.warning("job_stopped", reason="lease_lost")
            except asyncio.CancelledError:
                # Cancelled from outside, or by `stop`. A lease may be reported as applied before its verdict arrives.
                reason = self._stop_reason or "shutdown"
                record.set_stopped(reason)
                _log.info("job_stopped", reason=reason)
                raise
            finally:
                self.timer.stop()
                structlog.contextvars.clear_contextvars()
                await self._progress.stop()

    async def _take_to_verdict(self, record: telemetry.AttemptRecord) -> extractor_service_pb2.JobVerdict:
        try:
            return await self._deliver_output(await self._run_engine())
        except LeaseLost:
            raise
        except JobFailed as error:
            failure = error
        except Exception as error:
            # An error of the worker is reported at once; otherwise the job would wait until its lease expires.
            _log.error("attempt_crashed", error=type(error).__name__, at=telemetry.place_of(error))
            failure = JobFailed(extractor_service_pb2.FAILURE_CLASS_INTERNAL, type(error).__name__)
        record.set_failure(failure)
        return await self._report_failure(failure)

    async def _run_engine(self) -> EngineOutput:
        with tracing.span("load input"):
            await self._within_budget(self._job.load)
        failpoints.reached(failpoints.INPUT)
        match self.assignment.kind:
            case task_service_pb2.TASK_KIND_TURN_FINGERPRINT:
                extract = self._engine.fingerprint
            case task_service_pb2.TASK_KIND_BUCKET_RECONCILE:
                extract = self._engine.reconcile
            case task_service_pb2.TASK_KIND_ASK:
                extract = self._engine.answer
            case _:
                extract = self._engine.extract
        # The engine opens spans for its phases directly below the attempt's span: a span around them would be lost if
        # the worker is killed.
        return await self._within_budget(lambda: extract(self._job))

    async def _deliver_output(self, output: EngineOutput) -> extractor_service_pb2.JobVerdict:
        """Delivers the output, and a repaired one if the server asks for it."""
        # The server itself omits the invalid parts of a turn's memory.
        if self.assignment.kind != task_service_pb2.TASK_KIND_COMMIT:
            return await self._send_output(output, [])
        counts = await self._count_tool_uses()
        verdict = await self._send_output(output, counts)
        if verdict.outcome == extractor_service_pb2.JOB_OUTCOME_NEEDS_REPAIR:
            _log.info("repair_requested", refused=len(verdict.refused))
            first_count = len(output.operations)
            places = {left.operation_index for left in verdict.refused}
            counts = [one for place, one in enumerate(counts, first_count) if place not in places]
            # The model cannot repair a count that it did not make, and would be paid for trying.
            if refused := [left for left in verdict.refused if left.operation_index < first_count]:
                output = await self._within_budget(lambda: self._engine.repair(self._job, output, refused))
            verdict = await self._send_output(output, counts)
        return verdict

    async def _report_failure(self, failure: JobFailed) -> extractor_service_pb2.JobVerdict:
        name = extractor_service_pb2.FailureClass.Name(failure.failure_class)
        _log.warning("job_failed", failure_class=name, message=failure.message, retryable=failure.retryable)
        request = failure_request(self.lease, failure, self._job.spent, self._job.calls)
        await self._progress.stop()
        return await self._delivery.deliver(lambda welcome: [request])

    async def _send_output(
        self, output: EngineOutput, counts: Sequence[extractor_service_pb2.MemoryOperation]
    ) -> extractor_service_pb2.JobVerdict:
        _log.info(
            "output_ready",
            operations=len(output.operations),
            counts=len(counts),
            summary=output.summary is not None,
            turn_memories=len(output.turn_memories),
            selection=output.selection is not None,
            feedback=len(output.feedback),
            bucket_changes=output.bucket_changes is not None,
            statements=len(output.answer.statements) if output.answer is not None else 0,
            dropped_items=output.dropped_items,
        )
        extractor = common_pb2.ExtractorInfo()
        extractor.CopyFrom(self._engine.info)
        extractor.model = output.model or extractor.model
        with tracing.span("deliver output") as span:
            messages = OutputMessages(
                self.lease,
                str(uuid.uuid4()),
                output,
                extractor,
                self._job.spent,
                self._job.calls,
                span.traceparent or self.assignment.traceparent,
                counts,
            )
            await self._progress.stop()
            return await self._delivery.deliver(messages.build)

    async def _count_tool_uses(self) -> list[extractor_service_pb2.MemoryOperation]:
        """Returns none on an error: the engine's output, which was paid for, must not be lost over the counts."""
        try:
            return await asyncio.to_thread(counting_operations, self._job)
        except Exception as error:
            _log.error("tool_counts_failed", error=type(error).__name__, at=telemetry.place_of(error))
            return []

    async def _within_budget(self, work: Callable[[], Awaitable[T]]) -> T:
        """Runs a part of the job within its time budget. Raises JobFailed for any error in it."""
        self.watchdog.record_activity()
        try:
            async with asyncio.timeout_at(self._deadline) as budget:
                return await work()
        except (JobFailed, LeaseLost):
            raise
        except Exception as error:
            if isinstance(error, TimeoutError) and budget.expired():
                raise self._out_of_time() from error
            # Only the location is logged: the text of a foreign exception may quote the conversation.
            _log.error("engine_failed", error=type(error).__name__, at=telemetry.place_of(error))
            raise JobFailed(extractor_service_pb2.FAILURE_CLASS_INTERNAL, type(error).__name__) from error
        finally:
            self.watchdog.pause()

    def _out_of_time(self) -> JobFailed:
        """Returns the failure of an attempt that ran out of time. Time lost in an outage does not count against the
        job.
        """
        if away := self._engine.away:
            text = f"the time budget ran out while {away}"
            return JobFailed(extractor_service_pb2.FAILURE_CLASS_MODEL_UNAVAILABLE, text)
        budget = self.assignment.time_budget.ToNanoseconds() / 1e9
        if self._job.waiting_for or self._job.waited > _MAX_WAIT_SHARE * budget:
            part = self._job.waiting_for or "server"
            text = f"the time budget ran out after {self._job.waited:.0f} s of waiting for the {part}"
            return JobFailed(extractor_service_pb2.FAILURE_CLASS_DEPENDENCY_UNAVAILABLE, text, waiting_for=part)
        return JobFailed(extractor_service_pb2.FAILURE_CLASS_TIME_BUDGET, "the time budget ran out")


def _log_verdict(verdict: extractor_service_pb2.JobVerdict) -> None:
    outcome = extractor_service_pb2.JobOutcome.Name(verdict.outcome)
    if verdict.outcome in _APPLIED:
        left_out = {"skipped": len(verdict.skipped), "rejected": len(verdict.rejected)}
        _log.info("job_ended", outcome=outcome, revision=verdict.revision, **left_out)
    else:
        _log.warning("job_ended", outcome=outcome, code=verdict.status.code)


def _deadline(budget: Duration) -> float | None:
    """Returns the loop time by which the attempt must have its output; None without a budget."""
    seconds = budget.ToNanoseconds() / 1e9
    return asyncio.get_running_loop().time() + seconds if seconds > 0 else None
