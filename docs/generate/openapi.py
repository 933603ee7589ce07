"""Renders the calls of users as an OpenAPI description, which `runekeep http` serves.

The schemas say how protobuf is written as JSON (https://protobuf.dev/programming-guides/json): 64-bit integers are
strings, enums are names, bytes are base64.
"""

import json
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, MethodDescriptor

from docs.generate.contract import comments
from runekeep.http_api.methods import path_of, served_methods

Schema = dict[str, Any]

_ERROR: Final = "ConnectError"
_WELL_KNOWN: Final[dict[str, Schema]] = {
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
    "google.protobuf.Duration": {"type": "string", "examples": ["1.5s"]},
    "google.protobuf.FieldMask": {"type": "string"},
    "google.protobuf.Struct": {"type": "object"},
    "google.protobuf.Value": {},
    "google.protobuf.ListValue": {"type": "array", "items": {}},
    "google.protobuf.Empty": {"type": "object"},
}
_INTEGERS_AS_TEXT: Final = frozenset(
    (
        FieldDescriptor.TYPE_INT64,
        FieldDescriptor.TYPE_UINT64,
        FieldDescriptor.TYPE_SINT64,
        FieldDescriptor.TYPE_FIXED64,
        FieldDescriptor.TYPE_SFIXED64,
    )
)
_ERROR_SCHEMA: Final[Schema] = {
    "type": "object",
    "description": "An error. `debug` of a detail is its content; docs/operate/errors.md explains each reason.",
    "properties": {
        "code": {"type": "string", "examples": ["invalid_argument"]},
        "message": {"type": "string"},
        "details": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "type": {"type": "string", "examples": ["google.rpc.BadRequest"]},
                    "value": {"type": "string", "contentEncoding": "base64"},
                    "debug": {"type": "object"},
                },
            },
        },
    },
}


def description() -> str:
    """Returns the description of all methods that are served over HTTP."""
    methods = list(served_methods())
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "Runekeep",
            "version": version("runekeep"),
            "description": "The calls of users over HTTP, by the Connect protocol. See docs/guides/http.md.",
        },
        "servers": [{"url": "/"}],
        "security": [{"key": []}, {}],
        "paths": {path_of(method): {"post": _operation(method)} for method in methods},
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": {_ERROR: _ERROR_SCHEMA, **dict(sorted(_schemas(methods)))},
        },
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _operation(method: MethodDescriptor) -> Schema:
    # Messages of a stream lie in envelopes, which OpenAPI has no words for.
    kind = "application/connect+json" if method.server_streaming else "application/json"
    return {
        "operationId": f"{method.containing_service.name}.{method.name}",
        "tags": [method.containing_service.name],
        "description": comments()[method.full_name],
        "requestBody": {"required": True, "content": {kind: {"schema": _reference(method.input_type)}}},
        "responses": {
            "200": {
                "description": "Each message of the stream" if method.server_streaming else "The response",
                "content": {kind: {"schema": _reference(method.output_type)}},
            },
            "default": {
                "description": "The call failed",
                "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{_ERROR}"}}},
            },
        },
    }


def _schemas(methods: list[MethodDescriptor]) -> Iterator[tuple[str, Schema]]:
    """Yields the schema of each message and enum that the methods use, with its name."""
    waiting: list[Descriptor | EnumDescriptor] = [
        type for method in methods for type in (method.input_type, method.output_type)
    ]
    known: set[str] = set()
    while waiting:
        type = waiting.pop()
        if type.full_name in known or type.full_name in _WELL_KNOWN:
            continue
        known.add(type.full_name)
        if isinstance(type, EnumDescriptor):
            yield _name(type), _described({"type": "string", "enum": [value.name for value in type.values]}, type)
            continue
        fields = {}
        for field in type.fields:
            fields[field.json_name] = _described(_of_field(field), field)
            waiting.extend(_types_of(field))
        yield _name(type), _described({"type": "object", "properties": fields, "additionalProperties": False}, type)


def _types_of(field: FieldDescriptor) -> Iterator[Descriptor | EnumDescriptor]:
    if field.enum_type is not None:
        yield field.enum_type
    elif field.message_type is None:
        return
    elif field.message_type.GetOptions().map_entry:
        yield from _types_of(field.message_type.fields_by_name["value"])
    else:
        yield field.message_type


def _of_field(field: FieldDescriptor) -> Schema:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return {"type": "object", "additionalProperties": _of_value(field.message_type.fields_by_name["value"])}
    one = _of_value(field)
    return {"type": "array", "items": one} if field.is_repeated else one


def _of_value(field: FieldDescriptor) -> Schema:
    if field.message_type is not None:
        return _reference(field.message_type)
    if field.enum_type is not None:
        return _reference(field.enum_type)
    if field.type in _INTEGERS_AS_TEXT:
        return {"type": ["string", "integer"], "format": "int64"}
    if field.type == FieldDescriptor.TYPE_BYTES:
        return {"type": "string", "contentEncoding": "base64"}
    if field.type == FieldDescriptor.TYPE_BOOL:
        return {"type": "boolean"}
    if field.type == FieldDescriptor.TYPE_STRING:
        return {"type": "string"}
    is_float = field.type in (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT)
    return {"type": "number"} if is_float else {"type": "integer", "format": "int32"}


def _reference(type: Descriptor | EnumDescriptor) -> Schema:
    well_known = _WELL_KNOWN.get(type.full_name)
    return dict(well_known) if well_known is not None else {"$ref": f"#/components/schemas/{_name(type)}"}


def _name(type: Descriptor | EnumDescriptor) -> str:
    return str(type.full_name.removeprefix("runekeep.v1."))


def _described(schema: Schema, of: Descriptor | EnumDescriptor | FieldDescriptor) -> Schema:
    text = " ".join(comments().get(of.full_name, "").split())
    return {**schema, "description": text} if text else schema
