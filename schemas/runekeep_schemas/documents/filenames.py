"""File names of memories: readable in any script, safe, and unique per name.

A name is built from its fields. Separators, invisible characters and a leading dot are replaced by `_`, and the name is
cut to MAX_NAME_BYTES. If other field values could give the same result, a hash of the values is added: `a/b` becomes
`a_b~5f0c1d22ab`, while `a_b` stays as it is. Names that differ only in letter case are different names and different
files.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Final

from runekeep_schemas.documents.uris import is_unseen, peer_root, space_root
from runekeep_schemas.memory_types.coerce import name_text
from runekeep_schemas.memory_types.model import FieldValue, MemoryType
from runekeep_schemas.memory_types.templates import split

MAX_NAME_BYTES: Final = 200
_MAX_STEM_CHARACTERS: Final = 4096
"""More than a name can hold, even of letters with many marks."""
EXTENSION: Final = ".md"

_HASH_CHARACTERS = 10
_HASH_END = re.compile(rf"~[0-9a-f]{{{_HASH_CHARACTERS}}}")
_SPACE_ROOT = re.compile(r"viking://(?:user/\{user_space\}|agent/\{agent_space\})")


class FileNameError(ValueError):
    """The fields that name the file are missing or empty."""


def key_values(type: MemoryType, fields: Mapping[str, FieldValue]) -> tuple[str, ...]:
    """Returns the values that name the memory, in the order of the template. Only optional values may be empty.

    Raises FileNameError if a required value is missing or empty.
    """
    values = []
    for name in type.key_fields:
        value = name_text(str(fields.get(name, "")))
        if not value and not type.field(name).optional:
            raise FileNameError(f"{type.name}: {name} names the memory and must not be empty")
        values.append(value)
    return tuple(values)


def render_filename(type: MemoryType, fields: Mapping[str, FieldValue]) -> str:
    """Returns the file name of a memory with its extension, at most MAX_NAME_BYTES of UTF-8.

    An empty optional value is omitted together with the literal that follows it. Raises FileNameError as `key_values`
    does.
    """
    values = key_values(type, fields)
    if not values:
        return type.filename_template
    parts = split(type.filename_template.removesuffix(EXTENSION))
    # Normalizing a longer text only costs time: the name is cut anyway, and the hash is computed from the whole values.
    stem = _fill(parts, values)[:_MAX_STEM_CHARACTERS]
    safe = unicodedata.normalize("NFC", _safe(stem))
    room = MAX_NAME_BYTES - len(EXTENSION)
    if (
        safe == stem
        and len(safe.encode()) <= room
        and _HASH_END.fullmatch(safe[-_HASH_CHARACTERS - 1 :]) is None
        and _read_back(parts, safe) == values
    ):
        return safe + EXTENSION
    digest = hashlib.sha256(json.dumps(values, ensure_ascii=True).encode()).hexdigest()
    return _cut(safe, room - _HASH_CHARACTERS - 1) + "~" + digest[:_HASH_CHARACTERS] + EXTENSION


def type_directory(type: MemoryType, user: str, peer: str | None = None) -> str:
    """Returns the canonical URI of a type's directory in a user's space, or in the peer's part of it."""
    root = space_root(user) if peer is None else peer_root(user, peer)
    return root + _SPACE_ROOT.sub("", type.directory, count=1)


def memory_uri(type: MemoryType, fields: Mapping[str, FieldValue], user: str, peer: str | None = None) -> str:
    """Returns the canonical URI of the memory with those fields. Raises FileNameError or UriError."""
    return f"{type_directory(type, user, peer)}/{render_filename(type, fields)}"


def _fill(parts: list[str], values: tuple[str, ...]) -> str:
    """Fills `parts`, from `templates.split`, with the values. A template may use a name twice, so values are assigned
    by name.
    """
    by_name = dict(zip(dict.fromkeys(parts[1::2]), values, strict=True))
    text = parts[0]
    for name, literal in zip(parts[1::2], parts[2::2], strict=True):
        text += by_name[name] + literal if by_name[name] else ""
    return text


def _read_back(parts: list[str], text: str) -> tuple[str, ...] | None:
    """Returns the values that a reader would take from `text`, each as short as possible.

    If the values come back, they are the only ones that render as this text without a hash. This distinguishes `2024_x`
    without a time from `x` of the year 2024.
    """
    pattern = re.escape(parts[0])
    seen: set[str] = set()
    for name, literal in zip(parts[1::2], parts[2::2], strict=True):
        pattern += f"(?P={name})" if name in seen else f"(?P<{name}>.+?)"
        pattern += re.escape(literal)
        seen.add(name)
    found = re.fullmatch(pattern, text, re.DOTALL)
    if found is not None:
        return found.groups()
    # Only reached for a template with optional values, some of which are omitted from the text.
    return _read_shortened(parts, text)


def _read_shortened(parts: list[str], text: str) -> tuple[str, ...] | None:
    names = parts[1::2]
    last = names[-1]
    if len(set(names)) != len(names) or not text.startswith(parts[0]) or not text.endswith(parts[-1]):
        return None
    kept = text[len(parts[0]) : len(text) - len(parts[-1])]
    return tuple(kept if name == last else "" for name in names)


def _safe(stem: str) -> str:
    safe = "".join("_" if c in "/\\" or is_unseen(c) else c for c in stem)
    return "_" + safe[1:] if safe.startswith(".") else safe


def _cut(text: str, room: int) -> str:
    """Returns the longest beginning of at most `room` bytes that does not separate a letter from its marks."""
    if len(text.encode()) <= room:
        return text
    kept = len(text.encode()[:room].decode(errors="ignore"))
    end = kept
    while end and (unicodedata.combining(text[end]) or text[end] in "\u200c\u200d\ufe0f"):
        end -= 1
    return text[: end or kept].rstrip()
