"""A double of the server for tests of the client: it answers calls over real gRPC as a test scripted them.

It keeps nothing and knows no rule. What it is asked is kept in `calls`, in order.
"""

import threading
from collections import defaultdict, deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf import message_factory
from google.protobuf.message import Message as WireMessage
from google.rpc import error_details_pb2, status_pb2

from runekeep.v1 import (
    admin_service_pb2,
    history_service_pb2,
    memory_service_pb2,
    proposal_service_pb2,
    session_service_pb2,
    space_service_pb2,
    task_service_pb2,
    turn_memory_service_pb2,
)

_FILES = (
    proposal_service_pb2,
    session_service_pb2,
    memory_service_pb2,
    history_service_pb2,
    task_service_pb2,
    turn_memory_service_pb2,
    space_service_pb2,
    admin_service_pb2,
)
METHODS = {
    f"/{service.full_name}/{method.name}": method
    for file in _FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}


@dataclass
class Call:
    method: str
    request: Any
    metadata: dict[str, str]
    seconds_left: float | None


@dataclass
class Refusal:
    """Ends a call with a status and google.rpc details."""

    code: grpc.StatusCode
    reason: str = ""
    message: str = "as the test wants it"
    details: tuple[WireMessage, ...] = ()

    def end(self, context: grpc.ServicerContext) -> None:
        status = status_pb2.Status(code=self.code.value[0], message=self.message)
        info = error_details_pb2.ErrorInfo(reason=self.reason, domain="runekeep.dev", metadata={"error_id": "e1"})
        for detail in (info, *self.details):
            status.details.add().Pack(detail)
        context.set_trailing_metadata([("grpc-status-details-bin", status.SerializeToString())])
        context.abort(self.code, self.message)


HOLD = object()
"""In the script of a stream: stay open until the caller goes."""


class ServerDouble(grpc.GenericRpcHandler):
    """`script(method, *steps)` lines up answers: messages, Refusals, or lists of these for a stream.

    The last step of a method stays; a method without a script answers with an empty message.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.ended = threading.Event()
        """Set once a stream has ended; one that is held open ends when its caller leaves."""
        self.steps: dict[str, deque[Any]] = defaultdict(deque)
        """The scripted steps that remain, by method."""
        self._lock = threading.Lock()
        self._server = grpc.server(ThreadPoolExecutor(max_workers=16), handlers=[self])
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def close(self) -> None:
        self._server.stop(grace=None).wait()

    def script(self, method: str, *steps: Any) -> None:
        self.steps[method].extend(steps)

    def requests(self, method: str) -> list[Any]:
        return [call.request for call in self.calls if call.method == method]

    def service(self, handler_call_details: Any) -> Any:
        method = METHODS.get(handler_call_details.method)
        if method is None or method.client_streaming:
            # As a server of an earlier version answers.
            return None
        request_class = message_factory.GetMessageClass(method.input_type)
        make = grpc.unary_stream_rpc_method_handler if method.server_streaming else grpc.unary_unary_rpc_method_handler

        def unary(request: Any, context: grpc.ServicerContext) -> Any:
            step = self._next(method, request, context)
            if isinstance(step, Refusal):
                step.end(context)
            return step

        def stream(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            gone = threading.Event()

            def ended() -> None:
                gone.set()
                self.ended.set()

            if not context.add_callback(ended):
                ended()
            for step in self._next(method, request, context):
                if isinstance(step, Refusal):
                    step.end(context)
                elif step is HOLD:
                    gone.wait(60)
                else:
                    yield step

        return make(
            stream if method.server_streaming else unary,
            request_deserializer=request_class.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )

    def _next(self, method: Any, request: Any, context: grpc.ServicerContext) -> Any:
        metadata = {key: str(value) for key, value in context.invocation_metadata()}
        with self._lock:
            self.calls.append(Call(method.name, request, metadata, context.time_remaining()))
            steps = self.steps[method.name]
            if not steps:
                return [] if method.server_streaming else message_factory.GetMessageClass(method.output_type)()
            return steps.popleft() if len(steps) > 1 else steps[0]
