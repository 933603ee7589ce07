"""When what a memory tells happened, and its tags: what searches filter by besides its type."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from schemas.types import FieldValue, MemoryType

TAGS: Final = "tags"
"""A field of this name lists tags, apart by commas, in any type that has it."""
MOST_TAGS: Final = 64
MAX_TAG_CHARACTERS: Final = 128
"""Of a tag: a search asks for no longer ones."""

_DAY = re.compile(r"(\d{4})(?:-(\d{2})(?:-(\d{2}))?)?")


def happened_at(type: MemoryType, fields: Mapping[str, FieldValue]) -> int | None:
    """Microseconds since 1970 of the type's `time_field`; of a day, month or year its beginning, in UTC. None where
    there is no time, or none that can be read: people write "last spring" too."""
    text = str(fields.get(type.time_field, "")).strip() if type.time_field else ""
    if not text:
        return None
    day = _DAY.fullmatch(text)
    try:
        if day:
            at = datetime(int(day[1]), int(day[2] or 1), int(day[3] or 1), tzinfo=UTC)
        else:
            at = datetime.fromisoformat(text)
    except ValueError:
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def tags_of(fields: Mapping[str, FieldValue]) -> tuple[str, ...]:
    """Each tag once, in the order of the field, at most MOST_TAGS, each of at most MAX_TAG_CHARACTERS."""
    listed = (" ".join(tag.split())[:MAX_TAG_CHARACTERS].rstrip() for tag in str(fields.get(TAGS, "")).split(","))
    return tuple(dict.fromkeys(tag for tag in listed if tag))[:MOST_TAGS]
