"""Memories that a new one makes obsolete, as the `supersedes_field` of its type names them."""

from collections.abc import Iterator

from schemas.filenames import FileNameError, memory_uri
from schemas.types import MemoryType
from schemas.uris import SCHEME, UriError, canonicalize, parse
from server.apply.workspace import Fields


def superseded(type: MemoryType, before: Fields, after: Fields, uri: str, user: str) -> Iterator[str]:
    """Yields the URIs of the memories that `after` names and `before` did not, one name or URI a line.

    They are of the same owner as the memory itself, at `uri`, which supersedes no others and never itself.
    """
    field = type.supersedes_field
    if not field or after.get(field) == before.get(field):
        return
    peer = parse(uri).peer
    known = set(_lines(before.get(field)))
    for line in dict.fromkeys(_lines(after.get(field))):
        one = _uri(type, line, user, peer) if line not in known else ""
        if one and one != uri and parse(one).peer == peer:
            yield one


def _lines(value: object) -> list[str]:
    lines = (line.strip().removeprefix("- ").strip() for line in str(value or "").splitlines())
    return [line for line in lines if line]


def _uri(type: MemoryType, name: str, user: str, peer: str | None) -> str:
    """Empty for what can be no memory of the user."""
    try:
        return (
            canonicalize(name, user)
            if name.startswith(SCHEME)
            else memory_uri(type, {type.key_fields[0]: name}, user, peer)
        )
    except (FileNameError, UriError):
        return ""
