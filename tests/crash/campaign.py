"""A campaign: an installation under load, faults one after the other, then the drain, the look and the check."""

import asyncio
import contextlib
import random
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runekeep_common import failpoints
from tests.crash.aftermath import drained, look
from tests.crash.checker import check, half_seen, overlapping
from tests.crash.clients import PATIENCE_SECONDS, PROBE, SPACES, Client, Doors
from tests.crash.faults import DidNotHappen, Fault, up
from tests.crash.fleet import Backing, Fleet, running
from tests.crash.history import History
from tests.crash.processes import Program
from tests.crash.violations import Violation, Wrong
from tests.crash.workload import FULL_PACE, Load, Pace

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

    def count(self, history: History, loads: Sequence[Load]) -> None:
        """Adds the figures of a history."""
        self.commits = len(history.commits)
        self.turns = len(history.turns)
        self.reconciliations = sum(map(len, history.reconciled.values()))
        self.messages = sum(map(len, history.added.values()))
        self.searches = len(history.sights)
        self.overlapping = overlapping(history)
        self.reads = len(history.readings)
        self.repeated_calls = sum(client.repeated for load in loads for client in load.clients)

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
    seed: str,
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
    async with (
        running(backing, directory, history) as fleet,
        loaded(fleet.ports, history, seed) as loads,
        clients_of(fleet.ports, history, seed) as lookers,
    ):
        await _inject(fleet, faults, seed, outcome, done, loads)
        deadline = time.monotonic() + LONGER_SECONDS
        while overlapping(history) < wanted_overlaps and time.monotonic() < deadline:
            await asyncio.sleep(0.5)
            must_go_on(loads)
        await asyncio.gather(*(load.stop() for load in loads))
        await drained(lookers)
        await look_at_all(lookers, history)
        fired = Counter(fleet.fired)
        await fleet.stop()
        outcome.violations = [*check(history), *_logged(fleet)]
    _all_fired(faults, fired)
    outcome.count(history, loads)
    outcome.process_starts = sum(program.starts for program in (*fleet.servers, *fleet.extractors))
    outcome.seconds = time.monotonic() - began
    return outcome


@contextlib.asynccontextmanager
async def loaded(
    ports: Sequence[int], history: History, seed: str, pace: Pace = FULL_PACE
) -> AsyncIterator[list[Load]]:
    """Load on every space, until the end."""
    doors = Doors(ports)
    letters = zip(SPACES, "abcdefgh", strict=False)
    loads = [Load(doors, space, letter, history, seed, pace) for space, letter in letters]
    for load in loads:
        load.start()
    try:
        yield loads
    finally:
        for load in loads:
            await load.end()
        await doors.close()


@contextlib.asynccontextmanager
async def clients_of(
    ports: Sequence[int], history: History, seed: str, patience: float = PATIENCE_SECONDS
) -> AsyncIterator[list[Client]]:
    """Returns a client for each space, for the reads at the end."""
    doors = Doors(ports)
    try:
        yield [Client(doors, space, history, f"{seed} {space}", patience) for space in (*SPACES, PROBE)]
    finally:
        await doors.close()


async def _inject(
    fleet: Fleet,
    faults: Sequence[Fault],
    seed: str,
    outcome: Outcome,
    done: Callable[[str], None],
    loads: Sequence[Load],
) -> None:
    """A lane for each process, side by side: it takes the next fault of its kind, and ends with the process whole."""
    planned = [(fault, random.Random(f"{seed} {number}")) for number, fault in enumerate(faults)]
    of_servers = deque((fault, chance) for fault, chance in planned if fault.on_server)
    of_extractors = deque((fault, chance) for fault, chance in planned if not fault.on_server)

    async def lane(program: Program, waiting: deque[tuple[Fault, random.Random]]) -> None:
        while waiting:
            fault, chance = waiting.popleft()
            must_go_on(loads)
            try:
                await fault.inject(fleet, program, chance)
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
    blind = running(backing, directory, history, without="watermark")
    async with blind as fleet, loaded(fleet.ports, history, "blind") as loads:
        await asyncio.gather(*map(up, fleet.extractors))
        deadline = time.monotonic() + BLIND_SECONDS
        while time.monotonic() < deadline and not any(map(half_seen, history.sights)):
            await asyncio.sleep(0.1)
            must_go_on(loads)
    return len(history.sights), sum(map(half_seen, history.sights))


def must_go_on(loads: Sequence[Load]) -> None:
    """Raises AssertionError if a client ended that should still run."""
    for load in loads:
        if load.failed is not None:
            raise AssertionError(f"a client ended: {load.history.faults[:5]}") from load.failed


async def look_at_all(lookers: Sequence[Client], history: History) -> None:
    """Reads every space that somebody wrote to, through the public API."""
    for client in lookers:
        if any(space == client.space for space, _ in history.added):
            history.aftermath[client.space] = await look(client)


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
