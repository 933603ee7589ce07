"""Serves StreamMessages: reads appends, writes those of each session in order, and acknowledges each once it is
durable.

Appends of a session that arrive while earlier ones are being written wait, and then are written together in one
transaction. So none is stored without those before it, and a busy session takes few transactions.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import Final

import grpc
import structlog

from runekeep.v1 import session_service_pb2 as pb
from runekeep_server.protocol.api_error import ApiError, to_status
from runekeep_server.protocol.error_mapping import as_api_error
from runekeep_server.protocol.errors import deadline_exceeded, internal, invalid, unavailable
from runekeep_server.protocol.message_shape import count_items
from runekeep_server.protocol.validation import Misshapen, check_readable, validate_message
from runekeep_server.rpc.limits import MAX_STREAM_SECONDS, Limits
from runekeep_server.rpc.request_bodies import LARGE_BYTES, RequestBodies, size_of
from runekeep_server.sessions.appending import Appending
from runekeep_server.settings import Settings
from runekeep_server.telemetry.calls import count_appends
from runekeep_storage import deadline
from runekeep_storage.database import Space
from runekeep_storage.drivers.common import fair_turns
from runekeep_storage.sessions.appends import Append

WINDOW_APPENDS: Final = 256
WINDOW_BYTES: Final = 1024 * 1024
"""Maximum of appends, and of their bytes, that are read from a stream and not yet acknowledged. Reading stops there, so
that gRPC stops the caller."""
MAX_GROUP: Final = 64
"""Maximum of appends of one session in one transaction, so that others do not wait long for it."""
MAX_ACKNOWLEDGEMENTS: Final = 100
"""Maximum of one response: each may list 100 messages."""
MIN_HELD_BYTES: Final = 4096
"""What a request holds of its account's room at least for each append, which takes more memory than its bytes."""
REQUEST_SECONDS: Final = 60.0
"""How long the appends of one request may take to be read into the window, while the request takes room. A caller who
reads no acknowledgements must not hold the room of others."""
_APPENDS_FIELD: Final = pb.StreamMessagesRequest.DESCRIPTOR.fields_by_name["appends"].number
_TEMPORARY: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})
"""With these codes a stream ends. If it went on, later appends of the session would come before the repeat of this
one."""
_METHOD: Final = "SessionService/AddMessages"
"""The method as which each append counts."""

log = structlog.get_logger(__name__)


class AppendStreams:
    """All streams of this server. Call `drain` before it stops."""

    def __init__(self, appending: Appending, limits: Limits, bodies: RequestBodies, settings: Settings) -> None:
        self.appending = appending
        self.limits = limits
        self.bodies = bodies
        self.append_seconds = settings.deadlines.call_seconds
        self.window = pb.AppendWindow(
            appends=WINDOW_APPENDS, bytes=WINDOW_BYTES, request_bytes=settings.max_message_bytes
        )
        self._open: set[_Stream] = set()
        self._is_draining = False

    async def serve(
        self, space: Space, requests: AsyncIterator[pb.StreamMessagesRequest]
    ) -> AsyncGenerator[pb.StreamMessagesResponse]:
        """Yields responses until the caller half-closes and every append is acknowledged. Raises ApiError to end the
        stream with a status."""
        stream = _Stream(self, space)
        self._open.add(stream)
        try:
            if self._is_draining:
                raise _going_down()
            yield pb.StreamMessagesResponse(window=self.window)
            stream.start(requests)
            while acknowledgements := await stream.next():
                yield pb.StreamMessagesResponse(acknowledgements=acknowledgements)
                stream.sent(acknowledgements)
        finally:
            self._open.discard(stream)
            await stream.close()

    async def drain(self) -> None:
        """Ends all streams, so that their callers go on at another server. What was read is acknowledged first."""
        self._is_draining = True
        for stream in self._open:
            stream.end(_going_down())


@dataclass(slots=True)
class _Room:
    """The room that a request holds until each of its appends is served."""

    release: Callable[[], None]
    appends: int


@dataclass(frozen=True, slots=True)
class _Waiting:
    """An append that waits for its transaction."""

    number: int
    item: Append


