"""One worker's stream: one reader, one outbound queue, and a task for each output that is being applied."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterable, Sequence
from typing import TYPE_CHECKING

import structlog
from google.protobuf.duration_pb2 import Duration

from runekeep.v1 import common_pb2, task_service_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from schemas import failpoints
from server.errors import ApiError, internal, protocol_violation, unavailable
from server.faults import as_api_error
from server.identity import Worker
from server.validation import check_readable, validate_message
from server.wire.tasks import KINDS
from server.work.answers import chunks_missing, server_failed
from server.work.buffers import MAX_CHUNK_BYTES, MAX_OPERATIONS, Arriving, check_size
from storage.database import Space
from storage.errors import LeaseLost
from storage.leases import digest_of
from storage.records import Job, LeaseId
from storage.worker_standings import WorkerId

if TYPE_CHECKING:
    from server.work.dispatcher import Dispatcher

PROTOCOL_VERSION = 1
OLDEST_PROTOCOL_VERSION = 1
"""That of the release before: servers are upgraded ahead of workers, and take theirs until then."""
OUTBOUND_LIMIT = 64
MAX_CREDITS = 1000
"""Limit for one stream, as in the contract."""

log = structlog.get_logger(__name__)


def seconds(value: float) -> Duration:
    duration = Duration()
    duration.FromNanoseconds(round(value * 1e9))
    return duration


def lease_of(lease: pb.Lease, worker: Worker) -> LeaseId:
    """Returns the lease as `worker` shows it. Whether the worker may use it is up to `storage.leases`."""
    return LeaseId(lease.job_id, lease.fencing_token, worker.actor, digest_of(lease.secret), lease.secret)


def wire_lease(lease: LeaseId) -> pb.Lease:
    return pb.Lease(job_id=lease.job_id, fencing_token=lease.token, secret=lease.secret)


class Connection:
    """A connected worker. `credits`: assignments that may be sent to it; `proven`: it has completed a job here."""

    def __init__(self, dispatcher: "Dispatcher", worker: Worker, hello: pb.Hello) -> None:
        self.worker = worker
        self.worker_id = hello.worker_id
        self.name = WorkerId(worker.actor, hello.worker_id)
        self.credits = 0
        self.proven = False
        self.last_turn = 0
        self.leases: dict[str, LeaseId] = {}
        self._spaces: dict[LeaseId, Space] = {}
        # Assignments that wait to be sent.
        self._unsent: dict[LeaseId, Space] = {}
        self._dispatcher = dispatcher
        self._hello = hello
        # The bound is kept by `send`, so that the end of the stream always finds room.
        self._outbound: asyncio.Queue[pb.WorkResponse | None] = asyncio.Queue()
        self._arriving: dict[LeaseId, Arriving] = {}
        # Leases of which something broke the contract, while that is written; and those of which a chunk did, until
        # their JobComplete tells what they spent.
        self._rejecting: dict[LeaseId, asyncio.Task[None]] = {}
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
                if response.HasField("assignment"):
                    self._unsent.pop(self._lease(response.assignment.lease), None)
                yield response
                if response.HasField("assignment"):
                    # Asked for the next one: this one was written.
                    failpoints.reached(failpoints.ASSIGN)
            if self._fault is not None:
                raise self._fault
        finally:
            self.closed = True
            self._dispatcher.undelivered(self._unsent)
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

    def assign(self, assignment: pb.JobAssignment, space: Space) -> bool:
        """False when the worker takes no job any more: it may have said Goodbye while the job was claimed."""
        lease = self._lease(assignment.lease)
        if self.credits <= 0 or not self.send(pb.WorkResponse(assignment=assignment)):
            return False
        self.credits -= 1
        self.leases[lease.job_id] = lease
        self._spaces[lease] = self._unsent[lease] = space
        return True

    def space_of(self, lease: LeaseId) -> Space | None:
        """The space of a lease that the worker holds, as far as it is known."""
        return self._spaces.get(lease)

    def lost(self, lease: LeaseId) -> None:
        """Tells the worker that a lease is gone."""
        lease = self._as_given(lease)
        self._forget(lease)
        state = pb.LeaseState(lease=wire_lease(lease), status=pb.LEASE_STATUS_LOST)
        self.send(pb.WorkResponse(lease_update=pb.LeaseUpdate(leases=[state])))

    def cancel(self, lease: LeaseId, reason: str) -> None:
        lease = self._as_given(lease)
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
            # Unlike `gather`, `wait` does not cancel the tasks when the stream breaks: the outputs are still applied.
            await asyncio.wait(self._ending)

    async def _welcome(self) -> pb.Welcome:
        hello, settings = self._hello, self._dispatcher.settings
        if not OLDEST_PROTOCOL_VERSION <= hello.protocol_version <= PROTOCOL_VERSION:
            raise protocol_violation(
                f"The worker speaks version {hello.protocol_version} of the protocol, this server {PROTOCOL_VERSION}"
                f" and those from {OLDEST_PROTOCOL_VERSION} on",
                "Run a worker of the server's release",
            )
        missing = [task_service_pb2.TaskKind.Name(kind) for kind in KINDS.values() if kind not in hello.kinds]
        if missing:
            # Jobs are given in one order to whoever asks: one that a worker cannot do would keep all behind it waiting.
            raise protocol_violation(
                f"The worker does not do all kinds of work that there are: {', '.join(missing)} are missing",
                "Name in Hello all kinds of TaskKind, and run a worker that does them",
            )
        states = await self._renew(hello.resume)
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
                check_readable(request)
                check_size(request.output)
                try:
                    validate_message(request)
                except ApiError as error:
                    self._refuse(request, error)
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
                self.credits = min(self.credits + request.ready.credits, MAX_CREDITS)
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
        states = await self._renew(heartbeat.leases)
        update = pb.LeaseUpdate(heartbeat_sequence=heartbeat.sequence, leases=states)
        self.send(pb.WorkResponse(lease_update=update))

    async def _renew(self, leases: Iterable[pb.Lease]) -> list[pb.LeaseState]:
        states = []
        for state, space in await self._dispatcher.renew([self._lease(lease) for lease in leases]):
            lease = self._lease(state.lease)
            if state.status == pb.LEASE_STATUS_HELD and space is not None:
                self.leases[lease.job_id] = lease
                self._spaces[lease] = space
            else:
                self._forget(lease)
            states.append(state)
        return states

    async def _progress(self, progress: pb.JobProgress) -> None:
        lease = self._lease(progress.lease)
        try:
            await self._dispatcher.progress(lease, progress.progress)
        except LeaseLost:
            self.lost(lease)

    def _output(self, chunk: pb.OutputChunk) -> None:
        lease = self._lease(chunk.lease)
        if lease in self._rejecting:
            # Of the output that is being refused: the verdict on that is the answer.
            return
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

    def _end(self, lease: pb.Lease, work: Awaitable[pb.JobVerdict]) -> asyncio.Task[None]:
        """Answers in a task of its own, so that applying one job never delays the heartbeats of others."""
        rejecting = self._rejecting.get(self._lease(lease))

        async def answer() -> None:
            try:
                if rejecting is not None:
                    await asyncio.wait([rejecting])
                verdict = await work
            except Exception:
                # A worker without an answer would keep its lease to the end of the attempt.
                log.exception("verdict_failed", job=lease.job_id)
                verdict = server_failed(lease)
            if verdict.outcome not in (pb.JOB_OUTCOME_NEEDS_REPAIR, pb.JOB_OUTCOME_TRY_AGAIN):
                self._forget(self._lease(verdict.lease))
            self.send(pb.WorkResponse(verdict=verdict))
            if verdict.outcome in (pb.JOB_OUTCOME_APPLIED, pb.JOB_OUTCOME_ALREADY_APPLIED):
                await self._dispatcher.completed(self, lease.job_id)

        task = asyncio.create_task(answer())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    async def _complete(self, complete: pb.JobComplete) -> pb.JobVerdict:
        lease = self._lease(complete.lease)
        if lease in self._rejected:
            self._rejected.discard(lease)
            await self._dispatcher.verdicts.told_late(lease, complete.usage, complete)
        arrived = self._arriving.pop(lease, None) or Arriving(complete.output_id)
        if arrived.output_id != complete.output_id or arrived.next_index != complete.chunk_count:
            # Chunks were lost with an earlier stream, and the worker still has them; or the output came before.
            ended = await self._dispatcher.verdicts.ended(lease, complete.output_id)
            return ended or chunks_missing(complete.lease, _there(arrived, complete), complete.chunk_count)
        return await self._dispatcher.verdicts.complete(lease, complete, arrived)

    def _refuse(self, request: pb.WorkRequest, error: ApiError) -> None:
        """One job's output that breaks the contract must not take the stream of the others along, and no more must
        what ends one; anything else that breaks it raises the error."""
        match request.WhichOneof("message"):
            case "output" if request.output.lease.job_id:
                self._reject(request.output.lease, error, None)
            case "complete" if self._knows(request.complete.lease):
                self._reject(request.complete.lease, error, request.complete.usage)
            case "fail" if self._knows(request.fail.lease):
                self._reject(request.fail.lease, error, request.fail.usage)
            case _:
                raise error

    def _knows(self, wire: pb.Lease) -> bool:
        lease = self._lease(wire)
        return self.leases.get(lease.job_id) == lease or lease in self._rejecting or lease in self._rejected

    def _reject(self, wire: pb.Lease, error: ApiError, usage: Sequence[common_pb2.TokenUsage] | None) -> None:
        """Answered before anything that follows about the lease is: what comes of this output is of an attempt that is
        over. The reader goes on meanwhile, for the sake of the heartbeats of other leases. `usage`: None when it is
        still to be told."""
        lease = self._lease(wire)
        self._arriving.pop(lease, None)

        async def reject() -> pb.JobVerdict:
            verdicts = self._dispatcher.verdicts
            if usage is not None and lease in self._rejected:
                self._rejected.discard(lease)
                await verdicts.told_late(lease, usage, None)
            verdict = await verdicts.reject(lease, error.message, self._hello.extractor, usage or ())
            if usage is None and verdict.outcome in (pb.JOB_OUTCOME_REQUEUED, pb.JOB_OUTCOME_FAILED):
                self._rejected.add(lease)
            return verdict

        def over(task: asyncio.Task[None]) -> None:
            if self._rejecting.get(lease) is task:
                del self._rejecting[lease]

        task = self._rejecting[lease] = self._end(wire, reject())
        task.add_done_callback(over)

    async def _fail(self, fail: pb.JobFail) -> pb.JobVerdict:
        return await self._dispatcher.verdicts.fail(self._lease(fail.lease), fail, self._hello.extractor)

    async def _release(self, release: pb.JobRelease) -> pb.JobVerdict:
        return await self._dispatcher.verdicts.release(self._lease(release.lease))

    def _lease(self, lease: pb.Lease) -> LeaseId:
        return lease_of(lease, self.worker)

    def _as_given(self, lease: LeaseId) -> LeaseId:
        """Returns the lease with the secret that the worker knows, if it got the lease on this stream."""
        given = self.leases.get(lease.job_id)
        return given if given == lease else lease

    def _forget(self, lease: LeaseId) -> None:
        if self.leases.get(lease.job_id) == lease:
            del self.leases[lease.job_id]
        self._spaces.pop(lease, None)
        self._arriving.pop(lease, None)


def _there(arrived: Arriving, complete: pb.JobComplete) -> int:
    return arrived.next_index if arrived.output_id == complete.output_id else 0


def holds(connection: Connection, job: Job) -> bool:
    """Whether the worker was given this very attempt of the job."""
    return connection.leases.get(job.job_id) == job.lease
