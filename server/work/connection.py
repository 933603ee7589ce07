"""One worker's stream: one reader, one outbound queue, and a task for each output that is being applied."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from typing import TYPE_CHECKING

import structlog
from google.protobuf.duration_pb2 import Duration

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import task_service_pb2
from schemas import failpoints
from server.errors import ApiError, internal, protocol_violation, unavailable
from server.faults import as_api_error
from server.validation import validate_message
from server.work.buffers import MAX_CHUNK_BYTES, MAX_OPERATIONS, Arriving
from storage.errors import LeaseLost
from storage.records import Job, LeaseId

if TYPE_CHECKING:
    from server.work.dispatcher import Dispatcher

PROTOCOL_VERSION = 1
OUTBOUND_LIMIT = 64

log = structlog.get_logger(__name__)


def seconds(value: float) -> Duration:
    duration = Duration()
    duration.FromNanoseconds(round(value * 1e9))
    return duration


def lease_of(lease: pb.Lease) -> LeaseId:
    return LeaseId(lease.job_id, lease.fencing_token)


def wire_lease(lease: LeaseId) -> pb.Lease:
    return pb.Lease(job_id=lease.job_id, fencing_token=lease.token)


class Connection:
    """A worker that is connected. `credits` assignments may be sent to it."""

    def __init__(self, dispatcher: "Dispatcher", hello: pb.Hello) -> None:
        self.worker_id = hello.worker_id
        self.credits = 0
        self.leases: dict[str, LeaseId] = {}
        self._dispatcher = dispatcher
        self._hello = hello
        # The bound is kept by `send`, so that the end of the stream always finds room.
        self._outbound: asyncio.Queue[pb.WorkResponse | None] = asyncio.Queue()
        self._arriving: dict[LeaseId, Arriving] = {}
        self._rejected: set[LeaseId] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._fault: ApiError | None = None
        self.closed = False

    async def serve(self, requests: AsyncIterator[pb.WorkRequest]) -> AsyncGenerator[pb.WorkResponse]:
        """Answers until the worker half-closes or the stream breaks. Raises ApiError to end it with a reason."""
        yield pb.WorkResponse(welcome=await self._welcome())
        reader = asyncio.create_task(self._read(requests))
        try:
            while (response := await self._outbound.get()) is not None:
                yield response
                if response.HasField("assignment"):
                    # Asked for the next one: this one was written.
                    failpoints.reached(failpoints.ASSIGN)
            if self._fault is not None:
                raise self._fault
        finally:
            self.closed = True
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    def send(self, response: pb.WorkResponse) -> bool:
        """False when the stream is closed. A worker that does not read its stream is cut off."""
        if self.closed:
            return False
        if self._outbound.qsize() >= OUTBOUND_LIMIT:
            log.warning("worker_does_not_read", worker=self.worker_id)
            self.close(unavailable("stream", "The worker did not read its stream"))
            return False
        self._outbound.put_nowait(response)
        return True

    def assign(self, assignment: pb.JobAssignment) -> bool:
        """False when the worker takes no job any more: it may have said Goodbye while the job was claimed."""
        lease = lease_of(assignment.lease)
        if self.credits <= 0 or not self.send(pb.WorkResponse(assignment=assignment)):
            return False
        self.credits -= 1
        self.leases[lease.job_id] = lease
        return True

    def lost(self, lease: LeaseId) -> None:
        """Tells the worker that a lease is gone."""
        self._forget(lease)
        state = pb.LeaseState(lease=wire_lease(lease), status=pb.LEASE_STATUS_LOST)
        self.send(pb.WorkResponse(lease_update=pb.LeaseUpdate(leases=[state])))

    def cancel(self, lease: LeaseId, reason: str) -> None:
        self._forget(lease)
        self.send(pb.WorkResponse(cancel=pb.CancelJob(lease=wire_lease(lease), reason=reason)))

    def close(self, fault: ApiError | None = None) -> None:
        """Ends the stream once what is queued is sent; with a fault, at once."""
        if self.closed:
            return
        self._fault = fault
        if fault is not None:
            while not self._outbound.empty():
                self._outbound.get_nowait()
        self.closed = True
        self._outbound.put_nowait(None)

    async def settle(self) -> None:
        """Returns once all outputs that came are applied or answered."""
        while self._ending:
            await asyncio.gather(*self._ending, return_exceptions=True)

    async def _welcome(self) -> pb.Welcome:
        hello, settings = self._hello, self._dispatcher.settings
        if hello.protocol_version != PROTOCOL_VERSION:
            raise protocol_violation(
                f"The worker speaks version {hello.protocol_version} of the protocol, this server {PROTOCOL_VERSION}",
                "Run a worker of the server's release",
            )
        if task_service_pb2.TASK_KIND_COMMIT not in hello.kinds:
            raise protocol_violation("The worker does no kind of work that there is", "Name TASK_KIND_COMMIT in Hello")
        states = await self._dispatcher.renew([lease_of(lease) for lease in hello.resume])
        self._keep(states)
        return pb.Welcome(
            server_id=self._dispatcher.server_id,
            lease_duration=seconds(settings.lease_seconds),
            heartbeat_interval=seconds(settings.heartbeat_seconds),
            max_chunk_bytes=MAX_CHUNK_BYTES,
            max_operations=MAX_OPERATIONS,
            resumed=states,
        )

    async def _read(self, requests: AsyncIterator[pb.WorkRequest]) -> None:
        try:
            async for request in requests:
                try:
                    validate_message(request)
                except ApiError as error:
                    if not request.output.lease.job_id:
                        raise
                    # One job's output that breaks the contract must not take the stream of the others along.
                    await self._reject(lease_of(request.output.lease), error)
                    continue
                await self._take(request)
            # Half-closed: what was sent is still answered.
            await self.settle()
            self.close()
        except ApiError as error:
            self.close(error)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            known = as_api_error(error)
            if known is None:
                log.exception("work_stream_failed", worker=self.worker_id)
            self.close(known or internal())

    async def _take(self, request: pb.WorkRequest) -> None:
        match request.WhichOneof("message"):
            case "ready":
                self.credits += request.ready.credits
                self._dispatcher.wake()
            case "heartbeat":
                await self._heartbeat(request.heartbeat)
            case "progress":
                await self._progress(request.progress)
            case "output":
                self._output(request.output)
            case "complete":
                self._end(request.complete.lease, self._complete(request.complete))
            case "fail":
                self._end(request.fail.lease, self._fail(request.fail))
            case "release":
                self._end(request.release.lease, self._release(request.release))
            case "goodbye":
                self.credits = 0
            case _:
                raise protocol_violation("Hello came twice", "Send it first, and once")

    async def _heartbeat(self, heartbeat: pb.Heartbeat) -> None:
        states = await self._dispatcher.renew([lease_of(lease) for lease in heartbeat.leases])
        self._keep(states)
        update = pb.LeaseUpdate(heartbeat_sequence=heartbeat.sequence, leases=states)
        self.send(pb.WorkResponse(lease_update=update))

    def _keep(self, states: list[pb.LeaseState]) -> None:
        for state in states:
            lease = lease_of(state.lease)
            if state.status == pb.LEASE_STATUS_HELD:
                self.leases[lease.job_id] = lease
            else:
                self._forget(lease)

    async def _progress(self, progress: pb.JobProgress) -> None:
        lease = lease_of(progress.lease)
        try:
            await self._dispatcher.progress(lease, progress.progress)
        except LeaseLost:
            self.lost(lease)

    def _output(self, chunk: pb.OutputChunk) -> None:
        lease = lease_of(chunk.lease)
        if self.leases.get(lease.job_id) != lease:
            # Nothing is kept for leases that this worker does not hold.
            self.lost(lease)
            return
        arriving = self._arriving.get(lease)
        if arriving is None or arriving.output_id != chunk.output_id or chunk.index == 0:
            arriving = self._arriving[lease] = Arriving(chunk.output_id)
        arriving.add(chunk)
        ack = pb.OutputAck(lease=chunk.lease, output_id=chunk.output_id, next_chunk_index=arriving.next_index)
        self.send(pb.WorkResponse(output_ack=ack))

    def _end(self, lease: pb.Lease, work: Awaitable[pb.JobVerdict]) -> None:
        """Answers in a task of its own, so that applying one job never delays the heartbeats of others."""

        async def answer() -> None:
            try:
                verdict = await work
            except Exception:
                # A worker without an answer would keep its lease to the end of the attempt.
                log.exception("verdict_failed", job=lease.job_id)
                verdict = pb.JobVerdict(lease=lease, outcome=pb.JOB_OUTCOME_TRY_AGAIN)
            if verdict.outcome not in (pb.JOB_OUTCOME_NEEDS_REPAIR, pb.JOB_OUTCOME_TRY_AGAIN):
                self._forget(lease_of(verdict.lease))
            self.send(pb.WorkResponse(verdict=verdict))

        task = asyncio.create_task(answer())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _complete(self, complete: pb.JobComplete) -> pb.JobVerdict:
        lease = lease_of(complete.lease)
        if lease in self._rejected:
            self._rejected.discard(lease)
            await self._dispatcher.spent(lease, complete.usage)
        arrived = self._arriving.pop(lease, None) or Arriving(complete.output_id)
        if arrived.output_id != complete.output_id or arrived.next_index != complete.chunk_count:
            # Chunks were lost with an earlier stream, and the worker still has them; or the output came before.
            ended = await self._dispatcher.ended(lease, complete.output_id)
            return ended or pb.JobVerdict(lease=complete.lease, outcome=pb.JOB_OUTCOME_TRY_AGAIN)
        return await self._dispatcher.complete(lease, complete, arrived)

    async def _reject(self, lease: LeaseId, error: ApiError) -> None:
        """Answered before anything that follows is read: what comes of this output is of an attempt that is over."""
        verdict = await self._dispatcher.reject(lease, error.message)
        self._arriving.pop(lease, None)
        if verdict.outcome != pb.JOB_OUTCOME_TRY_AGAIN:
            self._forget(lease)
        if verdict.outcome in (pb.JOB_OUTCOME_REQUEUED, pb.JOB_OUTCOME_FAILED):
            self._rejected.add(lease)
        self.send(pb.WorkResponse(verdict=verdict))

    async def _fail(self, fail: pb.JobFail) -> pb.JobVerdict:
        return await self._dispatcher.fail(lease_of(fail.lease), fail)

    async def _release(self, release: pb.JobRelease) -> pb.JobVerdict:
        return await self._dispatcher.release(lease_of(release.lease))

    def _forget(self, lease: LeaseId) -> None:
        if self.leases.get(lease.job_id) == lease:
            del self.leases[lease.job_id]
        self._arriving.pop(lease, None)


def holds(connection: Connection, job: Job) -> bool:
    """Whether the worker was given this very attempt of the job."""
    return connection.leases.get(job.job_id) == job.lease
