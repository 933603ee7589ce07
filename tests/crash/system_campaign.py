"""A campaign against a whole system with default settings: faults strike one after another under load, then it is
checked.

The seed decides which faults strike, in which order, and everything random about them.
"""

import asyncio
import contextlib
import random
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.crash.aftermath import drained
from tests.crash.campaign import Outcome, clients_of, loaded, look_at_all, must_go_on
from tests.crash.checker import check
from tests.crash.damage import DAMAGES
from tests.crash.faults import DidNotHappen
from tests.crash.history import History
from tests.crash.outages import OUTAGES
from tests.crash.system import System, running_system
from tests.crash.system_faults import FAULTS, SystemFault, missing_for
from tests.crash.violations import Violation, Wrong
from tests.crash.workload import Pace
from tests.support.postgres import PostgresServer

SYSTEM_FAULTS = (*FAULTS, *OUTAGES, *DAMAGES)
PACE = Pace(searchers=1, limit=50, pause=0.5, patience=400.0)
"""Settings of clients that read their answers. A call is repeated for as long as an outage and a start may take."""
BETWEEN_SECONDS = 1.0
DRAIN_SECONDS = 360.0
"""A job that met an outage waits up to 300 s by default before it is tried again."""
DISK_BYTES = 1024 * 1024 * 1024
"""Size of the file system that is filled. The store of a whole campaign must fit into it."""


def plan(store: str, seed: str, *, short: bool = False, needs_root: bool = False, rounds: int = 0) -> list[SystemFault]:
    """Returns the faults in the order in which they strike: each once, and some again if `rounds` asks for more.

    `needs_root`: only those that need root or a Debian package. Leaves out faults that this machine cannot run; this
    does not change the order of the others.
    """
    chance = random.Random(f"{seed} plan {store}")
    every = [fault for fault in SYSTEM_FAULTS if store in fault.stores]
    more = chance.choices(every, k=max(0, rounds - len(every)))
    planned = chance.sample([*every, *more], len(every) + len(more))
    return [
        fault
        for fault in planned
        if (fault.short or not short) and (bool(fault.needs) or not needs_root) and not missing_for(fault)
    ]


def left_out(store: str) -> dict[str, str]:
    """Returns the faults that this machine cannot run, and what they need."""
    return {fault.name: missing_for(fault) for fault in SYSTEM_FAULTS if store in fault.stores and missing_for(fault)}


async def system_campaign(
    directory: Path,
    postgres: PostgresServer | None,
    faults: Sequence[SystemFault],
    *,
    seed: str,
    pace: Pace = PACE,
    until: float = 0.0,
    done: Callable[[str, str], None] = lambda name, evidence: None,
) -> Outcome:
    """Runs each fault once, and then checks everything. Calls `done` with each fault and the evidence that it struck.

    `until`: a time of `time.monotonic` after which no further fault starts; 0: none. Raises DidNotHappen for a fault
    that did not strike.
    """
    history = History()
    outcome = Outcome()
    began = time.monotonic()
    small_disk = postgres is None and any("root" in fault.needs for fault in faults)
    with disk(directory / "data-0") if small_disk else contextlib.nullcontext():
        async with (
            running_system(directory, history, postgres) as system,
            loaded(system.ports, history, seed, pace) as loads,
            clients_of(system.ports, history, seed, patience=pace.patience) as lookers,
        ):
            for number, fault in enumerate(faults):
                if until and time.monotonic() > until:
                    break
                must_go_on(loads)
                evidence = await _strike(system, fault, random.Random(f"{seed} {number} {fault.name}"))
                outcome.rounds += 1
                outcome.fired[fault.name] += 1
                done(fault.name, evidence)
                await system.whole()
                await asyncio.sleep(BETWEEN_SECONDS)
            await asyncio.gather(*(load.stop() for load in loads))
            await drained(lookers, DRAIN_SECONDS)
            await look_at_all(lookers, history)
            await system.stop()
            outcome.violations = [*check(history), *system.violations, *_crashed(system), *_ended(system)]
    outcome.count(history, loads)
    outcome.process_starts = sum(installation.starts for installation in system.installations)
    outcome.seconds = time.monotonic() - began
    return outcome


async def _strike(system: System, fault: SystemFault, chance: random.Random) -> str:
    try:
        return await fault.inject(system, chance)
    except DidNotHappen as error:
        raise DidNotHappen(f"{fault.name}: {error}, {system.history.faults[:3]}") from error


def _crashed(system: System) -> list[Violation]:
    """Returns unexpected exceptions in the logs, each kind once: no fault excuses them."""
    kinds = {
        (installation.name, str(line.get("event")), str(line["exception"]).partition(":")[0])
        for installation in system.installations
        for line in installation.logged()
        if line.get("level") in ("error", "critical") and line.get("exception")
    }
    return [
        Violation(Wrong.FAULT, None, f"{name} logged {event} with {exception}")
        for name, event, exception in sorted(kinds)
    ]


def _ended(system: System) -> list[Violation]:
    """Each `up` that ended by itself: it is to start again what a fault ended."""
    return [
        Violation(Wrong.FAULT, None, f"`up` of {installation.name} ended {installation.restarted_by_driver} times")
        for installation in system.installations
        if installation.restarted_by_driver
    ]


@contextlib.contextmanager
def disk(place: Path) -> Iterator[None]:
    """Mounts a file system of DISK_BYTES at `place`, which needs root."""
    place.mkdir(parents=True, mode=0o700)
    options = f"size={DISK_BYTES},mode=0700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "runekeep-crash", place], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)
