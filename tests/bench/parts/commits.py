"""From a commit to COMPLETED with a model that answers at once, and the share of it that applying takes.

Real extractor processes with the real SDK; each commit archives MESSAGES messages and gives three memories, which can
be found when its task has ended. The vectors of the messages come behind that, and how far behind is told.
"""

import statistics
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc

from runekeep.v1 import extractor_service_pb2
from runekeep_storage.embedders import Embedder, open_embedder
from tests.bench.conversations import long
from tests.bench.figures import Figure, Floor, Target, p95
from tests.bench.fleet import Fleet, fleet
from tests.bench.load.client import Order
from tests.bench.load.commits import ACCOUNT, Taken
from tests.bench.load.commits import Order as Step
from tests.bench.load.echo import SAY
from tests.bench.load.process import Load, Spoken, spoken
from tests.bench.setting import Setting
from tests.support.callers import Caller
from tests.support.worker import Worker, write

PART = "commits"
CLIENT = "tests.bench.load.commits"
MESSAGES = 10
"""Of one commit, of some 280 characters each."""
MEMORIES = 3
"""Of one commit: what the model double writes."""
ALONE = 40
"""Commits of one user, one after another."""
USERS = 32
OF_EACH = 4
"""Commits of each of the users who work side by side."""
APPLIED = {1: 80, 3: 50, 30: 15}
"""Of one repetition, by new memories in each."""
ECHOES = 300
EMBEDDED = 80
"""Of one look at the floor, of which there is one before and one behind whatever is held against it."""
MAX_ALONE_MS = 150.0
MIN_A_SECOND = 30.0


async def measure(setting: Setting) -> list[Figure]:
    embedder = open_embedder("minilm")
    assert embedder is not None
    await embedder.warm()
    try:
        figures: list[Figure] = []
        for store in setting.stores:
            figures += await _commits(setting, store, embedder)
            figures += await _apply(setting, store, embedder)
        return figures
    finally:
        await embedder.close()


# The whole way


@dataclass(slots=True)
class _Found:
    """A value for each repetition."""

    alone: list[float] = field(default_factory=list)
    alone_p95: list[float] = field(default_factory=list)
    embedded: list[float] = field(default_factory=list)
    echoed: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    embedded_rates: list[float] = field(default_factory=list)
    notes: dict[str, list[float]] = field(default_factory=dict)

    def note(self, **values: float) -> None:
        for name, value in values.items():
            self.notes.setdefault(name, []).append(value)


