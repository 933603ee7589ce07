"""Minutes of everything at once, on a server with extractors whose model answers at once, while it is watched.

Users append, commit, search, recall, load contexts, take turns, and watch; sessions and users are deleted, and others
come. They rest so long that two processors are not used up; what our processes used of them stands at the calls. We
look at everything a dozen times and more, as long one after the other as stands at the calls too; every line has a
value for each look. A ratio is the mean of their last third to that of the second third, of what grew most: what stays
as it was has 1.

The index grows with what it holds. So what the points took that came to live in it from the second third to the last,
at 5,000 bytes for each, counts as if it had been there before, where the memory of its process is compared; its whole
growth stands by. A living point can be found; points of what is deleted were written, but live no more.
"""

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.bench.figures import Figure, Target, p95
from tests.bench.fleet import Fleet, fleet
from tests.bench.load.agents import Order, Told
from tests.bench.load.process import Spoken, spoken
from tests.bench.resources import MEGABYTE, Standing
from tests.bench.setting import Bar, Setting
from tests.support.scrapes import metrics_address, scraped

PART = "soak"
CLIENT = "tests.bench.load.agents"
AGENTS = 36
LIVES = 6
"""In one place, over the whole time: so that what users leave behind shows."""
LOOKS = 12
"""At least, so that a third of them is some: a soak of ten minutes is looked at every fifty seconds."""
LOOK_SECONDS = 60.0
"""From one look to the next, at most."""
POINT_BYTES = 5000.0
"""Of the memory of the index: docs/operate/sizing.md measured 4,981."""
INDEX = "index"
LIVING = "living points of the index, counted once a minute"
WRITTEN = "points written to the index so far"
INDEX_GROWTH = "memory of index: last third above the second"
QUEUE_SECONDS = 5.5
"""From one look at the queue to the next: more often the server does not look itself."""
YOUNG_SECONDS = 1.0
"""A queue that is younger counts as one of this age."""
MOST = {"MB": 1.10, "descriptors": 1.10, "threads": 1.10, "ms": 1.50, "s": 1.50}
"""That the last third may have of the second, by unit."""


@dataclass(slots=True)
class _Series:
    """What was seen, look by look, by name. `seconds`: from one look to the next."""

    seconds: float

    memory: dict[str, list[float]] = field(default_factory=dict)
    descriptors: dict[str, list[float]] = field(default_factory=dict)
    threads: dict[str, list[float]] = field(default_factory=dict)
    p50: dict[str, list[float]] = field(default_factory=dict)
    p95: dict[str, list[float]] = field(default_factory=dict)
    oldest: list[float] = field(default_factory=list)
    lag: list[float] = field(default_factory=list)
    points: list[float] = field(default_factory=list)
    written: list[float] = field(default_factory=list)
    jobs: dict[str, list[float]] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)
    busy: dict[str, list[float]] = field(default_factory=dict)
    failed: Counter[str] = field(default_factory=Counter)


async def measure(setting: Setting) -> list[Figure]:
    figures: list[Figure] = []
    for store in setting.stores:
        settings = {"RUNEKEEP_METRICS_ADDRESS": "127.0.0.1:0"}
        async with fleet(setting, store, settings=settings) as whole, spoken(CLIENT) as client:
            figures += _figures(store, await _soak(setting, whole, client, store))
    return figures


async def _soak(setting: Setting, whole: Fleet, client: Spoken, store: str) -> _Series:
    seconds = setting.soak_minutes * 60
    looks = max(LOOKS, round(seconds / LOOK_SECONDS))
    each = seconds / looks
    series = _Series(each)
    begin = Order("begin", whole.running.address, setting.count(AGENTS), seconds / LIVES)
    await client.ask(begin.to_json())
    with setting.bar(f"soak, {store}", looks) as bar:
        await _watch(whole, client, series, looks, bar)
    last = Told.from_json(await client.ask(Order("end").to_json()))
    series.failed.update(last.failed)
    return series


