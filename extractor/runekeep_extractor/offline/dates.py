"""Finds dates in sentences and resolves relative dates from the day of speaking. Uncertain dates stay as they are."""

import re
from calendar import monthrange
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from runekeep_extractor.offline.language import DateRule, Language

_ISO: Final = DateRule(re.compile(r"\b(?P<year>(?:19|20)\d\d)-(?P<number>\d\d)(?:-(?P<day>\d\d))?\b"))
_SEASON: Final = timedelta(days=92)
"""A date without a year means the one within this distance, whatever the tense."""


@dataclass(frozen=True, slots=True)
class Dated:
    """A text in which each relative date is followed by its absolute date in brackets.

    `when` is the first date that is not denied, as `2023-05-07`, `2023-05` or `2023`, as exact as the words were; empty
    without a date. `undated` is the text without its dates; `behind` is the text behind a date at its beginning.
    `names_date`: it has a date, certain or not. `is_now`: its only date is the day of speaking.
    """

    text: str
    when: str
    undated: str
    behind: str
    names_date: bool = False
    is_now: bool = False


def find_dates(text: str, said: date | None, language: Language) -> Dated:
    """Returns the text with its dates resolved from the day it was said. Without that day only absolute dates are
    found.
    """
    found: list[tuple[int, int, str, bool]] = []
    for rule in (_ISO, *language.dates):
        for match in rule.pattern.finditer(text):
            if any(match.start() < end and start < match.end() for start, end, *_ in found):
                continue
            if (match.groupdict().get("month") or "A").islower():
                # `may` in lower case is another word.
                continue
            try:
                when = _resolved(rule, match, said, text, language)
            except (ValueError, OverflowError):
                # No such day: the 31st of June, or a year outside the calendar.
                continue
            is_absolute = match.groupdict().get("year") is not None
            found.append((match.start(), match.end(), when, is_absolute))
    found.sort()
    stated = [when for start, _, when, _ in found if when and not language.has("denied_before", text[:start])]
    undated, shown = text, text
    for start, end, when, is_absolute in reversed(found):
        undated = f"{undated[:start].rstrip(' ,')} {undated[end:].lstrip(' ')}"
        if when and not is_absolute:
            shown = f"{shown[:end]} ({when}){shown[end:]}"
    behind = text[found[0][1] :].lstrip(" ,") if found and found[0][0] == 0 else text
    today = said.isoformat() if said else ""
    return Dated(
        shown,
        next((when for when in stated if when != today), stated[0] if stated else ""),
        re.sub(r"\s+([.,!?;:])", r"\1", " ".join(undated.split())).lstrip(", "),
        behind,
        names_date=bool(found),
        is_now=bool(stated) and all(when == today for when in stated),
    )


def lies_ahead(when: str, said: date | None) -> bool:
    """Returns whether a date in the form of `Dated.when` is not over on the day of speaking."""
    return said is None or when >= said.isoformat()[: len(when)]


def _resolved(rule: DateRule, match: re.Match[str], said: date | None, text: str, language: Language) -> str:
    """Returns the date of a match, empty if it is uncertain. Raises ValueError for a day that does not exist."""
    groups = {name: value.lower() for name, value in match.groupdict().items() if value}
    calendar = language.calendar
    month = (
        int(groups.get("number", 0)) if rule is _ISO else int(calendar.get("month", {}).get(groups.get("month", ""), 0))
    )
    weekday = int(calendar.get("weekday", {}).get(groups.get("weekday") or groups.get("alone", ""), 0)) - 1
    if "year" in groups:
        return _absolute(int(groups["year"]), month, int(groups.get("day", 0)))
    if said is None:
        return ""
    # Direction from the day of speaking: -1 before, 1 after, 0 if only the tense can tell.
    side = -1 if "before" in groups else 1 if "after" in groups else 0
    is_past = side < 0 or (side == 0 and language.has("past", text) and not language.has("future", text))
    if "day" in groups:
        if language.has("recurring", text):
            return ""
        return _nearest_day([month] if month else range(1, 13), int(groups["day"]), weekday, said, is_past)
    if weekday >= 0:
        return _weekday(weekday, side, is_past, said, text, language)
    if month:
        return "" if side == 0 and language.has("recurring", text) else _near_month(month, side, is_past, said)
    unit = str(calendar.get("unit", {}).get(groups["unit"], "")) if "unit" in groups else rule.unit
    if "number" in groups:
        number = groups["number"]
        return _shifted(unit, rule.count * int(calendar["number"].get(number, 0) or number), said)
    return _shifted(unit, side if "unit" in groups else rule.count, said)


def _absolute(year: int, month: int, day: int) -> str:
    if day:
        return date(year, month, day).isoformat()
    return f"{date(year, month, 1):%Y-%m}" if month else f"{date(year, 1, 1).year:04d}"


def _shifted(unit: str, count: int, said: date) -> str:
    match unit:
        case "day":
            return (said + timedelta(days=count)).isoformat()
        case "week" | "fortnight" | "weekend":
            # A week is not a day. Its month is certain only if the whole week lies in one.
            monday = said - timedelta(days=said.weekday()) + timedelta(weeks=count * (2 if unit == "fortnight" else 1))
            sunday = monday + timedelta(days=6)
            return (
                f"{monday:%Y-%m}"
                if monday.month == sunday.month
                else f"{monday:%Y}"
                if monday.year == sunday.year
                else ""
            )
        case "month":
            index = said.year * 12 + said.month - 1 + count
            return f"{date(index // 12, index % 12 + 1, 1):%Y-%m}"
        case "year":
            return f"{date(said.year + count, 1, 1).year:04d}"
    return ""


def _weekday(weekday: int, side: int, is_past: bool, said: date, text: str, language: Language) -> str:
    """Returns the date of a weekday: `last Friday` lies before, `next Friday` after; without such a word the tense of
    the sentence decides.
    """
    if side == 0 and language.has("recurring", text):
        return ""
    back = (said.weekday() - weekday) % 7 or 7
    ahead = (weekday - said.weekday()) % 7 or 7
    if side > 0 and ahead <= 6 - said.weekday():
        # If said on a Monday, `next Friday` means this week to some people and next week to others.
        return ""
    return (said + timedelta(days=-back if is_past else ahead)).isoformat()


def _near_month(month: int, side: int, is_past: bool, said: date) -> str:
    ahead = (month - said.month) % 12
    if is_past:
        return _shifted("month", ahead - 12 if ahead or side < 0 else 0, said)
    return _shifted("month", ahead or (12 if side > 0 else 0), said)


def _nearest_day(months: Sequence[int], day: int, weekday: int, said: date, is_past: bool) -> str:
    """Returns the most plausible day in one of these months. A weekday that does not match makes it uncertain."""
    years = (said.year - 1, said.year, said.year + 1)
    days = [date(year, month, day) for year in years for month in months if day <= monthrange(year, month)[1]]
    if not days:
        return ""
    nearest = min(days, key=lambda one: abs(one - said))
    if abs(nearest - said) > _SEASON or len(months) > 1:
        sides = [one for one in days if (one <= said if is_past else one >= said)]
        nearest = min(sides, key=lambda one: abs(one - said), default=nearest)
    return nearest.isoformat() if weekday < 0 or nearest.weekday() == weekday else ""