class _Stream:
    """One stream. `start` begins to read it; `next` and `sent` are called in turns; `close` ends it at once."""

    def __init__(self, streams: AppendStreams, space: Space) -> None:
        self._streams = streams
        self._space = space
        self._number = 0
        """Appends read so far."""
        self._bytes: dict[int, int] = {}
        """Bytes of each append that is read and not acknowledged, by its number."""
        self._all_bytes = 0
        """Their sum."""
        self._rooms: dict[int, _Room] = {}
        """The room of the request of each append that is being served, by the number of the append."""
        self._lanes: dict[str, list[_Waiting]] = {}
        """By session, the appends that wait for the transaction that is under way."""
        self._writers: set[asyncio.Task[None]] = set()
        self._acknowledgements: list[pb.AppendAcknowledgement] = []
        self._reader: asyncio.Task[None] | None = None
        self._failure: ApiError | None = None
        """Why the stream ends."""
        self._news = asyncio.Event()
        """Set when there may be something for `next`."""
        self._room = asyncio.Event()
        """Set when acknowledgements were sent, or the last append of a session was written."""

    def start(self, requests: AsyncIterator[pb.StreamMessagesRequest]) -> None:
        if self._failure is None:
            self._reader = asyncio.create_task(self._read(requests))
            self._reader.add_done_callback(lambda _: self._news.set())

    def end(self, failure: ApiError) -> None:
        """Stops reading. The stream ends with the error of the first call of this, once the appends that were read are
        acknowledged, except those behind a failed append of the same session."""
        self._failure = self._failure or failure
        if self._reader is not None:
            self._reader.cancel()
        self._news.set()

    async def next(self) -> Sequence[pb.AppendAcknowledgement]:
        """Waits for acknowledgements. Returns none at the end of the stream. Raises the ApiError that ends it."""
        while not self._acknowledgements:
            if (self._reader is None or self._reader.done()) and not self._lanes:
                if self._failure is not None:
                    raise self._failure
                return ()
            self._news.clear()
            await self._news.wait()
        some = self._acknowledgements[:MAX_ACKNOWLEDGEMENTS]
        del self._acknowledgements[:MAX_ACKNOWLEDGEMENTS]
        return some

    def sent(self, acknowledgements: Sequence[pb.AppendAcknowledgement]) -> None:
        """Makes room for as many further appends."""
        for one in acknowledgements:
            self._all_bytes -= self._bytes.pop(one.number)
        self._room.set()

    async def close(self) -> None:
        """Ends what is under way. An append without an acknowledgement may be stored or not."""
        tasks = [task for task in (self._reader, *self._writers) if task is not None]
        for task in tasks:
            task.cancel()
        try:
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            for number in list(self._rooms):
                self._leave_room(number)

    # Reading

    async def _read(self, requests: AsyncIterator[pb.StreamMessagesRequest]) -> None:
        try:
            async for request in requests:
                fair_turns.note_call()
                if isinstance(request, Misshapen):
                    await self._refuse_all(request)
                    continue
                check_readable(request)
                if len(request.appends) > WINDOW_APPENDS:
                    what = f"holds {len(request.appends)} appends; at most {WINDOW_APPENDS} may be unacknowledged"
                    raise invalid("appends", what, "Send fewer at once")
                if request.appends:
                    await self._take_all(request.appends, size_of(request))
        except Exception as error:
            self._failure = self._failure or _failure_of(error)

    async def _refuse_all(self, request: Misshapen) -> None:
        """Refuses all appends of a request whose fields are too many to be read."""
        count = count_items(request.data, _APPENDS_FIELD, WINDOW_APPENDS)
        if not count:
            raise request.error
        for _ in range(count):
            self._refuse(await self._next_number(0), request.error)

    async def _take_all(self, appends: Sequence[pb.AddMessagesRequest], size: int) -> None:
        """Takes the appends of a request of `size` bytes. Raises errors that end the stream."""
        # Before its turn, as unary requests do: in another order the two would wait for each other.
        room = _Room(await self._streams.bodies.hold(max(size, MIN_HELD_BYTES * len(appends))), len(appends))
        taken = 0
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                for append in appends:
                    own = size if len(appends) == 1 else append.ByteSize()
                    number = await self._next_number(own)
                    self._rooms[number] = room
                    taken += 1
                    await self._take(number, append, own)
        except TimeoutError:
            raise unavailable("stream", f"{len(appends) - taken} appends found no room in the window") from None
        finally:
            self._leave(room, len(appends) - taken)

    async def _take(self, number: int, append: pb.AddMessagesRequest, size: int) -> None:
        """Checks an append, and puts it into the lane of its session. Raises errors that end the stream."""
        try:
            await self._wait_for_rate()
            if not append.request_id:
                raise invalid("request_id", "is empty", "Make one for each append, and repeat it with the same one")
            async with self._streams.bodies.turn(size):
                validate_message(append, size)
                appending = self._streams.appending
                async with nullcontext() if appending.is_prepared_at_once(size) else self._in_time():
                    prepared = await appending.prepare(self._space, append, size)
                if isinstance(prepared, pb.AddMessagesResponse):
                    self._acknowledge(number, prepared)
                    return
                self._put(_Waiting(number, prepared))
                if size >= LARGE_BYTES:
                    # It has its turn until it is stored.
                    while prepared.session_id in self._lanes:
                        await self._wait_for_room()
        except Exception as error:
            failure = _failure_of(error)
            if failure.code in _TEMPORARY:
                raise failure from error
            self._refuse(number, failure)

    async def _next_number(self, size: int) -> int:
        """Waits for room in the window. Returns the number of the append."""
        while self._bytes and (len(self._bytes) >= WINDOW_APPENDS or self._all_bytes + size > WINDOW_BYTES):
            await self._wait_for_room()
        self._number += 1
        self._bytes[self._number] = size
        self._all_bytes += size
        return self._number

    async def _wait_for_room(self) -> None:
        self._room.clear()
        await self._room.wait()

    async def _wait_for_rate(self) -> None:
        """Waits until the account may make one more call. Raises ApiError UNAVAILABLE if that takes too long."""
        seconds = self._streams.limits.count_in_stream(self._space.account, _METHOD)
        if seconds > MAX_STREAM_SECONDS:
            raise unavailable("rate", "The account makes more calls a second than it may", retry_after=seconds)
        if seconds:
            await asyncio.sleep(seconds)

    # Writing

    def _put(self, waiting: _Waiting) -> None:
        session_id = waiting.item.session_id
        lane = self._lanes.get(session_id)
        if lane is not None:
            lane.append(waiting)
            return
        self._lanes[session_id] = [waiting]
        writer = asyncio.create_task(self._write_lane(session_id))
        self._writers.add(writer)
        writer.add_done_callback(self._writers.discard)

    async def _write_lane(self, session_id: str) -> None:
        lane = self._lanes[session_id]
        try:
            while lane:
                some = lane[:MAX_GROUP]
                del lane[:MAX_GROUP]
                if not await self._write(some):
                    return
        finally:
            del self._lanes[session_id]
            self._news.set()
            self._room.set()

    async def _write(self, some: Sequence[_Waiting]) -> bool:
        """Writes appends of one session and acknowledges them. Returns False if the stream has to end."""
        outcomes: Sequence[pb.AddMessagesResponse | Exception]
        try:
            async with self._in_time():
                outcomes = await self._streams.appending.write(self._space, [one.item for one in some])
        except Exception as error:
            failure = _failure_of(error)
            if failure.code is grpc.StatusCode.INTERNAL and len(some) > 1:
                # One of them hits an error of this server. The others must not suffer from it.
                for one in some:
                    if not await self._write([one]):
                        return False
                return True
            outcomes = [failure] * len(some)
        for one, outcome in zip(some, outcomes, strict=True):
            if isinstance(outcome, pb.AddMessagesResponse):
                self._acknowledge(one.number, outcome)
                continue
            failure = _failure_of(outcome)
            if failure.code in _TEMPORARY:
                # Those behind it in the lane are left to the repeat, too.
                self.end(failure)
                return False
            self._refuse(one.number, failure)
        return True

    @asynccontextmanager
    async def _in_time(self) -> AsyncGenerator[None]:
        """Bounds the time of the enclosed block as that of a call of AddMessages without a deadline of its own. Raises
        ApiError DEADLINE_EXCEEDED."""
        seconds = self._streams.append_seconds
        deadline.begin(seconds)
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            raise deadline_exceeded(seconds) from None

    # Acknowledging

    def _acknowledge(self, number: int, added: pb.AddMessagesResponse) -> None:
        count_appends(1, "OK")
        self._queue_acknowledgement(pb.AppendAcknowledgement(number=number, added=added))

    def _refuse(self, number: int, failure: ApiError) -> None:
        count_appends(1, failure.code.name, failure.reason_name)
        self._queue_acknowledgement(pb.AppendAcknowledgement(number=number, error=to_status(failure)))

    def _queue_acknowledgement(self, acknowledgement: pb.AppendAcknowledgement) -> None:
        self._leave_room(acknowledgement.number)
        self._acknowledgements.append(acknowledgement)
        self._news.set()

    def _leave_room(self, number: int) -> None:
        """Releases the part of an append in the room of its request."""
        room = self._rooms.pop(number, None)
        if room is not None:
            self._leave(room, 1)

    @staticmethod
    def _leave(room: _Room, appends: int) -> None:
        room.appends -= appends
        if appends and not room.appends:
            room.release()


def _failure_of(error: Exception) -> ApiError:
    """Returns the error that the caller sees. Logs what it does not say."""
    if isinstance(error, ApiError):
        return error
    known = as_api_error(error)
    if known is None:
        known = internal()
        log.error("append_failed", incident=known.metadata["incident"], exc_info=error)
    elif known.code is grpc.StatusCode.UNAVAILABLE:
        log.warning("append_failed", exc_info=error)
    return known


def _going_down() -> ApiError:
    return unavailable("server", "This server is going down")
