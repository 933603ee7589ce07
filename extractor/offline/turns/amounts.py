"""Numbers with what they count: bounds, ranges, and exact ones."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from extractor.offline.keywords import STOPWORDS
from extractor.offline.turns.denied import reading
from extractor.offline.turns.keys import BUDGET, DURATION, LENGTH, PEOPLE, singular

_WORDS: Final = {
    word: number
    for number, word in enumerate(
        "one two three four five six seven eight nine ten eleven twelve".split(),
        start=1,
    )
}
_DIGITS: Final = r"\d{1,3}(?:[,'’]\d{3})+(?:\.\d+)?|\d+(?:[.,]\d+)?"
_NUMBER: Final = rf"(?:(?:{_DIGITS})(?:k\b)?|(?:{'|'.join(_WORDS)})\b)"
_SIGN: Final = r"[$€£¥]"
_MOST: Final = (
    r"under|below|(?:less|fewer|cheaper|shorter|lower|smaller) than|at most|at the most|"
    r"no(?:t)? (?:more|longer|later|bigger|larger|higher|greater) than|not over|not above|"
    r"(?:must |should |does |do )?not exceed(?:ing)?|max(?:imum)?(?: of)?|up to|within|"
    r"(?:capped|cap) (?:at|of)|limit(?:ed)? (?:to|of|it to)"
)
_LEAST: Final = (
    r"at least|at the least|no(?:t)? (?:less|fewer|shorter|lower|smaller|cheaper) than|not (?:under|below)|"
    r"min(?:imum)?(?: of)?|(?:more|longer|later|bigger|larger|higher|greater) than|over|above|upwards of|"
    r"exceed(?:s|ing)?"
)
_ONE: Final = "page|paragraph|sentence|line|minute|hour|day|week|month|year"
_RANGE: Final = re.compile(
    rf"(?:\b(?:between|from) )?(?P<sign>{_SIGN})? ?(?P<low>(?<![\w-])-?{_NUMBER}) ?(?P<lowunit>{_SIGN})?"
    rf"(?: ?(?:-|–|—|to|and|or) ?)(?P<sign2>{_SIGN})? ?(?P<high>{_NUMBER})",
    re.I,
)
_BOUND: Final = re.compile(
    rf"\b(?:(?P<most>{_MOST})|(?P<least>{_LEAST})|(?P<about>about|around|roughly|approximately|circa|some|ca\.))"
    rf" (?:the |about |around |roughly )?(?P<sign>{_SIGN})? ?(?P<number>{_NUMBER}|an?(?= (?:{_ONE})\b))",
    re.I,
)
_EXACT: Final = re.compile(rf"(?<![\w.,:/-])(?P<sign>{_SIGN})? ?(?P<number>{_NUMBER})(?![:/]\d)", re.I)
_MOST_BEHIND: Final = re.compile(
    r"^,? ?(?:or (?:less|fewer|under|below)|max(?:imum)?\b|tops\b|at (?:the )?most\b)", re.I
)
_LEAST_BEHIND: Final = re.compile(r"^,? ?(?:or more\b|min(?:imum)?\b|at least\b|and (?:up|more|above)\b)|^\+", re.I)
_UNIT: Final = re.compile(rf"^[ -]?(?P<unit>{_SIGN}|%|[A-Za-z][A-Za-z'’-]*(?: [A-Za-z][A-Za-z'’-]*){{0,2}})", re.I)
_PER: Final = re.compile(
    r"^ (?:per|a|an|each|every|/) ?(?P<per>night|day|week|weekend|month|year|hour|person|head|piece|ticket|seat|user|"
    r"guest|child|answer|section|paragraph|item)\b",
    re.I,
)
_CURRENCIES: Final = frozenset(
    "euro euros eur dollar dollars usd pound pounds gbp quid franc francs chf yen bucks rupees kronor zloty".split()
)
_LENGTHS: Final = frozenset(
    """
    word words sentence sentences paragraph paragraphs page pages character characters line lines bullet bullets slide
    slides token tokens point points
    """.split()
)
_DURATIONS: Final = frozenset(
    "second seconds minute minutes min mins hour hours night nights day days week weeks month months year years".split()
)
_PERSONS: Final = frozenset("people persons person guests guest adults travellers travelers participants".split())
# Units that are no topic elsewhere.
_NO_STOPWORDS: Final = frozenset("people day days week weeks month months year years points".split())
_MANY: Final = re.compile(r"\b(?:for|(?:party|family|group|team|class|couple) of)\s*$", re.I)
_OF_BUDGET: Final = re.compile(r"\bbudget(?: is| of|:)?(?: now| only)?\s*$", re.I)
_MOST_PERSONS: Final = 500
# Characters before a number that may say that it counts people.
_BEFORE: Final = 24
_BUDGET_WORDS = re.compile(r"\b(?:budget|spend|afford|price|cost|pay)\w*\b", re.I)
_CONDITIONS = re.compile(r"\b(?:years? old|o'clock|a\.?m|p\.?m)\b", re.I)


@dataclass(frozen=True, slots=True)
class Amount:
    """`value` is a number or {min, max}; `bound` tells that it is not exact; where it stands, `start` to `end`."""

    key: str
    value: Any
    applies_to: str
    bound: bool
    about: bool
    start: int
    end: int
    turned: bool = False
    """A denial made it the other bound than its own words say."""


@lru_cache(maxsize=1024)
def amounts_in(text: str) -> tuple[Amount, ...]:
    """The amounts whose unit shows what they are, from left to right; none overlaps another. What a denial leaves
    unclear is left out."""
    found: list[Amount] = []
    for amount in (*_ranges(text), *_bounds(text), *_exact(text)):
        if not any(amount.start < other.end and other.start < amount.end for other in found):
            found.append(amount)
    meant = (_meant(text, amount) for amount in found)
    return tuple(sorted((one for one in meant if one is not None), key=lambda amount: amount.start))


def _meant(text: str, amount: Amount) -> Amount | None:
    told = reading(text, amount.start, amount.end, bound=amount.bound)
    if told != "turned":
        return amount if told else None
    other = {"min": "max", "max": "min"}
    # A range is no comparison, and is never turned.
    return replace(amount, value={other[side]: number for side, number in amount.value.items()}, turned=True)


def number_of(text: str) -> int | float:
    """`1,200`, `2.5`, `3k` or `four` as a number. Raises ValueError for anything else."""
    plain = text.strip().lower()
    if plain in ("a", "an"):
        return 1
    if plain in _WORDS:
        return _WORDS[plain]
    times = 1000 if plain.endswith("k") else 1
    plain = plain.removesuffix("k")
    # A comma before three digits parts thousands, else it is the decimal one.
    plain = re.sub(r"[,'’](?=\d{3}(?:\D|$))", "", plain).replace(",", ".")
    number = float(plain) * times
    return int(number) if number.is_integer() else number


def _ranges(text: str) -> Iterator[Amount]:
    for match in _RANGE.finditer(text):
        joined_by_word = re.search(r"\b(?:and|or)\b", text[match.start("low") : match.end()], re.I) is not None
        if joined_by_word and not match[0].lower().lstrip().startswith("between") and " or " not in match[0].lower():
            continue
        low, high = number_of(match["low"]), number_of(match["high"])
        sign = match["sign"] or match["sign2"] or match["lowunit"] or ""
        if low < high:
            yield from _made(text, match.start(), match.end(), sign, {"min": low, "max": high}, bound=True)


def _bounds(text: str) -> Iterator[Amount]:
    for match in _BOUND.finditer(text):
        number = number_of(match["number"])
        if match["about"]:
            value: Any = number
        else:
            value = {"max": number} if match["most"] else {"min": number}
        about = bool(match["about"])
        yield from _made(text, match.start(), match.end(), match["sign"] or "", value, bound=not about, about=about)


def _exact(text: str) -> Iterator[Amount]:
    for match in _EXACT.finditer(text):
        for amount in _made(text, match.start(), match.end(), match["sign"] or "", number_of(match["number"])):
            behind = text[amount.end :]
            side = "max" if _MOST_BEHIND.match(behind) else "min" if _LEAST_BEHIND.match(behind) else ""
            if side:
                yield Amount(amount.key, {side: amount.value}, amount.applies_to, True, False, amount.start, amount.end)
            elif amount.key == BUDGET and _BUDGET_WORDS.search(text):
                yield Amount(BUDGET, {"max": amount.value}, amount.applies_to, True, False, amount.start, amount.end)
            else:
                yield amount


def _made(
    text: str, start: int, end: int, sign: str, value: Any, *, bound: bool = False, about: bool = False
) -> Iterator[Amount]:
    """The amount, when what stands behind it says what it counts."""
    behind = text[end:]
    if _CONDITIONS.match(behind.lstrip(" -")):
        return
    unit, width = _unit(behind)
    if not unit and not sign:
        if _OF_BUDGET.search(text[:start]):
            yield Amount(BUDGET, value, "", bound, about, start, end)
        elif (
            isinstance(value, int)
            and value <= _MOST_PERSONS
            and not behind.startswith(" of")
            and _MANY.search(text[max(0, start - _BEFORE) : start])
        ):
            yield Amount(PEOPLE, value, "", bound, about, start, end)
        return
    per = _PER.match(behind[width:])
    if per is not None:
        width += per.end()
    word = unit.split()[-1].lower() if unit else ""
    key, label = word, ""
    if sign or unit in ("€", "$", "£", "¥") or word in _CURRENCIES:
        key, label = BUDGET, (sign or unit)
    elif word in _LENGTHS:
        key, label = LENGTH, unit.lower()
    elif word in _DURATIONS:
        key, label = DURATION, word
    elif word in _PERSONS:
        key = PEOPLE
    elif unit == "%":
        key = "percent"
    else:
        key = singular(word)
    if per is not None:
        label = f"{label} per {per['per'].lower()}".strip()
    yield Amount(key, value, label, bound, about, start, end + width)


def _unit(behind: str) -> tuple[str, int]:
    """What is counted, and how many characters that takes. A known unit ends by itself, others run to their noun."""
    match = _UNIT.match(behind)
    if match is None:
        return "", 0
    if not match["unit"][0].isalpha():
        return match["unit"], match.end()
    words = match["unit"].split(" ")
    taken: list[str] = []
    for word in words:
        plain = word.lower()
        if plain in STOPWORDS and plain not in _NO_STOPWORDS:
            break
        taken.append(word)
        if plain in _CURRENCIES | _LENGTHS | _DURATIONS | _PERSONS:
            break
    if not taken:
        return "", 0
    unit = " ".join(taken)
    if behind[match.start("unit") + len(unit) :][:1].isdigit():
        # `m2` is another unit than `m`.
        return "", 0
    return unit, match.start("unit") + len(unit)
