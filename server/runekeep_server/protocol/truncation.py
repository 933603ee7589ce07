"""Cuts records that are larger than an answer may be, and marks them as cut.

Records that are accepted now always fit, see `runekeep_server.protocol.answer_sizes`. Stores of earlier versions, and
of servers that accepted larger requests, may contain larger ones.
"""

from collections.abc import MutableSequence
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

FLAG: Final = "shortened"
"""Name of the field that marks a record as cut."""
_FEW: Final = 64
"""Maximum of items that are cut one by one, as many as a message has parts. Each cut measures the whole record
again."""
_LONG: Final = 1024
"""Bytes from which an item is cut. A shorter item is removed as a whole, so that no id is cut in two."""
_SLACK_BYTES: Final = 64
"""Bytes that are cut in addition, because length prefixes change with a text."""


def shorten(record: Message, most_bytes: int) -> bool:
    """Cuts the record to at most `most_bytes`, and sets its field `shortened`, if it has one. Returns whether it was
    cut.

    Slow for megabytes. The longest text or list is cut first; names and numbers stay unless nothing else is left.
    """
    size = record.ByteSize()
    if size <= most_bytes:
        return False
    if FLAG in record.DESCRIPTOR.fields_by_name:
        setattr(record, FLAG, True)
    while size > most_bytes and _cut_longest(record, size - most_bytes + _SLACK_BYTES):
        size = record.ByteSize()
    return True


def _cut_longest(record: Message, excess: int) -> bool:
    """Cuts about `excess` bytes, or half, of the largest field. Returns whether there was anything to cut."""
    fields = [(field, value) for field, value in record.ListFields() if _size(value) > 1]
    if not fields:
        return False
    field, value = max(fields, key=lambda one: _size(one[1]))
    if isinstance(value, Message):
        if not _cut_longest(value, excess):
            record.ClearField(field.name)
    elif isinstance(value, str):
        setattr(record, field.name, _cut_text(value, excess))
    elif isinstance(value, bytes):
        setattr(record, field.name, value[: max(len(value) - excess, len(value) // 2)])
    elif _is_map(field):
        _cut_map(value, excess)
    else:
        _cut_list(value, excess)
    return True


def _cut_list(items: MutableSequence[Any], excess: int) -> None:
    """Cuts the longest item of a list of few long items, or the second half of a list of many short ones."""
    place, longest = max(enumerate(items), key=lambda one: _size(one[1]))
    if _size(longest) > _LONG and _FEW * _size(longest) > _size(items):
        if isinstance(longest, Message) and _cut_longest(longest, excess):
            return
        if isinstance(longest, str) and longest:
            items[place] = _cut_text(longest, excess)
            return
    del items[len(items) // 2 :]


def _cut_map(items: Any, excess: int) -> None:
    name = max(items, key=lambda one: _size(items[one]))
    value = items[name]
    is_long = isinstance(value, Message) and _FEW * value.ByteSize() > sum(map(_size, items.values()))
    if is_long and _cut_longest(value, excess):
        return
    for one in list(items)[len(items) // 2 :]:
        del items[one]


def _cut_text(text: str, excess: int) -> str:
    encoded = text.encode()
    return encoded[: max(len(encoded) - excess, len(encoded) // 2)].decode(errors="ignore")


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _size(value: Any) -> int:
    if isinstance(value, Message):
        return value.ByteSize()
    if isinstance(value, str):
        # An estimate suffices to find the longest.
        return len(value)
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, int | float):
        return 1
    if hasattr(value, "items"):
        return sum(_size(key) + _size(value[key]) for key in value)
    return sum(map(_size, value)) + len(value)
