"""One attempt at one job, from its assignment to the server's verdict."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar

import structlog
from google.protobuf.duration_pb2 import Duration

from extractor import telemetry
from extractor.backoff import Backoff
from extractor.calls import MAX_WAIT_SECONDS, LeaseLost
from extractor.channel import Metadata
from extractor.counts import counting_operations
from extractor.engine import Engine, EngineOutput, JobFailed
from extractor.job import RemoteJob
from extractor.lease import LeaseTimer, Watchdog
from extractor.output import Parcel, failure_request
from extractor.stream import StreamBroken, WorkStream
from runekeep.v1 import (
    common_pb2,
    extractor_service_pb2,
    extractor_service_pb2_grpc,
    task_service_pb2,
)
from schemas import failpoints
from schemas.telemetry import tracing

_log = structlog.get_logger(__name__)

T = TypeVar("T")

# Seconds. Progress is told so long after it was made, the newest only: each word of it is a write of the server's, and
# a job that is done by then has nothing to tell.
_TOLD_AFTER: Final = 0.25
# Share of an attempt's time. If outages took more than this, running out of time is not the job's failure.
_MAX_WAIT_SHARE: Final = 0.1
# Outcomes after which nothing more can be said about the attempt.
_APPLIED: Final = frozenset(
    {extractor_service_pb2.JOB_OUTCOME_APPLIED, extractor_service_pb2.JOB_OUTCOME_ALREADY_APPLIED}
)


class Streams(Protocol):
    """Where an attempt finds a stream to talk on."""

    async def current(self) -> WorkStream:
        """The newest open stream; waits for one."""
        ...

    def usable(self) -> WorkStream | None:
        """The newest open stream, if there is one now."""
        ...


class Attempt:
    """Runs the engine on a job and sees its result through, over as many streams as that takes.

    `stopped` says why the attempt was ended from outside; empty while it may go on.
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
        self.timer = LeaseTimer(self._unrenewed)
        self.watchdog = Watchdog(stall_timeout)
        self.stopped = ""
        self._engine = engine
        self._streams = streams
        self._job = RemoteJob(stub, metadata, assignment, self)
        self._verdicts: asyncio.Queue[extractor_service_pb2.JobVerdict] = asyncio.Queue()
        self._deadline = _deadline(assignment.time_budget)
        self._task: asyncio.Task[None] | None = None
        self._untold: task_service_pb2.TaskProgress | None = None
        self._telling: asyncio.Task[None] | None = None

    @property
    def lease(self) -> extractor_service_pb2.Lease:
        """The lease that it holds."""
        return self.assignment.lease

    def start(self) -> asyncio.Task[None]:
        """Begin, in a task of its own."""
        self._task = asyncio.create_task(self._run(), name=f"job {self.lease.job_id}")
        return self._task

    def stop(self, reason: str) -> None:
        """End at once; nothing more is said to the server about the lease."""
        if not self.stopped and self._task is not None:
            self.stopped = reason
            self._task.cancel()

    def judged(self, verdict: extractor_service_pb2.JobVerdict) -> None:
        """A verdict has come, on whichever stream."""
        self._verdicts.put_nowait(verdict)

    def moved(self) -> None:
        """See `Watched`."""
        self.watchdog.moved()

    def _unrenewed(self) -> None:
        """Stops, unless there is no server to hold the lease with: a server that was away spares the leases that it
        could not renew, and its Welcome says what has become of this one. Were it given away meanwhile, some work is
        done twice and nothing is applied twice, for the output is refused by its token.
        """
        if self._streams.usable() is not None:
            self.stop("lease_expired")
        else:
            _log.info("lease_in_doubt", job_id=self.lease.job_id, task_id=self.assignment.task_id)

    async def report(self, progress: task_service_pb2.TaskProgress) -> None:
        """See `Watched`. It is told a little later, unless a newer one takes its place or the job is done by then."""
        self._untold = progress
        if self._telling is None:
            self._telling = asyncio.create_task(self._tell_progress())

    async def _tell_progress(self) -> None:
        """Until there is no newer one. Without a stream nothing is told: the next report says more."""
        while self._untold is not None:
            await asyncio.sleep(_TOLD_AFTER)
            progress, self._untold = self._untold, None
            stream = self._streams.usable()
            if stream is None:
                continue
            told = extractor_service_pb2.JobProgress(lease=self.lease, progress=progress)
            try:
                await stream.send(extractor_service_pb2.WorkRequest(progress=told))
            except StreamBroken:
                _log.debug("progress_not_told")
        self._telling = None

    async def _tell_no_more(self) -> None:
        """Also not what waits for room on a stream: behind an output that was applied, the server would call the lease
        lost."""
        telling, self._telling = self._telling, None
        if telling is not None:
            telling.cancel()
            await asyncio.wait({telling})

    async def _run(self) -> None:
        with telemetry.attempt(self.assignment) as told:
            await self._tell(told)

    async def _tell(self, told: telemetry.AttemptTold) -> None:
        """Runs to the end and says in the log and the span what came of it."""
        trace = (told.traceparent or self.assignment.traceparent)[3:35]
        structlog.contextvars.bind_contextvars(job_id=self.lease.job_id, task_id=self.assignment.task_id, trace=trace)
        _log.info("job_started", attempt=self.assignment.attempt, fencing_token=self.lease.fencing_token)
        try:
            verdict = await self._work_and_deliver(told)
            told.judged(verdict)
            self._log_end(verdict)
        except LeaseLost:
            told.stopped("lease_lost")
            _log.warning("job_stopped", reason="lease_lost")
        except asyncio.CancelledError:
            # From outside, or by `stop`. A lease can turn out applied before its verdict arrives.
            told.stopped(self.stopped or "shutdown")
            _log.info("job_stopped", reason=self.stopped or "shutdown")
            raise
        finally:
            self.timer.stop()
            structlog.contextvars.clear_contextvars()
            await self._tell_no_more()

    async def _work_and_deliver(self, told: telemetry.AttemptTold) -> extractor_service_pb2.JobVerdict:
        try:
            return await self._work()
        except JobFailed as failed:
            told.failed(failed)
            return await self._deliver_failure(failed)
        except LeaseLost:
            raise
        except Exception as error:
            # A fault of the worker, told at once: else the job would wait until its lease has run out.
            _log.error("attempt_crashed", error=type(error).__name__, at=telemetry.place_of(error))
            crash = JobFailed(extractor_service_pb2.FAILURE_CLASS_INTERNAL, type(error).__name__)
            told.failed(crash)
            return await self._deliver_failure(crash)

    async def _work(self) -> extractor_service_pb2.JobVerdict:
        with tracing.span("load input"):
            await self._within_budget(self._job.load)
        failpoints.reached(failpoints.INPUT)
        # Its parts are told by the engine, right below the attempt: what is around them would not be told by a worker
        # that is killed.
        output = await self._within_budget(self._made)
        # What is wrong of a turn's memory the server leaves out by itself.
        if self.assignment.kind != task_service_pb2.TASK_KIND_COMMIT:
            return await self._deliver_output(output)
        counts = await self._counts()
        verdict = await self._deliver_output(output, counts)
        if verdict.outcome == extractor_service_pb2.JOB_OUTCOME_NEEDS_REPAIR:
            _log.info("repair_asked", refused=len(verdict.refused))
            made = len(output.operations)
            places = {left.operation_index for left in verdict.refused}
            counts = [one for place, one in enumerate(counts, made) if place not in places]
            # A model cannot mend a count that it did not make, and would be paid for it.
            if refused := [left for left in verdict.refused if left.operation_index < made]:
                output = await self._within_budget(lambda: self._engine.repair(self._job, output, refused))
            verdict = await self._deliver_output(output, counts)
        return verdict

    async def _counts(self) -> list[extractor_service_pb2.MemoryOperation]:
        """Returns none if they cannot be made: the output of the engine, which was paid for, is not lost over them."""
        try:
            return await asyncio.to_thread(counting_operations, self._job)
        except Exception as error:
            _log.error("counts_not_made", error=type(error).__name__, at=telemetry.place_of(error))
            return []

    async def _made(self) -> EngineOutput:
        match self.assignment.kind:
            case task_service_pb2.TASK_KIND_TURN_FINGERPRINT:
                return await self._engine.fingerprint(self._job)
            case task_service_pb2.TASK_KIND_BUCKET_RECONCILE:
                return await self._engine.reconcile(self._job)
            case _:
                return await self._engine.extract(self._job)

    async def _within_budget(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run the engine's part. Raises JobFailed for whatever goes wrong in it."""
        self.watchdog.moved()
        try:
            async with asyncio.timeout_at(self._deadline) as budget:
                return await work()
        except (JobFailed, LeaseLost):
            raise
        except Exception as error:
            if isinstance(error, TimeoutError) and budget.expired():
                raise self._out_of_time() from error
            # Only where it happened: the text of a foreign exception may quote the conversation.
            _log.error("engine_failed", error=type(error).__name__, at=telemetry.place_of(error))
            raise JobFailed(extractor_service_pb2.FAILURE_CLASS_INTERNAL, type(error).__name__) from error
        finally:
            self.watchdog.rest()

    def _out_of_time(self) -> JobFailed:
        """Time lost in an outage does not count as a failure of the job."""
        if away := self._engine.away:
            text = f"the time budget ran out while {away}"
            return JobFailed(extractor_service_pb2.FAILURE_CLASS_MODEL_UNAVAILABLE, text)
        budget = self.assignment.time_budget.ToNanoseconds() / 1e9
        if self._job.waiting_for or self._job.waited > _MAX_WAIT_SHARE * budget:
            part = self._job.waiting_for or "server"
            text = f"the time budget ran out, of which {self._job.waited:.0f} s went by in waiting for the {part}"
            return JobFailed(extractor_service_pb2.FAILURE_CLASS_DEPENDENCY_UNAVAILABLE, text, waiting_for=part)
        return JobFailed(extractor_service_pb2.FAILURE_CLASS_TIME_BUDGET, "the time budget ran out")

    async def _deliver_output(
        self, output: EngineOutput, counts: Sequence[extractor_service_pb2.MemoryOperation] = ()
    ) -> extractor_service_pb2.JobVerdict:
        _log.info(
            "output_made",
            operations=len(output.operations),
            counts=len(counts),
            summary=output.summary is not None,
            turn_memories=len(output.turn_memories),
            selection=output.selection is not None,
            feedback=len(output.feedback),
            bucket_changes=output.bucket_changes is not None,
            dropped_items=output.dropped_items,
        )
        extractor = common_pb2.ExtractorInfo()
        extractor.CopyFrom(self._engine.info)
        extractor.model = output.model or extractor.model
        with tracing.span("deliver output") as span:
            parcel = Parcel(
                self.lease,
                str(uuid.uuid4()),
                output,
                extractor,
                self._job.spent,
                self._job.calls,
                span.traceparent or self.assignment.traceparent,
                counts,
            )
            return await self._deliver(parcel.requests)

    async def _deliver_failure(self, failed: JobFailed) -> extractor_service_pb2.JobVerdict:
        name = extractor_service_pb2.FailureClass.Name(failed.failure_class)
        _log.warning("job_failed", failure_class=name, message=failed.message, retryable=failed.retryable)
        request = failure_request(self.lease, failed, self._job.spent, self._job.calls)
        return await self._deliver(lambda welcome: [request])

    async def _deliver(
        self, requests: Callable[[extractor_service_pb2.Welcome], list[extractor_service_pb2.WorkRequest]]
    ) -> extractor_service_pb2.JobVerdict:
        """Send all of it, again on a new stream or when the server could not decide, until there is a verdict."""
        backoff = Backoff(first=0.5, most=MAX_WAIT_SECONDS)
        while True:
            verdict = await self._deliver_once(requests)
            if verdict is None:
                continue
            if verdict.outcome != extractor_service_pb2.JOB_OUTCOME_TRY_AGAIN:
                return verdict
            _log.info("output_sent_again")
            await asyncio.sleep(backoff.next_wait())

    async def _deliver_once(
        self, requests: Callable[[extractor_service_pb2.Welcome], list[extractor_service_pb2.WorkRequest]]
    ) -> extractor_service_pb2.JobVerdict | None:
        await self._tell_no_more()
        stream = await self._streams.current()
        try:
            for request in requests(stream.welcome):
                await stream.send(request)
        except StreamBroken:
            return None
        verdict = asyncio.ensure_future(self._verdicts.get())
        ended = asyncio.ensure_future(stream.ended.wait())
        try:
            await asyncio.wait({verdict, ended}, return_when=asyncio.FIRST_COMPLETED)
            return verdict.result() if verdict.done() else None
        finally:
            verdict.cancel()
            ended.cancel()

    def _log_end(self, verdict: extractor_service_pb2.JobVerdict) -> None:
        outcome = extractor_service_pb2.JobOutcome.Name(verdict.outcome)
        if verdict.outcome in _APPLIED:
            left_out = {"skipped": len(verdict.skipped), "rejected": len(verdict.rejected)}
            _log.info("job_ended", outcome=outcome, revision=verdict.revision, **left_out)
        else:
            _log.warning("job_ended", outcome=outcome, code=verdict.status.code)


def _deadline(budget: Duration) -> float | None:
    """Loop time at which the attempt must have its output; None without a budget."""
    seconds = budget.ToNanoseconds() / 1e9
    return asyncio.get_running_loop().time() + seconds if seconds > 0 else None
