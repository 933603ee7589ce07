"""A campaign: an installation under load, faults one after the other, then the drain, the look and the check."""

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from schemas import failpoints
from storage.database import Space
from tests.crash import eyes as store
from tests.crash.aftermath import drained, look
from tests.crash.checker import check, half_seen, overlapping
from tests.crash.clients import Client, Doors
from tests.crash.eyes import Eyes
from tests.crash.faults import DidNotHappen, Fault, up
from tests.crash.fleet import Backing, Fleet, running
from tests.crash.history import History, Move
from tests.crash.processes import BLIND_SERVER, Program
from tests.crash.violations import Violation, Wrong
from tests.crash.workload import Load

# Users of one name in two accounts are two users.
SPACES = (Space("alpha", "ann"), Space("alpha", "bob"), Space("beta", "ann"))
LOOK_SECONDS = 0.003
"""Between two looks at the watermarks: a move is known to lie between two looks."""
LONGER_SECONDS = 60.0
"""How long the load goes on after the last fault for searches that overlap applies."""
BLIND_SECONDS = 120.0
EXCUSED = frozenset({"store_commit_failed", "index_process_stuck", "index_process_killed"})
"""Errors that servers rightly log when a disk is full or an index process is killed."""


@dataclass(slots=True)
class Outcome:
    """Figures of a campaign, or of several that are added up."""

    rounds: int = 0
    fired: Counter[str] = field(default_factory=Counter)
    commits: int = 0
    turns: int = 0
    reconciliations: int = 0
    messages: int = 0
    searches: int = 0
    overlapping: int = 0
    reads: int = 0
    repeated_calls: int = 0
    process_starts: int = 0
    seconds: float = 0.0
    violations: list[Violation] = field(default_factory=list)

    def add(self, other: "Outcome") -> None:
        for name in self.__slots__:
            mine, others = getattr(self, name), getattr(other, name)
            setattr(self, name, mine + others)

    def as_json(self) -> dict[str, Any]:
        """All of it, violations by kind."""
        figures = {name: getattr(self, name) for name in self.__slots__ if name not in ("fired", "violations")}
        by_kind = Counter(str(violation.wrong) for violation in self.violations)
        figures["seconds"] = round(self.seconds, 1)
        return {**figures, "faults": dict(sorted(self.fired.items())), "violations": dict(sorted(by_kind.items()))}


async def campaign(
    backing: Backing,
    directory: Path,
    faults: Sequence[Fault],
    *,
    wanted_overlaps: int = 0,
    done: Callable[[str], None] = lambda name: None,
) -> Outcome:
    """Runs `faults`, each once, as many side by side as there are processes; then checks everything.

    The load goes on until so many searches have overlapped an apply. `done` is told of each fault that happened.
    Raises DidNotHappen for a fault that could not be brought about.
    """
    history = History()
    outcome = Outcome(rounds=len(faults))
    began = time.monotonic()
    async with running(backing, directory, history) as fleet, loaded(fleet, history) as loads:
        async with _watching(fleet.eyes, history):
            await _inject(fleet, faults, outcome, done, loads)
            deadline = time.monotonic() + LONGER_SECONDS
            while overlapping(history) < wanted_overlaps and time.monotonic() < deadline:
                await asyncio.sleep(0.2)
                _must_go_on(loads)
            await asyncio.gather(*(load.stop() for load in loads))
            await drained(fleet.eyes, list(SPACES))
        await _look(fleet, history)
        fired = Counter(fleet.fired)
        await fleet.stop()
        outcome.violations = [*check(history), *_logged(fleet)]
    _all_fired(faults, fired)
    clients = [client for load in loads for client in load.clients]
    outcome.commits = len(history.commits)
    outcome.turns = len(history.turns)
    outcome.reconciliations = sum(map(len, history.reconciled.values()))
    outcome.messages = sum(map(len, history.added.values()))
    outcome.searches = len(history.sights)
    outcome.overlapping = overlapping(history)
    outcome.reads = len(history.readings)
    outcome.repeated_calls = sum(client.repeated for client in clients)
    outcome.process_starts = sum(program.starts for program in (*fleet.servers, *fleet.extractors))
    outcome.seconds = time.monotonic() - began
    return outcome


