"""Checks messages against the rules in the contract (buf.validate)."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError, Message
from protovalidate import Validator, Violation

from runekeep.v1 import turn_memory_service_pb2
from runekeep_server.protocol.api_error import ApiError, FieldViolation
from runekeep_server.protocol.errors import invalid, invalid_fields

MAX_TURN_MEMORY_BYTES: Final = 256 * 1024
"""Maximum bytes of a request of TurnMemoryService. These requests are small except for values and lists that nobody
reads. Without a limit, checking a million of them would block all other calls for seconds."""
_ALL_VIOLATIONS_BYTES: Final = 16 * 1024
"""For a larger message only the first violation is reported: there may be hundreds of thousands."""

# Compiles and caches the rules of each message type on first use.
_validator = Validator()


class Undecodable:
    """Replaces a request whose bytes are not a message of its type.

    If deserializing a request raises, grpc.aio answers UNKNOWN with the name of a Python class. So the deserializer
    returns this instead.
    """


@dataclass(frozen=True, slots=True)
class Misshapen:
    """Replaces a request of a stream that has too many fields or levels, so that the handler decides whether the stream
    ends. `error`: what its caller is told."""

    data: bytes
    error: ApiError


_UNDECODABLE: Final = Undecodable()


def reader(deserialize: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Returns a deserializer that returns an Undecodable where `deserialize` raises DecodeError."""

    def read(data: bytes) -> Any:
        try:
            return deserialize(data)
        except DecodeError:
            return _UNDECODABLE

    return read


def unreadable() -> ApiError:
    """Returns INVALID_ARGUMENT for bytes that are not a message of the method's type."""
    return invalid(
        "", "The request cannot be read: it is not a message of the method's type", "Use the method's generated code"
    )


def check_readable(message: Message | Undecodable | Misshapen) -> None:
    """Raises ApiError INVALID_ARGUMENT for an Undecodable or Misshapen."""
    if isinstance(message, Undecodable):
        raise unreadable()
    if isinstance(message, Misshapen):
        raise message.error


def validate_message(message: Message | Undecodable | Misshapen, size: int | None = None) -> None:
    """Raises ApiError INVALID_ARGUMENT that names every field that breaks a rule, by its path from `message`.

    Unary requests reach their handlers checked. A handler of a request stream calls this for each message. `size`:
    bytes of the message, if known; measuring a large message takes longer than checking it.
    """
    check_readable(message)
    assert isinstance(message, Message)
    if size is None:
        size = message.ByteSize()
    if size > MAX_TURN_MEMORY_BYTES and message.DESCRIPTOR.file is turn_memory_service_pb2.DESCRIPTOR:
        raise invalid(
            _largest(message),
            f"makes most of a request of {size} bytes, and one about turns has at most {MAX_TURN_MEMORY_BYTES}",
            "Send less; leave out what is not read",
        )
    violations = _validator.collect_violations(message, fail_fast=size > _ALL_VIOLATIONS_BYTES)
    if violations:
        raise invalid_fields([FieldViolation(_path(violation), violation.proto.message) for violation in violations])


def _largest(message: Message) -> str:
    """Returns the path of the largest field of a message. A list is estimated from its first item: visiting all items
    would be the cost that the limit prevents."""
    fields = message.ListFields()
    if not fields:
        return "fields that this server does not know"
    field, value = max(fields, key=lambda pair: _size(pair[1]))
    name = field.name
    return f"{name}.{_largest(value)}" if isinstance(value, Message) and value.ListFields() else name


def _size(value: Any) -> int:
    if isinstance(value, Message):
        return value.ByteSize()
    if isinstance(value, str | bytes):
        return len(value)
    # A list, or a map, which no request about turns has except in values.
    return len(value) * (_size(value[0]) + 2) if isinstance(value, Sequence) and value else 0


def _path(violation: Violation) -> str:
    field = violation.proto.field
    if field is None:
        return ""
    path = ""
    for element in field.elements:
        path += f".{element.field_name}" if path else element.field_name
        if element.subscript is not None:
            key = element.subscript.value
            path += f"[{json.dumps(key, ensure_ascii=False)}]"
    return path
