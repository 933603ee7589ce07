"""Formats turn memory as text for agents: single lines, cut, with times that models read easily.

All user content goes through `line`, so that no text can begin a line and imitate a header or a row. The separator of a
row's fields is removed from it, so that no text can imitate a field. The forms are those of `design/turn-memory.md`.
Times are microseconds since 1970 (UTC).
"""

import json
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from runekeep_schemas.turns.fingerprint import Signal, plain

ELLIPSIS: Final = "…"
VALUE_LENGTH: Final = 80

_EPOCH: Final = datetime(1970, 1, 1)
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_TWO: Final = tuple(f"{number:02}" for number in range(60))
_MINUTE: Final = 60_000_000
_LABEL: Final = str.maketrans(",()", ";[]")
_json: Final = json.JSONEncoder(ensure_ascii=False).encode
_UNITS: Final = (
    (30 * 24 * 60, "mo", 7 * 24 * 60, "w"),
    (7 * 24 * 60, "w", 24 * 60, "d"),
    (24 * 60, "d", 60, "h"),
    (60, "h", 1, "m"),
)
"""In minutes, largest first, each with the next smaller unit."""


def line(text: str) -> str:
    """Returns the text on one line: each run of whitespace, including any line ends, becomes one space."""
    return " ".join(text.split())


def unbarred(text: str) -> str:
    """Returns the text on one line and without a `|`, which separates the fields of some rows."""
    return line(text).replace("|", "¦")


def cut(text: str, length: int) -> str:
    """Returns at most `length` characters, including the ellipsis that marks a cut."""
    return text if len(text) <= length else text[: length - 1].rstrip() + ELLIPSIS


def human_time(at: int) -> str:
    """Returns `09:15 Jan 25 2026`, in English whatever the locale."""
    moment = _EPOCH + timedelta(microseconds=at)
    return f"{moment.hour:02}:{moment.minute:02} {_MONTHS[moment.month - 1]} {moment.day:02} {moment.year}"


def second_time(at: int) -> str:
    """Returns `2026-01-25T09:15:30Z`, to the second."""
    minutes, second = divmod(at // 1_000_000, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{_day(days)}T{_TWO[hour]}:{_TWO[minute]}:{_TWO[second]}Z"


@lru_cache(maxsize=512)
def _day(days: int) -> str:
    """Returns the date of a number of days since 1970. Cached, because hundreds of rows share a few dates and
    formatting a date is slow.
    """
    return (_EPOCH + timedelta(days)).date().isoformat()


def age(at: int, now: int) -> str:
    """Returns the age in the two largest adjacent units: `5m`, `2h15m`, `3d4h`, `2w1d`, `1mo2w`, `2h`.

    A month has 30 days. `0m` for less than a minute, and for a time in the future.
    """
    left = max(0, now - at) // _MINUTE
    for minutes, unit, smaller, smaller_unit in _UNITS:
        if left >= minutes:
            count, rest = divmod(left, minutes)
            more = rest // smaller
            return f"{count}{unit}{more}{smaller_unit}" if more else f"{count}{unit}"
    return f"{left}m"


def value_text(value: Any) -> str:
    """Returns a signal's value: texts as they are, everything else as JSON; at most VALUE_LENGTH characters."""
    text = value if isinstance(value, str) else _json(plain(value))
    return cut(line(text), VALUE_LENGTH)


def strength(signal: Signal) -> str:
    """Returns the text in brackets after a signal: `must, scope=objective, applies_to=trip`.

    Commas and brackets of the label are replaced, so that it ends neither itself nor the brackets around it.
    """
    scope = f", scope={signal.scope}" if signal.scope else ""
    label = line(signal.applies_to).translate(_LABEL) if signal.applies_to else ""
    target = f", applies_to={label}" if label else ""
    return signal.severity + scope + target


def key_text(signal: Signal) -> str:
    """Returns the key without a `=`, which separates it from the value."""
    return line(signal.key).replace("=", ":")


def signal_text(signal: Signal) -> str:
    """Returns `budget.cap=500 (must, scope=objective, applies_to=trip)`."""
    return f"{key_text(signal)}={value_text(signal.value)} ({strength(signal)})"
