"""Converts messages of the contract to dictionaries that `json.dumps` takes.

The shape follows the proto: a field keeps its name; a sub-message or optional value that is not set is None; of a
oneof only the member that is set is there; an enum value is its lower-case word without the prefix, None when
unspecified; a time is an ISO 8601 string in UTC; a duration is seconds. Integers stay integers, also in JSON-like
values, whose numbers are all doubles on the wire.
"""

from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message as WireMessage

_TIMESTAMP = "google.protobuf.Timestamp"
_DURATION = "google.protobuf.Duration"
_EXACT = 2**53
"""Up to here every whole number is a double."""
_JSON_LIKE = {"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"}
_FIELD_VALUE = "runekeep.v1.FieldValue"
_STATUS = "google.rpc.Status"


def to_json(message: WireMessage) -> Any:
    """Returns a dictionary for most messages; the value itself for times, durations, JSON values and memory fields."""
    name = message.DESCRIPTOR.full_name
    if name == _TIMESTAMP:
        return message.ToJsonString()  # type: ignore[attr-defined]  # by its name
    if name == _DURATION:
        return message.ToNanoseconds() / 1e9  # type: ignore[attr-defined]  # by its name
    if name in _JSON_LIKE:
        return _whole(json_format.MessageToDict(message))
    if name == _FIELD_VALUE:
        chosen = message.WhichOneof("kind")
        return None if chosen is None else _value(message.DESCRIPTOR.fields_by_name[chosen], getattr(message, chosen))
    if name == _STATUS:
        return _status(message)
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.is_repeated:
            found[field.name] = _repeated(field, value)
        elif field.has_presence and not message.HasField(field.name):
            if field.containing_oneof is None or _is_optional(field):
                found[field.name] = None
        else:
            found[field.name] = _value(field, value)
    return found


def enum_word(enum: Any, number: int) -> str | None:
    """`TASK_STATE_PENDING` of TaskState as `pending`; None for the unspecified one; digits for one not known here."""
    return _enum_word(enum.DESCRIPTOR, number)


def enum_number(enum: Any, word: str) -> int:
    """The number of a word as `enum_word` gives it. Raises ValueError that lists the words there are."""
    descriptor: EnumDescriptor = enum.DESCRIPTOR
    words = {_enum_word(descriptor, value.number): value.number for value in descriptor.values if value.number != 0}
    if word not in words:
        raise ValueError(f"{word!r} is none of {', '.join(str(known) for known in words)}")
    return words[word]


def _enum_word(descriptor: EnumDescriptor, number: int) -> str | None:
    value = descriptor.values_by_number.get(number)
    if value is None:
        return str(number)
    prefix = "".join(f"_{letter}" if letter.isupper() else letter for letter in descriptor.name).lstrip("_").upper()
    word = value.name.removeprefix(f"{prefix}_").lower()
    return None if word == "unspecified" else word


def _is_optional(field: Any) -> bool:
    # A proto3 `optional` scalar sits alone in a made-up oneof whose name begins with an underscore.
    return bool(field.containing_oneof.name == f"_{field.name}")


def _repeated(field: Any, value: Any) -> Any:
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        return {key: _value(entry.fields_by_name["value"], item) for key, item in sorted(value.items())}
    return [_value(field, item) for item in value]


def _value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return to_json(value)
    if field.enum_type is not None:
        return _enum_word(field.enum_type, value)
    if field.type == FieldDescriptor.TYPE_FLOAT:
        # A float32 has about seven digits; the rest is an artefact of widening it.
        return float(f"{value:.7g}")
    return value


def _whole(value: Any) -> Any:
    match value:
        case dict():
            return {key: _whole(item) for key, item in value.items()}
        case list():
            return [_whole(item) for item in value]
        case float() if value.is_integer() and abs(value) <= _EXACT:
            return int(value)
    return value


def _status(status: Any) -> dict[str, Any]:
    from google.rpc import code_pb2, error_details_pb2

    reason = ""
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            reason = info.reason
    return {"code": code_pb2.Code.Name(status.code), "reason": reason, "message": status.message}
