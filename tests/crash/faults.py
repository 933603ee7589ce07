"""The faults that are injected under load. Each returns once it has happened and the process is whole again."""

import asyncio
import os
import random
import resource
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import uuid4

import grpc

from runekeep.v1 import common_pb2
from runekeep.v1 import session_service_pb2 as session_pb
from runekeep_common import failpoints
from tests.crash.clients import CALL_SECONDS, PROBE, Client, Doors
from tests.crash.fleet import LEASE_SECONDS, Fleet, OnPostgres
from tests.crash.processes import Program
from tests.crash.workload import append, note
from tests.support.callers import said

FIRE_SECONDS = 180.0
"""A failpoint that has not fired after this long, under load, never will."""
OVERDUE_SECONDS = LEASE_SECONDS + 1.5
MAX_PASSES = 5
"""A server's failpoint fires when it is passed for the first time, or for one of the next: work is done in between."""
FULL_SECONDS = 1.0
"""How long a disk stays full once an append was refused, so that everything else that writes meets it too."""

ROOM_BYTES = 512 * 1024
"""What a file of the server may still grow on a full disk: its log is small and must not fill."""
PROBE_CHARACTERS = 100_000


class DidNotHappen(AssertionError):
    """A fault that could not be brought about proves nothing, so it fails the run."""