async def _watch(whole: Fleet, client: Spoken, series: _Series, looks: int, bar: Bar) -> None:
    each = series.seconds
    meter = whole.meter(client.pid)
    metrics = await asyncio.to_thread(metrics_address, whole.running.directory / "data.log")
    began = time.monotonic()
    for look in range(1, looks + 1):
        queues = []
        ages, lags = [YOUNG_SECONDS], [YOUNG_SECONDS]
        while time.monotonic() < began + look * each:
            await asyncio.sleep(min(QUEUE_SECONDS, max(began + look * each - time.monotonic(), 0)))
            status = await whole.status()
            queues.append(Counter({f"{job.kind}, {job.state}": job.jobs for job in status.jobs}))
            ages += [
                status.store_time.ToDatetime().timestamp() - job.oldest_time.ToDatetime().timestamp()
                for job in status.jobs
                if job.HasField("oldest_time")
            ]
            lags.append(status.index_lag.ToMicroseconds() / 1e6)
        series.oldest.append(max(ages))
        series.lag.append(max(lags))
        for name in {name for queue in queues for name in queue}:
            add(series.jobs, name, statistics.fmean(queue[name] for queue in queues), look)
        told = Told.from_json(await client.ask(Order("tell").to_json()))
        series.failed.update(told.failed)
        series.rates.append(sum(map(len, told.seconds.values())) / each)
        for kind, taken in told.seconds.items():
            add(series.p50, kind, statistics.median(taken) * 1000, look)
            add(series.p95, kind, p95(taken) * 1000, look)
        for by_kind in (series.p50, series.p95):
            for values in by_kind.values():
                # What nobody did for a while stands as it was.
                values += [values[-1]] * (look - len(values))
        for name, milliseconds in meter.milliseconds().items():
            add(series.busy, name, milliseconds / 1000 / each, look)
        _stand(whole, series, look)
        samples = await asyncio.to_thread(scraped, metrics)
        # A count that takes long is not there yet: the last one stands.
        counted = samples.all("runekeep_index_points")
        series.points.append(counted.get((), series.points[-1] if series.points else 0.0))
        series.written.append(sum(samples.all("runekeep_relay_points_total", "part").values()))
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


def _figures(store: str, series: _Series) -> list[Figure]:
    figures = []
    for what, unit, by_name in (
        ("memory of", "MB", series.memory),
        ("open descriptors of", "descriptors", series.descriptors),
        ("threads of", "threads", series.threads),
    ):
        figures += [Figure(PART, f"{what} {name}", unit, values, store) for name, values in by_name.items()]
        grown = {INDEX: max(_added(series.points), 0.0) * POINT_BYTES / MEGABYTE} if unit == "MB" else {}
        figures.append(flatness(f"{what} any process", unit, by_name, store, grown))
    figures += _of_points(store, series)
    figures += [Figure(PART, kind, "ms", values, store, series.p95[kind]) for kind, values in series.p50.items()]
    figures.append(flatness("p50 of any call", "ms", series.p50, store))
    for what, ages in (
        ("age of the oldest job, at most", series.oldest),
        ("wait of a message until it can be found, at most", series.lag),
    ):
        figures.append(Figure(PART, what, "s", ages, store))
        figures.append(flatness(what, "s", {what: ages}, store))
    figures += [
        Figure(PART, f"jobs, {name}", "jobs", values, store)
        for name, values in sorted(series.jobs.items())
        if any(values)
    ]
    busy = {f"processors used by {name}": statistics.fmean(values) for name, values in series.busy.items()}
    looked = {"from one look to the next, s": series.seconds}
    figures.append(Figure(PART, "all calls", "calls/s", series.rates, store, notes={**looked, **busy}))
    figures.append(
        Figure(
            PART, "calls and tasks that failed", "calls", [float(series.failed.total())], store,
            target=Target("value", "at most", 0.0), notes={how: float(count) for how, count in series.failed.items()},
        )
    )  # fmt: skip
    return figures


def _of_points(store: str, series: _Series) -> list[Figure]:
    growth = _added(series.memory[INDEX])
    written, living = _added(series.written), _added(series.points)
    notes = {"living points more": living, "points written meanwhile": written}
    if written:
        notes["bytes for each that was written"] = growth * MEGABYTE / written
    return [
        Figure(PART, LIVING, "points", series.points, store),
        Figure(PART, WRITTEN, "points", series.written, store),
        Figure(PART, INDEX_GROWTH, "MB", [growth], store, notes=notes),
    ]


def flatness(
    what: str, unit: str, by_name: Mapping[str, Sequence[float]], store: str, grown: Mapping[str, float] | None = None
) -> Figure:
    """How much of the second third the last one has, of that which grew most; all others stand beside it. `grown`: by
    how much one may differ for a good reason, by name; so much counts as if it had been there in the second third."""
    grown = grown or {}
    ratios = {name: _last(values) / (_second(values) + grown.get(name, 0.0)) for name, values in by_name.items()}
    return Figure(
        PART, f"{what}: last third to second", "ratio", [max(ratios.values())], store,
        target=Target("value", "at most", MOST[unit]), notes=ratios if len(ratios) > 1 else {},
    )  # fmt: skip


def _added(values: Sequence[float]) -> float:
    """From the second third to the last."""
    return _last(values) - _second(values)


def _second(values: Sequence[float]) -> float:
    third = len(values) // 3
    return statistics.fmean(values[-2 * third : -third])


def _last(values: Sequence[float]) -> float:
    return statistics.fmean(values[-(len(values) // 3) :])
