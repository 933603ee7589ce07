"""What a turn costs to submit and to load, in sessions of few and of many turns: tests.bench.turns on each store."""

import statistics
from collections.abc import Sequence

from tests.bench import turns
from tests.bench.figures import SQLITE, Figure, Floor, p95, ratio
from tests.bench.setting import Setting

PART = "turns"
SIZES = (100, 1000, 10_000)
"""Turns of the sessions; the last one is left to SQLite, for to fill it takes minutes elsewhere."""
CALLS = 60
"""Of each kind in each session, for one repetition."""
FLOORS = {turns.SUBMIT: turns.APPEND} | dict.fromkeys(turns.AUDIENCES, turns.READ)


async def measure(setting: Setting) -> list[Figure]:
    calls = setting.count(CALLS)
    figures: list[Figure] = []
    for store in setting.stores:
        sizes = sorted({max(setting.count(size), 4) for size in (SIZES if store == SQLITE else SIZES[:-1])})
        async with setting.server(store) as running:
            # One more than there are repetitions: the first one warms up.
            taken = await turns.times(running.address, sizes, (setting.repeats + 1) * calls, setting.progress)
        parts = {case: _parts(times, calls) for case, times in taken.items()}
        for call, floor in FLOORS.items():
            beneath = Floor(floor.removeprefix("floor: "), _medians(parts[floor, 0]))
            least = _medians(parts[call, sizes[0]])
            for size in sizes:
                each = _medians(parts[call, size])
                figures.append(
                    Figure(
                        PART, f"{call}, session of {size:,} turns", "ms", each, store, _p95(parts[call, size]), beneath,
                        notes={} if size == sizes[0] else {f"to that of {sizes[0]:,} turns": ratio(each, least)},
                    )
                )  # fmt: skip
    return figures


def _parts(times: Sequence[float], calls: int) -> list[Sequence[float]]:
    """By repetition, without the first."""
    return [times[start : start + calls] for start in range(calls, len(times), calls)]


def _medians(parts: Sequence[Sequence[float]]) -> list[float]:
    return [statistics.median(part) for part in parts]


def _p95(parts: Sequence[Sequence[float]]) -> list[float]:
    return [p95(part) for part in parts]
