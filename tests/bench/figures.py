"""What a measurement gives: figures with their floors, as medians of repetitions, and ratios of what was measured side
by side."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

SQLITE, POSTGRES = "SQLite", "PostgreSQL"


def p95(taken: Sequence[float]) -> float:
    """The one that one in twenty exceeds; never more than the largest."""
    return sorted(taken)[len(taken) * 95 // 100]


def ratios(these: Sequence[float], those: Sequence[float]) -> list[float]:
    """A value for each repetition, held against the one that was measured beside it."""
    return [one / other for one, other in zip(these, those, strict=True)]


def ratio(these: Sequence[float], those: Sequence[float]) -> float:
    """The median of `ratios`."""
    return statistics.median(ratios(these, those))


@dataclass(frozen=True, slots=True)
class Floor:
    """The least that a figure could be: the same repetitions, of a thing that does nothing else. `each` is as in
    Figure."""

    name: str
    each: Sequence[float]

    @property
    def value(self) -> float:
        return statistics.median(self.each)


@dataclass(frozen=True, slots=True)
class Target:
    """What we want of a figure: of its share, its value or its p95 at most or at least so much. The report says whether
    it was reached."""

    of: Literal["share", "value", "p95"]
    bound: Literal["at least", "at most"]
    limit: float


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the report.

    `part`: the section that it stands in, such as "appends"; `name`: what was measured, in a few words; `store`:
    SQLITE, POSTGRES or "" where there is none. `unit`: "calls/s", "commits/s", "claims/s", "ms", "MB", "s of CPU".
    `each`: a value for each repetition, where `ms` are medians over its calls; `p95`: of each repetition, where there
    are calls to order.
    """

    part: str
    name: str
    unit: str
    each: Sequence[float]
    store: str = ""
    p95: Sequence[float] = ()
    floor: Floor | None = None
    target: Target | None = None
    notes: dict[str, float] = field(default_factory=dict)
    """More of the same measurement, by name with its unit: {"server CPU a call, ms": 0.3}."""

    @property
    def value(self) -> float:
        return statistics.median(self.each)

    @property
    def p95_value(self) -> float | None:
        return statistics.median(self.p95) if self.p95 else None

    @property
    def share_each(self) -> list[float]:
        """Of its floor, a value for each repetition; none where there is no floor."""
        return [] if self.floor is None else ratios(self.each, self.floor.each)

    @property
    def share(self) -> float | None:
        """Of its floor, as the median of the repetitions, each held against its own: for rates figure / floor, for
        times figure / floor too, so that 1 is the floor and a time of 3 is three times as long."""
        if self.floor is None:
            return None
        return ratio(self.each, self.floor.each)

    @property
    def reached(self) -> bool | None:
        """Whether the target was; None where there is none."""
        if self.target is None:
            return None
        of = {"share": self.share, "value": self.value, "p95": self.p95_value}
        found = of[self.target.of]
        assert found is not None, f"{self.name}: nothing to hold the target against"
        return found >= self.target.limit if self.target.bound == "at least" else found <= self.target.limit