Inject = Callable[[Fleet, Program, random.Random], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Fault:
    """`on_server`: it needs a server for itself while it lasts, else an extractor."""

    name: str
    on_server: bool
    inject: Inject
    stores: tuple[str, ...] = ("sqlite", "postgres")


def faults_on(store_name: str) -> list[Fault]:
    """Every fault that a store can have."""
    return [fault for fault in FAULTS if store_name in fault.stores]


def _killed_at(point: str) -> Inject:
    async def inject(fleet: Fleet, program: Program, chance: random.Random) -> None:
        """Ends with the process dead: whoever comes next starts it, armed for the next fault or not at all."""
        program.kill()
        before = fleet.fired.count(point)
        passes = chance.randint(1, MAX_PASSES) if point in failpoints.SERVER else 1
        await program.start(f"{point}:KILL:{passes}")
        if program in fleet.servers:
            fleet.share_out(program)
        if not await program.died(FIRE_SECONDS) or fleet.fired.count(point) == before:
            raise DidNotHappen(f"{point} was not reached in {program.name}")

    return inject


async def _pause_worker(fleet: Fleet, program: Program, chance: random.Random) -> None:
    """Stops an extractor until a lease that it holds is taken back, then continues it."""
    await up(program)
    deadline = time.monotonic() + FIRE_SECONDS
    while time.monotonic() < deadline:
        before = fleet.expired(program.name)
        program.pause()
        try:
            await asyncio.sleep(OVERDUE_SECONDS)
        finally:
            program.resume()
        # It may have held no lease, or have sent the end of its job before it stopped.
        if fleet.expired(program.name) > before:
            return
        await asyncio.sleep(chance.random())
    raise DidNotHappen(f"{program.name} never lost a lease while it was stopped")


async def _pause_server(fleet: Fleet, program: Program, chance: random.Random) -> None:
    """Stops a server for longer than leases last; with two of them the other one takes them back meanwhile."""
    await up(program)
    program.pause()
    try:
        await asyncio.sleep(OVERDUE_SECONDS)
    finally:
        program.resume()


async def _cut_streams(fleet: Fleet, program: Program, chance: random.Random) -> None:
    """Breaks the connections of all workers while jobs are under way."""
    await up(program)
    deadline = time.monotonic() + FIRE_SECONDS
    while time.monotonic() < deadline:
        # The model answers at once, so a call to it shows that a job is in progress.
        if fleet.model_is_asked() and sum(tunnel.cut() for tunnel in fleet.tunnels):
            return
        await asyncio.sleep(0.001)
    raise DidNotHappen("there was no stream to cut while a job was under way")


async def _restart_database(fleet: Fleet, program: Program, chance: random.Random) -> None:
    """As after a crash: no connection is closed in order, and what was answered is in the write-ahead log alone."""
    assert isinstance(fleet.backing, OnPostgres)
    await up(program)
    async with fleet.ground:
        await asyncio.to_thread(fleet.backing.server.restart, "immediate")


async def _kill_index(fleet: Fleet, program: Program, chance: random.Random) -> None:
    """SIGKILL of the process that holds the index: the server's child, or the index server."""
    await up(program)
    if isinstance(fleet.backing, OnPostgres):
        async with fleet.ground:
            fleet.backing.index.kill()
            await fleet.backing.index.start()
        return
    (child,) = program.children()
    os.kill(child, signal.SIGKILL)
    deadline = time.monotonic() + FIRE_SECONDS
    while not [other for other in program.children() if other != child]:
        if time.monotonic() > deadline:
            raise DidNotHappen(f"{program.name} started no other index process")
        await asyncio.sleep(0.01)


async def _fill_disk(fleet: Fleet, program: Program, chance: random.Random) -> None:
    """No file of the server may grow any more, until an append is refused; then there is room again.

    The limit is on the size of files, which any process may set for its equals without mounting anything. What SQLite
    is told is EFBIG and not ENOSPC; the driver's own tests fill a database until SQLite says that it is full.
    """
    await up(program)
    doors = Doors(fleet.ports)
    client = Client(doors, PROBE, fleet.history, f"probe {chance.random()}")
    unlimited = resource.prlimit(program.pid, resource.RLIMIT_FSIZE)
    try:
        create = session_pb.CreateSessionRequest(request_id=str(uuid4()))
        session = (await client.send("sessions", "CreateSession", create)).session.session_id
        await append(client, session, [_probe(0)])
        room = program.log.stat().st_size + ROOM_BYTES
        resource.prlimit(program.pid, resource.RLIMIT_FSIZE, (room, unlimited[1]))
        refused = await append_until_refused(client, session)
        await asyncio.sleep(FULL_SECONDS)
    finally:
        resource.prlimit(program.pid, resource.RLIMIT_FSIZE, unlimited)
    try:
        # The very request that was refused, and one more.
        await client.send("sessions", "AddMessages", refused)
        note(client, session, list(refused.messages))
        await append(client, session, [_probe(9999)])
    finally:
        await doors.close()


async def append_until_refused(client: Client, session: str) -> session_pb.AddMessagesRequest:
    """The first append that was refused; those before it are in the history."""
    for number in range(1, 1000):
        message = _probe(number)
        request = session_pb.AddMessagesRequest(session=session, messages=[message], request_id=str(uuid4()))
        try:
            await client.once("sessions", "AddMessages", request)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise DidNotHappen(f"on a full disk an append was answered {error.code().name}") from error
            return request
        note(client, session, [message])
    raise DidNotHappen(f"the disk did not fill, each call within {CALL_SECONDS:g} s")


def _probe(number: int) -> common_pb2.Message:
    return said("filler " * (PROBE_CHARACTERS // 7), id=f"probe-{number}")


async def up(program: Program) -> None:
    """Starts it unarmed, unless it runs."""
    if not program.alive:
        await program.died(0)
        await program.start()


FAULTS = (
    *(Fault(f"SIGKILL at {point}", True, _killed_at(point)) for point in failpoints.SERVER),
    *(Fault(f"SIGKILL at {point}", False, _killed_at(point)) for point in failpoints.EXTRACTOR),
    Fault("SIGSTOP of an extractor past its lease", False, _pause_worker),
    Fault("SIGSTOP of a server past the leases", True, _pause_server),
    Fault("streams cut", False, _cut_streams),
    Fault("index process killed", True, _kill_index),
    Fault("PostgreSQL restarted", False, _restart_database, ("postgres",)),
    Fault("disk full on append", True, _fill_disk, ("sqlite",)),
)
