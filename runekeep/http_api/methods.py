"""Lists the methods that are served over HTTP, and their paths."""

from collections.abc import Iterator

from google.protobuf.descriptor import MethodDescriptor

from runekeep.contract import methods_for
from runekeep.v1 import method_options_pb2


def served_methods() -> Iterator[MethodDescriptor]:
    """Yields the methods for users, service by service, without those that take a stream of requests: JSON over HTTP
    is no way to send one. Those for extractors and operators are reached by gRPC alone."""
    return (method for method in _of_users() if not method.client_streaming)


def left_out_methods() -> Iterator[MethodDescriptor]:
    """Yields the methods for users that take a stream of requests."""
    return (method for method in _of_users() if method.client_streaming)


def _of_users() -> Iterator[MethodDescriptor]:
    return methods_for(method_options_pb2.AUDIENCE_USERS)


def path_of(method: MethodDescriptor) -> str:
    """Returns the path of a method, the same for HTTP and gRPC."""
    return f"/{method.containing_service.full_name}/{method.name}"
