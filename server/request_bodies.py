"""Reads the bodies of unary requests only when there is room for them, so that many large ones do not exhaust memory.

By default gRPC reads a request before it calls the handler, whatever its size and whoever sends it. The size is unknown
until the request has arrived, so room for the largest request is reserved, and the rest is released then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Any, Final

import grpc

from runekeep.v1 import common_pb2
from server.errors import ApiError, invalid
from server.settings import Settings
from storage.sharing import FairSlots

# The message types differ from method to method.
Context = grpc.aio.ServicerContext[Any, Any]
Parse = Callable[[bytes], Awaitable[Any]]


LARGE_BYTES: Final = 1024 * 1024
"""From this size on a request waits for its turn before it is parsed: parsing, checking and storing it takes several
times its size in memory, and holds up other calls."""
LARGE_REQUESTS: Final = 4
"""Largest requests that are handled at the same time, one of each account, or as many bytes of smaller ones."""
MAX_READ_SECONDS: Final = 10.0
"""For one body, whatever the call's deadline: one that stalls holds room that others wait for."""


class RequestBodies:
    """Bounds the bytes of requests in progress, for each account and for the server. Accounts take turns."""

    def __init__(self, settings: Settings) -> None:
        self._most = settings.max_message_bytes
        # A lower limit would never admit a request.
        total = max(settings.limits.request_bytes, self._most)
        self._room = FairSlots(total, max(settings.limits.account_request_bytes, self._most))
        self._large = FairSlots(LARGE_REQUESTS * self._most, self._most)

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
            async with self._large.take(len(data)) if len(data) >= LARGE_BYTES else nullcontext():
                request = await parse(data)
                del data
                yield request


def _too_slow() -> ApiError:
    return ApiError(
        grpc.StatusCode.DEADLINE_EXCEEDED,
        common_pb2.ERROR_REASON_UNSPECIFIED,
        f"The request did not arrive within {MAX_READ_SECONDS:g} s. Send less at once, or repeat it over a faster"
        " connection.",
    )
