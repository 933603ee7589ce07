"""Counts by day, as the template draws them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True, slots=True)
class Bar:
    """`share`: of the highest bar, from 0 to 1."""

    day: date
    count: int
    share: float


def bars(days: Sequence[date], counts: Sequence[int]) -> list[Bar]:
    """Returns one bar for each day."""
    highest = max(counts, default=0) or 1
    return [Bar(day, count, count / highest) for day, count in zip(days, counts, strict=True)]
