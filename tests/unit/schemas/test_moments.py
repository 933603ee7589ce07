"""When what a memory tells happened, and its tags."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from runekeep_schemas.memory_types.event_time import MAX_TAGS, Precision, happened_at, period_of, tags_of
from runekeep_schemas.memory_types.model import MemoryType
from runekeep_schemas.type_files.registry import Registry


@pytest.fixture(scope="module")
def events() -> MemoryType:
    return Registry.load().get("events")


def micros(*parts: int, zone: Any = UTC) -> int:
    return int(datetime(*parts, tzinfo=zone).timestamp()) * 1_000_000  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("said", "at"),
    [
        ("2026-05-31", micros(2026, 5, 31)),
        ("2026-05", micros(2026, 5, 1)),
        ("2026", micros(2026, 1, 1)),
        (" 2026-05-31 ", micros(2026, 5, 31)),
        ("2026-05-31T10:30:00", micros(2026, 5, 31, 10, 30)),
        ("2026-05-31 10:30", micros(2026, 5, 31, 10, 30)),
        ("2026-05-31T10:30:00Z", micros(2026, 5, 31, 10, 30)),
        ("2026-05-31T10:30:00+02:00", micros(2026, 5, 31, 10, 30, zone=timezone(timedelta(hours=2)))),
        ("1969-12-31T23:59:59.999999+00:00", -1),
        ("0001-01-01", micros(1, 1, 1)),
        ("9999-12-31", micros(9999, 12, 31)),
        ("last spring", None),
        ("2026-13", None),
        ("2026-02-30", None),
        ("0000", None),
        ("", None),
    ],
)
def test_times_days_months_and_years(events: MemoryType, said: str, at: int | None) -> None:
    assert happened_at(events, {"event_time": said}) == at


@pytest.mark.parametrize(
    ("said", "end", "precision"),
    [
        ("2026-05-31", micros(2026, 6, 1), Precision.DAY),
        ("2024-02", micros(2024, 3, 1), Precision.MONTH),
        ("2024", micros(2025, 1, 1), Precision.YEAR),
        ("2026-05-31T10:30", micros(2026, 5, 31, 10, 30), Precision.MOMENT),
    ],
)
def test_a_period_ends_as_late_as_its_precision_allows(said: str, end: int, precision: Precision) -> None:
    period = period_of(said)
    assert period is not None and (period.end, period.precision) == (end, precision)


def test_a_type_without_a_time_of_its_own_has_none(events: MemoryType) -> None:
    assert happened_at(replace(events, time_field=""), {"event_time": "2026-05-31"}) is None
    assert happened_at(events, {}) is None


def test_tags_are_apart_by_commas_and_there_once() -> None:
    assert tags_of({"tags": "work, side  project,work,, Tea "}) == ("work", "side project", "Tea")
    assert tags_of({}) == tags_of({"tags": " , "}) == ()
    assert len(tags_of({"tags": ",".join(map(str, range(MAX_TAGS + 1)))})) == MAX_TAGS
