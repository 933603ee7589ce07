"""What a search and a recall take, as the space and the index grow; by tests.bench.find, whose floors stand by.

Points of others are drawn by lot, those of the space come through the API. The floors are measured in turns with the
calls, on a copy of the index. A space of 100,000 messages is not filled: to embed them takes half an hour.
"""

import shutil
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import grpc

from runekeep.v1 import memory_service_pb2, memory_service_pb2_grpc
from storage.datadir import DataDirectory
from storage.embedders import Embedder, open_embedder
from storage.index.base import VectorSpace
from tests.bench import find
from tests.bench.figures import SQLITE, Figure, Floor, Target
from tests.bench.resources import Meter
from tests.bench.setting import Running, Setting

PART = "search"
CHARACTERS_A_MESSAGE = 280
CALLS = 60
WARMED = 10
"""Calls ahead of each measurement, as find has them."""
BUDGET = 2000
"""Tokens of one recall."""
MOST_BESIDE_MS = 3.0


@dataclass(frozen=True, slots=True)
class Case:
    """Messages in the space, and points of others that the index has at each step."""

    own: int
    others: Sequence[int]


CASES = (Case(1_000, (1_000, 10_000, 100_000)), Case(10_000, (0,)))
ON_POSTGRES = (Case(1_000, (10_000,)),)
"""The index is the same one; what differs is where found things are read."""


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
            for case in CASES if store == SQLITE else ON_POSTGRES:
                figures += await _case(setting, store, case, embedder)
        return figures
    finally:
        await embedder.close()


async def _case(setting: Setting, store: str, case: Case, embedder: Embedder) -> list[Figure]:
    figures: list[Figure] = []
    space = VectorSpace(embedder.model, embedder.dimension)
    settings = {"RUNEKEEP_MAX_OPEN_COMMITS_PER_USER": "10000"}
    async with setting.server(store, "minilm", settings=settings) as running:
        own = await find.fill(running.address, setting.count(case.own * CHARACTERS_A_MESSAGE), setting.progress)
        for others in map(setting.count, case.others):
            running.server.stop()
            index = DataDirectory(running.server.data_dir).index
            if case.others != (0,):
                await find.crowd(index, space, others, setting.progress)
            with setting.folder() as folder:
                copy = folder / "index"
                shutil.copytree(index, copy)
                running.server.start()
                # Loads the embedder.
                await find.searches(running.server.address, find.QUESTIONS[:1])
                where = f"{own:,} of the space" + (f" and {others:,} of others" if case.others != (0,) else "")
                with setting.bar(f"find, {where}, {store}", setting.repeats) as bar:
                    found = _Found()
                    for _ in range(setting.repeats):
                        await _repetition(setting, running, copy, space, embedder, found)
                        bar.step()
            figures += _figures(found, store, where)
    return figures


async def _repetition(
    setting: Setting, running: Running, copy: Path, space: VectorSpace, embedder: Embedder, found: _Found
) -> None:
    numbers = range(setting.count(CALLS))
    questions = [f"{question} ({number})" for number, question in zip(numbers, cycle(find.QUESTIONS))]
    address = running.server.address
    meter = Meter({"server": [running.server.pid], "index": running.server.children()})
    finds = await find.searches(address, questions)
    # The searches that warm up are in it.
    found.spent.append({name: spent / (len(questions) + WARMED) for name, spent in meter.milliseconds().items()})
    recalls = await _recalls(address, questions)
    for name, taken in (await find.floors(copy, embedder, space, questions)).items():
        found.floors.setdefault(name, []).append(statistics.median(taken))
    found.find.append(statistics.median(finds))
    found.find_p95.append(statistics.quantiles(finds, n=20)[-1])
    found.recall.append(statistics.median(recalls))
    found.recall_p95.append(statistics.quantiles(recalls, n=20)[-1])


async def _recalls(address: str, questions: Sequence[str]) -> list[float]:
    async with grpc.aio.insecure_channel(address) as channel:
        memories: Any = memory_service_pb2_grpc.MemoryServiceStub(channel)

        async def ask(question: str) -> None:
            request = memory_service_pb2.RecallRequest(query=question, token_budget=BUDGET)
            told = await memories.Recall(request, metadata=find.METADATA, timeout=find.DEADLINE)
            assert told.entries and 0 < told.tokens <= BUDGET and not told.degraded, told

        await find.timed([lambda: ask(questions[0])] * WARMED)
        return await find.timed([lambda question=question: ask(question) for question in questions])  # type: ignore[misc]


def _figures(found: _Found, store: str, where: str) -> list[Figure]:
    floor = Floor("embedding and index", found.floors["floor"])
    beside = [one - least for one, least in zip(found.find, floor.each, strict=True)]
    notes = {
        **{f"{name} alone, ms": statistics.median(found.floors[name]) for name in ("embedding", "index")},
        **{f"CPU of {name} a call, ms": statistics.median(one[name] for one in found.spent) for name in found.spent[0]},
    }
    return [
        Figure(PART, f"find, {where}", "ms", found.find, store, found.find_p95, floor, notes=notes),
        Figure(
            PART, f"find, {where}: all but embedding and index", "ms", beside, store,
            target=Target("value", "at most", MOST_BESIDE_MS),
        ),
        Figure(PART, f"recall of {BUDGET:,} tokens, {where}", "ms", found.recall, store, found.recall_p95, floor),
    ]  # fmt: skip
