"""Outages of what a system depends on, for OUTAGE_SECONDS and longer: model, index, embedder, blobs and PostgreSQL.

Each function returns a sentence that shows that the part was really away. It raises DidNotHappen if it was not.
"""

import asyncio
import contextlib
import os
import random
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import uuid4

import grpc

from runekeep.v1 import memory_service_pb2 as memory_pb
from runekeep.v1 import session_service_pb2 as session_pb
from runekeep.v1 import task_service_pb2 as task_pb
from tests.crash.aftermath import OPEN
from tests.crash.faults import DidNotHappen
from tests.crash.system import System
from tests.crash.system_faults import SystemFault
from tests.crash.workload import append
from tests.support.callers import said, used_tool

OUTAGE_SECONDS = 60.0
LOOK_SECONDS = 1.0
LARGE_OUTPUT = "what a tool put out " * 2000
"""It is stored apart from its message."""

Ask = Callable[[System], Awaitable[str]]
"""Tries something that needs the part that is away. Returns the error; empty if there was none."""


async def _model_away(system: System, chance: random.Random) -> str:
    port = int(system.model.url.rpartition(":")[2])
    system.model.down()
    try:
        seen = await _wait_out(system, chance, _refuses(port))
        waiting = await _open_tasks(system)
    finally:
        system.model.up()
    if not waiting:
        raise DidNotHappen("no task was open while the model was away")
    told = sorted({task.progress.message for task in waiting if task.progress.message})
    return f"{seen}; {len(waiting)} tasks were open, and told {told}"


async def _index_away(system: System, chance: random.Random) -> str:
    if system.index is not None:
        system.index.kill()
        try:
            return await _wait_out(system, chance, _search)
        finally:
            await system.index.start()
    async with _killing_index(system) as killed:
        seen = await _wait_out(system, chance, _search)
    return f"{seen}; {len(killed)} index processes were killed"


async def _embedder_away(system: System, chance: random.Random) -> str:
    session = await _session(system)
    system.embedder_away.touch()
    try:
        # New words, so that no stored vector is reused.
        await append(system.probe, session, [said(f"words {uuid4().hex}", id=f"embed-{uuid4().hex}")])
        seen = await _wait_out(system, chance, _search)
        refused = len(system.embedder_away.read_text().splitlines())
    finally:
        system.embedder_away.unlink()
    if not refused:
        raise DidNotHappen("nobody asked the embedder while it was away")
    return f"{seen}; the model was refused {refused} times"


async def _blobs_away(system: System, chance: random.Random) -> str:
    """Makes the object store unreachable, or replaces the folder of the blobs by something else."""
    session = await _session(system)

    async def store_output(system: System) -> str:
        request = session_pb.AddMessagesRequest(
            session=session, messages=[used_tool(f"probe-{uuid4().hex}", LARGE_OUTPUT)], request_id=str(uuid4())
        )
        return await _went_wrong(system, "sessions", "AddMessages", request)

    if system.object_door is not None:
        system.object_door.close()
        try:
            return await _wait_out(system, chance, store_output)
        finally:
            await system.object_door.start()
    folder = system.only.data_dir / "blobs"
    aside = folder.with_name("blobs-aside")
    folder.rename(aside)
    folder.touch()
    try:
        return await _wait_out(system, chance, store_output)
    finally:
        folder.unlink()
        aside.rename(folder)


async def _database_away(system: System, chance: random.Random) -> str:
    assert system.postgres is not None
    await asyncio.to_thread(system.postgres.down)
    try:
        request = task_pb.ListTasksRequest(page_size=1)
        return await _wait_out(system, chance, lambda system: _went_wrong(system, "tasks", "ListTasks", request))
    finally:
        await asyncio.to_thread(system.postgres.up)


async def _wait_out(system: System, chance: random.Random, ask: Ask) -> str:
    """Lets the outage last, and makes calls meanwhile. Raises DidNotHappen if none ever failed."""
    began = time.monotonic()
    over = began + OUTAGE_SECONDS * chance.uniform(1.0, 1.2)
    wrong: list[str] = []
    asked = 0
    while time.monotonic() < over:
        asked += 1
        how = await ask(system)
        wrong += [how] if how else []
        await asyncio.sleep(LOOK_SECONDS)
    seconds = time.monotonic() - began
    if not wrong:
        raise DidNotHappen(f"{asked} calls in {seconds:.0f} s of the outage went well")
    return f"away for {seconds:.0f} s, {len(wrong)} of {asked} calls met it, the first as {wrong[0]}"


async def _search(system: System) -> str:
    """Searches for words that nobody has searched for before."""
    request = memory_pb.FindMemoriesRequest(query=f"ledger {uuid4().hex}", limit=1)
    return await _went_wrong(system, "memories", "FindMemories", request)


async def _went_wrong(system: System, service: str, method: str, request: object) -> str:
    """Returns the error code of a call, or what its answer lacks; empty if it is as it should be."""
    try:
        answer = await system.probe.once(service, method, request)
    except grpc.aio.AioRpcError as error:
        return f"{error.code().name}, {error.details()}"
    degraded = list(getattr(answer, "degraded", ()))
    return f"degraded by {degraded}" if degraded else ""


def _refuses(port: int) -> Ask:
    async def ask(system: System) -> str:
        with socket.socket() as connection:
            return "a refused connection" if connection.connect_ex(("127.0.0.1", port)) else ""

    return ask


@contextlib.asynccontextmanager
async def _killing_index(system: System) -> AsyncIterator[list[int]]:
    """Kills each process that holds the embedded index as soon as it exists. Returns those that were killed."""
    killed: list[int] = []

    async def kill() -> None:
        while True:
            pid = system.only.index_pid
            if pid and pid not in killed:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
            await asyncio.sleep(0.05)

    task = asyncio.create_task(kill())
    try:
        yield killed
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _session(system: System) -> str:
    """Starts a new session of the probing user."""
    request = session_pb.CreateSessionRequest(request_id=str(uuid4()))
    return str((await system.probe.send("sessions", "CreateSession", request)).session.session_id)


async def _open_tasks(system: System) -> list[task_pb.Task]:
    """Returns the open tasks of all users."""
    request = task_pb.ListTasksRequest(states=OPEN, page_size=200)
    answers = [await client.send("tasks", "ListTasks", request) for client in system.lookers]
    return [task for answer in answers for task in answer.tasks]


OUTAGES = (
    SystemFault("model away", _model_away),
    SystemFault("index away", _index_away),
    SystemFault("embedder away", _embedder_away),
    SystemFault("blob store away", _blobs_away),
    SystemFault("PostgreSQL away", _database_away, ("postgres",)),
)
