"""Reads the options of the contract's methods, which `runekeep/v1/method_options.proto` defines."""

from functools import cache

from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.descriptor_pb2 import MethodOptions
from google.protobuf.message import Message

from runekeep.v1 import method_options_pb2


@cache
def method_of(request: Descriptor) -> MethodDescriptor:
    """Returns the method with this type of request; each method of the contract has its own. Raises LookupError."""
    for service in request.file.services_by_name.values():
        for method in service.methods:
            if method.input_type.full_name == request.full_name:
                return method
    raise LookupError(f"no method of {request.file.name} takes {request.full_name}")


def rules_of(method: MethodDescriptor) -> method_options_pb2.MethodRules:
    """Returns the rules of a method. Raises LookupError if it has none."""
    options = method.GetOptions()
    if not options.HasExtension(method_options_pb2.rules):
        raise LookupError(f"{method.full_name} has no option (runekeep.v1.rules); see method_options.proto")
    return options.Extensions[method_options_pb2.rules]


@cache
def is_repeatable(method: MethodDescriptor) -> bool:
    """Returns whether the same request may be sent again if the result of the first one is unknown."""
    known = method.GetOptions().idempotency_level != MethodOptions.IDEMPOTENCY_UNKNOWN
    return known and not is_stream(method)


def is_stream(method: MethodDescriptor) -> bool:
    """Returns whether the caller or the server sends more than one message."""
    return bool(method.client_streaming or method.server_streaming)


def default_seconds(request: Message) -> float:
    """Returns the deadline of the method that takes the request. Raises LookupError for a stream without one."""
    return _default_seconds(request.DESCRIPTOR)


@cache
def _default_seconds(request: Descriptor) -> float:
    rules = rules_of(method_of(request))
    if not rules.HasField("deadline"):
        raise LookupError(f"{request.full_name} asks for a stream, which has no deadline")
    return rules.deadline.seconds + rules.deadline.nanos / 1e9
