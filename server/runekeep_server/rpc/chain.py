"""Wraps all handlers in the steps of `runekeep_server.rpc.call`, as an interceptor of grpc.aio."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
import structlog
from google.protobuf import descriptor_pool

from runekeep_server.identity import Authenticator, enter_metadata
from runekeep_server.leases.output_buffers import MAX_CHUNK_REQUEST_BYTES
from runekeep_server.protocol.api_error import ApiError
from runekeep_server.protocol.errors import unavailable, unimplemented
from runekeep_server.protocol.message_shape import check_shape
from runekeep_server.protocol.validation import Misshapen, reader
from runekeep_server.rpc.call import Behaviour, Context, Reading, run_call
from runekeep_server.rpc.methods import METHODS, WITHOUT_CREDENTIALS, Method
from runekeep_server.rpc.open_calls import OpenCalls
from runekeep_server.rpc.parts import CallParts
from runekeep_server.rpc.request_bodies import Parse, RequestBodies, note_size
from runekeep_server.settings import Settings

_PACKAGE = "/runekeep.v1."
_WORK = "ExtractorService/Work"

_log = structlog.get_logger(__name__)

if TYPE_CHECKING:
    # Message types differ from method to method.
    _Handler = grpc.RpcMethodHandler[Any, Any]


class CallChain(grpc.aio.ServerInterceptor):
    """Wraps each handler of a method of the contract in `run_call`. Handlers of health and reflection, which need no
    credentials, get separate limits. A method that the contract does not have is not served."""

    def __init__(self, settings: Settings, bodies: RequestBodies) -> None:
        """All chains of a server share `bodies`, which bounds their requests together. Each gRPC server needs its own
        chain: a chain caches its handlers, and would serve them at every address that it is used for."""
        self._deadlines = settings.deadlines
        self._wrapped: dict[str, _Wrapped] = {}
        self._open_calls = OpenCalls()
        self._bodies = bodies
        self._parts: CallParts | None = None

    def begin(self, parts: CallParts) -> None:
        """Sets the parts that calls pass through. Before this, every call fails."""
        self._parts = parts

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler | None:
        name = handler_call_details.method
        wrapped = self._wrapped.get(name)
        if wrapped is None:
            handler = await continuation(handler_call_details)
            # Only existing names are cached: callers choose the others, and could fill the memory with them.
            if handler is None:
                return None
            if name in WITHOUT_CREDENTIALS:
                return self._open_calls.wrap(handler)
            method = METHODS.get(name)
            if method is None:
                _log.error("method_not_in_contract", method=name)
                return None
            wrapped = self._wrapped[name] = self._wrap(method.with_deadline(self._deadlines), handler)
        metadata = handler_call_details.invocation_metadata or ()
        enter_metadata(metadata)
        known = await wrapped.authenticator.may_know(metadata)
        return wrapped.handler if known else wrapped.refusing

    def _wrap(self, method: Method, handler: _Handler) -> _Wrapped:
        if self._parts is None:
            raise RuntimeError("a call came before the server was ready for calls")
        # gRPC reads nothing of a stream until a handler asks for it. Refused calls are not audited.
        refusing: Any = _chained(replace(method, audit=None), self._parts, None, _refused)
        return _Wrapped(
            self._parts.authenticator,
            _passed_on(method, self._parts, self._bodies, handler),
            grpc.stream_unary_rpc_method_handler(refusing),
        )


@dataclass(frozen=True, slots=True)
class _Wrapped:
    """A method with its wrapped handlers. `refusing` handles calls of callers that are known to be unauthenticated: it
    refuses them at the identity step, without reading their requests."""

    authenticator: Authenticator
    handler: _Handler
    refusing: _Handler


def _passed_on(method: Method, parts: CallParts, bodies: RequestBodies, handler: _Handler) -> _Handler:
    parse, serialize = _make_parser(method, handler), handler.response_serializer
    # On the wire a single request equals a stream of one request, and gRPC reads a stream only on demand.
    read: Any = partial(bodies.read, parse=parse)
    if handler.unary_unary:
        one: Any = _chained(method, parts, read, _answering(handler.unary_unary))
        return grpc.stream_unary_rpc_method_handler(one, None, serialize)
    if handler.unary_stream:
        many: Any = _chained(method, parts, read, _writing(handler.unary_stream))
        return grpc.stream_stream_rpc_method_handler(many, None, serialize)
    if handler.stream_unary:
        whole: Any = _chained(method, parts, None, _parse_stream(parse, _answering(handler.stream_unary)))
        return grpc.stream_unary_rpc_method_handler(whole, None, serialize)
    if handler.stream_stream:
        both: Any = _chained(method, parts, None, _parse_stream(parse, _writing(handler.stream_stream)))
        return grpc.stream_stream_rpc_method_handler(both, None, serialize)
    raise NotImplementedError(f"{method.name}: a method of no known kind")


def _make_parser(method: Method, handler: _Handler) -> Parse:
    """Returns a function that checks the shape of a request of the method and then parses it."""
    assert handler.request_deserializer is not None, "generated code always has one"
    deserialize = reader(handler.request_deserializer)
    name = (_PACKAGE + method.name).strip("/").replace("/", ".")
    descriptor = descriptor_pool.Default().FindMethodByName(name)

    async def parse(data: bytes) -> Any:
        # A refusal would end the stream for all jobs of the worker, so a chunk of a legal size is never refused here.
        if method.name != _WORK or len(data) > MAX_CHUNK_REQUEST_BYTES:
            await check_shape(data, descriptor.input_type)
        return deserialize(data)

    return parse


def _parse_stream(parse: Parse, behaviour: Behaviour) -> Behaviour:
    """Returns a behaviour that takes a stream of serialized requests and gives `behaviour` the parsed ones."""

    async def run(stream: AsyncIterator[bytes], context: Context) -> Any:
        async def requests() -> AsyncGenerator[Any]:
            async for data in stream:
                note_size(len(data))
                try:
                    request = await parse(data)
                except ApiError as error:
                    request = Misshapen(data, error)
                # While the request is served, its bytes must not be in memory a second time.
                data = b""
                yield request

        async with aclosing(requests()) as parsed:
            return await behaviour(parsed, context)

    return run


def _chained(method: Method, parts: CallParts, read: Reading | None, behaviour: Behaviour) -> Behaviour:
    # A partial: grpc.aio still recognizes the coroutine function in it.
    return partial(run_call, method, parts, read, behaviour)


async def _refused(request: Any, context: Context) -> None:
    """Runs only if a key became valid between `may_know` and `authenticate`."""
    raise unavailable("server", "The credentials have just changed")


def _answering(behaviour: Any) -> Behaviour:
    return behaviour if inspect.iscoroutinefunction(behaviour) else _not_served


def _writing(behaviour: Any) -> Behaviour:
    """Returns the handler as a coroutine that writes its answers.

    grpc.aio would iterate an async generator itself and leave it suspended if the call is cancelled during a write.
    Here the generator is closed in the call's own task, and a time limit includes the writes.
    """
    if not inspect.isasyncgenfunction(behaviour):
        return _answering(behaviour)

    async def write_all(request: Any, context: Context) -> None:
        async with aclosing(behaviour(request, context)) as answers:
            async for answer in answers:
                await context.write(answer)

    return write_all


async def _not_served(request: Any, context: Context) -> None:
    """Replaces the generated method, which is not async, if a servicer does not implement it."""
    raise unimplemented()
