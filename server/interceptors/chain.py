"""The one way in for every call of our services, and how it hooks into grpc.aio."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import grpc

from server.deadlines import default_deadlines
from server.errors import unimplemented
from server.interceptors.call import Behaviour, Context, Method, run_call
from server.settings import Settings

_PACKAGE = "/runekeep.v1."
_FOR_WORKERS = "/runekeep.v1.ExtractorService/"

if TYPE_CHECKING:
    # The types of messages differ from method to method.
    _Handler = grpc.RpcMethodHandler[Any, Any]


class CallChain(grpc.aio.ServerInterceptor):
    """Wraps every handler of the package in `run_call`. Health and reflection are not of it and pass by."""

    def __init__(self, settings: Settings) -> None:
        self._deadlines = default_deadlines(settings.deadlines)
        self._call_seconds = settings.deadlines.call_seconds
        self._wrapped: dict[str, _Handler] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler | None:
        name = handler_call_details.method
        handler = self._wrapped.get(name)
        if handler is None:
            handler = await continuation(handler_call_details)
            # Only names that exist are kept: others are the caller's choice and without end.
            if handler is not None and name.startswith(_PACKAGE):
                handler = self._wrapped[name] = self._wrap(name, handler)
        return handler

    def _wrap(self, name: str, handler: _Handler) -> _Handler:
        method = Method(
            name=name.removeprefix(_PACKAGE),
            for_workers=name.startswith(_FOR_WORKERS),
            default_seconds=self._deadlines.get(name, self._call_seconds),
        )
        deserialize, serialize = handler.request_deserializer, handler.response_serializer
        if handler.unary_unary:
            one: Any = _chained(method, _answering(handler.unary_unary))
            return grpc.unary_unary_rpc_method_handler(one, deserialize, serialize)
        if handler.unary_stream:
            many: Any = _chained(method, _writing(handler.unary_stream))
            return grpc.unary_stream_rpc_method_handler(many, deserialize, serialize)
        if handler.stream_unary:
            whole: Any = _chained(method, _answering(handler.stream_unary))
            return grpc.stream_unary_rpc_method_handler(whole, deserialize, serialize)
        if handler.stream_stream:
            both: Any = _chained(method, _writing(handler.stream_stream))
            return grpc.stream_stream_rpc_method_handler(both, deserialize, serialize)
        raise NotImplementedError(f"{name}: a method of no known kind")


def _chained(method: Method, behaviour: Behaviour) -> Behaviour:
    async def serve(request: Any, context: Context) -> Any:
        return await run_call(method, behaviour, request, context)

    return serve


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
