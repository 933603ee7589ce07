"""Reads the bodies of unary requests only when there is room for them, so that many large requests do not exhaust
memory.

By default gRPC reads every request before it calls the handler, whatever its size and its sender. The size is unknown
until the request has arrived, so room for the largest request is reserved first, and the unused part is released then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Final

import grpc
from google.protobuf.message import Message

from runekeep.v1 import common_pb2
from runekeep_server.protocol.api_error import ApiError
from runekeep_server.protocol.errors import invalid
from runekeep_server.settings import Settings
from runekeep_storage.drivers.common.fair_turns import LONG_REST, FairSlots

# The message types differ from method to method.
Context = grpc.aio.ServicerContext[Any, Any]
Parse = Callable[[bytes], Awaitable[Any]]


LARGE_BYTES: Final = 256 * 1024
"""Requests of at least this size wait for their turn before they are parsed: parsing, checking and storing one takes
several times its size in memory and delays other calls."""
LARGE_REQUESTS: Final = 4
"""Number of requests of the largest size that are handled at a time, at most one for each account. Smaller large
requests share the same number of bytes."""
MAX_READ_SECONDS: Final = 10.0
"""Read timeout of one body, whatever the call's deadline: a stalled body holds room that others wait for."""

_size: ContextVar[int] = ContextVar("request_size", default=0)


def size_of(request: Message) -> int:
    """Returns how many bytes the request of the current call takes. `ByteSize` would serialize it once more, which
    holds up other calls for milliseconds if it is large."""
    return _size.get() or request.ByteSize()


def note_size(size: int) -> None:
    """Sets how many bytes the latest request of the current stream takes."""
    _size.set(size)


class RequestBodies:
    """Bounds the bytes of requests in progress, for each account and for the server. Accounts take turns."""

    def __init__(self, settings: Settings) -> None:
        self._most = settings.max_message_bytes
        # A lower limit would never admit a request.
        total = max(settings.limits.request_bytes, self._most)
        self._room = FairSlots(total, max(settings.limits.account_request_bytes, self._most))
        self._large = FairSlots(LARGE_REQUESTS * self._most, self._most, rest=LONG_REST)

    @asynccontextmanager
    async def read(self, context: Context, parse: Parse) -> AsyncIterator[Any]:
        """Yields the request of the current call; its bytes count until the end of the block. Raises ApiError
        INVALID_ARGUMENT for a call without a request, DEADLINE_EXCEEDED for a body that takes longer than
        MAX_READ_SECONDS, and what `parse` raises."""
        async with self._room.take(self._most) as keep:
            try:
                async with asyncio.timeout(MAX_READ_SECONDS):
                    data: Any = await context.read()
            except TimeoutError:
                raise _too_slow() from None
            if data is grpc.aio.EOF:
                raise invalid("", "The call has no request", "Send one message")
            keep(len(data))
            _size.set(len(data))
            async with self.turn(len(data)):
                request = await parse(data)
                del data
                yield request

    async def hold(self, size: int) -> Callable[[], None]:
        """Waits for room for a part of a stream that has arrived. Returns the function that releases the room; call it
        once."""
        return await self._room.hold(size)

    def turn(self, size: int) -> AbstractAsyncContextManager[Any]:
        """Returns a context manager that waits for the turn of a large request, see LARGE_BYTES; of a smaller one it
        does nothing."""
        return self._large.take(size) if size >= LARGE_BYTES else nullcontext()


def _too_slow() -> ApiError:
    return ApiError(
        grpc.StatusCode.DEADLINE_EXCEEDED,
        common_pb2.ERROR_REASON_UNSPECIFIED,
        f"The request did not arrive within {MAX_READ_SECONDS:g} s. Send less at once, or repeat it over a faster"
        " connection.",
    )
