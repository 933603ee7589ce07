"""Requests of any method that name what somebody has. Methods without a row in the tables of strangers' attempts are
tried with these."""

from collections.abc import Mapping, Sequence

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass


def named_requests(method: MethodDescriptor, names: Mapping[str, Sequence[str]]) -> list[Message]:
    """Returns requests with the values that `names` has for fields of these names, as many as the longest list.

    Raises AssertionError if the request has no such field: then the method needs a row of its own.
    """
    told = {name: names[name] for name in method.input_type.fields_by_name if name in names}
    assert told, f"{method.full_name} names nothing that strangers could try: add a row for it"
    make = GetMessageClass(method.input_type)
    most = max(map(len, told.values()))
    return [make(**{name: values[at % len(values)] for name, values in told.items()}) for at in range(most)]


def is_about_the_name(error: grpc.aio.AioRpcError) -> bool:
    """Whether a call was refused for what it names. Otherwise the request lacks something and tried nothing."""
    foreign = error.code() is grpc.StatusCode.INVALID_ARGUMENT and "is no URI of yours" in (error.details() or "")
    return foreign or error.code() is grpc.StatusCode.NOT_FOUND
