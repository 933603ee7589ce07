"""Faults of a whole system with default settings: processes killed and stopped, clock changes, a full disk.

Each function returns a sentence that shows that the fault struck. It raises DidNotHappen if it did not.
"""

import asyncio
import errno
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

from runekeep.v1 import session_service_pb2 as session_pb
from tests.crash.faults import DidNotHappen, append_until_refused
from tests.crash.installation import GONE_SECONDS, Installation, reached, state_of
from tests.crash.system import System
from tests.crash.workload import append, note
from tests.support.callers import said

LEASE_SECONDS = 60.0
"""By default."""
BUSY_SECONDS = 5.0
"""How long the model delays its answers, so that each extractor holds a lease."""
FULL_SECONDS = 10.0
MAX_MOMENT_SECONDS = 3.0
"""A process is killed at a random moment within this many seconds."""
CLOCK_SECONDS = 8.0
"""Pause between two changes of the clock."""
MAX_CLOCK_HOURS = 12.0
"""Less than the age at which a job is given up."""
SEEN_WITHIN = timedelta(seconds=5)
BALLAST_BYTES = 1024 * 1024

Inject = Callable[[System, random.Random], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class SystemFault:
    """`needs`: `root` or `faketime`, if the machine must have them. `short`: it takes seconds, not minutes."""

    name: str
    inject: Inject
    stores: tuple[str, ...] = ("sqlite", "postgres")
    needs: frozenset[str] = frozenset()
    short: bool = False


async def kill_server(system: System, chance: random.Random) -> str:
    """Kills with SIGKILL at a random moment; `up` must restart the process."""
    installation = await _some_moment(system, chance)
    killed = installation.server_pid
    await kill(killed)
    await installation.whole(other_than=killed)
    return f"server {killed} was killed, {installation.server_pid} serves"


async def kill_extractor(system: System, chance: random.Random) -> str:
    """Kills with SIGKILL at a random moment; `up` must restart the process."""
    installation = await _some_moment(system, chance)
    killed = chance.choice(installation.extractor_pids)
    await kill(killed)
    await installation.whole()
    return f"extractor {killed} was killed, {installation.extractor_pids} run"


async def kill_index(system: System, chance: random.Random) -> str:
    """Kills the process that holds the index with SIGKILL: the server's child, or the index server."""
    installation = await _some_moment(system, chance)
    if system.index is not None:
        killed = system.index.pid
        system.index.kill()
        await system.index.start()
        return f"index server {killed} was killed, {system.index.pid} serves"
    # The fault before may have killed it: the server starts another one.
    if not await reached(lambda: installation.index_pid is not None, GONE_SECONDS):
        raise DidNotHappen("there is no index process")
    killed = installation.index_pid
    await kill(killed)
    if not await reached(lambda: installation.index_pid not in (None, killed), GONE_SECONDS):
        raise DidNotHappen("no other index process was started")
    return f"index process {killed} was killed, {installation.index_pid} runs"


async def kill_up(system: System, chance: random.Random) -> str:
    """Kills `up` itself with SIGKILL: its processes end with it, and the next `up` goes on."""
    installation = await _some_moment(system, chance)
    killed = installation.pid
    others = await installation.kill()
    await installation.start()
    return f"up {killed} was killed, {len(others)} processes ended with it"


async def crash_database(system: System, chance: random.Random) -> str:
    """Crashes PostgreSQL: connections break, and what was acknowledged is only in its write-ahead log."""
    await _some_moment(system, chance)
    assert system.postgres is not None
    await asyncio.to_thread(system.postgres.restart, "immediate")
    return "PostgreSQL was stopped at once and started"


async def stop_extractor(system: System, chance: random.Random) -> str:
    """Stops an extractor that holds leases with SIGSTOP until they are taken back; then continues it."""
    installation = await _some_moment(system, chance)
    with system.model_that_waits():
        await asyncio.sleep(BUSY_SECONDS)
        pid = chance.choice(installation.extractor_pids)
        before = _expired(system)
        os.kill(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(LEASE_SECONDS * chance.uniform(1.2, 1.4))
        state = state_of(pid)
    finally:
        os.kill(pid, signal.SIGCONT)
    expired = _expired(system) - before
    if state != "T" or not expired:
        raise DidNotHappen(f"extractor {pid} was in state {state}, and {expired} leases ran out")
    return f"extractor {pid} was stopped, {expired} leases ran out"


async def stop_server(system: System, chance: random.Random) -> str:
    """Stops a server with SIGSTOP for longer than a lease."""
    installation = await _some_moment(system, chance)
    pid = installation.server_pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(LEASE_SECONDS * chance.uniform(1.1, 1.3))
        state, serves = state_of(pid), await installation.serves()
    finally:
        os.kill(pid, signal.SIGCONT)
    if state != "T" or serves:
        raise DidNotHappen(f"server {pid} was in state {state}, and serves: {serves}")
    await installation.whole()
    return f"server {pid} was stopped, and answered nobody"


async def move_clock(system: System, chance: random.Random) -> str:
    """Moves the clock of all processes forwards and backwards while they run."""
    (library,) = libfaketime()
    file = system.directory / "clock"
    file.write_text("+0")
    moved = {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    await _start_again(system, moved)
    hours = [chance.uniform(1, MAX_CLOCK_HOURS), -chance.uniform(1, MAX_CLOCK_HOURS), 0.0]
    seen = []
    try:
        for offset in (timedelta(hours=number) for number in hours):
            file.write_text(f"{offset.total_seconds():+.0f}")
            await asyncio.sleep(CLOCK_SECONDS)
            for installation in system.installations:
                told = await _server_time(installation) - datetime.now(UTC)
                if abs(told - offset) > SEEN_WITHIN:
                    raise DidNotHappen(f"the clock was moved by {offset}, the server's by {told}")
            seen.append(f"{offset.total_seconds() / 3600:+.1f} h")
    finally:
        file.write_text("+0")
        await _start_again(system, {})
    return f"servers told of a clock moved by {', '.join(seen)}"


async def fill_disk(system: System, chance: random.Random) -> str:
    """Fills the file system of the data directory for a while."""
    installation = await _some_moment(system, chance)
    ballast = installation.data_dir / "ballast"
    create = session_pb.CreateSessionRequest(request_id=str(uuid4()))
    session = (await system.probe.send("sessions", "CreateSession", create)).session.session_id
    try:
        met = _fill(ballast)
        refused = await append_until_refused(system.probe, session)
        until = time.monotonic() + FULL_SECONDS
        while time.monotonic() < until:
            await asyncio.sleep(0.5)
            met = _fill(ballast)
    finally:
        ballast.unlink(missing_ok=True)
    if met != errno.ENOSPC:
        raise DidNotHappen(f"the disk was full with {errno.errorcode.get(met, 'no error')}")
    # The same request that was refused, and one more.
    await system.probe.send("sessions", "AddMessages", refused)
    note(system.probe, session, list(refused.messages))
    await append(system.probe, session, [said("there is room again", id=f"after-{uuid4().hex}")])
    return "ENOSPC was met, an append was refused, and accepted when there was room"


def libfaketime() -> list[Path]:
    """Returns where Debian's package faketime has put its library; empty without the package."""
    return sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))


def missing_for(fault: SystemFault) -> str:
    """Returns what a fault needs and this machine lacks; empty if it has everything."""
    lacks = []
    if "root" in fault.needs and os.getuid() != 0:
        lacks.append("root")
    if "faketime" in fault.needs and not libfaketime():
        lacks.append("Debian's package faketime")
    return ", ".join(lacks)


async def _some_moment(system: System, chance: random.Random) -> Installation:
    """Waits for a random moment; returns a random installation."""
    installation = chance.choice(system.installations)
    await asyncio.sleep(chance.uniform(0, MAX_MOMENT_SECONDS))
    return installation


async def kill(pid: int | None) -> None:
    """Kills a process with SIGKILL; returns when it is gone. Raises DidNotHappen."""
    assert pid, "there is no process to kill"
    os.kill(pid, signal.SIGKILL)
    if not await reached(lambda: state_of(pid) in ("", "Z"), GONE_SECONDS):
        raise DidNotHappen(f"process {pid} outlived SIGKILL")


def _expired(system: System) -> int:
    return sum(installation.count("lease_expired") for installation in system.installations)


async def _start_again(system: System, extra: dict[str, str]) -> None:
    for installation in system.installations:
        await installation.stop()
        await installation.start(extra)


async def _server_time(installation: Installation) -> datetime:
    return datetime.fromtimestamp((await installation.status()).server_time.ToMilliseconds() / 1000, UTC)


def _fill(ballast: Path) -> int:
    """Writes to a file until the system refuses; returns the number of that error."""
    with ballast.open("ab", buffering=0) as file:
        block = bytes(BALLAST_BYTES)
        while block:
            try:
                file.write(block)
            except OSError as error:
                if len(block) == 1:
                    return error.errno or 0
                # In ever smaller pieces, so that no page is left.
                block = block[: len(block) // 2]
    return 0


FAULTS = (
    SystemFault("server killed", kill_server, short=True),
    SystemFault("extractor killed", kill_extractor, short=True),
    SystemFault("index process killed", kill_index, short=True),
    SystemFault("up killed", kill_up, short=True),
    SystemFault("PostgreSQL crashed", crash_database, ("postgres",), short=True),
    SystemFault("extractor stopped past its lease", stop_extractor),
    SystemFault("server stopped past the leases", stop_server),
    SystemFault("clock moved", move_clock, needs=frozenset({"faketime"}), short=True),
    SystemFault("disk full", fill_disk, ("sqlite",), needs=frozenset({"root"}), short=True),
)
