"""The `viking://` URIs, their short forms, and the ids inside them.

The canonical form of every URI is `viking://user/{user}/...`. A caller may also write forms relative to its own space:
`viking://`, `viking://user/memories/...`, `viking://session/{session}/...`, `viking://agent/{space}/memories/...` with
or without the space segment, and the same for skills. An agent's space segment names no user, so it is dropped.

Percent signs, question marks and number signs are plain text in a URI; nothing is decoded. Text is normalized to
Unicode NFC, so that one name typed on two keyboards gives one URI.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

SCHEME: Final = "viking://"
MAX_URI_BYTES: Final = 2048
MAX_SEGMENT_BYTES: Final = 255
ABSTRACT_FILE: Final = ".abstract.md"
OVERVIEW_FILE: Final = ".overview.md"

_VIEW_FILES = frozenset({ABSTRACT_FILE, OVERVIEW_FILE})
_AGENT_PLACES = frozenset({"memories", "skills"})
_ARCHIVE = re.compile(r"archive_([0-9]{3,9})")
# Characters that are invisible or change the reading direction: a name with one could imitate another name. The two
# joiners are exempt, because several scripts and emoji need them.
_JOINERS = "\u200c\u200d"


class UriError(ValueError):
    """The text is not a valid URI."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ForeignSpaceError(UriError):
    """The URI names the space of another user."""


class Place(StrEnum):
    """The part of a user's space that contains a URI."""

    ROOT = "root"
    MEMORIES = "memories"
    PEERS = "peers"
    SESSIONS = "sessions"
    SKILLS = "skills"


_PLACES = frozenset(place.value for place in Place) - {Place.ROOT.value}


class IdKind(StrEnum):
    """The kind of thing that an id names."""

    ACCOUNT = "account"
    USER = "user"
    SESSION = "session"
    PEER = "peer"
    TURN = "turn"


_LONG_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SHORT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_IDS = {kind: _SHORT_ID if kind in (IdKind.PEER, IdKind.TURN) else _LONG_ID for kind in IdKind}


def is_safe_id(kind: IdKind | str, value: str) -> bool:
    """Returns whether `value` may be an id of that kind: 1 to 128 characters, peers and turns 1 to 64.

    A user id must not equal the name of a part of a space, or the short forms would be ambiguous.
    """
    if _IDS[kind if isinstance(kind, IdKind) else IdKind(kind)].fullmatch(value) is None:
        return False
    return kind != IdKind.USER or value not in _PLACES


@dataclass(frozen=True, slots=True)
class ParsedUri:
    """A canonical URI in parts.

    `peer`: set below `peers/{peer}`. `path`: the segments after the place; for a memory of a peer, those after
    `memories`; for `peers/{peer}` itself it is empty.
    """

    user: str
    peer: str | None
    kind: Place
    path: tuple[str, ...]

    @property
    def uri(self) -> str:
        parts = [self.user]
        if self.peer is not None:
            parts += [Place.PEERS, self.peer]
            if self.kind is Place.MEMORIES:
                parts.append(Place.MEMORIES)
        elif self.kind is not Place.ROOT:
            parts.append(self.kind)
        return f"{SCHEME}user/" + "/".join([*parts, *self.path])

    @property
    def session(self) -> str | None:
        """The session's id, below `sessions/{session}`."""
        return self.path[0] if self.kind is Place.SESSIONS and self.path else None


@dataclass(frozen=True, slots=True)
class ArchiveUri:
    """An archive of a session, and the path below it (empty for the archive itself)."""

    user: str
    session: str
    index: int
    path: tuple[str, ...]


def space_root(user: str) -> str:
    """Returns `viking://user/{user}`. Raises UriError for an unsafe id."""
    return f"{SCHEME}user/{_require(IdKind.USER, user)}"


def peer_root(user: str, peer: str) -> str:
    """Returns `viking://user/{user}/peers/{peer}`. Raises UriError for an unsafe id."""
    return f"{space_root(user)}/peers/{_require(IdKind.PEER, peer)}"


def memories_root(user: str, peer: str | None = None) -> str:
    """Returns the directory of the memories about the user, or about a peer."""
    return f"{space_root(user) if peer is None else peer_root(user, peer)}/memories"


@lru_cache(maxsize=4096)
def session_uri(user: str, session: str) -> str:
    """Returns `viking://user/{user}/sessions/{session}`. Raises UriError for an unsafe id."""
    return f"{space_root(user)}/sessions/{_require(IdKind.SESSION, session)}"


@lru_cache(maxsize=4096)
def archive_uri(user: str, session: str, index: int) -> str:
    """Returns `.../history/archive_NNN` for the archive with that index, from 1."""
    if index < 1:
        raise UriError(f"an archive's index counts from 1, not {index}")
    return f"{session_uri(user, session)}/history/archive_{index:03d}"


def bucket_uri(user: str, session: str, bucket_id: str) -> str:
    """Returns `.../buckets/{bucket_id}/bucket.json`, the document of a memory bucket. Raises UriError for
    an unsafe id.
    """
    return f"{session_uri(user, session)}/buckets/{bucket_id}/bucket.json"


