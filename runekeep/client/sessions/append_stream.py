"""The stream of appends that all writers of a client share.

It keeps every append until its acknowledgement. When the stream breaks, it opens another one and sends what is not
acknowledged again, in order and with the same request ids, by which the server knows what it has stored already.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import grpc

from runekeep.client.connection.call_status import is_from_server, record_statuses
from runekeep.client.connection.connection import Connection
from runekeep.client.connection.errors import ResourceExhaustedError, RunekeepError, UnavailableError, from_status
from runekeep.v1 import session_service_pb2

SILENCE_SECONDS = 30.0
"""A stream whose appends are not acknowledged for so long is dead, whatever the socket says."""
GIVE_UP_SECONDS = 60.0
"""Waiting appends fail once the server has acknowledged nothing for this long."""
_MAX_PAUSE_SECONDS = 2.0
_CLOSE_SECONDS = 1.0
_JOINED_APPENDS = 64
_JOINED_BYTES = 60_000
"""Maximum of what is sent in one request. The server checks requests of this size without a scan."""
_ENVELOPE_BYTES = 16
"""Maximum bytes that a request adds to an append."""
_open: dict[Connection, "AppendStream"] = {}
"""The streams that have writers."""


def join_stream(connection: Connection) -> "AppendStream":
    """Returns the stream of a client. Call `leave` in the end."""
    stream = _open.get(connection)
    if stream is None:
        stream = _open[connection] = AppendStream(connection)
    stream.writers += 1
    return stream


@dataclass(eq=False, slots=True)
class PendingAppend:
    """An append that is not acknowledged. `answer` gets the AddMessagesResponse, or a RunekeepError."""

    request: session_service_pb2.AddMessagesRequest
    size: int
    answer: "asyncio.Future[session_service_pb2.AddMessagesResponse]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class AppendStream:
    """One stream, opened by the first append. `writers`: how many use it."""

    def __init__(self, connection: Connection) -> None:
        self.writers = 0
        self._connection = connection
        self._window = session_service_pb2.AppendWindow(appends=256, bytes=2**20, request_bytes=2**22)
        """That of the server, once it is known."""
        self._pending: dict[PendingAppend, None] = {}
        """All that is not acknowledged, in order."""
        self._pending_bytes = 0
        self._unsent: deque[PendingAppend] = deque()
        self._sent: dict[int, PendingAppend] = {}
        """By number on the current call."""
        self._number = 0
        self._turn = asyncio.Lock()
        """Keeps the order of those who wait for room."""
        self._room = asyncio.Event()
        self._news = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None
        self._is_closing = False
        self._heard = 0.0
        """When the server last acknowledged something, or the first append began to wait."""
        self._limit: asyncio.Timeout | None = None

    async def submit(self, request: session_service_pb2.AddMessagesRequest) -> PendingAppend:
        """Returns once there is room for the append among those that are not acknowledged."""
        pending = PendingAppend(request, request.ByteSize())
        async with self._turn:
            while self._pending and (
                len(self._pending) >= self._window.appends or self._pending_bytes + pending.size > self._window.bytes
            ):
                self._room.clear()
                await self._room.wait()
        if not self._pending:
            self._heard = asyncio.get_running_loop().time()
        self._pending[pending] = None
        self._pending_bytes += pending.size
        self._unsent.append(pending)
        self._news.set()
        if self._runner is None or self._runner.done():
            self._runner = asyncio.create_task(self._run())
        return pending

    def drop(self, pending: PendingAppend) -> None:
        """Forgets an append. It may be stored or not."""
        if pending in self._pending:
            self._forget(pending)
            pending.answer.cancel()

    async def leave(self) -> None:
        """Ends the stream after its last writer."""
        self.writers -= 1
        if self.writers:
            return
        del _open[self._connection]
        self._is_closing = True
        self._news.set()
        if self._runner is not None:
            await asyncio.wait([self._runner], timeout=_CLOSE_SECONDS)
            self._runner.cancel()

    async def _run(self) -> None:
        try:
            await self._serve()
        finally:
            # Whatever ended it, nobody must wait forever.
            for pending in list(self._pending):
                self.drop(pending)

    async def _serve(self) -> None:
        clock = asyncio.get_running_loop().time
        pause = 0.0
        while True:
            while not self._pending:
                if self._is_closing:
                    return
                await self._wait_for_news()
            heard = self._heard
            try:
                await self._stream()
                continue
            except RunekeepError as error:
                failed = error
            if failed.code == grpc.StatusCode.UNIMPLEMENTED.name:
                # A server of an earlier version.
                await self._send_by_calls()
                return
            if self._heard != heard:
                pause = 0.0
            pause = min(max(pause * 2, 0.1, failed.retry_after or 0.0), _MAX_PAUSE_SECONDS)
            if not failed.retryable or clock() + pause - self._heard > GIVE_UP_SECONDS:
                for pending in list(self._pending):
                    self._settle(pending, failed)
            else:
                await asyncio.sleep(pause)

    async def _stream(self) -> None:
        """Sends and gets acknowledgements until the last writer has gone. Raises RunekeepError when the stream
        breaks."""
        connection = self._connection
        call: Any = connection.stubs.sessions.StreamMessages(metadata=connection.stream_metadata)
        statuses = record_statuses(call)
        self._unsent, self._sent, self._number = deque(self._pending), {}, 0
        sending: asyncio.Task[None] | None = None
        try:
            async with asyncio.timeout(SILENCE_SECONDS) as self._limit:
                while (response := await call.read()) is not grpc.aio.EOF:
                    if response.HasField("window"):
                        self._window = response.window
                        sending = sending or asyncio.create_task(self._send(call))
                    for one in response.acknowledgements:
                        self._take(one)
                    self._watch_silence(anew=True)
            if self._pending:
                raise UnavailableError("the server ended the stream", code="UNAVAILABLE")
        except TimeoutError as error:
            raise UnavailableError("the server acknowledges nothing", code="UNAVAILABLE") from error
        except grpc.aio.AioRpcError as error:
            raise connection.failure(next(filter(is_from_server, statuses), error)) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if call.cancelled() and task is not None and not task.cancelling():
                raise _closed() from None
            raise
        finally:
            self._limit = None
            if sending is not None:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
            call.cancel()

    async def _send(self, call: Any) -> None:
        try:
            while True:
                while not self._unsent:
                    if self._is_closing:
                        await call.done_writing()
                        return
                    await self._wait_for_news()
                some = self._next_appends()
                self._watch_silence(anew=False)
                if some:
                    await call.write(session_service_pb2.StreamMessagesRequest(appends=some))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            # The call has ended; its reader learns why.
            return

    def _next_appends(self) -> list[session_service_pb2.AddMessagesRequest]:
        """Returns the next append, and those behind it that are small enough to share a request with it."""
        some: list[session_service_pb2.AddMessagesRequest] = []
        room = _JOINED_BYTES
        while self._unsent and len(some) < _JOINED_APPENDS and (not some or self._unsent[0].size <= room):
            pending = self._unsent.popleft()
            if pending.size + _ENVELOPE_BYTES > self._window.request_bytes:
                self._settle(pending, _too_large(pending.size, self._window.request_bytes))
            elif pending in self._pending:
                room -= pending.size
                some.append(pending.request)
                self._number += 1
                self._sent[self._number] = pending
        return some

    def _take(self, acknowledgement: session_service_pb2.AppendAcknowledgement) -> None:
        pending = self._sent.pop(acknowledgement.number, None)
        if pending is None:
            what = f"the server acknowledged append {acknowledgement.number}, which is not under way"
            raise RunekeepError(what, code="INTERNAL")
        self._heard = asyncio.get_running_loop().time()
        if acknowledgement.HasField("added"):
            self._settle(pending, acknowledgement.added)
        else:
            self._settle(pending, from_status(acknowledgement.error))

    def _watch_silence(self, *, anew: bool) -> None:
        """Lets the stream end if nothing is acknowledged for SILENCE_SECONDS, from now on or, unless `anew`, from
        before."""
        if self._limit is None:
            return
        if not self._sent:
            self._limit.reschedule(None)
        elif anew or self._limit.when() is None:
            self._limit.reschedule(asyncio.get_running_loop().time() + SILENCE_SECONDS)

    async def _send_by_calls(self) -> None:
        """Makes one call for each append, in order."""
        connection = self._connection
        while self._pending or not self._is_closing:
            if not self._pending:
                await self._wait_for_news()
                continue
            pending = next(iter(self._pending))
            try:
                self._settle(pending, await connection.call(connection.stubs.sessions.AddMessages, pending.request))
            except RunekeepError as error:
                self._settle(pending, error)

    def _settle(self, pending: PendingAppend, answer: session_service_pb2.AddMessagesResponse | RunekeepError) -> None:
        if pending not in self._pending:
            return
        self._forget(pending)
        if isinstance(answer, RunekeepError):
            pending.answer.set_exception(answer)
        else:
            pending.answer.set_result(answer)

    def _forget(self, pending: PendingAppend) -> None:
        del self._pending[pending]
        self._pending_bytes -= pending.size
        self._room.set()

    async def _wait_for_news(self) -> None:
        self._news.clear()
        await self._news.wait()


def _too_large(size: int, limit: int) -> RunekeepError:
    what = f"the append takes {size} bytes, and the server takes {limit} in one request. Send less at once."
    return ResourceExhaustedError(what, code="RESOURCE_EXHAUSTED", reason="TOO_LARGE")


def _closed() -> RunekeepError:
    return RunekeepError("the client was closed before the server acknowledged the append", code="CANCELLED")
