"""Minutes of everything at once, on a server with extractors whose model answers at once, while it is watched.

Users append, commit, search, recall, load contexts, take turns, and watch; sessions and users are deleted, and others
come. They rest so long that two processors are not used up; what our processes used of them stands at the calls. Every
line has a value for each minute; a ratio is the mean of their last third to that of the second third, of what grew
most: what stays as it was has 1.
"""

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.bench.figures import Figure, Target
from tests.bench.fleet import Fleet, fleet
from tests.bench.load.agents import Order, Told
from tests.bench.load.process import Spoken, spoken
from tests.bench.resources import Standing
from tests.bench.setting import Bar, Setting

PART = "soak"
CLIENT = "tests.bench.load.agents"
AGENTS = 36
LIVES = 6
"""In one place, over the whole time: so that what users leave behind shows."""
LOOKS = 12
"""At least, so that a third of them is some."""
LOOK_SECONDS = 60.0
QUEUE_SECONDS = 5.5
"""From one look at the queue to the next: more often the server does not look itself."""
YOUNG_SECONDS = 1.0
"""A queue that is younger counts as one of this age."""
MOST = {"MB": 1.10, "descriptors": 1.10, "threads": 1.10, "ms": 1.50, "s": 1.50}
"""That the last third may have of the second, by unit."""


@dataclass(slots=True)
class _Series:
    """What was seen, look by look, by name."""

    memory: dict[str, list[float]] = field(default_factory=dict)
    descriptors: dict[str, list[float]] = field(default_factory=dict)
    threads: dict[str, list[float]] = field(default_factory=dict)
    p50: dict[str, list[float]] = field(default_factory=dict)
    p95: dict[str, list[float]] = field(default_factory=dict)
    oldest: list[float] = field(default_factory=list)
    jobs: dict[str, list[float]] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)
    busy: dict[str, list[float]] = field(default_factory=dict)
    failed: Counter[str] = field(default_factory=Counter)


async def measure(setting: Setting) -> list[Figure]:
    figures: list[Figure] = []
    for store in setting.stores:
        async with fleet(setting, store) as whole, spoken(CLIENT) as client:
            figures += _figures(store, await _soak(setting, whole, client, store))
    return figures


async def _soak(setting: Setting, whole: Fleet, client: Spoken, store: str) -> _Series:
    seconds = setting.soak_minutes * 60
    looks = max(LOOKS, round(seconds / LOOK_SECONDS))
    each = seconds / looks
    series = _Series()
    begin = Order("begin", whole.running.address, setting.count(AGENTS), seconds / LIVES)
    await client.ask(begin.to_json())
    with setting.bar(f"soak, {store}", looks) as bar:
        await _watch(whole, client, series, looks, each, bar)
    last = Told.from_json(await client.ask(Order("end").to_json()))
    series.failed.update(last.failed)
    return series


async def _watch(whole: Fleet, client: Spoken, series: _Series, looks: int, each: float, bar: Bar) -> None:
    meter = whole.meter(client.pid)
    began = time.monotonic()
    for look in range(1, looks + 1):
        queues = []
        ages = [YOUNG_SECONDS]
        while time.monotonic() < began + look * each:
            await asyncio.sleep(min(QUEUE_SECONDS, max(began + look * each - time.monotonic(), 0)))
            status = await whole.status()
            queues.append(Counter({f"{job.kind}, {job.state}": job.jobs for job in status.jobs}))
            ages += [
                status.store_time.ToDatetime().timestamp() - job.oldest_time.ToDatetime().timestamp()
                for job in status.jobs
                if job.HasField("oldest_time")
            ]
        series.oldest.append(max(ages))
        for name in {name for queue in queues for name in queue}:
            add(series.jobs, name, statistics.fmean(queue[name] for queue in queues), look)
        told = Told.from_json(await client.ask(Order("tell").to_json()))
        series.failed.update(told.failed)
        series.rates.append(sum(map(len, told.seconds.values())) / each)
        for kind, taken in told.seconds.items():
            add(series.p50, kind, statistics.median(taken) * 1000, look)
            add(series.p95, kind, _p95(taken) * 1000, look)
        for by_kind in (series.p50, series.p95):
            for values in by_kind.values():
                # What nobody did for a while stands as it was.
                values += [values[-1]] * (look - len(values))
        for name, milliseconds in meter.milliseconds().items():
            add(series.busy, name, milliseconds / 1000 / each, look)
        _stand(whole, series, look)
        bar.step()


def _stand(whole: Fleet, series: _Series, look: int) -> None:
    """Memory, descriptors and threads of every process of ours, the extractors one by one."""
    for name, pids in whole.processes.items():
        if name == "model double":
            continue
        for number, pid in enumerate(pids, 1):
            one = name if len(pids) == 1 else f"{name.removesuffix('s')} {number}"
            standing = Standing.of(pid)
            add(series.memory, one, standing.megabytes, look)
            add(series.descriptors, one, standing.descriptors, look)
            add(series.threads, one, standing.threads, look)


def add(by_name: dict[str, list[float]], name: str, value: float, look: int) -> None:
    """Where there was nothing of that name yet, the value stands for the looks before too."""
    by_name.setdefault(name, [value] * (look - 1)).append(value)


def _p95(taken: Sequence[float]) -> float:
    return statistics.quantiles(taken, n=20)[-1] if len(taken) > 1 else taken[0]


def _figures(store: str, series: _Series) -> list[Figure]:
    figures = []
    for what, unit, by_name in (
        ("memory of", "MB", series.memory),
        ("open descriptors of", "descriptors", series.descriptors),
        ("threads of", "threads", series.threads),
    ):
        figures += [Figure(PART, f"{what} {name}", unit, values, store) for name, values in by_name.items()]
        figures.append(flatness(f"{what} any process", unit, by_name, store))
    figures += [Figure(PART, kind, "ms", values, store, series.p95[kind]) for kind, values in series.p50.items()]
    figures.append(flatness("p50 of any call", "ms", series.p50, store))
    oldest = "age of the oldest job, at most"
    figures.append(Figure(PART, oldest, "s", series.oldest, store))
    figures.append(flatness(oldest, "s", {oldest: series.oldest}, store))
    figures += [
        Figure(PART, f"jobs, {name}", "jobs", values, store)
        for name, values in sorted(series.jobs.items())
        if any(values)
    ]
    busy = {f"processors used by {name}": statistics.fmean(values) for name, values in series.busy.items()}
    figures.append(Figure(PART, "all calls", "calls/s", series.rates, store, notes=busy))
    figures.append(
        Figure(
            PART, "calls and tasks that failed", "calls", [float(series.failed.total())], store,
            target=Target("value", "at most", 0.0), notes={how: float(count) for how, count in series.failed.items()},
        )
    )  # fmt: skip
    return figures


def flatness(what: str, unit: str, by_name: Mapping[str, Sequence[float]], store: str) -> Figure:
    """How much of the second third the last one has, of that which grew most; all others stand beside it."""
    ratios = {name: _last(values) / _second(values) for name, values in by_name.items()}
    return Figure(
        PART, f"{what}: last third to second", "ratio", [max(ratios.values())], store,
        target=Target("value", "at most", MOST[unit]), notes=ratios if len(ratios) > 1 else {},
    )  # fmt: skip


def _second(values: Sequence[float]) -> float:
    third = len(values) // 3
    return statistics.fmean(values[-2 * third : -third])


def _last(values: Sequence[float]) -> float:
    return statistics.fmean(values[-(len(values) // 3) :])
