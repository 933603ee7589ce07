"""Converts what callers say about memories to messages of the contract."""

from runekeep.client.wire.proto_json import enum_number
from runekeep.client.wire.values import Scalar
from runekeep.v1 import common_pb2, memory_service_pb2


def field_value(value: Scalar) -> common_pb2.FieldValue:
    match value:
        case bool():
            return common_pb2.FieldValue(bool_value=value)
        case int():
            return common_pb2.FieldValue(int64_value=value)
        case float():
            return common_pb2.FieldValue(float32_value=value)
        case str():
            return common_pb2.FieldValue(string_value=value)
    raise TypeError(f"a memory field is text, a number or a bool, not {type(value).__name__}")


def view_number(view: str) -> memory_service_pb2.MemoryView.ValueType:
    return memory_service_pb2.MemoryView.ValueType(enum_number(memory_service_pb2.MemoryView, view))
