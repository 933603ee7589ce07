"""One line for every text, cuts, times and ages, and values in words."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runekeep_schemas.turns.fingerprint import Signal, from_iso
from runekeep_schemas.turns.text import (
    ELLIPSIS,
    age,
    cut,
    human_time,
    line,
    second_time,
    signal_text,
    strength,
    value_text,
)
from tests.unit.schemas.turns.strategies import LAST_TIME, signals, texts, times, values

MORNING = 1_769_332_530_999_999
"""2026-01-25T09:15:30.999999Z."""
MINUTE = 60_000_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR


@given(texts)
def test_a_line_is_one_line_with_the_same_words(text: str) -> None:
    assert line(text).splitlines() in ([], [line(text)])
    assert line(text).split() == text.split()
    assert line(line(text)) == line(text) == line(text).strip()


@given(texts, st.integers(1, 30))
def test_a_cut_keeps_the_beginning_and_to_its_length(text: str, length: int) -> None:
    short = cut(text, length)
    assert len(short) <= length
    assert short == text or (short.endswith(ELLIPSIS) and text.startswith(short[:-1]))
    assert (short == text) is (len(text) <= length) or text[: length - 1].rstrip() + ELLIPSIS == text


def test_cuts() -> None:
    assert cut("12345", 5) == "12345"
    assert cut("123456", 5) == "1234…"
    assert cut("123 56", 5) == "123…"


def test_times() -> None:
    assert human_time(MORNING) == "09:15 Jan 25 2026"
    assert second_time(MORNING) == "2026-01-25T09:15:30Z"
    assert human_time(0) == "00:00 Jan 01 1970"
    assert human_time(LAST_TIME) == "23:59 Dec 31 9999"
    assert human_time(MORNING + 80 * DAY) == "09:15 Apr 15 2026"


@given(times)
def test_a_time_in_words_is_the_second_that_it_lies_in(at: int) -> None:
    text = second_time(at)
    assert len(text) == len("2026-01-25T09:15:30Z") and from_iso(text) == at // 1_000_000 * 1_000_000


@pytest.mark.parametrize(
    ("passed", "text"),
    [
        (-DAY, "0m"),
        (0, "0m"),
        (MINUTE - 1, "0m"),
        (5 * MINUTE, "5m"),
        (HOUR - 1, "59m"),
        (2 * HOUR, "2h"),
        (2 * HOUR + 15 * MINUTE, "2h15m"),
        (3 * DAY + 4 * HOUR + 59 * MINUTE, "3d4h"),
        (3 * DAY + 59 * MINUTE, "3d"),
        (15 * DAY + 23 * HOUR, "2w1d"),
        (14 * DAY + 23 * HOUR, "2w"),
        (29 * DAY, "4w1d"),
        (30 * DAY, "1mo"),
        (36 * DAY, "1mo"),
        (44 * DAY, "1mo2w"),
        (400 * DAY, "13mo1w"),
    ],
)
def test_ages(passed: int, text: str) -> None:
    assert age(MORNING, MORNING + passed) == text


UNITS = {"mo": 30 * DAY, "w": 7 * DAY, "d": DAY, "h": HOUR, "m": MINUTE}


@given(times, times)
def test_an_age_is_never_more_than_one_of_its_last_unit_too_short(at: int, now: int) -> None:
    text = age(at, now)
    names = list(UNITS)
    parts = [(count, name) for name in names for count in _counts(text, name)]
    said = sum(count * UNITS[name] for count, name in parts)
    finest = names[min(len(names) - 1, names.index(parts[0][1]) + 1)]
    assert said <= max(0, now - at) < said + UNITS[finest]


def _counts(text: str, unit: str) -> list[int]:
    """What stands before a unit: `1mo2w` has 1 mo, 2 w and no m."""
    digits = "".join(character if character.isdigit() else " " for character in text).split()
    letters = "".join(character if character.isalpha() else " " for character in text).split()
    return [int(count) for count, name in zip(digits, letters, strict=True) if name == unit]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("Bonn\nam Rhein", "Bonn am Rhein"),
        ("", ""),
        (500.0, "500"),
        (0.06, "0.06"),
        (True, "true"),
        (None, "null"),
        ({"max": 900.0, "min": 500}, '{"min": 500, "max": 900}'),
        ({"options": ["é", 1, False]}, '{"options": ["é", 1, false]}'),
        ({"rule": "one\ntwo\u2028three"}, '{"rule": "one\\ntwo three"}'),
        ("x" * 80, "x" * 80),
        ("x" * 81, "x" * 79 + "…"),
        ({"rule": "y" * 100}, '{"rule": "' + "y" * 69 + "…"),
    ],
)
def test_values_in_words(value: Any, text: str) -> None:
    assert value_text(value) == text


@given(values)
def test_every_value_is_a_short_line(value: Any) -> None:
    text = value_text(value)
    assert len(text) <= 80
    assert line(text) == text


def test_signals_in_words() -> None:
    signal = Signal("budget.cap", 500, "must", "objective", "the\ntrip")
    assert signal_text(signal) == "budget.cap=500 (must, scope=objective, applies_to=the trip)"
    assert strength(Signal("a", 1, "avoid")) == "avoid"
    assert strength(Signal("a", 1, "avoid", applies_to="b, scope=c) (d")) == "avoid, applies_to=b; scope=c] [d"
    assert signal_text(Signal("a=b", "c=d", "must")) == "a:b=c=d (must)"
    assert strength(Signal("a", 1, "avoid", applies_to="b")) == "avoid, applies_to=b"


@given(signals("facts"))
def test_every_signal_is_a_line(signal: Signal) -> None:
    assert line(signal_text(signal)) == signal_text(signal)
