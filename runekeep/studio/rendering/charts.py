"""Counts by day, as the template draws them."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from google.protobuf.timestamp_pb2 import Timestamp

DAYS = 30


@dataclass(frozen=True, slots=True)
class Bar:
    """`share`: of the highest bar, from 0 to 1."""

    day: date
    count: int
    share: float


def bars_by_day(counts: Iterable[tuple[Timestamp, int]]) -> list[Bar]:
    """Returns one bar for each of the last DAYS days (UTC), oldest first."""
    by_day: Counter[date] = Counter()
    for moment, count in counts:
        by_day[moment.ToDatetime(UTC).date()] += count
    today = datetime.now(UTC).date()
    days = [today - timedelta(days=back) for back in reversed(range(DAYS))]
    highest = max((by_day[day] for day in days), default=0) or 1
    return [Bar(day, by_day[day], by_day[day] / highest) for day in days]
