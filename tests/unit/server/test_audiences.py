"""Every RPC has a declared audience. A method without one is not served, whoever calls it."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FileDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from runekeep.v1 import (
    admin_service_pb2,
    extractor_service_pb2,
    history_service_pb2,
    memory_service_pb2,
    session_service_pb2,
    space_service_pb2,
    task_service_pb2,
    turn_memory_service_pb2,
)
from server.app import Service
from server.audiences import AUDIENCES, WITHOUT_CREDENTIALS
from tests.unit.server.test_frame_calls import serving

CONTRACT = (
    admin_service_pb2,
    extractor_service_pb2,
    history_service_pb2,
    memory_service_pb2,
    session_service_pb2,
    space_service_pb2,
    task_service_pb2,
    turn_memory_service_pb2,
)


def methods(*files: FileDescriptor) -> Iterator[str]:
    for file in files:
        for service in file.services_by_name.values():
            yield from (f"/{service.full_name}/{method.name}" for method in service.methods)


def test_every_method_of_the_contract_has_an_audience_and_no_other_has() -> None:
    assert set(AUDIENCES) == set(methods(*(module.DESCRIPTOR for module in CONTRACT)))


def test_only_health_and_reflection_need_no_credentials() -> None:
    assert set(methods(health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR)) == WITHOUT_CREDENTIALS


@pytest.mark.parametrize(
    "name", ["/runekeep.v1.SessionService/Undeclared", "/runekeep.v1.NewService/Get", "/other.v1.Health/Check"]
)
@pytest.mark.parametrize("streams", [False, True])
async def test_a_method_without_an_audience_is_refused(name: str, streams: bool) -> None:
    served: list[bytes] = []

    async def serve(request: bytes, context: Any) -> bytes:
        served.append(request)
        return b"the answer"

    async def serve_stream(requests: Any, context: Any) -> bytes:
        async for request in requests:
            served.append(request)
        return b"the answer"

    service, _, method = name[1:].partition("/")
    # Generated code has handlers of both kinds.
    kind: Any = grpc.stream_unary_rpc_method_handler if streams else grpc.unary_unary_rpc_method_handler
    handler = kind(serve_stream if streams else serve, bytes, bytes)

    def add(_servicer: object, server: Any) -> None:
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))

    async with serving(Service(add, object(), service)) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            if streams:
                await channel.stream_unary(name)(iter([b"a request"]))
            else:
                await channel.unary_unary(name)(b"a request")
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert served == []
