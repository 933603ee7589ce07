"""The filters of a search, applied to rows. The index applies the same to its points."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from runekeep_storage.index.base import PointKind
from runekeep_storage.records import Memory, Passage
from runekeep_storage.search.requests import FindRequest


def excluding(item: Memory | Passage, uri: str, request: FindRequest) -> Iterator[str]:
    """Yields the names of the fields of FindRequest that exclude the item, except `fields`. `uri`: of the item; for a
    passage that of its archive's messages."""
    memory = item if isinstance(item, Memory) else None
    if request.kinds and (PointKind.PASSAGE if memory is None else PointKind.MEMORY) not in request.kinds:
        yield "kinds"
    prefix = request.uri_prefix
    if prefix and uri != prefix and not uri.startswith(prefix.rstrip("/") + "/"):
        yield "uri_prefix"
    if request.memory_types and (memory is None or memory.memory_type not in request.memory_types):
        yield "memory_types"
    if request.peers and (item.peer_id or None) not in request.peers:
        yield "peers"
    yield from out_of_time(item, request)
    if request.tags and (memory is None or not set(request.tags) <= set(json.loads(memory.tags))):
        yield "tags"
    if request.sessions:
        sessions = item.sessions if isinstance(item, Memory) else (item.session_id,)
        if set(sessions).isdisjoint(request.sessions):
            yield "sessions"


def out_of_time(item: Memory | Passage, request: FindRequest) -> Iterator[str]:
    """Yields `since` or `until` if it excludes the item."""
    at = item.time if isinstance(item, Memory) else item.created_at
    if request.since is not None and at < request.since:
        yield "since"
    if request.until is not None and at >= request.until:
        yield "until"


def fields_match(item: Memory | Passage, wanted: Mapping[str, Any]) -> bool:
    """Returns whether the fields of the item, which must have been read, have the wanted values."""
    if not wanted:
        return True
    if isinstance(item, Passage):
        return False
    fields = json.loads(item.fields)
    return all(fields.get(name) == value for name, value in wanted.items())
