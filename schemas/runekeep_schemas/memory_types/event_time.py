"""The event time and the tags of a memory, by which searches filter besides its type."""

import re
from calendar import isleap, monthrange
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from runekeep_common.times import DAY_US
from runekeep_schemas.memory_types.model import FieldValue, MemoryType

TAGS: Final = "tags"
"""A field of this name holds tags, separated by commas, in any type that has it."""
MAX_TAGS: Final = 64
MAX_TAG_CHARACTERS: Final = 128
"""Searches do not accept longer tags."""

_DAY = re.compile(r"(\d{4})(?:-(\d{2})(?:-(\d{2}))?)?")


class Precision(StrEnum):
    """How exactly a time is known."""

    MOMENT = "moment"
    DAY = "day"
    MONTH = "month"
    YEAR = "year"


@dataclass(frozen=True, slots=True)
class Period:
    """A time as exact as it is known, from `start` until before `end`, in microseconds since 1970. For a moment both
    are the same.
    """

    start: int
    end: int
    precision: Precision


def period_of(text: str) -> Period | None:
    """Returns the period of `2026-05-31`, `2026-05`, `2026` or an ISO time, in UTC unless it says otherwise. Returns
    None for other text: people also write "last spring".
    """
    text = text.strip()
    day = _DAY.fullmatch(text)
    try:
        if day is None:
            at = datetime.fromisoformat(text)
            moment = _microseconds(at if at.tzinfo is not None else at.replace(tzinfo=UTC))
            return Period(moment, moment, Precision.MOMENT)
        first = datetime(int(day[1]), int(day[2] or 1), int(day[3] or 1), tzinfo=UTC)
    except ValueError:
        return None
    if day[3]:
        days, precision = 1, Precision.DAY
    elif day[2]:
        days, precision = monthrange(first.year, first.month)[1], Precision.MONTH
    else:
        days, precision = 365 + isleap(first.year), Precision.YEAR
    start = _microseconds(first)
    return Period(start, start + days * DAY_US, precision)


def happened_at(type: MemoryType, fields: Mapping[str, FieldValue]) -> int | None:
    """Returns the type's `time_field` in microseconds since 1970; for a day, month or year its beginning, in UTC.
    Returns None if there is no readable time.
    """
    period = period_of(str(fields.get(type.time_field, ""))) if type.time_field else None
    return None if period is None else period.start


def tags_of(fields: Mapping[str, FieldValue]) -> tuple[str, ...]:
    """Returns each tag once, in the order of the field: at most MAX_TAGS, each of at most MAX_TAG_CHARACTERS."""
    listed = (" ".join(tag.split())[:MAX_TAG_CHARACTERS].rstrip() for tag in str(fields.get(TAGS, "")).split(","))
    return tuple(dict.fromkeys(tag for tag in listed if tag))[:MAX_TAGS]


def _microseconds(at: datetime) -> int:
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
