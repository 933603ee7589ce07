"""One Work stream: a task that reads, a task that writes queued messages, and an event for its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import grpc
import grpc.aio
import structlog

from runekeep.v1 import extractor_service_pb2, extractor_service_pb2_grpc
from runekeep_common import failpoints
from runekeep_extractor.rpc.channel import Metadata
from runekeep_extractor.worker.lease import LeaseKey, key_of

OUTBOUND_LIMIT: Final = 64

# A running server sends its Welcome at once; one that only accepted the connection must not block the worker for ever.
_WELCOME_TIMEOUT_SECONDS: Final = 30.0

_log = structlog.get_logger(__name__)

_Call = grpc.aio.StreamStreamCall[extractor_service_pb2.WorkRequest, extractor_service_pb2.WorkResponse]


class StreamBroken(Exception):
    """The stream has ended. `code` is the server's, or None if this side closed it."""

    def __init__(self, code: grpc.StatusCode | None, details: str = "") -> None:
        super().__init__(f"{code.name if code else 'closed'}: {details}")
        self.code = code


class WorkStream:
    """An open stream. `open_stream` makes it; `start` passes its messages to a handler, in order."""

    def __init__(self, call: _Call, welcome: extractor_service_pb2.Welcome, hello_sent_at: float) -> None:
        self.welcome = welcome
        self.hello_sent_at = hello_sent_at
        """Loop time from which the leases that the Welcome confirms run."""
        self.outstanding_credits = 0
        """Assignments granted on this stream that have not arrived yet."""
        self.ended = asyncio.Event()
        """Set when nothing more will be read."""
        self._call = call
        self._outbound: asyncio.Queue[extractor_service_pb2.WorkRequest | None] = asyncio.Queue(OUTBOUND_LIMIT)
        self._finishing = False
        self._heartbeat_count = 0
        self._heartbeats_sent_at: dict[int, float] = {}
        self._writer = asyncio.create_task(self._write())
        self._reader: asyncio.Task[None] | None = None

    def start(self, handle: Handler) -> None:
        """Starts reading. `handle` gets every message after the Welcome."""
        self._reader = asyncio.create_task(self._read(handle))

    @property
    def is_open(self) -> bool:
        """Returns whether messages can still be sent."""
        return not self._finishing and not self.ended.is_set()

    async def send(self, request: extractor_service_pb2.WorkRequest) -> None:
        """Queues a message; waits while the queue is full. Raises StreamBroken if the stream has ended."""
        if not self.is_open:
            raise StreamBroken(None, "the stream has ended")
        await self._put(request)

    async def heartbeat(self, leases: list[extractor_service_pb2.Lease]) -> None:
        """Renews leases. Raises StreamBroken."""
        self._heartbeat_count += 1
        # The time before queueing is never after the time of sending, so waiting in the queue only shortens the assumed
        # lease.
        self._heartbeats_sent_at[self._heartbeat_count] = asyncio.get_running_loop().time()
        beat = extractor_service_pb2.Heartbeat(sequence=self._heartbeat_count, leases=leases)
        await self.send(extractor_service_pb2.WorkRequest(heartbeat=beat))

    def take_sent_at(self, sequence: int) -> float | None:
        """Returns when the heartbeat of that number was sent (loop time); None if it is not one of this stream."""
        return self._heartbeats_sent_at.pop(sequence, None)

    async def finish(self) -> None:
        """Sends the queued messages, then half-closes. The server may still answer."""
        if self.is_open:
            self._finishing = True
            with suppress(StreamBroken):
                await self._put(None)

    async def close(self) -> None:
        """Ends the stream now."""
        self._finishing = True
        self._call.cancel()
        tasks = [task for task in (self._reader, self._writer) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.ended.set()

    def resumed_statuses(self) -> dict[LeaseKey, extractor_service_pb2.LeaseStatus.ValueType]:
        """Returns the status of each lease of the Hello, from the Welcome."""
        return {key_of(state.lease): state.status for state in self.welcome.resumed}

    async def _put(self, request: extractor_service_pb2.WorkRequest | None) -> None:
        if not self._outbound.full():
            self._outbound.put_nowait(request)
            return
        put = asyncio.ensure_future(self._outbound.put(request))
        ended = asyncio.ensure_future(self.ended.wait())
        try:
            await asyncio.wait({put, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not put.done():
                raise StreamBroken(None, "the stream has ended")
        finally:
            put.cancel()
            ended.cancel()

    async def _read(self, handle: Handler) -> None:
        try:
            while isinstance(response := await self._call.read(), extractor_service_pb2.WorkResponse):
                handle(self, response)
            code = await self._call.code()
            if code is not grpc.StatusCode.OK:
                _log.warning("stream_broken", code=code.name)
        except grpc.aio.AioRpcError as error:
            _log.warning("stream_broken", code=error.code().name)
        except Exception as error:
            # A bug on this side. The worker opens a new stream. Only the error's name is logged, because its text may
            # hold user content.
            _log.error("stream_reader_failed", error=type(error).__name__)
            self._call.cancel()
        finally:
            self.ended.set()
            self._writer.cancel()

    async def _write(self) -> None:
        try:
            while (request := await self._outbound.get()) is not None:
                # Earlier messages were written: they have arrived or are on their way.
                if request.HasField("output") and request.output.index:
                    failpoints.reached(failpoints.MID_CHUNKS)
                elif request.HasField("complete"):
                    failpoints.reached(failpoints.BEFORE_COMPLETE)
                await self._call.write(request)
            await self._call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # The reader sees the same end of the call, with its status.
            return


class Streams:
    """Holds the newest stream of a worker."""

    def __init__(self) -> None:
        self.newest: WorkStream | None = None
        self._changed = asyncio.Condition()

    async def replace(self, stream: WorkStream) -> None:
        async with self._changed:
            self.newest = stream
            self._changed.notify_all()

    def find_open(self) -> WorkStream | None:
        """Returns the newest stream if it is open."""
        return self.newest if self.newest is not None and self.newest.is_open else None

    async def wait_for_open(self) -> WorkStream:
        async with self._changed:
            while (stream := self.find_open()) is None:
                await self._changed.wait()
            return stream


Handler = Callable[[WorkStream, extractor_service_pb2.WorkResponse], None]


async def open_stream(
    stub: extractor_service_pb2_grpc.ExtractorServiceAsyncStub,
    metadata: Metadata,
    hello: extractor_service_pb2.Hello,
) -> WorkStream:
    """Sends Hello and waits for the Welcome. The stream reads on after `start`. Raises StreamBroken."""
    call = stub.Work(metadata=metadata)
    sent_at = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(_WELCOME_TIMEOUT_SECONDS):
            await call.write(extractor_service_pb2.WorkRequest(hello=hello))
            response = await call.read()
            if not isinstance(response, extractor_service_pb2.WorkResponse):
                raise StreamBroken(await call.code(), str(await call.details()))
    except TimeoutError as error:
        call.cancel()
        raise StreamBroken(grpc.StatusCode.DEADLINE_EXCEEDED, "no Welcome in time") from error
    except asyncio.InvalidStateError as error:
        raise StreamBroken(await call.code(), str(await call.details())) from error
    except grpc.aio.AioRpcError as error:
        raise StreamBroken(error.code(), str(error.details())) from error
    except asyncio.CancelledError:
        call.cancel()
        raise
    if response.WhichOneof("message") != "welcome":
        call.cancel()
        raise StreamBroken(grpc.StatusCode.FAILED_PRECONDITION, "the first message is not a Welcome")
    return WorkStream(call, response.welcome, sent_at)
