"""Counts the fields of a large request in its bytes, before it is parsed.

A megabyte of text is one field and cheap. A megabyte of nulls is half a million fields: parsing and converting them
would hold the interpreter for seconds, while no other call is served. The scan skips texts by their length and ends at
the limit, so its cost depends on the limit, not on the size of the request. It runs on the event loop in pieces of
less than a millisecond. A thread would hold the interpreter's lock for five milliseconds at a time.
"""

import asyncio
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from runekeep_server.protocol.api_error import ApiError
from runekeep_server.protocol.errors import invalid
from runekeep_server.protocol.validation import unreadable

MAX_FIELDS: Final = 65_536
"""Maximum of fields in a request, counting those of nested messages and the items of lists. Each takes at least one
byte, so a request of at most this many bytes is not scanned."""
MAX_DEPTH: Final = 100
"""Maximum of levels of nested messages, the same as in protobuf's parser."""
_PIECE_FIELDS: Final = 1000
"""The scan lets other calls run after this many fields."""
_NUMBER, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_FIXED: Final = {_FIXED64: 8, _FIXED32: 4}


class _Field(NamedTuple):
    """A field whose contents are counted. `name` is empty within JSON values, because callers do not know the names of
    their fields. `message` is None for a packed list of numbers."""

    name: str
    message: Descriptor | None


async def check_shape(data: bytes, descriptor: Descriptor) -> None:
    """Raises ApiError INVALID_ARGUMENT if `data`, a serialized request of the type `descriptor`, has more than
    MAX_FIELDS fields, more than MAX_DEPTH levels, or bytes that no generated code writes."""
    if len(data) <= MAX_FIELDS:
        return
    try:
        for _ in _scan(data, descriptor):
            await asyncio.sleep(0)
    except IndexError:
        # The bytes end within a field.
        raise unreadable() from None


def _scan(data: bytes, descriptor: Descriptor) -> Iterator[None]:
    """Yields after every _PIECE_FIELDS fields. Raises as `check_shape`, and IndexError.

    A request that the parser refuses may pass the scan, but the scan never counts fewer fields than the parser reads.
    """
    at, end, count, due = 0, len(data), 0, _PIECE_FIELDS
    fields, path, outer = _fields(descriptor), "", list[tuple[int, Mapping[int, _Field], str]]()
    while True:
        if count >= due:
            if count > MAX_FIELDS:
                raise _too_many(path)
            due = count + _PIECE_FIELDS
            yield
        while at == end:
            if not outer:
                if count > MAX_FIELDS:
                    raise _too_many(path)
                return
            end, fields, path = outer.pop()
        if at > end:
            raise unreadable()
        count += 1
        tag = data[at]
        at += 1
        if tag > 127:
            tag, at = _varint(data, at - 1)
        kind = tag & 7
        if kind == _LENGTH:
            size = data[at]
            at += 1
            if size > 127:
                size, at = _varint(data, at - 1)
            field = fields.get(tag)
            if field is None:
                at += size
            elif field.message is None:
                # Each number takes at least one byte.
                count += size
                at += size
            else:
                if at + size > end:
                    raise unreadable()
                if len(outer) == MAX_DEPTH:
                    raise invalid(path, f"is nested deeper than {MAX_DEPTH} messages", "Reduce the nesting")
                outer.append((end, fields, path))
                if field.name:
                    path = f"{path}.{field.name}" if path else field.name
                end, fields = at + size, _fields(field.message)
        elif kind == _NUMBER:
            _, at = _varint(data, at)
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            # Groups, which proto3 does not have.
            raise unreadable()


def count_items(data: bytes, number: int, most: int) -> int | None:
    """Returns how many messages the repeated field with this number has, in a serialized message without other fields;
    None if it has more than `most` or another field. Reads no more than that, so it is quick. Raises ApiError
    INVALID_ARGUMENT for bytes that no generated code writes."""
    at = count = 0
    try:
        while at < len(data):
            tag, at = _varint(data, at)
            if tag != number << 3 | _LENGTH or count == most:
                return None
            size, at = _varint(data, at)
            at += size
            count += 1
    except IndexError:
        raise unreadable() from None
    if at != len(data):
        raise unreadable()
    return count


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns the number that begins at `at`, and where it ends."""
    number = shift = 0
    while data[at] > 127:
        number |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if shift > 63:
            raise unreadable()
    return number | data[at] << shift, at + 1


@cache
def _fields(descriptor: Descriptor) -> Mapping[int, _Field]:
    """Returns the fields whose contents are counted, by the tag that precedes them on the wire."""
    is_json = descriptor.file.name == "google/protobuf/struct.proto"
    return {
        field.number << 3 | _LENGTH: _Field("" if is_json else field.name, field.message_type)
        for field in descriptor.fields
        if field.type not in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
    }


def _too_many(path: str) -> ApiError:
    return invalid(
        path,
        f"exceeds the limit: the request has more than {MAX_FIELDS} fields, counting those of nested messages and the"
        " items of lists",
        "Split it into several requests, or send large JSON as text",
    )