async def _commits(setting: Setting, store: str, embedder: Embedder) -> list[Figure]:
    found = _Found()
    async with (
        fleet(setting, store) as whole,
        spoken(CLIENT) as process,
        setting.load() as load,
        setting.echo() as echo,
    ):
        client = _Client(process, whole)
        with setting.bar(f"commits, {store}", setting.repeats + 1) as bar:
            # The first one loads and connects what every later one finds there.
            await client.commit(["first"], setting.count(ALONE // 4))
            await client.commit([f"first-{number}" for number in range(setting.count(USERS))], 2)
            bar.step()
            for repetition in range(setting.repeats):
                before = await _embedding(embedder, setting.count(EMBEDDED))
                await _alone(setting, repetition, client, found)
                between = await _embedding(embedder, setting.count(EMBEDDED))
                await _side_by_side(setting, repetition, client, found)
                behind = await _embedding(embedder, setting.count(EMBEDDED))
                found.embedded.append(statistics.mean((before, between)))
                found.embedded_rates.append(1000 / statistics.mean((between, behind)))
                found.echoed.append(await _echoing(load, echo.address, setting.count(ECHOES)))
                bar.step()
    notes = {name: statistics.median(values) for name, values in found.notes.items()}
    floor = f"embedding of {MEMORIES} memories"
    return [
        Figure(
            PART, f"commit of {MESSAGES} messages to COMPLETED, 1 user", "ms", found.alone, store, found.alone_p95,
            Floor(floor, found.embedded), Target("value", "at most", MAX_ALONE_MS),
            {"bare echo, ms": statistics.median(found.echoed), **_of(notes, "alone: ")},
        ),
        Figure(
            PART, f"commits of {MESSAGES} messages to COMPLETED, {USERS} users", "commits/s", found.rates, store, (),
            Floor(f"{floor}, a second", found.embedded_rates), Target("value", "at least", MIN_A_SECOND),
            _of(notes, "side by side: "),
        ),
    ]  # fmt: skip


def _of(notes: dict[str, float], about: str) -> dict[str, float]:
    return {name.removeprefix(about): value for name, value in notes.items() if name.startswith(about)}


class _Client:
    """The process that commits, and what the fleet makes of it."""

    def __init__(self, process: Spoken, whole: Fleet) -> None:
        self._process = process
        self.fleet = whole

    async def commit(self, users: Sequence[str], each: int) -> tuple[Taken, dict[str, float], Taken]:
        """With milliseconds of processor time a commit by process, and how far behind the messages' vectors were when
        all had ended. Returns when none is left, and all memories are there once."""
        await self._ask("prepare", users, each)
        meter = self.fleet.meter(self._process.pid)
        taken = await self._ask("commit", users, each)
        spent = {name: value / len(taken.each) for name, value in meter.milliseconds().items()}
        found = await self._ask("find", users, each)
        commits = len(users) * each
        assert taken.ends == {"TASK_STATE_COMPLETED": commits}, taken.ends
        assert taken.extracted == commits * MEMORIES, f"{taken.extracted} memories of {commits} commits"
        counted = await self._ask("count", users, each)
        assert counted.memories == commits * MEMORIES, f"{counted.memories} memories of {commits} commits are there"
        return taken, spent, found

    async def _ask(self, step: Any, users: Sequence[str], each: int) -> Taken:
        order = Step(step, self.fleet.running.address, list(users), each, MESSAGES)
        return Taken.from_json(await self._process.ask(order.to_json()))


async def _alone(setting: Setting, number: int, client: _Client, found: _Found) -> None:
    taken, spent, _ = await client.commit([f"alone-{number}"], setting.count(ALONE))
    found.alone.append(statistics.median(taken.each) * 1000)
    found.alone_p95.append(p95(taken.each) * 1000)
    found.note(**{f"alone: CPU of {name} a commit, ms": value for name, value in spent.items()})


async def _side_by_side(setting: Setting, number: int, client: _Client, found: _Found) -> None:
    users = [f"beside-{number}-{user}" for user in range(setting.count(USERS))]
    taken, spent, behind = await client.commit(users, setting.count(OF_EACH))
    found.rates.append(len(taken.each) / taken.seconds)
    found.note(
        **{f"side by side: CPU of {name} a commit, ms": value for name, value in spent.items()},
        **{
            "side by side: p50 of one, ms": statistics.median(taken.each) * 1000,
            "side by side: messages without a vector at the end": behind.pending,
            "side by side: the first of them has waited, s": behind.lag,
            "side by side: until all have one, s": behind.seconds,
        },
    )


async def _embedding(embedder: Embedder, times: int) -> float:
    """Milliseconds of as many memories as a commit has; the median."""
    texts = [message.parts[0].text.text[:120] for message in long(times * MEMORIES)]
    return statistics.median(
        [await _milliseconds(lambda some=some: embedder.embed(some)) for some in _chunks(texts, MEMORIES)]  # type: ignore[misc]
    )


def _chunks(texts: Sequence[str], size: int) -> list[list[str]]:
    return [list(texts[start : start + size]) for start in range(0, len(texts), size)]


async def _milliseconds(work: Callable[[], Awaitable[Any]]) -> float:
    began = time.perf_counter()
    await work()
    return (time.perf_counter() - began) * 1000


async def _echoing(load: Load, address: str, calls: int) -> float:
    """Milliseconds of one; the median."""
    taken = await load.run(Order(address, SAY, 1, calls, [(b"", [])]))
    return statistics.median(taken.each) * 1000


# Applying alone


async def _apply(setting: Setting, store: str, embedder: Embedder) -> list[Figure]:
    """From JobComplete to the verdict, as a worker sees it that has delivered so many new memories."""
    each: dict[int, list[float]] = {writes: [] for writes in APPLIED}
    slow: dict[int, list[float]] = {writes: [] for writes in APPLIED}
    floors: dict[int, list[float]] = {writes: [] for writes in APPLIED}
    async with (
        setting.server(store, "minilm") as running,
        grpc.aio.insecure_channel(running.address) as channel,
        Worker(channel) as worker,
    ):
        applying = _Applying(Caller(channel, "applied", ACCOUNT), worker, embedder)
        with setting.bar(f"apply, {store}", (setting.repeats + 1) * len(APPLIED)) as bar:
            for repetition in range(setting.repeats + 1):
                for writes, times in APPLIED.items():
                    pairs = [await applying.one(writes) for _ in range(setting.count(times))]
                    if repetition:  # the first one warms up
                        taken, floor = zip(*pairs, strict=True)
                        each[writes].append(statistics.median(taken))
                        slow[writes].append(p95(taken))
                        floors[writes].append(statistics.median(floor))
                    bar.step()
    return [
        Figure(
            PART, f"apply of {writes} new {'memory' if writes == 1 else 'memories'}, to the verdict", "ms",
            each[writes], store, slow[writes], Floor("their embedding", floors[writes]),
        )
        for writes in APPLIED
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Applying:
    caller: Caller
    worker: Worker
    embedder: Embedder

    async def one(self, writes: int) -> tuple[float, float]:
        """Milliseconds of one apply, and of the embedding alone of what was written."""
        texts = [f"{uuid.uuid4().hex[:12]} {message.parts[0].text.text[:110]}" for message in long(writes)]
        committed = await self.caller.committed(*long(2))
        assignment = await self.worker.take()
        assert assignment.task_id == committed.task_id
        await self.worker.input(assignment.lease)
        operations = [write("preferences", ranges=((1, 1),), topic=text[:12], content=text) for text in texts]
        items = [extractor_service_pb2.OutputItem(operation=operation) for operation in operations]
        assert await self.worker.chunk(assignment.lease, "output", 0, items) is not None, "the lease was lost"
        taken = await _milliseconds(lambda: self.worker.complete(assignment.lease, "output", 1))
        task = await self.caller.task(committed.task_id)
        assert sum(task.result.memories_extracted.values()) == writes, task
        return taken, await _milliseconds(lambda: self.embedder.embed(texts))
