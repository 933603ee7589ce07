"""Checks that messages and uses of skills fit into an answer before they are accepted."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from google.protobuf.message import Message as WireMessage

from runekeep_server.protocol.errors import field_too_large
from runekeep_server.wire import messages as wire
from runekeep_storage.records import Message, Usage

_GROWTH: Final = 2
"""Maximum growth from request to answer: an unset JSON value comes back as null."""
_ADDED_BYTES: Final = 16 * 1024
"""Bytes that the server adds to a message: its id and time, and ids of tool calls without one."""
_TODO: Final = "Send less, or divide it over several messages"


async def check_messages(request_bytes: int, messages: Sequence[Message], most_bytes: int) -> None:
    """Raises ApiError TOO_LARGE for the first message that is too large, including its whole tool outputs.
    `request_bytes` is the size of the request."""
    if _may_be_large(request_bytes, most_bytes):
        sizes = [partial(wire.to_wire, one) for one in messages]
        await _check("messages", sizes, most_bytes - _ADDED_BYTES)


async def check_skills(request_bytes: int, skills: Sequence[Usage], most_bytes: int) -> None:
    """Raises ApiError TOO_LARGE for the first skill that is too large."""
    if _may_be_large(request_bytes, most_bytes):
        await _check("skills", [partial(wire.usage_to_wire, one) for one in skills], most_bytes)


def _may_be_large(request_bytes: int, most_bytes: int) -> bool:
    # Nearly all requests are small, so their records need not be built to be measured.
    return _GROWTH * request_bytes + _ADDED_BYTES > most_bytes


async def _check(field: str, records: Sequence[Callable[[], WireMessage]], most_bytes: int) -> None:
    for number, record in enumerate(records):
        # Takes milliseconds per megabyte.
        size = await asyncio.to_thread(_size, record)
        if size > most_bytes:
            raise field_too_large(f"{field}[{number}]", size, most_bytes, _TODO)


def _size(record: Callable[[], WireMessage]) -> int:
    return record().ByteSize()
