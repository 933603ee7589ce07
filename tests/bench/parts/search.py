"""What a search and a recall take, as the space and the index grow; by tests.bench.find, whose floors stand by.

Messages are written and indexed by the store's own code, with vectors drawn by lot, and so are points of other users:
to embed 100,000 messages takes half an hour. Queries are embedded as always, each of them once, for the server knows
what it has computed lately. The floors are measured in turns with the calls, on a copy of the index, by a process of
its own: an embedding of the query with the index asked for its words beside it, and then for what is near.
"""

import shutil
import statistics
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import grpc

from runekeep.v1 import memory_service_pb2, memory_service_pb2_grpc
from runekeep_storage.database import Space
from runekeep_storage.drivers.common.data_directory import DataDirectory
from runekeep_storage.embedders import Embedder, open_embedder
from runekeep_storage.index.base import VectorSpace
from tests.bench import find
from tests.bench.figures import Figure, Floor, Target, p95
from tests.bench.made_space import grow
from tests.bench.resources import Meter
from tests.bench.setting import Running, Setting

PART = "search"
CALLS = 60
"""Of each kind, for one repetition."""
AT_ONCE = 5
"""Of each kind, before the next kind has its turn."""
BUDGET = 2000
"""Tokens of one recall."""
MAX_BESIDE_MS = 3.0


@dataclass(frozen=True, slots=True)
class Case:
    """Points of the space at each step, and points of others that are there from the start."""

    own: Sequence[int]
    others: int = 0


CASES = (Case((1_000, 10_000, 100_000)), Case((1_000,), others=100_000))


@dataclass(slots=True)
class _Found:
    """A value for each repetition."""

    find: list[float] = field(default_factory=list)
    find_p95: list[float] = field(default_factory=list)
    recall: list[float] = field(default_factory=list)
    recall_p95: list[float] = field(default_factory=list)
    floors: dict[str, list[float]] = field(default_factory=dict)
    spent: list[dict[str, float]] = field(default_factory=list)


async def measure(setting: Setting) -> list[Figure]:
    embedder = open_embedder("minilm")
    assert embedder is not None
    try:
        figures: list[Figure] = []
        for store in setting.stores:
            for case in CASES:
                figures += await _case(setting, store, case, embedder)
        return figures
    finally:
        await embedder.close()


async def _case(setting: Setting, store: str, case: Case, embedder: Embedder) -> list[Figure]:
    figures: list[Figure] = []
    vectors = VectorSpace(embedder.model, embedder.dimension)
    others = setting.count(case.others)
    questions = find.asked()
    async with setting.server(store, "minilm") as running:
        index = DataDirectory(running.server.data_dir).index
        running.server.stop()
        if others:
            await find.crowd(index, vectors, others, setting.progress)
        there = 0
        for own in map(setting.count, case.own):
            await grow(
                running.store_url, index, vectors, Space(find.ACCOUNT, find.USER), (there, own), setting.progress
            )
            there = own
            with setting.folder() as folder:
                copy = folder / "index"
                shutil.copytree(index, copy)
                running.server.start()
                where = f"{own:,} points of the space" + (f" and {others:,} of others" if others else "")
                async with (
                    grpc.aio.insecure_channel(running.server.address) as channel,
                    find.floors(copy, embedder, vectors) as floors,
                ):
                    caller = _Caller(setting, running, channel, floors, questions)
                    with setting.bar(f"find, {where}, {store}", setting.repeats) as bar:
                        # Loads the embedder, and warms up.
                        await caller.repetition(_Found())
                        found = _Found()
                        for _ in range(setting.repeats):
                            await caller.repetition(found)
                            bar.step()
                running.server.stop()
            figures += _figures(found, store, where)
    return figures


class _Caller:
    """Asks a few questions of each kind, then the next few: what else the machine does is the same for all."""

    def __init__(
        self,
        setting: Setting,
        running: Running,
        channel: grpc.aio.Channel,
        floors: find.Floors,
        questions: Iterator[str],
    ) -> None:
        self._calls = setting.count(CALLS)
        self._meter = Meter({"server": [running.server.pid], "index": running.server.children()})
        self._find, self._recall = find.search(channel), _recall(channel)
        self._floors = floors
        self._questions = questions

    async def repetition(self, found: _Found) -> None:
        finds: list[float] = []
        recalls: list[float] = []
        floors: dict[str, list[float]] = {}
        spent: dict[str, float] = defaultdict(float)
        while len(finds) < self._calls:
            some = self._next()
            self._meter.milliseconds()
            finds += await find.timed(self._find, some)
            for name, milliseconds in self._meter.milliseconds().items():
                spent[name] += milliseconds
            for name, taken in (await self._floors.take(some)).items():
                floors.setdefault(name, []).extend(taken)
            recalls += await find.timed(self._recall, self._next())
        found.find.append(statistics.median(finds))
        found.find_p95.append(p95(finds))
        found.recall.append(statistics.median(recalls))
        found.recall_p95.append(p95(recalls))
        for name, taken in floors.items():
            found.floors.setdefault(name, []).append(statistics.median(taken))
        found.spent.append({name: all_of_it / len(finds) for name, all_of_it in spent.items()})

    def _next(self) -> list[str]:
        return list(islice(self._questions, min(AT_ONCE, self._calls)))


def _recall(channel: grpc.aio.Channel) -> Callable[[str], Awaitable[None]]:
    memories: Any = memory_service_pb2_grpc.MemoryServiceStub(channel)

    async def ask(question: str) -> None:
        request = memory_service_pb2.RecallRequest(query=question, token_budget=BUDGET)
        told = await memories.Recall(request, metadata=find.METADATA, timeout=find.DEADLINE)
        assert told.entries and 0 < told.tokens <= BUDGET and not told.degraded, told

    return ask


def _figures(found: _Found, store: str, where: str) -> list[Figure]:
    floor = Floor("embedding and index", found.floors["floor"])
    alone = {name: found.floors[name] for name in ("embedding", "index")}
    beside = [one - least for one, least in zip(found.find, floor.each, strict=True)]
    summed = [one - sum(each) for one, *each in zip(found.find, *alone.values(), strict=True)]
    notes = {
        **{f"{name} alone, ms": statistics.median(each) for name, each in alone.items()},
        **{f"CPU of {name} a call, ms": statistics.median(one[name] for one in found.spent) for name in found.spent[0]},
    }
    return [
        Figure(PART, f"find, {where}", "ms", found.find, store, found.find_p95, floor, notes=notes),
        Figure(
            PART, f"find, {where}: while neither embedding nor index is at work", "ms", beside, store,
            target=Target("value", "at most", MAX_BESIDE_MS),
            notes={"above embedding and index one after the other, ms": statistics.median(summed)},
        ),
        Figure(PART, f"recall of {BUDGET:,} tokens, {where}", "ms", found.recall, store, found.recall_p95, floor),
    ]  # fmt: skip
