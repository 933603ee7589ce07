"""What processes take by themselves: processor time until a server serves, and memory, idle and after work.

Memory is what is a process's own and its share of what several map (PSS); all that it maps, the parts of others too, is
noted as RSS. An idle server has been asked for one search, so that its embedder is loaded; an idle extractor has said
hello. A server of no embedder is counted with its index process.
"""

import statistics
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import grpc

from tests.bench.figures import Figure, Target
from tests.bench.fleet import EXTRACTORS, Fleet, fleet, watched
from tests.bench.load.commits import ACCOUNT, Order, Taken
from tests.bench.load.process import Spoken, spoken
from tests.bench.resources import Standing, processor_seconds
from tests.bench.setting import Setting
from tests.support.callers import Caller

PART = "process"
EMBEDDERS = ("none", "minilm")
NAMES = {"none": "no embedder", "minilm": "its embedder"}
CLIENT = "tests.bench.load.commits"
USERS = 16
OF_EACH = 4
MESSAGES = 10
SEARCHES = 50
MAX_SECONDS = 2.0
MAX_BARE_MB = 150.0
MAX_EXTRACTOR_MB = 120.0


async def measure(setting: Setting) -> list[Figure]:
    figures: list[Figure] = []
    for store in setting.stores:
        figures += await _starts(setting, store)
        figures += await _memory(setting, store)
    return figures


async def _starts(setting: Setting, store: str) -> list[Figure]:
    """From exec to the line that says so, with all children; the first start of a store, which makes its tables."""
    spent: dict[str, list[float]] = {embedder: [] for embedder in EMBEDDERS}
    with setting.bar(f"starts, {store}", setting.repeats * len(EMBEDDERS)) as bar:
        for _ in range(setting.repeats):
            for embedder in EMBEDDERS:
                async with setting.server(store, embedder) as running:
                    pids = (running.server.pid, *running.server.children())
                    spent[embedder].append(sum(map(processor_seconds, pids)))
                bar.step()
    target = Target("value", "at most", MAX_SECONDS)
    return [
        Figure(PART, f"start to SERVING, with {NAMES[name]}", "s of CPU", spent[name], store, target=target)
        for name in EMBEDDERS
    ]


class _Memory:
    """Megabytes by what was measured, a value for each repetition."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._each: dict[str, list[float]] = {}
        self._resident: dict[str, list[float]] = {}

    def add(self, name: str, pids: Sequence[int], share: int = 1) -> None:
        """Of the processes together, or of one where they are `share` alike."""
        standing = Standing.of(*pids)
        self._each.setdefault(name, []).append(standing.megabytes / share)
        self._resident.setdefault(name, []).append(standing.resident / share)

    def figure(self, name: str, target: float | None = None) -> Figure:
        held = None if target is None else Target("value", "at most", target)
        notes = {"RSS, MB": statistics.median(self._resident[name])}
        return Figure(PART, name, "MB", self._each[name], self._store, target=held, notes=notes)

    def share(self, name: str, of: str, without: str) -> Figure:
        """By how much one is larger than the other."""
        each = [one - less for one, less in zip(self._each[of], self._each[without], strict=True)]
        return Figure(PART, name, "MB", each, self._store)


async def _memory(setting: Setting, store: str) -> list[Figure]:
    memory = _Memory(store)
    with setting.bar(f"memory, {store}", setting.repeats * (len(EMBEDDERS) + 1)) as bar:
        for _ in range(setting.repeats):
            for embedder in EMBEDDERS:
                await _with(setting, store, embedder, memory)
                bar.step()
            await _offline(setting, store, memory)
            bar.step()
    return [
        memory.figure(f"server and index, idle, {NAMES['none']}", MAX_BARE_MB),
        memory.share("the embedder's share", f"server, idle, {NAMES['minilm']}", f"server, idle, {NAMES['none']}"),
        *(
            memory.figure(f"{process}, {when}, {NAMES[embedder]}")
            for embedder in EMBEDDERS
            for process in ("server", "index")
            for when in ("idle", "after work")
        ),
        memory.figure("extractor, idle, engine offline", MAX_EXTRACTOR_MB),
        memory.figure("extractor, idle, engine anthropic", MAX_EXTRACTOR_MB),
        memory.figure("extractor, after work, engine anthropic"),
    ]


async def _with(setting: Setting, store: str, embedder: str, memory: _Memory) -> None:
    """A server, idle and after commits and searches, and its extractors."""
    async with AsyncExitStack() as stack:
        whole = await stack.enter_async_context(fleet(setting, store, embedder))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(whole.running.address))
        client = await stack.enter_async_context(spoken(CLIENT))
        caller = Caller(channel, "idle", ACCOUNT)
        await caller.find("Is anything there?")
        _take(memory, whole, "idle", embedder)
        await _work(setting, whole, client)
        for number in range(setting.count(SEARCHES)):
            await Caller(channel, "user-0", ACCOUNT).find(f"Who was at the harbour with number {number}?")
        _take(memory, whole, "after work", embedder)


def _take(memory: _Memory, whole: Fleet, when: str, embedder: str) -> None:
    found = whole.processes
    memory.add(f"server, {when}, {NAMES[embedder]}", found["server"])
    memory.add(f"index, {when}, {NAMES[embedder]}", found["index"])
    if embedder == "none":
        memory.add(f"server and index, {when}, {NAMES[embedder]}", (*found["server"], *found["index"]))
    else:
        memory.add(f"extractor, {when}, engine anthropic", found["extractors"], share=EXTRACTORS)


async def _work(setting: Setting, whole: Fleet, client: Spoken) -> None:
    users = [f"user-{number}" for number in range(setting.count(USERS))]
    commits = setting.count(OF_EACH)
    steps: tuple[Any, ...] = ("prepare", "commit", "find")
    ends: dict[str, int] = {}
    for step in steps:
        order = Order(step, whole.running.address, users, commits, MESSAGES)
        ends |= Taken.from_json(await client.ask(order.to_json())).ends
    assert ends == {"TASK_STATE_COMPLETED": len(users) * commits}, ends


async def _offline(setting: Setting, store: str, memory: _Memory) -> None:
    arguments = ("--engine", "offline")
    async with (
        setting.server(store, extractors=EXTRACTORS, extractor_arguments=arguments) as running,
        watched(running),
    ):
        memory.add("extractor, idle, engine offline", running.extractor_pids, share=EXTRACTORS)
