"""The worker: one Work stream at a time, and the attempts that run whatever becomes of it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine
from contextlib import suppress
from typing import Final

import grpc
import grpc.aio
import structlog

from extractor import telemetry
from extractor.attempt import Attempt
from extractor.backoff import Backoff
from extractor.calls import MAX_WAIT_SECONDS
from extractor.channel import worker_metadata
from extractor.engine import Engine, JobFailed
from extractor.lease import LeaseKey, key_of
from extractor.output import failure_request
from extractor.stream import StreamBroken, WorkStream, open_stream
from runekeep.transport.advice import advice
from runekeep.transport.transport import Transport
from runekeep.v1 import extractor_service_pb2, extractor_service_pb2_grpc, task_service_pb2

PROTOCOL_VERSION: Final = 1
KINDS: Final = (
    task_service_pb2.TASK_KIND_COMMIT,
    task_service_pb2.TASK_KIND_TURN_FINGERPRINT,
    task_service_pb2.TASK_KIND_BUCKET_RECONCILE,
)

# What a server will say again however often it is asked.
_FINAL_CODES: Final = frozenset(
    {
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
# Seconds after an assignment. A first lease may be shorter: it is the call for the input that holds it, made at once.
_FIRST_BEAT: Final = 1.0
# For the server to take the last messages of a worker that stops.
_FAREWELL: Final = 5.0

# For a stream that was drained: verdicts may still come on it.
_DRAIN_LIMIT: Final = 60.0

_log = structlog.get_logger(__name__)


class Refused(Exception):
    """The server refused this worker before it ever welcomed it. The message holds the status."""


class Worker:
    """Takes jobs from a server until it is stopped."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        engine: Engine,
        *,
        way: Transport,
        worker_id: str,
        concurrency: int,
        grace: float,
        stall_timeout: float,
        reconnect: Backoff | None = None,
    ) -> None:
        """`way`: that of the channel. `grace` and `stall_timeout` in seconds; `reconnect` spaces the attempts to
        connect."""
        self._stub = extractor_service_pb2_grpc.ExtractorServiceStub(channel)
        self._engine = engine
        self._worker_id = worker_id
        self._incarnation = str(uuid.uuid4())
        self._way = way
        self._metadata = worker_metadata(worker_id, way)
        self._concurrency = concurrency
        self._grace = grace
        self._stall_timeout = stall_timeout
        self._reconnect = reconnect or Backoff(first=0.5, most=MAX_WAIT_SECONDS)
        self._attempts: dict[LeaseKey, Attempt] = {}
        self._tasks: dict[LeaseKey, asyncio.Task[None]] = {}
        self._stream: WorkStream | None = None
        self._opened = asyncio.Condition()
        self._background: set[asyncio.Task[None]] = set()
        self._beat_now = asyncio.Event()
        self._drain_asked = asyncio.Event()
        self._stopping = False

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then finish or give back what runs. Raises Refused."""
        connection = asyncio.create_task(self._keep_connected())
        heartbeat = asyncio.create_task(self._keep_leases())
        stopped = asyncio.create_task(_when_set(stop))
        try:
            await asyncio.wait({connection, heartbeat, stopped}, return_when=asyncio.FIRST_COMPLETED)
            for task in (connection, heartbeat):
                if task.done():
                    task.result()
            await self._shut_down()
        finally:
            self._stopping = True
            tasks = [connection, heartbeat, stopped, *self._tasks.values(), *self._background]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._stream is not None:
                await self._stream.close()

    # Streams, for attempts.

    def usable(self) -> WorkStream | None:
        """See `Streams`."""
        return self._stream if self._stream is not None and self._stream.usable else None

    async def current(self) -> WorkStream:
        """See `Streams`."""
        async with self._opened:
            while (stream := self.usable()) is None:
                await self._opened.wait()
            return stream

    # The connection.

    async def _keep_connected(self) -> None:
        welcomed = False
        failures = 0
        while True:
            try:
                stream = await open_stream(self._stub, self._metadata, self._hello())
            except StreamBroken as error:
                if error.code in _FINAL_CODES and not welcomed:
                    raise Refused(str(error)) from error
                wait = self._reconnect.next_wait()
                # Certificates are mended on either side while this one waits.
                advised = advice(self._way, str(error))
                failures += 1
                # The first failure, then ever fewer: a server may be away for hours.
                if failures.bit_count() == 1:
                    _log.warning(
                        "not_connected",
                        code=error.code.name if error.code else None,
                        failures=failures,
                        **({"advice": advised.text} if advised else {}),
                    )
                await asyncio.sleep(wait)
                continue
            welcomed, failures = True, 0
            self._reconnect.reset()
            await self._move_to(stream)
            telemetry.CONNECTED.set(1)
            await self._until_over(stream)
            telemetry.CONNECTED.set(0)
            # Not at once: a server that welcomes and hangs up must not be asked in a tight circle, and one that
            # drains has many workers.
            await asyncio.sleep(self._reconnect.next_wait())

    async def _move_to(self, stream: WorkStream) -> None:
        """Make a welcomed stream the current one, and let go of the one before."""
        before, self._drain_asked = self._stream, asyncio.Event()
        _log.info("connected", server_id=stream.welcome.server_id, jobs=len(self._attempts))
        for key, status in stream.resumed().items():
            self._lease_news(key, status, renewed_at=stream.hello_sent_at, stream=stream)
        stream.start(self._handle)
        async with self._opened:
            self._stream = stream
            self._opened.notify_all()
        self._beat_now.set()
        if self._stopping:
            self._send(stream, extractor_service_pb2.WorkRequest(goodbye=extractor_service_pb2.Goodbye()))
        self._top_up()
        if before is not None:
            self._in_background(_let_go(before))

    async def _until_over(self, stream: WorkStream) -> None:
        ended = asyncio.create_task(stream.ended.wait())
        drained = asyncio.create_task(self._drain_asked.wait())
        try:
            await asyncio.wait({ended, drained}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
            drained.cancel()

    def _hello(self) -> extractor_service_pb2.Hello:
        return extractor_service_pb2.Hello(
            protocol_version=PROTOCOL_VERSION,
            worker_id=self._worker_id,
            incarnation_id=self._incarnation,
            kinds=KINDS,
            extractor=self._engine.info,
            resume=[attempt.lease for attempt in self._attempts.values()],
        )

    def _send(self, stream: WorkStream, request: extractor_service_pb2.WorkRequest) -> None:
        """Send from a place that cannot wait."""
        self._in_background(_send_if_open(stream, request))

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # What the server says.

    def _handle(self, stream: WorkStream, response: extractor_service_pb2.WorkResponse) -> None:
        match response.WhichOneof("message"):
            case "assignment":
                stream.outstanding_credits -= 1
                self._assigned(stream, response.assignment)
            case "lease_update":
                sent_at = stream.answered(response.lease_update.heartbeat_sequence)
                for state in response.lease_update.leases:
                    self._lease_news(key_of(state.lease), state.status, renewed_at=sent_at, stream=stream)
            case "verdict":
                attempt = self._attempts.get(key_of(response.verdict.lease))
                if attempt is not None:
                    attempt.judged(response.verdict)
            case "cancel":
                self._stop(key_of(response.cancel.lease), "cancelled")
            case "drain" if stream is self._stream:
                _log.info("drain_asked")
                self._drain_asked.set()
            case _:
                # OutputAck tells nothing that is needed: everything is kept, and sent again after a new Welcome.
                pass

    def _assigned(self, stream: WorkStream, assignment: extractor_service_pb2.JobAssignment) -> None:
        key = key_of(assignment.lease)
        if self._stopping:
            release = extractor_service_pb2.JobRelease(lease=assignment.lease, reason="the worker stops")
            self._send(stream, extractor_service_pb2.WorkRequest(release=release))
            return
        if assignment.kind not in KINDS:
            failed = JobFailed(extractor_service_pb2.FAILURE_CLASS_UNSUPPORTED, f"kind {assignment.kind}")
            self._send(stream, failure_request(assignment.lease, failed))
            self._top_up()
            return
        for older in [other for other in self._attempts if other[0] == key[0]]:
            self._stop(older, "assigned again")
        attempt = Attempt(assignment, self._engine, self, self._stub, self._metadata, self._stall_timeout)
        # The first lease is shorter and its length is not told. Believing too long does no harm, since a lease that
        # is over is refused by its token; the call for the input renews it, and the heartbeat that follows soon sets
        # it right. By then many a job is done.
        attempt.timer.renewed(asyncio.get_running_loop().time(), _lease_seconds(stream))
        self._attempts[key] = attempt
        self._tasks[key] = attempt.start()
        self._tasks[key].add_done_callback(lambda _: self._ended(key))
        asyncio.get_running_loop().call_later(_FIRST_BEAT, self._beat_now.set)

    def _lease_news(
        self,
        key: LeaseKey,
        status: extractor_service_pb2.LeaseStatus.ValueType,
        *,
        renewed_at: float | None,
        stream: WorkStream,
    ) -> None:
        attempt = self._attempts.get(key)
        if attempt is None:
            return
        if status == extractor_service_pb2.LEASE_STATUS_LOST:
            attempt.stop("lease_lost")
        elif status == extractor_service_pb2.LEASE_STATUS_APPLIED:
            attempt.stop("applied")
        elif renewed_at is not None:
            attempt.timer.renewed(renewed_at, _lease_seconds(stream))

    def _stop(self, key: LeaseKey, reason: str) -> None:
        attempt = self._attempts.get(key)
        if attempt is not None:
            attempt.stop(reason)

    def _ended(self, key: LeaseKey) -> None:
        del self._attempts[key]
        task = self._tasks.pop(key)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("attempt_crashed", job_id=key[0], error=type(error).__name__)
        self._top_up()

    def _top_up(self) -> None:
        """Ask for as many jobs as there is room for."""
        stream = self.usable()
        if stream is None or self._stopping:
            return
        credits = self._concurrency - len(self._attempts) - stream.outstanding_credits
        if credits > 0:
            stream.outstanding_credits += credits
            ready = extractor_service_pb2.Ready(credits=credits)
            self._send(stream, extractor_service_pb2.WorkRequest(ready=ready))

    # Leases.

    async def _keep_leases(self) -> None:
        """Send heartbeats at the server's interval, and at once for a new lease or stream."""
        while True:
            stream = await self.current()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(stream.welcome.heartbeat_interval.ToNanoseconds() / 1e9, 0.01)):
                    await self._beat_now.wait()
            self._beat_now.clear()
            moving = []
            for attempt in self._attempts.values():
                if attempt.watchdog.stalled:
                    _log.error("job_stalled", job_id=attempt.lease.job_id, task_id=attempt.assignment.task_id)
                else:
                    moving.append(attempt.lease)
            stream = await self.current()
            if moving:
                with suppress(StreamBroken):
                    await stream.heartbeat(moving)

    # The end.

    async def _shut_down(self) -> None:
        _log.info("stopping", jobs=len(self._attempts), grace=self._grace)
        self._stopping = True
        stream = self.usable()
        if stream is not None:
            self._send(stream, extractor_service_pb2.WorkRequest(goodbye=extractor_service_pb2.Goodbye()))
        running = dict(self._tasks)
        if running:
            await asyncio.wait(running.values(), timeout=self._grace)
        left = {key: self._attempts[key] for key, task in running.items() if not task.done()}
        for task in (running[key] for key in left):
            task.cancel()
        stream = self.usable()
        if stream is None:
            # Their leases run out by themselves.
            _log.warning("jobs_not_given_back", jobs=len(left))
            return
        for key, attempt in left.items():
            _log.info("job_given_back", job_id=key[0], task_id=attempt.assignment.task_id)
            release = extractor_service_pb2.JobRelease(lease=attempt.lease, reason="the worker stops")
            await _send_if_open(stream, extractor_service_pb2.WorkRequest(release=release))
        await stream.finish()
        with suppress(TimeoutError):
            async with asyncio.timeout(_FAREWELL):
                await stream.ended.wait()


async def _when_set(event: asyncio.Event) -> None:
    await event.wait()


async def _send_if_open(stream: WorkStream, request: extractor_service_pb2.WorkRequest) -> None:
    try:
        await stream.send(request)
    except StreamBroken:
        # What a stream held is void without it: grants die, and leases are resumed or run out.
        _log.debug("not_sent", message=request.WhichOneof("message"))


async def _let_go(stream: WorkStream) -> None:
    """Half-close a stream that another one has followed, and end it should the server not do so."""
    await stream.finish()
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_LIMIT):
            await stream.ended.wait()
    await stream.close()


def _lease_seconds(stream: WorkStream) -> float:
    return stream.welcome.lease_duration.ToNanoseconds() / 1e9
