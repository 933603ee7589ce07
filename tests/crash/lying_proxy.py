"""A proxy between clients and a server that falsifies answers, so that tests can see the checker report them.

It speaks gRPC on both sides and knows the contract only from the generated stubs. Unary calls are enough, because a
history is read with unary calls.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import grpc
from google.protobuf import descriptor_pool, message_factory

Metadata = tuple[tuple[str, str], ...]
Forward = Callable[[Any, Metadata], Awaitable[Any]]
"""Sends a request with the caller's metadata to the real server and returns its answer."""
Lie = Callable[[Forward, Any, Metadata], Awaitable[Any]]
"""Returns the answer that the client gets."""

_OWN = ("x-runekeep-account", "x-runekeep-user")


@contextlib.asynccontextmanager
async def lying_proxy(server: str, lies: Mapping[str, Lie]) -> AsyncIterator[int]:
    """Yields the port of a proxy in front of `server`. `lies` falsifies answers, by the name of the method."""
    async with grpc.aio.insecure_channel(server) as channel:
        proxy = grpc.aio.server()
        proxy.add_generic_rpc_handlers((_Handler(channel, lies),))
        port = proxy.add_insecure_port("127.0.0.1:0")
        await proxy.start()
        try:
            yield port
        finally:
            await proxy.stop(0)


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, channel: grpc.aio.Channel, lies: Mapping[str, Lie]) -> None:
        self._channel = channel
        self._lies = lies

    def service(self, call: grpc.HandlerCallDetails) -> Any:
        service, name = call.method.strip("/").split("/")
        method = descriptor_pool.Default().FindServiceByName(service).methods_by_name[name]
        asked, answered = map(message_factory.GetMessageClass, (method.input_type, method.output_type))
        send = self._channel.unary_unary(
            call.method, request_serializer=asked.SerializeToString, response_deserializer=answered.FromString
        )

        async def forward(request: Any, metadata: Metadata) -> Any:
            return await send(request, metadata=metadata)

        async def handle(request: Any, context: Any) -> Any:
            metadata = tuple((key, value) for key, value in context.invocation_metadata() if key in _OWN)
            lie = self._lies.get(name)
            try:
                return await (forward(request, metadata) if lie is None else lie(forward, request, metadata))
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details() or "", error.trailing_metadata() or ())

        return grpc.unary_unary_rpc_method_handler(
            handle, request_deserializer=asked.FromString, response_serializer=answered.SerializeToString
        )


def changing(change: Callable[[Any], object]) -> Lie:
    """Changes the real answer in place."""

    async def lie(forward: Forward, request: Any, metadata: Metadata) -> Any:
        answer = await forward(request, metadata)
        change(answer)
        return answer

    return lie


def mixing_in(user: str, items: str) -> Lie:
    """Returns the real answer, followed by what another user of the account gets for the same request."""

    async def lie(forward: Forward, request: Any, metadata: Metadata) -> Any:
        answer = await forward(request, metadata)
        of_another = tuple((key, user if key == "x-runekeep-user" else value) for key, value in metadata)
        getattr(answer, items).extend(getattr(await forward(request, of_another), items))
        return answer

    return lie


def without_last(items: str) -> Lie:
    """Returns the real answer without the last of its items."""
    return changing(lambda answer: getattr(answer, items) and getattr(answer, items).pop())


def with_last_twice(items: str) -> Lie:
    return changing(lambda answer: getattr(answer, items).extend(getattr(answer, items)[-1:]))


def turned(items: str) -> Lie:
    """Returns the real answer with its items in reverse order."""

    def change(answer: Any) -> None:
        there: Sequence[Any] = list(getattr(answer, items))
        del getattr(answer, items)[:]
        getattr(answer, items).extend(reversed(there))

    return changing(change)
