"""Forwards calls to a server by gRPC, with the credentials of the caller and none of this process."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

import grpc
from connectrpc.method import IdempotencyLevel, MethodInfo, StreamType
from connectrpc.request import RequestContext
from connectrpc.server import Endpoint
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pb2 import MethodOptions
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from runekeep.http_api.errors import connect_error
from runekeep.http_api.methods import path_of
from runekeep.methods import default_seconds

Context = RequestContext[Any, Any]

_HEADERS: Final = ("authorization", "x-runekeep-account", "x-runekeep-user", "traceparent", "tracestate")
_IDEMPOTENCY: Final = {
    MethodOptions.IDEMPOTENCY_UNKNOWN: IdempotencyLevel.UNKNOWN,
    MethodOptions.NO_SIDE_EFFECTS: IdempotencyLevel.NO_SIDE_EFFECTS,
    MethodOptions.IDEMPOTENT: IdempotencyLevel.IDEMPOTENT,
}


def endpoint_of(method: MethodDescriptor, channel: grpc.aio.Channel) -> Any:
    """Returns the endpoint that forwards a method."""
    path, request, response = path_of(method), GetMessageClass(method.input_type), GetMessageClass(method.output_type)
    coding: dict[str, Any] = {
        "request_serializer": request.SerializeToString,
        "response_deserializer": response.FromString,
    }
    if method.server_streaming:
        return Endpoint.server_stream(
            _info(method, StreamType.SERVER_STREAM, request, response),
            _forward_stream(channel.unary_stream(path, **coding)),
        )
    return Endpoint.unary(
        _info(method, StreamType.UNARY, request, response), _forward_unary(channel.unary_unary(path, **coding))
    )


def _info(
    method: MethodDescriptor, stream: StreamType, request: type[Message], response: type[Message]
) -> MethodInfo[Any, Any]:
    return MethodInfo(
        name=method.name,
        service_name=method.containing_service.full_name,
        input=request,
        output=response,
        idempotency_level=_IDEMPOTENCY[method.GetOptions().idempotency_level],
        stream_type=stream,
    )


def _forward_unary(call: Callable[..., Any]) -> Callable[[Any, Context], Any]:
    """Returns a handler for a method with one response. Raises ConnectError."""

    async def answer(request: Any, context: Context) -> Any:
        try:
            return await call(request, metadata=_metadata(context), timeout=_seconds(context, request))
        except grpc.aio.AioRpcError as error:
            raise connect_error(error) from error

    return answer


def _forward_stream(call: Callable[..., Any]) -> Callable[[Any, Context], AsyncIterator[Any]]:
    """Returns a handler for a method with a stream of responses. Raises ConnectError."""

    async def stream(request: Any, context: Context) -> AsyncIterator[Any]:
        responses = call(request, metadata=_metadata(context), timeout=_seconds(context, request))
        try:
            async for response in responses:
                yield response
        except grpc.aio.AioRpcError as error:
            raise connect_error(error) from error
        finally:
            # The caller may have gone before the end.
            responses.cancel()

    return stream


def _metadata(context: Context) -> tuple[tuple[str, str], ...]:
    headers: Mapping[str, str] = context.request_headers
    return tuple((name, headers[name]) for name in _HEADERS if name in headers)


def _seconds(context: Context, request: Message) -> float | None:
    """Returns the deadline that the caller set, else that of the contract; None for a stream without one."""
    if context.timeout_ms is not None:
        return max(context.timeout_ms / 1000, 0.001)
    try:
        return default_seconds(request)
    except LookupError:
        return None