def parse_archive(uri: str) -> ArchiveUri:
    """Reads a canonical URI at or below an archive. Raises UriError for anything else."""
    parsed = parse(uri)
    match parsed.path:
        case (session, "history", name, *below) if parsed.kind is Place.SESSIONS:
            found = _ARCHIVE.fullmatch(name)
            if found is not None and name == f"archive_{int(found[1]):03d}" and int(found[1]) > 0:
                return ArchiveUri(parsed.user, session, int(found[1]), tuple(below))
    raise UriError("this is no archive of a session")


def parse(uri: str) -> ParsedUri:
    """Returns the parts of a canonical URI. Raises UriError if it is not in canonical form."""
    head, _, rest = uri.removeprefix(f"{SCHEME}user/").partition("/")
    if not uri.startswith(f"{SCHEME}user/") or not is_safe_id(IdKind.USER, head):
        raise UriError("a canonical URI begins with viking://user/ and the user's id")
    parsed = _place(head, _segments(rest))
    if parsed.uri != uri:
        raise UriError("the URI is not in canonical form")
    return parsed


def canonicalize(uri: str, user: str) -> str:
    """Returns the canonical form of a URI written by the caller `user`; a canonical URI is unchanged.

    Raises ForeignSpaceError if it names another user's space, UriError if it is invalid.
    """
    _require(IdKind.USER, user)
    if not uri.startswith(SCHEME):
        raise UriError(f"a URI begins with {SCHEME}")
    segments = _segments(uri.removeprefix(SCHEME))
    match segments:
        case []:
            inside: list[str] = []
        case ["user", *rest]:
            inside = _inside_user(rest, user)
        case ["session", *rest]:
            inside = ["sessions", *rest]
        case ["agent", *rest]:
            inside = _inside_agent(rest)
        case _:
            raise UriError("a URI names a user, session or agent after viking://")
    canonical = _place(user, inside).uri
    if len(canonical.encode()) > MAX_URI_BYTES:
        raise UriError(f"the URI is longer than {MAX_URI_BYTES} bytes")
    return canonical


def is_unseen(character: str) -> bool:
    """Returns whether a character is forbidden in a name: control, line separator, invisible or unpaired."""
    return unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"} and character not in _JOINERS


def _inside_user(rest: list[str], user: str) -> list[str]:
    if not rest or rest[0] in _PLACES or rest[0] in _VIEW_FILES:
        return rest
    if rest[0] == user:
        return rest[1:]
    if is_safe_id(IdKind.USER, rest[0]):
        raise ForeignSpaceError("the URI names the space of another user")
    raise UriError("the URI names neither a part of the space nor a user")


def _inside_agent(rest: list[str]) -> list[str]:
    inside = rest if not rest or rest[0] in _AGENT_PLACES else rest[1:]
    if inside is not rest and _LONG_ID.fullmatch(rest[0]) is None:
        raise UriError("the agent's space is no valid id")
    if inside and inside[0] not in _AGENT_PLACES:
        raise UriError("an agent's space holds memories and skills only")
    return inside


def _segments(path: str) -> list[str]:
    """Splits at slashes. One slash at the end is allowed; empty segments elsewhere are not."""
    if not path:
        return []
    segments = unicodedata.normalize("NFC", path).removesuffix("/").split("/")
    for segment in segments:
        if not segment:
            raise UriError("the URI holds an empty segment")
        if segment in (".", ".."):
            raise UriError("the URI holds a segment that leads elsewhere")
        if "\\" in segment:
            raise UriError("the URI holds a backslash")
        if any(map(is_unseen, segment)):
            raise UriError("the URI holds a control or invisible character")
        if len(segment.encode()) > MAX_SEGMENT_BYTES:
            raise UriError(f"a segment of the URI is longer than {MAX_SEGMENT_BYTES} bytes")
    return segments


def _place(user: str, inside: list[str]) -> ParsedUri:
    match inside:
        case []:
            return ParsedUri(user, None, Place.ROOT, ())
        case [view] if view in _VIEW_FILES:
            return ParsedUri(user, None, Place.ROOT, (view,))
        case ["peers"]:
            return ParsedUri(user, None, Place.PEERS, ())
        case ["peers", view] if view in _VIEW_FILES:
            return ParsedUri(user, None, Place.PEERS, (view,))
        case ["peers", peer, *path]:
            return _peer_place(user, _require(IdKind.PEER, peer), path)
        case ["sessions", session, *path]:
            _require(IdKind.SESSION, session)
            return ParsedUri(user, None, Place.SESSIONS, (session, *path))
        case [place, *path] if place in _PLACES:
            return ParsedUri(user, None, Place(place), tuple(path))
    raise UriError("a space holds memories, peers, sessions and skills only")


def _peer_place(user: str, peer: str, path: list[str]) -> ParsedUri:
    if not path or (len(path) == 1 and path[0] in _VIEW_FILES):
        return ParsedUri(user, peer, Place.PEERS, tuple(path))
    if path[0] != Place.MEMORIES:
        raise UriError("a peer's part of a space holds memories only")
    return ParsedUri(user, peer, Place.MEMORIES, tuple(path[1:]))


def _require(kind: IdKind, value: str) -> str:
    if not is_safe_id(kind, value):
        raise UriError(f"this is no valid {kind} id: {value[:80]!r}")
    return value
