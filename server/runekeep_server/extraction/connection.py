"""Serves the stream of one worker: reads its messages, and answers each output in a task of its own."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from time import monotonic

import structlog

from runekeep.v1 import common_pb2, task_service_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from runekeep_common import failpoints
from runekeep_server.identity import Worker
from runekeep_server.leases.lease_table import LeaseRecord, LeaseTable, lease_of, lost_message, wire_lease
from runekeep_server.leases.outbox import Outbox
from runekeep_server.leases.output_buffers import OutputBuffer, check_size
from runekeep_server.leases.renewals import LeaseRenewer
from runekeep_server.leases.verdict_messages import chunks_missing, server_error
from runekeep_server.leases.verdicts import Verdicts
from runekeep_server.leases.worker_records import WorkerRecords
from runekeep_server.protocol.api_error import ApiError
from runekeep_server.protocol.error_mapping import as_api_error
from runekeep_server.protocol.errors import internal, protocol_violation
from runekeep_server.protocol.validation import check_readable, validate_message
from runekeep_server.wire.tasks import REQUIRED_KINDS
from runekeep_storage.database import Space
from runekeep_storage.drivers.common.fair_turns import LONG_REST, rest_after
from runekeep_storage.errors import LeaseLost, StoreUnavailable
from runekeep_storage.jobs.worker_records import WorkerId
from runekeep_storage.records import LeaseId

PROTOCOL_VERSION = 1
OLDEST_PROTOCOL_VERSION = 1
"""The version of the previous release: servers are upgraded before workers, and accept their version until then."""
MAX_CREDITS = 1000
"""Maximum of credits of one stream, as in the contract."""
LONG_CHUNK_SECONDS = 0.005
"""A chunk that took longer to read is followed by a rest: one with thousands of ranges takes some 15 ms, in which
nobody else is served."""

log = structlog.get_logger(__name__)


class Connection:
    """A connected worker. `credits`: assignments that may still be sent to it; `is_proven`: it has completed a job on
    this stream; `answers_questions`: it takes jobs of the kind ASK. `welcome`: the Welcome of every worker; `on_ready`
    is called when the worker grants credits."""

    def __init__(
        self,
        worker: Worker,
        hello: pb.Hello,
        welcome: pb.Welcome,
        leases: LeaseTable,
        renewer: LeaseRenewer,
        verdicts: Verdicts,
        workers: WorkerRecords,
        on_ready: Callable[[], None],
    ) -> None:
        self.worker = worker
        self.worker_id = WorkerId(worker.actor, hello.worker_id)
        self.outbox = Outbox(hello.worker_id)
        self.credits = 0
        self.is_proven = False
        self.last_turn = 0
        self.answers_questions = task_service_pb2.TASK_KIND_ASK in hello.kinds
        self._hello = hello
        self._welcome = welcome
        self._leases = leases
        self._renewer = renewer
        self._verdicts = verdicts
        self._workers = workers
        self._on_ready = on_ready
        self._answers: set[asyncio.Task[bool]] = set()

    async def serve(self, requests: AsyncIterator[pb.WorkRequest]) -> AsyncGenerator[pb.WorkResponse]:
        """Yields responses until the worker half-closes or the stream breaks. Raises ApiError to end the stream with a
        reason."""
        self._check_hello()
        resumed = await self._renew(self._hello.resume, resumes=True)
        welcome = pb.Welcome(resumed=resumed)
        welcome.MergeFrom(self._welcome)
        yield pb.WorkResponse(welcome=welcome)
        reader = asyncio.create_task(self._read(requests))
        try:
            while (response := await self.outbox.next()) is not None:
                if response.HasField("assignment") and (record := self._find(self._lease(response.assignment.lease))):
                    record.is_sent = True
                yield response
                if response.HasField("assignment"):
                    # gRPC asks for the next response, so it has written this one.
                    failpoints.reached(failpoints.ASSIGN)
        finally:
            self.outbox.is_closed = True
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    @property
    def has_room(self) -> bool:
        return self.credits > 0 and not self.outbox.is_closed

    def takes_same_jobs(self, other: "Connection") -> bool:
        """Returns whether both workers may get the same jobs."""
        same_accounts = self.worker.accounts == other.worker.accounts
        return same_accounts and self.answers_questions == other.answers_questions

    def assign(self, assignment: pb.JobAssignment, space: Space) -> bool:
        """Sends an assignment. Returns False if the worker accepts no more jobs: it may have said Goodbye during the
        claim."""
        if self.credits <= 0 or not self.outbox.send(pb.WorkResponse(assignment=assignment)):
            return False
        self.credits -= 1
        self._leases.add(LeaseRecord(self._lease(assignment.lease), space, self.outbox, is_sent=False))
        return True

    async def wait_for_answers(self) -> None:
        """Returns when every received output is applied or answered."""
        while self._answers:
            # Unlike `gather`, `wait` does not cancel the tasks when the stream breaks: the outputs are still applied.
            await asyncio.wait(self._answers)

    def _check_hello(self) -> None:
        hello = self._hello
        if not OLDEST_PROTOCOL_VERSION <= hello.protocol_version <= PROTOCOL_VERSION:
            raise protocol_violation(
                f"The worker speaks version {hello.protocol_version} of the protocol; this server speaks versions"
                f" {OLDEST_PROTOCOL_VERSION} to {PROTOCOL_VERSION}",
                "Run a worker of the server's release",
            )
        missing = [task_service_pb2.TaskKind.Name(kind) for kind in REQUIRED_KINDS if kind not in hello.kinds]
        if missing:
            # Jobs of a lane are assigned in one order to every worker: a job that a worker cannot do would block all
            # jobs behind it. A question blocks none, because it has a lane of its own.
            raise protocol_violation(
                f"The worker does not support all kinds of jobs that it must. Missing: {', '.join(missing)}",
                "Name these kinds in Hello, and run a worker that supports them",
            )

    async def _read(self, requests: AsyncIterator[pb.WorkRequest]) -> None:
        try:
            async for request in requests:
                check_readable(request)
                check_size(request.output)
                began = monotonic()
                try:
                    validate_message(request)
                except ApiError as error:
                    self._refuse(request, error)
                    continue
                await self._handle(request)
                if request.HasField("output") and (took := monotonic() - began) > LONG_CHUNK_SECONDS:
                    await rest_after(took, LONG_REST)
            # The worker half-closed the stream. What it sent before is still answered.
            await self.wait_for_answers()
            self.outbox.close()
        except ApiError as error:
            self.outbox.close(error)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            # The worker must learn why its stream ends, whatever failed.
            known = as_api_error(error)
            if known is None:
                log.exception("work_stream_failed", worker=self.worker_id.name)
            self.outbox.close(known or internal())

    async def _handle(self, request: pb.WorkRequest) -> None:
        match request.WhichOneof("message"):
            case "ready":
                self.credits = min(self.credits + request.ready.credits, MAX_CREDITS)
                self._on_ready()
            case "heartbeat":
                states = await self._renew(request.heartbeat.leases)
                update = pb.LeaseUpdate(heartbeat_sequence=request.heartbeat.sequence, leases=states)
                self.outbox.send(pb.WorkResponse(lease_update=update))
            case "progress":
                await self._report_progress(request.progress)
            case "output":
                self._add_chunk(request.output)
            case "complete":
                self._complete(request.complete)
            case "fail":
                lease = self._lease(request.fail.lease)
                verdict = self._verdicts.fail(lease, request.fail, self._hello.extractor)
                self._answer(lease, verdict, request.fail.usage)
            case "release":
                lease = self._lease(request.release.lease)
                self._answer(lease, self._verdicts.release(lease))
            case "goodbye":
                self.credits = 0
            case _:
                raise protocol_violation("Hello was sent twice", "Send it first, and once")

    async def _renew(self, leases: Iterable[pb.Lease], *, resumes: bool = False) -> list[pb.LeaseState]:
        states = []
        for state, space in await self._renewer.renew_all([self._lease(lease) for lease in leases]):
            lease = self._lease(state.lease)
            if space is not None:
                self._leases.hold(lease, space, self.outbox, resumes=resumes)
            else:
                self._forget(lease)
            states.append(state)
        return states

    async def _report_progress(self, progress: pb.JobProgress) -> None:
        lease = self._lease(progress.lease)
        try:
            await self._renewer.report_progress(lease, progress.progress)
        except LeaseLost:
            self._forget(lease)
            self.outbox.send(lost_message(lease))

    def _add_chunk(self, chunk: pb.OutputChunk) -> None:
        record = self._find(self._lease(chunk.lease))
        if record is None:
            # Chunks of leases that this worker does not hold are not buffered.
            self.outbox.send(lost_message(self._lease(chunk.lease)))
            return
        if record.rejection is not None:
            # The chunk belongs to a rejected output; the verdict on that output answers it.
            return
        if record.output is None or record.output.output_id != chunk.output_id or chunk.index == 0:
            record.output = OutputBuffer(chunk.output_id)
        record.output.add(chunk)
        ack = pb.OutputAck(lease=chunk.lease, output_id=chunk.output_id, next_chunk_index=record.output.next_index)
        self.outbox.send(pb.WorkResponse(output_ack=ack))

    def _complete(self, complete: pb.JobComplete) -> None:
        lease = self._lease(complete.lease)
        record = self._find(lease)
        buffer = record.output if record is not None else None
        if record is not None:
            record.output = None
        if buffer is None or buffer.output_id != complete.output_id:
            buffer = OutputBuffer(complete.output_id)
        self._answer(lease, self._apply(lease, complete, buffer), complete.usage, complete)

    async def _apply(self, lease: LeaseId, complete: pb.JobComplete, buffer: OutputBuffer) -> pb.JobVerdict:
        if buffer.next_index != complete.chunk_count:
            # An earlier stream lost chunks that the worker still has, or the output was already handled.
            verdict = await self._verdicts.find(lease, complete.output_id)
            return verdict or chunks_missing(complete.lease, buffer.next_index, complete.chunk_count)
        return await self._verdicts.complete(lease, complete, buffer)

    def _refuse(self, request: pb.WorkRequest, error: ApiError) -> None:
        """Rejects a message that breaks the contract. An output or an end of one job must not end the stream of the
        others. For any other message, raises the error."""
        match request.WhichOneof("message"):
            case "output" if request.output.lease.job_id:
                record = self._find(lease := self._lease(request.output.lease))
                # The verdict on the first chunk that was refused answers the whole output.
                if record is None or record.rejection is None:
                    self._reject(lease, error, None)
            case "complete" if self._find(lease := self._lease(request.complete.lease)):
                self._reject(lease, error, request.complete.usage)
            case "fail" if self._find(lease := self._lease(request.fail.lease)):
                self._reject(lease, error, request.fail.usage)
            case _:
                raise error

    def _reject(self, lease: LeaseId, error: ApiError, usage: Sequence[common_pb2.TokenUsage] | None) -> None:
        """Ends the attempt with a rejection. The reader continues meanwhile, so that other leases get their heartbeats.
        `usage` is None if the worker has not reported it yet."""
        verdict = self._verdicts.reject(lease, error.message, self._hello.extractor, usage or ())
        answer = self._answer(lease, verdict, usage or (), awaits_usage=usage is None)
        if (record := self._find(lease)) is not None:
            record.output, record.rejection = None, answer

    def _answer(
        self,
        lease: LeaseId,
        verdict: Awaitable[pb.JobVerdict],
        usage: Sequence[common_pb2.TokenUsage] = (),
        complete: pb.JobComplete | None = None,
        *,
        awaits_usage: bool = False,
    ) -> asyncio.Task[bool]:
        """Sends the verdict from a separate task, so that applying one job never delays the heartbeats of others.
        Messages about a rejected attempt are answered after the rejection, and the first of them adds its usage.
        `awaits_usage`: the verdict rejects an output whose worker reports the usage later. The returned task
        returns whether the verdict ended the attempt and the usage is yet to come."""
        record = self._find(lease)
        rejection = record.rejection if record is not None else None

        async def answer() -> bool:
            try:
                if rejection is not None and await asyncio.shield(rejection):
                    await self._verdicts.add_late_usage(lease, usage, complete)
                result = await verdict
            except Exception:
                # Without a verdict, the worker would keep its lease until the end of the attempt.
                log.exception("verdict_failed", job=lease.job_id)
                result = server_error(wire_lease(lease))
            owes_usage = awaits_usage and result.outcome in (pb.JOB_OUTCOME_REQUEUED, pb.JOB_OUTCOME_FAILED)
            if record is not None and record.rejection is task and not owes_usage:
                record.rejection = None
            if result.outcome not in (pb.JOB_OUTCOME_NEEDS_REPAIR, pb.JOB_OUTCOME_TRY_AGAIN):
                self._forget(lease)
            self.outbox.send(pb.WorkResponse(verdict=result))
            if result.outcome in (pb.JOB_OUTCOME_APPLIED, pb.JOB_OUTCOME_ALREADY_APPLIED):
                await self._record_completion(lease.job_id)
            return owes_usage

        task = asyncio.create_task(answer())
        if record is not None and rejection is not None:
            record.rejection = task
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)
        return task

    async def _record_completion(self, job_id: str) -> None:
        is_first, self.is_proven = not self.is_proven, True
        try:
            await self._workers.record_completion(self.worker_id, job_id, is_first=is_first)
        except StoreUnavailable as error:
            # The worker stays in doubt until its next job.
            log.warning("completion_not_recorded", worker=self.worker_id.name, error=str(error))

    def _lease(self, lease: pb.Lease) -> LeaseId:
        return lease_of(lease, self.worker)

    def _find(self, lease: LeaseId) -> LeaseRecord | None:
        return self._leases.find(lease, self.outbox)

    def _forget(self, lease: LeaseId) -> None:
        """Forgets a lease that ended, unless its worker has yet to report the usage of a rejected attempt."""
        if (record := self._find(lease)) is not None and record.rejection is None:
            self._leases.remove(lease)
