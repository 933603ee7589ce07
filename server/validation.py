"""Checks messages against the rules that the contract itself states (buf.validate)."""

import json

from google.protobuf.message import Message
from protovalidate import Validator, Violation

from server.errors import FieldViolation, invalid_fields

# Compiles the rules of a message type when it first meets one, and keeps them.
_validator = Validator()


def validate_message(message: Message) -> None:
    """Raises ApiError INVALID_ARGUMENT that names every field that breaks a rule, by its path from `message`.

    Unary requests come checked to their handlers; a handler of a request stream calls this for each message.
    """
    violations = _validator.collect_violations(message)
    if violations:
        raise invalid_fields([FieldViolation(_path(violation), violation.proto.message) for violation in violations])


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
