"""One Work stream: a task that reads, a task that writes what is queued, and the news that it is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import grpc
import grpc.aio
import structlog

from extractor.channel import Metadata
from extractor.lease import LeaseKey, key_of
from runekeep.v1 import extractor_service_pb2, extractor_service_pb2_grpc
from schemas import failpoints

OUTBOUND_LIMIT: Final = 64

# A server that is up welcomes at once; one that only took the connection must not hold the worker for ever.
_WELCOME_DEADLINE: Final = 30.0

_log = structlog.get_logger(__name__)

_Call = grpc.aio.StreamStreamCall[extractor_service_pb2.WorkRequest, extractor_service_pb2.WorkResponse]


class StreamBroken(Exception):
    """The stream is over. `code` is the server's, or None when this side closed it."""

    def __init__(self, code: grpc.StatusCode | None, details: str = "") -> None:
        super().__init__(f"{code.name if code else 'closed'}: {details}")
        self.code = code


class WorkStream:
    """An open stream. Made by `open_stream`; read by the handler given there, in order."""

    def __init__(self, call: _Call, welcome: extractor_service_pb2.Welcome, hello_sent_at: float) -> None:
        self.welcome = welcome
        self.hello_sent_at = hello_sent_at
        """Loop time: the leases that the Welcome calls held run from then on."""
        self.outstanding_credits = 0
        """Assignments granted on this stream that have not come yet."""
        self.ended = asyncio.Event()
        """Nothing more will be read."""
        self._call = call
        self._outbound: asyncio.Queue[extractor_service_pb2.WorkRequest | None] = asyncio.Queue(OUTBOUND_LIMIT)
        self._finishing = False
        self._heartbeats = 0
        self._unanswered: dict[int, float] = {}
        self._writer = asyncio.create_task(self._write())
        self._reader: asyncio.Task[None] | None = None

    def start(self, handle: Handler) -> None:
        """Begin to read. `handle` gets every message after the Welcome."""
        self._reader = asyncio.create_task(self._read(handle))

    @property
    def usable(self) -> bool:
        """Whether something can still be sent."""
        return not self._finishing and not self.ended.is_set()

    async def send(self, request: extractor_service_pb2.WorkRequest) -> None:
        """Queue a message; waits while the queue is full. Raises StreamBroken when the stream is over."""
        if not self.usable:
            raise StreamBroken(None, "the stream is over")
        await self._put(request)

    async def heartbeat(self, leases: list[extractor_service_pb2.Lease]) -> None:
        """Renew leases. Raises StreamBroken."""
        self._heartbeats += 1
        # The moment before queueing is not after the moment of sending, so waiting in the queue costs only time.
        self._unanswered[self._heartbeats] = asyncio.get_running_loop().time()
        beat = extractor_service_pb2.Heartbeat(sequence=self._heartbeats, leases=leases)
        await self.send(extractor_service_pb2.WorkRequest(heartbeat=beat))

    def answered(self, sequence: int) -> float | None:
        """When the heartbeat of that number was sent (loop time); None when it is not one of this stream."""
        return self._unanswered.pop(sequence, None)

    async def finish(self) -> None:
        """Send what is queued, then half-close. The server may still answer."""
        if self.usable:
            self._finishing = True
            with suppress(StreamBroken):
                await self._put(None)

    async def close(self) -> None:
        """End the stream now."""
        self._finishing = True
        self._call.cancel()
        tasks = [task for task in (self._reader, self._writer) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.ended.set()

    def resumed(self) -> dict[LeaseKey, extractor_service_pb2.LeaseStatus.ValueType]:
        """What the Welcome said about the leases of the Hello."""
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
                raise StreamBroken(None, "the stream is over")
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
            # A fault of ours. The worker opens a new stream; what holds the fault may hold user content.
            _log.error("stream_reader_failed", error=type(error).__name__)
            self._call.cancel()
        finally:
            self.ended.set()
            self._writer.cancel()

    async def _write(self) -> None:
        try:
            while (request := await self._outbound.get()) is not None:
                # What came before was written: it is with the server, or on its way there.
                if request.HasField("output") and request.output.index:
                    failpoints.reached(failpoints.MID_CHUNKS)
                elif request.HasField("complete"):
                    failpoints.reached(failpoints.BEFORE_COMPLETE)
                await self._call.write(request)
            await self._call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # The reader sees the same end of the call, with its status.
            return


Handler = Callable[[WorkStream, extractor_service_pb2.WorkResponse], None]


async def open_stream(
    stub: extractor_service_pb2_grpc.ExtractorServiceAsyncStub,
    metadata: Metadata,
    hello: extractor_service_pb2.Hello,
) -> WorkStream:
    """Say Hello and wait for the Welcome. The stream reads on after `start`. Raises StreamBroken."""
    call = stub.Work(metadata=metadata)
    sent_at = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(_WELCOME_DEADLINE):
            await call.write(extractor_service_pb2.WorkRequest(hello=hello))
            response = await call.read()
            if not isinstance(response, extractor_service_pb2.WorkResponse):
                raise StreamBroken(await call.code(), str(await call.details()))
    except TimeoutError as error:
        call.cancel()
        raise StreamBroken(grpc.StatusCode.DEADLINE_EXCEEDED, "no Welcome") from error
    except asyncio.InvalidStateError as error:
        raise StreamBroken(await call.code(), str(await call.details())) from error
    except grpc.aio.AioRpcError as error:
        raise StreamBroken(error.code(), str(error.details())) from error
    except asyncio.CancelledError:
        call.cancel()
        raise
    if response.WhichOneof("message") != "welcome":
        call.cancel()
        raise StreamBroken(grpc.StatusCode.FAILED_PRECONDITION, "the first message was no Welcome")
    return WorkStream(call, response.welcome, sent_at)
