"""Pagination of lists: page size, byte limit, and an opaque token that contains the key of the last row."""

import base64
import binascii
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast

from google.protobuf.message import Message

from runekeep_server.protocol.answer_sizes import ROW_OVERHEAD_BYTES
from runekeep_server.protocol.api_error import ApiError
from runekeep_server.protocol.errors import invalid

DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 200

_MAX_TOKEN_LENGTH = 4096
# Stores hold numbers up to 2**63 - 1. This leaves room to add to a key.
_MAX_KEY_NUMBER = 2**62

KeyPart = str | int
Row = TypeVar("Row", bound=Message)


class _Paged(Protocol):
    page_size: int
    page_token: str


@dataclass(frozen=True, slots=True)
class Page:
    """The requested page. `size`: number of rows, 1 to 200. `after`: key of the last row of the previous page; None for
    the first page."""

    size: int
    after: tuple[KeyPart, ...] | None


def open_page(request: Message, key_types: Sequence[type[KeyPart]]) -> Page:
    """Returns the page that a list request asks for; the request has the fields `page_size` and `page_token`.

    `key_types`: the types of the parts of a row's key. Raises ApiError INVALID_ARGUMENT on `page_token` for a token
    that this server did not make for the same method and the same other fields. Limits may change between pages.
    """
    size = min(max(cast(_Paged, request).page_size, 0) or DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)
    return Page(size, open_key(request, key_types))


def open_key(request: Message, key_types: Sequence[type[KeyPart]]) -> tuple[KeyPart, ...] | None:
    """Returns the key in the `page_token` of a list request, or None for the first page. Raises ApiError as `open_page`
    does."""
    token = cast(_Paged, request).page_token
    if not token:
        return None
    digest, key = _decode(token)
    if len(key) != len(key_types) or any(type(part) is not kind for part, kind in zip(key, key_types, strict=True)):
        raise refused_token()
    if any(isinstance(part, int) and abs(part) >= _MAX_KEY_NUMBER for part in key):
        raise refused_token()
    if digest != _digest(request):
        raise invalid(
            "page_token", "belongs to a request with other fields", "Keep them as they were, or leave it empty"
        )
    return key


def next_token(request: Message, key: Sequence[KeyPart]) -> str:
    """Returns the token of the page after the row with this key."""
    text = json.dumps([_digest(request), *key], ensure_ascii=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode("utf-8")).decode("ascii").rstrip("=")


def fitting(rows: Sequence[Message], most_bytes: int) -> int:
    """Returns how many of the first rows fit into `most_bytes`. At least one, because an empty page would be the
    last."""
    for count, row in enumerate(rows):
        most_bytes -= row.ByteSize() + ROW_OVERHEAD_BYTES
        if most_bytes < 0 and count:
            return count
    return len(rows)


def cut_page(
    request: Message,
    rows: Sequence[Row],
    keys: Sequence[Sequence[KeyPart]],
    size: int,
    most_bytes: int,
    *,
    more: bool = False,
) -> tuple[Sequence[Row], str]:
    """Returns the first `size` rows, or as many as fit into `most_bytes`, and the token of the next page; the token is
    empty on the last page.

    `keys`: the keys of the rows, in the same order. `more`: whether rows follow the given ones. If you do not know,
    pass one row more than `size`.
    """
    count = fitting(rows[:size], most_bytes)
    if count == len(rows) and not more:
        return rows, ""
    return rows[:count], next_token(request, keys[count - 1])


def _decode(token: str) -> tuple[str, tuple[KeyPart, ...]]:
    if len(token) > _MAX_TOKEN_LENGTH:
        raise refused_token()
    try:
        text = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        parts = json.loads(text)
    # Deep nesting in a forged token raises RecursionError; other damage raises ValueError.
    except (binascii.Error, ValueError, RecursionError):
        raise refused_token() from None
    if not isinstance(parts, list) or not parts or not isinstance(parts[0], str):
        raise refused_token()
    return parts[0], tuple(parts[1:])


def _digest(request: Message) -> str:
    other_fields = type(request)()
    other_fields.CopyFrom(request)
    # Limits may change from page to page.
    for name in ("page_size", "page_token", "node_limit"):
        if name in request.DESCRIPTOR.fields_by_name:
            other_fields.ClearField(name)
    hashed = hashlib.sha256(request.DESCRIPTOR.full_name.encode("ascii") + b"\0")
    hashed.update(other_fields.SerializeToString(deterministic=True))
    return hashed.hexdigest()[:24]


def refused_token() -> ApiError:
    """Returns the error for a token whose key no row of the list can have."""
    return invalid("page_token", "is not one that this server made for this list", "Leave it empty for the first page")
