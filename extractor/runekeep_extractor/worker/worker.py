"""The worker: one Work stream at a time, and attempts that outlive it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine
from contextlib import suppress
from typing import Final

import grpc
import grpc.aio
import structlog

from runekeep.transport.advice import advice
from runekeep.transport.transport import Transport
from runekeep.v1 import extractor_service_pb2, extractor_service_pb2_grpc, task_service_pb2
from runekeep_extractor import telemetry
from runekeep_extractor.engine.interface import Engine, JobFailed
from runekeep_extractor.rpc.backoff import Backoff
from runekeep_extractor.rpc.calls import MAX_WAIT_SECONDS
from runekeep_extractor.rpc.channel import worker_metadata
from runekeep_extractor.worker.attempt import Attempt
from runekeep_extractor.worker.lease import LeaseKey, key_of
from runekeep_extractor.worker.output import failure_request
from runekeep_extractor.worker.stream import StreamBroken, Streams, WorkStream, open_stream

PROTOCOL_VERSION: Final = 1
KINDS: Final = (
    task_service_pb2.TASK_KIND_COMMIT,
    task_service_pb2.TASK_KIND_TURN_FINGERPRINT,
    task_service_pb2.TASK_KIND_BUCKET_RECONCILE,
)

# Codes that a server returns again however often it is asked.
_FINAL_CODES: Final = frozenset(
    {
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
# Time from an assignment to its first heartbeat. The first lease may be shorter, because the call for the input renews
# it at once.
_FIRST_HEARTBEAT_SECONDS: Final = 1.0
# Time for the server to receive the last messages of a stopping worker.
_GOODBYE_SECONDS: Final = 5.0
# Time until a drained stream is closed. Verdicts may still arrive on it.
_MAX_DRAIN_SECONDS: Final = 60.0

_log = structlog.get_logger(__name__)


class WorkerRefused(Exception):
    """The server refused this worker before the first Welcome. The message holds the status."""


class Worker:
    """Takes jobs from a server until it is stopped."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        engine: Engine,
        *,
        transport: Transport,
        worker_id: str,
        concurrency: int,
        grace: float,
        stall_timeout: float,
        reconnect: Backoff | None = None,
    ) -> None:
        """`transport`: that of the channel. `grace` and `stall_timeout` in seconds; `reconnect` spaces the attempts to
        connect.
        """
        self._stub = extractor_service_pb2_grpc.ExtractorServiceStub(channel)
        self._engine = engine
        self._kinds = [*KINDS, *([task_service_pb2.TASK_KIND_ASK] if engine.answers_questions else [])]
        self._worker_id = worker_id
        self._incarnation = str(uuid.uuid4())
        self._transport = transport
        self._metadata = worker_metadata(worker_id, transport)
        self._concurrency = concurrency
        self._grace = grace
        self._stall_timeout = stall_timeout
        self._reconnect = reconnect or Backoff(first=0.5, most=MAX_WAIT_SECONDS)
        self._attempts: dict[LeaseKey, Attempt] = {}
        self._streams = Streams()
        self._background: set[asyncio.Task[None]] = set()
        self._heartbeat_due = asyncio.Event()
        self._drain_requested = asyncio.Event()
        self._stopping = False

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until `stop` is set, then finishes or gives back the running jobs. Raises WorkerRefused."""
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
            tasks = [connection, heartbeat, stopped, *self._tasks(), *self._background]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._streams.newest is not None:
                await self._streams.newest.close()

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [attempt.task for attempt in self._attempts.values()]

    # Connection.

    async def _keep_connected(self) -> None:
        welcomed = False
        failures = 0
        while True:
            try:
                stream = await open_stream(self._stub, self._metadata, self._hello())
            except StreamBroken as error:
                if error.code in _FINAL_CODES and not welcomed:
                    raise WorkerRefused(str(error)) from error
                wait = self._reconnect.next_wait()
                # Certificates may be fixed on either side during the wait.
                hint = advice(self._transport, str(error))
                failures += 1
                # Logs the first failure, then ever fewer: a server may be away for hours.
                if failures.bit_count() == 1:
                    _log.warning(
                        "not_connected",
                        code=error.code.name if error.code else None,
                        failures=failures,
                        **({"advice": hint.text} if hint else {}),
                    )
                await asyncio.sleep(wait)
                continue
            welcomed, failures = True, 0
            self._reconnect.reset()
            await self._switch_to(stream)
            telemetry.CONNECTED.set(1)
            await self._wait_until_over(stream)
            telemetry.CONNECTED.set(0)
            # Waits first: a server that welcomes and hangs up must not be called in a tight loop, and a draining server
            # has many workers.
            await asyncio.sleep(self._reconnect.next_wait())

    async def _switch_to(self, stream: WorkStream) -> None:
        """Makes a welcomed stream the current one, and closes the previous one."""
        previous, self._drain_requested = self._streams.newest, asyncio.Event()
        _log.info("connected", server_id=stream.welcome.server_id, jobs=len(self._attempts))
        for key, status in stream.resumed_statuses().items():
            self._apply_lease_status(key, status, renewed_at=stream.hello_sent_at, stream=stream)
        stream.start(self._handle)
        await self._streams.replace(stream)
        self._heartbeat_due.set()
        if self._stopping:
            self._send(stream, extractor_service_pb2.WorkRequest(goodbye=extractor_service_pb2.Goodbye()))
        self._request_jobs()
        if previous is not None:
            self._in_background(_close_replaced(previous))

    async def _wait_until_over(self, stream: WorkStream) -> None:
        ended = asyncio.create_task(stream.ended.wait())
        drained = asyncio.create_task(self._drain_requested.wait())
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
            kinds=self._kinds,
            extractor=self._engine.info,
            resume=[attempt.lease for attempt in self._attempts.values()],
        )

    def _send(self, stream: WorkStream, request: extractor_service_pb2.WorkRequest) -> None:
        """Sends from a synchronous function, without waiting."""
        self._in_background(_send_if_open(stream, request))

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # Messages of the server.

    def _handle(self, stream: WorkStream, response: extractor_service_pb2.WorkResponse) -> None:
        match response.WhichOneof("message"):
            case "assignment":
                stream.outstanding_credits -= 1
                self._accept(stream, response.assignment)
            case "lease_update":
                sent_at = stream.take_sent_at(response.lease_update.heartbeat_sequence)
                for state in response.lease_update.leases:
                    self._apply_lease_status(key_of(state.lease), state.status, renewed_at=sent_at, stream=stream)
            case "verdict":
                if attempt := self._attempts.get(key_of(response.verdict.lease)):
                    attempt.receive_verdict(response.verdict)
            case "cancel":
                self._stop(key_of(response.cancel.lease), "cancelled")
            case "drain" if stream is self._streams.newest:
                _log.info("drain_requested")
                self._drain_requested.set()
            case _:
                # OutputAck needs no action: the whole output is kept, and sent again after a new Welcome.
                pass

    def _accept(self, stream: WorkStream, assignment: extractor_service_pb2.JobAssignment) -> None:
        key = key_of(assignment.lease)
        if self._stopping:
            release = extractor_service_pb2.JobRelease(lease=assignment.lease, reason="the worker stops")
            self._send(stream, extractor_service_pb2.WorkRequest(release=release))
            return
        if assignment.kind not in self._kinds:
            failure = JobFailed(extractor_service_pb2.FAILURE_CLASS_UNSUPPORTED, f"kind {assignment.kind}")
            self._send(stream, failure_request(assignment.lease, failure))
            self._request_jobs()
            return
        for older in [other for other in self._attempts if other[0] == key[0]]:
            self._stop(older, "assigned again")
        attempt = Attempt(assignment, self._engine, self._streams, self._stub, self._metadata, self._stall_timeout)
        # The first lease is shorter, and its length is unknown. Overestimating it is harmless: the fencing token causes
        # a lease that is over to be refused. The call for the input renews the lease, and the heartbeat soon after sets
        # the right length. Many jobs are done by then.
        attempt.timer.restart(asyncio.get_running_loop().time(), _lease_seconds(stream))
        self._attempts[key] = attempt
        attempt.task.add_done_callback(lambda _: self._on_attempt_end(key))
        asyncio.get_running_loop().call_later(_FIRST_HEARTBEAT_SECONDS, self._heartbeat_due.set)

    def _apply_lease_status(
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
            attempt.timer.restart(renewed_at, _lease_seconds(stream))

    def _stop(self, key: LeaseKey, reason: str) -> None:
        if attempt := self._attempts.get(key):
            attempt.stop(reason)

    def _on_attempt_end(self, key: LeaseKey) -> None:
        task = self._attempts.pop(key).task
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("attempt_crashed", job_id=key[0], error=type(error).__name__)
        self._request_jobs()

    def _request_jobs(self) -> None:
        """Asks the server for as many jobs as there is room for."""
        stream = self._streams.find_open()
        if stream is None or self._stopping:
            return
        credits = self._concurrency - len(self._attempts) - stream.outstanding_credits
        if credits > 0:
            stream.outstanding_credits += credits
            ready = extractor_service_pb2.Ready(credits=credits)
            self._send(stream, extractor_service_pb2.WorkRequest(ready=ready))

    # Leases.

    async def _keep_leases(self) -> None:
        """Sends heartbeats at the server's interval, and at once for a new lease or stream."""
        while True:
            stream = await self._streams.wait_for_open()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(stream.welcome.heartbeat_interval.ToNanoseconds() / 1e9, 0.01)):
                    await self._heartbeat_due.wait()
            self._heartbeat_due.clear()
            active = []
            for attempt in self._attempts.values():
                if attempt.watchdog.is_stalled:
                    _log.error("job_stalled", job_id=attempt.lease.job_id, task_id=attempt.assignment.task_id)
                else:
                    active.append(attempt.lease)
            stream = await self._streams.wait_for_open()
            if active:
                with suppress(StreamBroken):
                    await stream.heartbeat(active)

    # Shutdown.

    async def _shut_down(self) -> None:
        _log.info("stopping", jobs=len(self._attempts), grace=self._grace)
        self._stopping = True
        stream = self._streams.find_open()
        if stream is not None:
            self._send(stream, extractor_service_pb2.WorkRequest(goodbye=extractor_service_pb2.Goodbye()))
        if self._attempts:
            await asyncio.wait(self._tasks(), timeout=self._grace)
        unfinished = [attempt for attempt in self._attempts.values() if not attempt.task.done()]
        for attempt in unfinished:
            attempt.task.cancel()
        stream = self._streams.find_open()
        if stream is None:
            # Their leases expire by themselves.
            _log.warning("jobs_not_released", jobs=len(unfinished))
            return
        for attempt in unfinished:
            _log.info("job_released", job_id=attempt.lease.job_id, task_id=attempt.assignment.task_id)
            release = extractor_service_pb2.JobRelease(lease=attempt.lease, reason="the worker stops")
            await _send_if_open(stream, extractor_service_pb2.WorkRequest(release=release))
        await stream.finish()
        with suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE_SECONDS):
                await stream.ended.wait()


async def _when_set(event: asyncio.Event) -> None:
    await event.wait()


async def _send_if_open(stream: WorkStream, request: extractor_service_pb2.WorkRequest) -> None:
    try:
        await stream.send(request)
    except StreamBroken:
        # The message is void without its stream: grants expire, and leases are resumed or expire.
        _log.debug("message_not_sent", message=request.WhichOneof("message"))


async def _close_replaced(stream: WorkStream) -> None:
    """Half-closes a replaced stream, and ends it if the server does not."""
    await stream.finish()
    with suppress(TimeoutError):
        async with asyncio.timeout(_MAX_DRAIN_SECONDS):
            await stream.ended.wait()
    await stream.close()


def _lease_seconds(stream: WorkStream) -> float:
    return stream.welcome.lease_duration.ToNanoseconds() / 1e9
