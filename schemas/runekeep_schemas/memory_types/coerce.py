"""Converts external values to values of a field, tolerant in form and strict in meaning.

`"3"` and `3.0` are the integer 3; `"true"` is true; a number for a text becomes its digits. A value that would lose
something (3.5 for an integer, a list for a text) is refused. Integers are limited to 64 bits and floats to finite
32-bit numbers, so that every language reads back the stored value.
"""

from __future__ import annotations

import math
import re
import struct
import unicodedata
from typing import Final

from runekeep_schemas.memory_types.model import ABSTRACT, Field, FieldType, FieldValue

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

_DIGITS = re.compile(r"[+-]?[0-9]{1,19}(\.0*)?")
_WORDS = {"true": True, "yes": True, "false": False, "no": False}


class FieldError(ValueError):
    """A field that the type does not have, or a value that the field does not accept."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


def coerce_value(field: Field, value: object) -> FieldValue:
    """Returns `value` in the field's type. Raises FieldError."""
    match field.type:
        case FieldType.STRING:
            return _text(field, value)
        case FieldType.INT64:
            return _integer(field, value)
        case FieldType.FLOAT32:
            return _float(field, value)
        case FieldType.BOOL:
            return _flag(field, value)


def name_text(text: str) -> str:
    """Returns a name in the form used for comparison: NFC, trimmed."""
    return unicodedata.normalize("NFC", text).strip()


def _text(field: Field, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise FieldError(field.name, f"takes text, not {_kind(value)}")
    text = str(value)
    if "\0" in text:
        raise FieldError(field.name, "holds a NUL character, which stores do not keep")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise FieldError(field.name, "holds half of a surrogate pair, which is no text") from None
    if field.choices:
        text = text.strip().lower()
        if text and text not in field.choices:
            raise FieldError(field.name, f"is one of {', '.join(field.choices)}")
    return " ".join(text.split()) if field.name == ABSTRACT.name else text


def _integer(field: Field, value: object) -> int:
    number: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, float) and value.is_integer():
        number = int(value)
    elif isinstance(value, str) and _DIGITS.fullmatch(value.strip()):
        number = int(value.strip().partition(".")[0])
    if number is None:
        raise FieldError(field.name, f"takes a whole number, not {_kind(value)}")
    return check_range(field, number)


def check_range(field: Field, number: int) -> int:
    """Returns the integer. Raises FieldError if it exceeds 64 bits."""
    if not INT64_MIN <= number <= INT64_MAX:
        raise FieldError(field.name, "does not fit into 64 bits")
    return number


def _float(field: Field, value: object) -> float:
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError
        number = float(value)
    except (ValueError, OverflowError):
        raise FieldError(field.name, f"takes a number, not {_kind(value)}") from None
    return to_float32(field, number)


def to_float32(field: Field, number: float) -> float:
    """Returns the nearest 32-bit float. Raises FieldError if it is not finite."""
    try:
        (rounded,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:
        rounded = math.inf
    if not math.isfinite(rounded):
        raise FieldError(field.name, "is no finite number of 32 bits")
    return float(rounded)


def _flag(field: Field, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    if isinstance(value, str) and value.strip().lower() in _WORDS:
        return _WORDS[value.strip().lower()]
    raise FieldError(field.name, f"takes true or false, not {_kind(value)}")


def _kind(value: object) -> str:
    """Returns a description of the value without the value itself: an error may reach a log, and a value must not."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "a flag"
        case int() | float():
            return "a number like that"
        case str():
            return "a text like that"
        case list() | tuple():
            return "a list"
        case dict():
            return "a mapping"
    return f"a {type(value).__name__}"
