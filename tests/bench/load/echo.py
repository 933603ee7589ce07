"""The floor of any call: a server in the style of ours that answers with what it was asked, and does nothing else.

Prints its address, and ends with its stdin. SAY is unary. STREAM gives back each of a stream of requests. WATCH is a
stream that gives its request back at once, and again when END is called.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
import uvloop

from runekeep.v1 import session_service_pb2 as pb

SAY = "/bench.Echo/Say"
STREAM = "/bench.Echo/Stream"
WATCH = "/bench.Echo/Watch"
END = "/bench.Echo/End"

_MESSAGE = (pb.AddMessagesRequest.FromString, pb.AddMessagesRequest.SerializeToString)
_STREAMED = (pb.StreamMessagesRequest.FromString, pb.StreamMessagesRequest.SerializeToString)


class _Echo(grpc.GenericRpcHandler):
    def __init__(self) -> None:
        self._ended = asyncio.Event()
        self._methods = {
            SAY: grpc.unary_unary_rpc_method_handler(self._say, *_MESSAGE),
            STREAM: grpc.stream_stream_rpc_method_handler(self._stream, *_STREAMED),
            WATCH: grpc.unary_stream_rpc_method_handler(self._watch, *_MESSAGE),
            END: grpc.unary_unary_rpc_method_handler(self._end, *_MESSAGE),
        }

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        return self._methods.get(handler_call_details.method)

    async def _say(self, request: pb.AddMessagesRequest, context: Any) -> pb.AddMessagesRequest:
        return request

    async def _stream(
        self, requests: AsyncIterator[pb.StreamMessagesRequest], context: Any
    ) -> AsyncIterator[pb.StreamMessagesRequest]:
        async for request in requests:
            yield request

    async def _watch(self, request: pb.AddMessagesRequest, context: Any) -> AsyncIterator[pb.AddMessagesRequest]:
        ended = self._ended
        yield request
        await ended.wait()
        yield request

    async def _end(self, request: pb.AddMessagesRequest, context: Any) -> pb.AddMessagesRequest:
        """Of those that watch now; who comes later waits for the next."""
        ended, self._ended = self._ended, asyncio.Event()
        ended.set()
        return request


async def _serve() -> None:
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((_Echo(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop(None)


if __name__ == "__main__":
    uvloop.run(_serve())
