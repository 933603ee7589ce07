"""The bodies of unary requests: read when there is room for them, so that many large ones at once take no memory.

gRPC by itself reads a request before its handler is called, whatever its size and whoever sends it. Nobody knows how
large a request is before it has come, so room for the largest is taken, and what it does not need is given back then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc

from server.errors import body_too_slow, invalid
from server.settings import Settings
from storage.sharing import FairSlots

# The types of messages differ from method to method.
Context = grpc.aio.ServicerContext[Any, Any]


MAX_READ_SECONDS: Final = 10.0
"""For one body, whatever the call's deadline: one that stalls holds room that others wait for."""


class RequestBodies:
    """Bounds the bytes of requests under way, of each account and of the server. Accounts wait in turns."""

    def __init__(self, settings: Settings) -> None:
        self._most = settings.max_message_bytes
        # Less than one request would let none in.
        total = max(settings.limits.request_bytes, self._most)
        self._room = FairSlots(total, max(settings.limits.account_request_bytes, self._most))

    @asynccontextmanager
    async def read(self, context: Context, deserialize: Callable[[bytes], Any]) -> AsyncIterator[Any]:
        """The request of the call at hand; its bytes count until the end of the block. ApiError INVALID_ARGUMENT for a
        call that has none, DEADLINE_EXCEEDED for one whose body takes longer than MAX_READ_SECONDS."""
        async with self._room.take(self._most) as keep:
            try:
                async with asyncio.timeout(MAX_READ_SECONDS):
                    data: Any = await context.read()
            except TimeoutError:
                raise body_too_slow(MAX_READ_SECONDS) from None
            if data is grpc.aio.EOF:
                raise invalid("", "The call has no request", "Send one message")
            keep(len(data))
            request = deserialize(data)
            del data
            yield request
