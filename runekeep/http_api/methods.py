"""Lists the methods that are served over HTTP, and their paths."""

from collections.abc import Iterator
from typing import Final

from google.protobuf.descriptor import MethodDescriptor

from runekeep.v1 import (
    history_service_pb2,
    memory_service_pb2,
    proposal_service_pb2,
    session_service_pb2,
    space_service_pb2,
    task_service_pb2,
    turn_memory_service_pb2,
)

_FILES: Final = (
    session_service_pb2.DESCRIPTOR,
    memory_service_pb2.DESCRIPTOR,
    task_service_pb2.DESCRIPTOR,
    history_service_pb2.DESCRIPTOR,
    proposal_service_pb2.DESCRIPTOR,
    turn_memory_service_pb2.DESCRIPTOR,
    space_service_pb2.DESCRIPTOR,
)
"""The services for users. Those for extractors and operators are reached by gRPC alone."""


def served_methods() -> Iterator[MethodDescriptor]:
    """Yields the methods, service by service, without those that take a stream of requests: JSON over HTTP is no way to
    send one."""
    yield from (method for method in _methods() if not method.client_streaming)


def left_out_methods() -> Iterator[MethodDescriptor]:
    """Yields the methods that take a stream of requests."""
    yield from (method for method in _methods() if method.client_streaming)


def _methods() -> Iterator[MethodDescriptor]:
    for file in _FILES:
        for service in file.services_by_name.values():
            yield from service.methods


def path_of(method: MethodDescriptor) -> str:
    """Returns the path of a method, the same for HTTP and gRPC."""
    return f"/{method.containing_service.full_name}/{method.name}"