@contextlib.asynccontextmanager
async def loaded(fleet: Fleet, history: History) -> AsyncIterator[list[Load]]:
    """Load on every space, until the end."""
    doors = Doors(fleet.ports)
    loads = [Load(doors, space, letter, history) for space, letter in zip(SPACES, "abcdefgh", strict=False)]
    for load in loads:
        load.start()
    try:
        yield loads
    finally:
        for load in loads:
            await load.end()
        await doors.close()


async def _inject(
    fleet: Fleet, faults: Sequence[Fault], outcome: Outcome, done: Callable[[str], None], loads: Sequence[Load]
) -> None:
    """A lane for each process, side by side: it takes the next fault of its kind, and ends with the process whole."""
    of_servers = deque(fault for fault in faults if fault.on_server)
    of_extractors = deque(fault for fault in faults if not fault.on_server)

    async def lane(program: Program, waiting: deque[Fault]) -> None:
        while waiting:
            fault = waiting.popleft()
            _must_go_on(loads)
            try:
                await fault.inject(fleet, program)
            except DidNotHappen as error:
                reason = next((repr(load.failed) for load in loads if load.failed), "")
                raise DidNotHappen(f"{fault.name}: {error} {reason} {fleet.history.faults[:3]}") from error
            outcome.fired[fault.name] += 1
            done(fault.name)
        await up(program)

    async with asyncio.TaskGroup() as lanes:
        for server in fleet.servers:
            lanes.create_task(lane(server, of_servers))
        for extractor in fleet.extractors:
            lanes.create_task(lane(extractor, of_extractors))


async def without_watermark(backing: Backing, directory: Path) -> tuple[int, int]:
    """Under load and without a fault, but with a server that has no watermark: searches until the first that saw half
    of a commit, and those that did; (n, 0) when none did for two minutes.
    """
    history = History()
    blind = running(backing, directory, history, server_module=BLIND_SERVER)
    async with blind as fleet, loaded(fleet, history) as loads:
        await asyncio.gather(*map(up, fleet.extractors))
        deadline = time.monotonic() + BLIND_SECONDS
        while time.monotonic() < deadline and not any(map(half_seen, history.sights)):
            await asyncio.sleep(0.1)
            _must_go_on(loads)
    return len(history.sights), sum(map(half_seen, history.sights))


def _must_go_on(loads: Sequence[Load]) -> None:
    for load in loads:
        if load.failed is not None:
            raise AssertionError(f"a client ended: {load.history.faults[:5]}") from load.failed


@contextlib.asynccontextmanager
async def _watching(eyes: Eyes, history: History) -> AsyncIterator[None]:
    """Notes in the background when watermarks move."""
    over = asyncio.Event()

    async def watch() -> None:
        known: dict[Space, int] = {}
        looked = time.monotonic()
        while not over.is_set():
            began = time.monotonic()
            for space, revision in (await store.watermarks(eyes)).items():
                if revision != known.get(space, 0):
                    history.moves.append(Move(space, revision, looked, time.monotonic()))
                    known[space] = revision
            looked = began
            await asyncio.sleep(LOOK_SECONDS)

    task = asyncio.create_task(watch())
    try:
        yield
    finally:
        over.set()
        await task


async def _look(fleet: Fleet, history: History) -> None:
    doors = Doors(fleet.ports)
    try:
        for space in {*SPACES, *(space for space, _ in history.added)}:
            history.aftermath[space] = await look(Client(doors, space, history), fleet.eyes)
    finally:
        await doors.close()


def _logged(fleet: Fleet) -> list[Violation]:
    """What programs logged as errors, once for each kind: a crash elsewhere is no error of theirs."""
    kinds = Counter((line["program"], str(line.get("event"))) for line in fleet.errors())
    return [
        Violation(Wrong.FAULT, None, f"{program} logged {event} {count} times")
        for (program, event), count in sorted(kinds.items())
        if event not in EXCUSED
    ]


def _all_fired(faults: Sequence[Fault], fired: Counter[str]) -> None:
    for point in (*failpoints.SERVER, *failpoints.EXTRACTOR):
        wanted = sum(fault.name == f"SIGKILL at {point}" for fault in faults)
        if fired[point] < wanted:
            raise DidNotHappen(f"{point} fired {fired[point]} times of {wanted}")
