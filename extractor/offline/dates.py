"""Relative dates made absolute, from the day on which they were said. What is not certain is left alone."""

import re
from calendar import monthrange
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from extractor.offline.cues import FUTURE, PAST, RECURRING
from extractor.offline.foreign_dates import near_dates
from extractor.offline.languages import language_of

_NUMBERS: Final = {
    name: number
    for number, names in enumerate(
        ("", "a an one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
    )
    for name in names.split()
}
_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS: Final = "january february march april may june july august september october november december".split()
_NUMBER: Final = rf"(?P<number>\d{{1,3}}|{'|'.join(sorted(_NUMBERS, key=len, reverse=True))})"
_UNIT: Final = r"(?P<unit>day|week|fortnight|month|year)s?"
_WEEKDAY: Final = rf"(?P<weekday>{'|'.join(_WEEKDAYS)})"
_MONTH: Final = rf"(?P<month>{'|'.join(_MONTHS)}|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)\.?"

_HOURS: Final = r"(?: morning| afternoon| evening| night)?"
_DAY_NUMBER: Final = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
# Before a day: `on`, and its weekday, which a date with a year does not need and one without must agree with.
_ON: Final = rf"(?:on )?(?:{_WEEKDAY},? )?(?:the (?=\d+(?:st|nd|rd|th)))?"
_HABIT = re.compile(r"\b(?:every|each|always|usually|weekly)\b", re.I)
_TODAY = re.compile(r"today|tonight|this (?:morning|afternoon|evening)", re.I)
# A date without a year that lies so near is meant, whatever the tense: what arrives, arrived or was planned for then.
_SEASON: Final = timedelta(days=92)
# Before a date: it is not the one of the statement.
_DENIED = re.compile(
    r"\b(?:not|instead of|rather than|no longer|"
    r"(?:moved|changed|postponed|rescheduled|shifted|pushed)\b[^,.;]{0,20} from)\s+$",
    re.I,
)
# Before a date: without it the sentence would have a hole.
_GOVERNS = re.compile(
    r"\b(?:not|of|than|from|to|until|till|by|for|since|before|after|in|at|between|and|or|as|with)\s+$", re.I
)


@dataclass(frozen=True, slots=True)
class Dated:
    """A text whose dates, unless they have their year, have been followed by absolute ones in brackets.

    `when` is the first date that it does not deny, as `2023-05-07`, `2023-05` or `2023`: as exact as the words were;
    empty without. `undated` is the text without the dates that can be left out.
    """

    text: str
    when: str
    undated: str
    denied: tuple[str, ...] = ()
    """The dates that it takes back: of `on 20 March, not on 16 March` the second."""


@dataclass(frozen=True, slots=True)
class _Found:
    shown: str
    when: str


_Rule = tuple[re.Pattern[str], Callable[[re.Match[str], date, str], _Found | None]]


def make_absolute(text: str, said: date | None) -> Dated:
    """Find the dates of a text that was said on that day. Without the day only absolute dates are found."""
    found: list[tuple[int, int, _Found]] = []
    for pattern, resolve in _rules_for(text) if said is not None else _ABSOLUTE_RULES:
        for match in pattern.finditer(text):
            if any(match.start() < end and start < match.end() for start, end, _ in found):
                continue
            result = _resolved(resolve, match, said or date.min, text)
            if result is not None:
                found.append((match.start(), match.end(), result))
    found.sort(key=lambda entry: entry[0])
    denied = [result.when for start, _, result in found if _DENIED.search(text[:start])]
    stated = [result.when for start, _, result in found if result.when and not _DENIED.search(text[:start])]
    undated = text
    for start, end, result in reversed(found):
        if not _GOVERNS.search(text[:start]):
            undated = f"{undated[:start].rstrip(' ,')}{' ' if start else ''}{undated[end:].lstrip(' ')}".lstrip(" ,")
        if result.shown:
            text = f"{text[:end]} ({result.shown}){text[end:]}"
    undated = re.sub(r"\s+([.,!?;:])", r"\1", " ".join(undated.split()))
    return Dated(text, stated[0] if stated else "", undated, tuple(filter(None, denied)))


def _rules_for(text: str) -> list[_Rule]:
    language = language_of(text)
    if language == "en":
        return list(_RULES)
    return [*_ABSOLUTE_RULES, *((pattern, _foreign(unit, count)) for pattern, unit, count in near_dates(language))]


def _foreign(unit: str, count: int) -> Callable[[re.Match[str], date, str], _Found | None]:
    return lambda match, said, text: _offset(unit, count, said)


def has_date(text: str) -> bool:
    """Whether it names a date, relative or absolute, other than the day on which it is said."""
    return any(_TODAY.fullmatch(match[0]) is None for pattern, _ in _RULES for match in pattern.finditer(text))


def _resolved(
    resolve: Callable[[re.Match[str], date, str], _Found | None], match: re.Match[str], said: date, text: str
) -> _Found | None:
    try:
        return resolve(match, said, text)
    except (ValueError, OverflowError):
        # No such day: the 31st of June, or a year out of the calendar.
        return None


def _day(day: date) -> _Found:
    return _Found(day.isoformat(), day.isoformat())


def _week(day: date) -> _Found:
    monday = day - timedelta(days=day.weekday())
    sunday = monday + timedelta(days=6)
    # A week is no day; its month is sure only where it lies in one.
    when = f"{monday:%Y-%m}" if monday.month == sunday.month else f"{monday:%Y}" if monday.year == sunday.year else ""
    return _Found(f"week of {monday.isoformat()}", when)


def _weekend(day: date) -> _Found:
    saturday = day - timedelta(days=day.weekday()) + timedelta(days=5)
    return _Found(f"weekend of {saturday.isoformat()}", f"{saturday:%Y-%m}")


def _month(day: date, months: int) -> _Found:
    index = day.year * 12 + day.month - 1 + months
    shown = date(index // 12, index % 12 + 1, 1).strftime("%Y-%m")
    return _Found(shown, shown)


def _year(day: date, years: int) -> _Found:
    shown = f"{date(day.year + years, 1, 1).year:04d}"
    return _Found(shown, shown)


def _offset(unit: str, count: int, said: date) -> _Found:
    match unit:
        case "day":
            return _day(said + timedelta(days=count))
        case "week":
            return _week(said + timedelta(weeks=count))
        case "fortnight":
            return _week(said + timedelta(weeks=2 * count))
        case "month":
            return _month(said, count)
        case _:
            return _year(said, count)


def _count(match: re.Match[str]) -> int:
    word = match["number"].lower()
    return int(word) if word.isdigit() else _NUMBERS[word]


def _near_day(match: re.Match[str], said: date, text: str) -> _Found:
    first, *_ = match[0].lower().split()
    return _day(said + timedelta(days={"yesterday": -1, "last": -1, "tomorrow": 1}.get(first, 0)))


def _named_day(match: re.Match[str], said: date, text: str) -> _Found | None:
    """`last Friday` lies before, `next Friday` in the coming week, `on Friday` where the sentence's tense says.

    What the present tense says of one weekday lies ahead, unless it comes round again.
    """
    target = _WEEKDAYS.index(match["weekday"].lower())
    back = (said.weekday() - target) % 7 or 7
    ahead = (target - said.weekday()) % 7 or 7
    which = (match["which"] or "").lower()
    if which in ("last", "this past", "past", "since"):
        return _day(said - timedelta(days=back))
    if which in ("next", "this coming", "coming"):
        # Said on a Monday, `next Friday` is the one of this week to some and of the next to others; said on a Friday,
        # `next Monday` is the same day to all.
        return _day(said + timedelta(days=ahead)) if ahead > 6 - said.weekday() else None
    if _HABIT.search(text):
        return None
    past = PAST.search(text) is not None and FUTURE.search(text) is None
    return _day(said - timedelta(days=back) if past else said + timedelta(days=ahead))


def _period(match: re.Match[str], said: date, text: str) -> _Found | None:
    step = {"last": -1, "this past": -1, "past": -1, "next": 1, "this coming": 1, "this": 0}[match["which"].lower()]
    if match["period"].lower() == "weekend":
        if step == 0:
            # On a working day the sentence's tense tells the weekend behind from the one ahead.
            step = -1 if said.weekday() < 5 and PAST.search(text) and not FUTURE.search(text) else 0
        return _weekend(said + timedelta(weeks=step))
    return _offset(match["period"].lower(), step, said)


def _this_period(match: re.Match[str], said: date, text: str) -> _Found | None:
    return None if RECURRING.search(text) else _offset(match["period"].lower(), 0, said)


def _ago(match: re.Match[str], said: date, text: str) -> _Found:
    return _offset(match["unit"].lower(), -_count(match), said)


def _ahead(match: re.Match[str], said: date, text: str) -> _Found:
    return _offset(match["unit"].lower(), _count(match), said)


def _to_the_day(match: re.Match[str], said: date, text: str) -> _Found | None:
    """`two weeks ago today`: a week counted from a day is exact."""
    days = {"day": 1, "week": 7, "fortnight": 14}.get(match["unit"].lower())
    if days is None:
        return None
    return _day(said + timedelta(days=_count(match) * days * (-1 if match["ago"] else 1)))


def _named_month(match: re.Match[str], said: date, text: str) -> _Found | None:
    """`in April`: the last one in the past tense, else the next one; the month of speaking is either."""
    # Only months are written with a capital.
    if not match["month"][:1].isupper() or RECURRING.search(text):
        return None
    which = (match["which"] or "").lower()
    ahead = (_month_number(match["month"].rstrip(".")) - said.month) % 12
    back = ahead - 12 if ahead else 0
    if which == "last":
        return _month(said, back or -12)
    if which == "next":
        return _month(said, ahead or 12)
    past = which == "since" or (PAST.search(text) is not None and FUTURE.search(text) is None)
    return _month(said, back if past else ahead)


def _season(match: re.Match[str], said: date, text: str) -> _Found | None:
    """`last summer`, before this year's has begun; afterwards it may be either. Winters lie in two years."""
    begins = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9}[match["season"].lower()]
    match match["which"].lower():
        case "last" if said.month < begins:
            year = said.year - 1
        case "next" if said.month > begins + 2:
            year = said.year + 1
        case "this":
            year = said.year
        case _:
            return None
    return _Found(f"{match['season'].lower()} of {year:04d}", f"{year:04d}")


def _day_of_month(match: re.Match[str], said: date, text: str) -> _Found | None:
    """`on the 28th`: the last one in the past tense, else the next one."""
    number = int(match["day"])
    step = -1 if PAST.search(text) and not FUTURE.search(text) else 1
    if RECURRING.search(text):
        return None
    return next((_day(day) for n in range(62) if (day := said + timedelta(days=step * n)).day == number), None)


def _only_year(match: re.Match[str], said: date, text: str) -> _Found | None:
    return _Found("", match["year"])


def _numeric(match: re.Match[str], said: date, text: str) -> _Found:
    day = match["day"]
    if day is None:
        return _Found("", f"{int(match['year']):04d}-{int(match['month']):02d}")
    return _Found("", date(int(match["year"]), int(match["month"]), int(day)).isoformat())


def _days_around(match: re.Match[str], said: date, text: str) -> _Found:
    return _day(said + timedelta(days=-2 if match["side"].lower() == "before" else 2))


def _month_number(name: str) -> int:
    return next(number for number, month in enumerate(_MONTHS, 1) if month.startswith(name.lower()[:3]))


def _calendar(match: re.Match[str], said: date, text: str) -> _Found:
    """A date with its year: nothing to show, but it says when."""
    groups = match.groupdict()
    month, day = _month_number(match["month"]), groups.get("day")
    if day is None:
        return _Found("", f"{int(match['year']):04d}-{month:02d}")
    return _Found("", date(int(match["year"]), month, int(day)).isoformat())


def _without_year(match: re.Match[str], said: date, text: str) -> _Found | None:
    """A day and its month, in the year that makes sense; a weekday that does not agree makes it uncertain."""
    if match["month"] == "may" or RECURRING.search(text):
        # The verb, or a day of every year.
        return None
    month, number = _month_number(match["month"]), int(match["day"])
    # A day that no year around has is an error, one that only leap years have is not.
    years = [year for year in range(said.year - 1, said.year + 2) if number <= monthrange(year, month)[1]]
    if not years:
        return None
    day = _nearest([date(year, month, number) for year in years], said, text)
    weekday = match["weekday"]
    return _day(day) if weekday is None or day.weekday() == _WEEKDAYS.index(weekday.lower()) else None


def _weekday_with_number(match: re.Match[str], said: date, text: str) -> _Found | None:
    """`Friday the 13th`: of the days with that number the nearest on that weekday."""
    number, weekday = int(match["day"]), _WEEKDAYS.index(match["weekday"].lower())
    around = (said + timedelta(days=step) for step in range(-366, 367))
    days = [day for day in around if day.day == number and day.weekday() == weekday]
    return _day(_nearest(days, said, text)) if days and not RECURRING.search(text) else None


def _nearest(days: list[date], said: date, text: str) -> date:
    """The nearest day; of far ones the last before a sentence in the past tense, else the next one."""
    nearest = min(days, key=lambda day: abs(day - said))
    if abs(nearest - said) <= _SEASON:
        return nearest
    if PAST.search(text) and not FUTURE.search(text):
        return max((day for day in days if day <= said), default=nearest)
    return min((day for day in days if day >= said), default=nearest)


def _iso(match: re.Match[str], said: date, text: str) -> _Found:
    return _Found("", date.fromisoformat(match["date"]).isoformat())


def _rule(pattern: str, resolve: Callable[[re.Match[str], date, str], _Found | None]) -> _Rule:
    return re.compile(rf"\b{pattern}\b", re.I), resolve


# Earlier rules take their words from later ones.
_ABSOLUTE_RULES: Final[tuple[_Rule, ...]] = (
    _rule(rf"{_ON}(?P<date>\d{{4}}-\d{{2}}-\d{{2}})", _iso),
    _rule(rf"{_ON}{_MONTH} {_DAY_NUMBER},? (?P<year>\d{{4}})", _calendar),
    _rule(rf"{_ON}{_DAY_NUMBER}(?: of)? {_MONTH},? (?P<year>\d{{4}})", _calendar),
    _rule(rf"{_MONTH},? (?:of )?(?P<year>\d{{4}})", _calendar),
    _rule(r"(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>\d{4})", _numeric),
    (re.compile(r"(?P<year>\d{4})年(?P<month>\d{1,2})月(?:(?P<day>\d{1,2})日)?"), _numeric),
    _rule(
        r"(?:in|since|(?:spring|summer|autumn|fall|winter|end|beginning|start|middle) of) (?P<year>(?:19|20)\d{2})",
        _only_year,
    ),
)
_RULES: Final[tuple[_Rule, ...]] = (
    *_ABSOLUTE_RULES,
    _rule(rf"{_ON}{_DAY_NUMBER}(?: of)? {_MONTH}", _without_year),
    # `In March 16 people came` and `March 16:30` name no day.
    _rule(rf"(?<!in ){_ON}{_MONTH} (?:the )?{_DAY_NUMBER}(?![:%]|[.,]\d)", _without_year),
    _rule(rf"(?:on )?{_WEEKDAY},? (?:the )?(?P<day>\d{{1,2}})(?:st|nd|rd|th)", _weekday_with_number),
    _rule(rf"{_NUMBER} {_UNIT} (?P<ago>ago) today", _to_the_day),
    _rule(rf"{_NUMBER} {_UNIT} (?P<ago>(?!))?from today", _to_the_day),
    _rule(r"(?:the )?day (?P<side>before) yesterday", _days_around),
    _rule(r"(?:the )?day (?P<side>after) tomorrow", _days_around),
    _rule(rf"(?<!half ){_NUMBER} {_UNIT} ago", _ago),
    _rule(rf"in {_NUMBER} {_UNIT}(?: time| from now)?(?! of)", _ahead),
    _rule(rf"{_NUMBER} {_UNIT} from now", _ahead),
    _rule(r"(?:yesterday|tomorrow)(?: morning| afternoon| evening| night)?", _near_day),
    _rule(r"(?:last night|today|tonight|this (?:morning|afternoon|evening))", _near_day),
    _rule(
        rf"(?:(?P<which>last|this past|past|next|this coming|coming|this|on|since|by|until|"
        rf"before) ){_WEEKDAY}{_HOURS}(?!,? \d)",
        _named_day,
    ),
    # Without a word before it, where it ends the clause: `the results came Friday`, but not `the Friday meeting`.
    _rule(
        rf"(?<!next )(?<!on )(?<!every )(?<!each )(?<!coming )(?P<which>(?!))?{_WEEKDAY}"
        rf"(?:{_HOURS}(?=[.;!?]|, (?!\d)|$)| (?:morning|afternoon|evening|night))",
        _named_day,
    ),
    _rule(r"on the (?P<day>\d{1,2})(?:st|nd|rd|th)(?=[.,;!?]|$| (?:at|and|in the)\b)", _day_of_month),
    _rule(r"(?P<which>last|this|next) (?P<season>spring|summer|autumn|fall)", _season),
    _rule(
        r"(?P<which>last|this past|past|next|this coming|this) (?P<period>week|weekend|month|year)(?!-|['’]s\b)",
        _period,
    ),
    _rule(rf"(?:(?P<which>in|last|next|this|since|until|by|end of|early|late|mid)[ -]){_MONTH}(?! \d)", _named_month),
    _rule(r"end of the (?P<period>month|year)", _this_period),
)
