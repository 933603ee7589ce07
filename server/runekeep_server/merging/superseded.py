"""Finds the memories that a new one supersedes, named in the `supersedes_field` of its type."""

from collections.abc import Iterator

from runekeep_schemas.documents.filenames import FileNameError, memory_uri
from runekeep_schemas.documents.uris import SCHEME, UriError, canonicalize, parse
from runekeep_schemas.memory_types.model import MemoryType
from runekeep_server.merging.workspace import Fields


def superseded(type: MemoryType, before: Fields, after: Fields, uri: str, user: str) -> Iterator[str]:
    """Yields the URIs of the memories that `after` names and `before` did not, one name or URI per line. They belong to
    the same owner as the memory at `uri`. It supersedes no memory of another owner, and never itself."""
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
    """Returns the URI, or an empty text for what cannot be a memory of the user."""
    try:
        return (
            canonicalize(name, user)
            if name.startswith(SCHEME)
            else memory_uri(type, {type.key_fields[0]: name}, user, peer)
        )
    except (FileNameError, UriError):
        return ""
