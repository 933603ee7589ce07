"""The one way in for every call of our services, and how it hooks into grpc.aio."""

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

from server.audiences import AUDIENCES, WITHOUT_CREDENTIALS
from server.audit import AUDITED
from server.deadlines import default_deadlines
from server.errors import unavailable, unimplemented
from server.identity import Authenticator, enter_metadata
from server.interceptors.call import Behaviour, Context, Method, Reading, run_call
from server.interceptors.open_calls import OpenCalls
from server.interceptors.parts import CallParts
from server.message_shape import check_shape
from server.request_bodies import Parse, RequestBodies
from server.settings import Settings
from server.validation import reader
from server.work.buffers import MAX_CHUNK_REQUEST_BYTES

_PACKAGE = "/runekeep.v1."
_WORK = "ExtractorService/Work"

_log = structlog.get_logger(__name__)

if TYPE_CHECKING:
    # The types of messages differ from method to method.
    _Handler = grpc.RpcMethodHandler[Any, Any]


class CallChain(grpc.aio.ServerInterceptor):
    """Wraps each handler with an audience in `run_call`. Handlers of health and reflection, which need no credentials,
    get separate limits. A method that is not declared in `server.audiences` is not served."""

    def __init__(self, settings: Settings, bodies: RequestBodies) -> None:
        """All chains of a server share `bodies`, which bounds their requests together. Each gRPC server needs its own
        chain: a chain caches its handlers, and would serve them at every address that it is used for."""
        self._deadlines = default_deadlines(settings.deadlines)
        self._call_seconds = settings.deadlines.call_seconds
        self._wrapped: dict[str, _Wrapped] = {}
        self._open_calls = OpenCalls()
        self._bodies = bodies
        self._parts: CallParts | None = None

    def begin(self, parts: CallParts) -> None:
        """Calls pass through `parts` from here on; before it every call fails."""
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
            # Only names that exist are kept: others are the caller's choice and without end.
            if handler is None:
                return None
            if name in WITHOUT_CREDENTIALS:
                return self._open_calls.wrap(handler)
            if name not in AUDIENCES:
                _log.error("method_without_audience", method=name)
                return None
            wrapped = self._wrapped[name] = self._wrap(name, handler)
        metadata = handler_call_details.invocation_metadata or ()
        enter_metadata(metadata)
        known = await wrapped.authenticator.may_know(metadata)
        return wrapped.handler if known else wrapped.refusing

    def _wrap(self, name: str, handler: _Handler) -> _Wrapped:
        if self._parts is None:
            raise RuntimeError("a call came before the server was ready for calls")
        short = name.removeprefix(_PACKAGE)
        method = Method(
            name=short,
            audience=AUDIENCES[name],
            default_seconds=self._deadlines.get(name, self._call_seconds),
            streams=bool(handler.request_streaming or handler.response_streaming),
            audited=short in AUDITED,
        )
        # Of a stream gRPC reads nothing before somebody asks for it; and what is refused is not written down.
        refusing: Any = _chained(replace(method, audited=False), self._parts, None, _refused)
        return _Wrapped(
            self._parts.authenticator,
            _passed_on(method, self._parts, self._bodies, handler),
            grpc.stream_unary_rpc_method_handler(refusing),
        )


@dataclass(frozen=True, slots=True)
class _Wrapped:
    """A method with all that its calls pass through. `refusing` is for callers who are known to be nobody: it goes the
    same way, of which the first step refuses them, and has nothing of their requests read."""

    authenticator: Authenticator
    handler: _Handler
    refusing: _Handler


def _passed_on(method: Method, parts: CallParts, bodies: RequestBodies, handler: _Handler) -> _Handler:
    parse, serialize = _make_parser(method, handler), handler.response_serializer
    # On the wire a single request equals a stream of one, and gRPC reads nothing of a stream until it is asked to.
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
                yield await parse(data)

        async with aclosing(requests()) as parsed:
            return await behaviour(parsed, context)

    return run


def _chained(method: Method, parts: CallParts, read: Reading | None, behaviour: Behaviour) -> Behaviour:
    # grpc.aio takes it for the coroutine function that it holds.
    return partial(run_call, method, parts, read, behaviour)


async def _refused(request: Any, context: Context) -> None:
    """Is reached by a key alone that was made good between two looks at it."""
    raise unavailable("server", "The credentials have just changed")


def _answering(behaviour: Any) -> Behaviour:
    return behaviour if inspect.iscoroutinefunction(behaviour) else _not_served


def _writing(behaviour: Any) -> Behaviour:
    """The same handler as a coroutine that writes its answers.

    grpc.aio would iterate an async generator itself and leave it suspended when the call is cancelled during a write;
    here it is closed in the call's own task, and a time limit reaches the writes too.
    """
    if not inspect.isasyncgenfunction(behaviour):
        return _answering(behaviour)

    async def write_all(request: Any, context: Context) -> None:
        async with aclosing(behaviour(request, context)) as answers:
            async for answer in answers:
                await context.write(answer)

    return write_all


async def _not_served(request: Any, context: Context) -> None:
    """In place of the generated method, which is not async, where a servicer has none of its own."""
    raise unimplemented()
