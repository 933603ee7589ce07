"""Limits for health and reflection, which need no credentials: small requests, a short read timeout and few streams.

gRPC would read and parse a request of any allowed size before a handler sees it. So these handlers are streams of
bytes, which gRPC reads only on demand, and the size of a request is checked before it is parsed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakValueDictionary

import grpc
from google.protobuf.message import DecodeError

MAX_REQUEST_BYTES: Final = 512
"""Names of services, symbols and files of the contract have fewer than 100 bytes."""
MAX_STREAM_REQUESTS: Final = 1000
READ_SECONDS: Final = 5.0
"""Timeout for the arrival of a request, and for the silence in a stream of requests."""
MAX_STREAMS: Final = 1000
MAX_PEER_STREAMS: Final = 100
"""Streams of one host: a watch stays open as long as its connection."""
MAX_READS: Final = 64
MAX_PEER_READS: Final = 16

# The message types differ from method to method.
Context = grpc.aio.ServicerContext[Any, Any]
if TYPE_CHECKING:
    Handler = grpc.RpcMethodHandler[Any, Any]


class _Slots:
    """Counts open streams, in total and for each host."""

    def __init__(self, most: int, most_of_a_host: int) -> None:
        self._most = most
        self._most_of_a_host = most_of_a_host
        self._hosts: Counter[str] = Counter()

    @contextmanager
    def take(self, host: str) -> Iterator[bool]:
        """Yields whether there was a free slot, and holds it until the end of the block."""
        taken = self._hosts.total() < self._most and self._hosts[host] < self._most_of_a_host
        if taken:
            self._hosts[host] += 1
        try:
            yield taken
        finally:
            if taken:
                self._hosts[host] -= 1
            if not self._hosts[host]:
                del self._hosts[host]


class _Turns:
    """Bounds the requests that arrive at a time, for each host and in total. The others wait."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(MAX_READS)
        self._hosts: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def take(self, host: str) -> AsyncIterator[None]:
        of_host = self._hosts.get(host)
        if of_host is None:
            of_host = self._hosts[host] = asyncio.Semaphore(MAX_PEER_READS)
        async with of_host, self._all:
            yield


class OpenCalls:
    """Wraps the handlers of services that need no credentials."""

    def __init__(self) -> None:
        self._turns = _Turns()
        self._streams = _Slots(MAX_STREAMS, MAX_PEER_STREAMS)

    def wrap(self, handler: Handler) -> Handler:
        """Returns the same method with bounded requests. Callers notice no difference: on the wire a request equals a
        stream of one request."""
        assert handler.request_deserializer is not None, "generated code always has one"
        if handler.unary_unary:
            answer: Any = self._answer_one(handler)
            return grpc.stream_unary_rpc_method_handler(answer, None, handler.response_serializer)
        if handler.unary_stream or handler.stream_stream:
            stream: Any = self._stream(handler)
            return grpc.stream_stream_rpc_method_handler(stream, None, handler.response_serializer)
        raise NotImplementedError("neither health nor reflection has a method of this kind")

    def _answer_one(self, handler: Handler) -> Any:
        async def answer(_requests: Any, context: Context) -> Any:
            behaviour: Any = handler.unary_unary
            return await behaviour(await self._read(handler, context), context)

        return answer

    def _stream(self, handler: Handler) -> Any:
        async def stream(_requests: Any, context: Context) -> None:
            with self._streams.take(_host(context)) as taken:
                if not taken:
                    # On this code, clients treat the server as one without health checks and keep calling it. After any
                    # other code they would stop:
                    # https://github.com/grpc/proposal/blob/master/A17-client-side-health-checking.md
                    await context.abort(
                        grpc.StatusCode.UNIMPLEMENTED,
                        "As many streams without credentials are open as this server allows",
                    )
                if handler.unary_stream:
                    behaviour: Any = handler.unary_stream
                    await behaviour(await self._read(handler, context), context)
                else:
                    behaviour = handler.stream_stream
                    async for one in behaviour(self._requests(handler, context), context):
                        await context.write(one)

        return stream

    async def _requests(self, handler: Handler, context: Context) -> AsyncIterator[Any]:
        for _ in range(MAX_STREAM_REQUESTS):
            data = await self._next(context, nullcontext())
            if data is grpc.aio.EOF:
                return
            yield await _parsed(handler, data, context)
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"A stream has at most {MAX_STREAM_REQUESTS} requests")

    async def _read(self, handler: Handler, context: Context) -> Any:
        """Returns the only request of a call. Aborts a call whose request arrives too late, is too large or cannot be
        parsed."""
        data = await self._next(context, self._turns.take(_host(context)))
        if data is grpc.aio.EOF:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "The call has no request")
        return await _parsed(handler, data, context)

    async def _next(self, context: Context, turn: AbstractAsyncContextManager[None]) -> Any:
        try:
            async with asyncio.timeout(READ_SECONDS), turn:
                data: Any = await context.read()
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"No request came within {READ_SECONDS:g} seconds")
        if data is not grpc.aio.EOF and len(data) > MAX_REQUEST_BYTES:
            # The exception references this frame, which would keep the data in memory until the garbage collector runs.
            del data
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"A request without credentials has at most {MAX_REQUEST_BYTES} bytes"
            )
        return data


async def _parsed(handler: Handler, data: bytes, context: Context) -> Any:
    try:
        return cast(Any, handler.request_deserializer)(data)
    except DecodeError:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "The request is no message of the method's type")


def _host(context: Context) -> str:
    """Returns the address without the port. Connections are cheap, so all connections of one host count together."""
    return str(context.peer()).rpartition(":")[0]
