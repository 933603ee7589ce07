"""The figures of two reports, held against each other."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.bench.report import shares_of, target_text

NEAR = 0.05
"""Of the larger of two medians."""


@dataclass(frozen=True, slots=True)
class Found:
    """What one run has of a figure: a value for each repetition, and whether the target was reached, None without."""

    each: Sequence[float]
    reached: bool | None

    @property
    def median(self) -> float:
        return statistics.median(self.each)

    @property
    def spread(self) -> float:
        """Least to most, as a part of the median."""
        return (max(self.each) - min(self.each)) / abs(self.median) if self.median else 0.0


@dataclass(frozen=True, slots=True)
class Pair:
    """One figure in two reports. `of`: what of it, as in figures.Target; `target`: what is wanted of that, or ""."""

    part: str
    name: str
    store: str
    unit: str
    of: str
    target: str
    first: Found
    second: Found

    @property
    def apart(self) -> float:
        """What the medians differ by, of the larger one."""
        largest = max(abs(self.first.median), abs(self.second.median))
        return abs(self.first.median - self.second.median) / largest if largest else 0.0

    @property
    def agrees(self) -> bool:
        """Within noise: the ranges of the repetitions have a value in common, or the medians are near each other."""
        overlap = min(self.first.each) <= max(self.second.each) and min(self.second.each) <= max(self.first.each)
        return overlap or self.apart <= NEAR

    @property
    def chance(self) -> float:
        """How likely it is that the ranges lie apart where nothing differs: one run has all of the larger values."""
        return 2 / math.comb(len(self.first.each) + len(self.second.each), len(self.first.each))

    @property
    def same_verdict(self) -> bool:
        return self.first.reached == self.second.reached


@dataclass(frozen=True, slots=True)
class Compared:
    """`pairs`: those that differ first, the furthest apart before all. `only`: what one report alone has, by name."""

    pairs: Sequence[Pair]
    only: Sequence[str]
    runs: Sequence[tuple[str, Mapping[str, Any], Mapping[str, Any]]]
    """By part: the run of the first report, and of the second."""


def compared(first: Mapping[str, Any], second: Mapping[str, Any]) -> Compared:
    """Of the parts that both have. Raises ValueError where they have no figure in common."""
    ours, theirs = _sections(first), _sections(second)
    shared = [part for part in ours if part in theirs]
    pairs: list[Pair] = []
    only = [f"part {part}" for part in (*ours, *theirs) if part not in shared]
    for part in shared:
        one, other = _figures(ours[part]), _figures(theirs[part])
        only += [", ".join(filter(None, (part, *key))) for key in (*one, *other) if key not in one or key not in other]
        for key in one:
            if key in other:
                pairs += _pairs(part, one[key], other[key])
    if not pairs:
        raise ValueError("the reports have no share and no target in common")
    pairs.sort(key=lambda pair: (pair.agrees, pair.same_verdict, -pair.apart))
    return Compared(pairs, only, [(part, ours[part]["run"], theirs[part]["run"]) for part in shared])


def _sections(report: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {section["part"]: section for section in report["sections"]}


def _figures(section: Mapping[str, Any]) -> dict[tuple[str, str, str], Mapping[str, Any]]:
    """Those that have a share or a target, by name, store and unit."""
    return {
        (figure["name"], figure["store"], figure["unit"]): figure
        for figure in section["figures"]
        if "floor" in figure or "target" in figure
    }


def _pairs(part: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> list[Pair]:
    """The share, and what the target is of where that is something else."""
    wanted = one["target"]["of"] if "target" in one else ""
    made = []
    for of in dict.fromkeys((*(("share",) if "floor" in one and "floor" in other else ()), *filter(None, (wanted,)))):
        found = [
            Found(_values(figure, of), figure["target"]["reached"] if of == wanted and "target" in figure else None)
            for figure in (one, other)
        ]
        target = target_text(one) if of == wanted else ""
        made.append(Pair(part, one["name"], one["store"], one["unit"], of, target, *found))
    return made


def _values(figure: Mapping[str, Any], of: str) -> Sequence[float]:
    match of:
        case "share":
            return shares_of(figure)
        case "p95":
            return list(figure["p95_each"])
        case _:
            return list(figure["each"])
