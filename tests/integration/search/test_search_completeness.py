"""However memories and messages come in, an answer that claims to be complete finds all of them.

An answer claims to be complete when `revision` is `latest_revision`, nothing is pending and nothing is degraded. The
query shares no word with anything that is searched, so only vectors find it: data that waits for its vector is not
found.
"""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from runekeep.v1 import extractor_service_pb2, history_service_pb2
from tests.integration.conftest import CHANNEL_OPTIONS
from tests.support.callers import Caller, said
from tests.support.changes import put, written
from tests.support.exports import exported, imported
from tests.support.fork_server import run_module
from tests.support.server_process import ROOT, ServerProcess
from tests.support.worker import Worker, write

pytestmark = pytest.mark.postgres_long

MINILM = {"RUNEKEEP_EMBEDDER": "minilm"}
QUERY = "mountains"
MEMORIES, MESSAGES = 40, 30
SECONDS = 120.0

Servers = Callable[..., ServerProcess]


def passes_for_complete(answer: Any) -> bool:
    pending = answer.pending_passages or answer.pending_memories
    return answer.revision == answer.latest_revision and not pending and not answer.degraded


class Questions:
    """Repeats one search, and compares each answer that claims to be complete with what is stored."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self.incomplete = 0

    async def finds_all(self, memories: int, messages: int) -> None:
        """Searches until an answer claims to be complete, and a few times more."""
        complete = 0
        async with asyncio.timeout(SECONDS):
            while complete < 5:
                answer = await self._caller.find(QUERY, limit=100)
                if not passes_for_complete(answer):
                    assert not complete, answer
                    self.incomplete += 1
                    continue
                complete += 1
                found = [one.memory.memory_type for one in answer.results if one.HasField("memory")]
                passages = len(answer.results) - len(found)
                assert (len(found), passages) == (memories, messages)


@asynccontextmanager
async def channel_to(server: ServerProcess) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(server.address, options=CHANNEL_OPTIONS) as channel:
        yield channel


async def talked(caller: Caller) -> str:
    """Commits messages. Returns the task."""
    return str((await caller.committed(*(said(f"green tea number {one}") for one in range(MESSAGES)))).task_id)


async def filled(channel: grpc.aio.Channel, caller: Caller) -> str:
    """Commits MESSAGES messages, from which MEMORIES memories are made. Returns the task."""
    task_id = await talked(caller)
    async with Worker(channel) as worker:
        memories = [write("entities", entity_name=f"tea-{one}", content="green") for one in range(MEMORIES)]
        verdict = await worker.deliver((await worker.take()).lease, *memories)
    assert verdict.outcome == extractor_service_pb2.JOB_OUTCOME_APPLIED
    return task_id


@pytest.fixture(scope="module")
def server_settings(either_store: dict[str, str]) -> dict[str, str]:
    return either_store | MINILM


async def test_a_commit(channel: grpc.aio.Channel, caller: Caller) -> None:
    task_id = await filled(channel, caller)
    task = await caller.task(task_id)
    assert task.pending_passages or task.pending_memories, "the embedder cannot have been so fast"

    await Questions(caller).finds_all(MEMORIES, MESSAGES)

    task = await caller.task(task_id)
    assert task.HasField("pending_passages") and task.HasField("pending_memories")
    assert (task.pending_passages, task.pending_memories) == (0, 0)
    ended = (await caller.watch(task_id))[-1].ended
    assert ended.HasField("pending_passages") and not ended.pending_passages


async def test_a_change_by_hand_and_its_rollback(caller: Caller) -> None:
    questions = Questions(caller)
    for number in range(2):
        changes = [put("preferences", topic=f"tea {number}-{one}", content="green") for one in range(20)]
        answer = await written(caller, *changes)
        await questions.finds_all(20 * (number + 1), 0)
    await caller.history.RollbackRevision(history_service_pb2.RollbackRevisionRequest(revision=answer.revision))
    await questions.finds_all(20, 0)
    await caller.history.RollbackRevision(history_service_pb2.RollbackRevisionRequest(revision=answer.revision + 1))
    await questions.finds_all(40, 0)


async def test_an_import(channel: grpc.aio.Channel, callers: Callable[..., Caller]) -> None:
    ann, bob = callers(), callers()
    await filled(channel, ann)
    archive = await exported(ann)
    await imported(bob, archive, piece=len(archive))

    first = await bob.find(QUERY, limit=100)
    assert not passes_for_complete(first)
    questions = Questions(bob)
    await questions.finds_all(MEMORIES, MESSAGES)


async def test_how_long_an_import_waits_is_measured_from_the_import(
    own_server: Servers, fresh_store: dict[str, str]
) -> None:
    """Its archives were made long before the import."""
    server = await asyncio.to_thread(own_server, fresh_store | MINILM)
    async with channel_to(server) as channel:
        ann, bob = Caller(channel, "ann"), Caller(channel, "bob")
        await talked(ann)
        await Questions(ann).finds_all(0, MESSAGES)
        await asyncio.sleep(3)
        archive = await exported(ann)
        began = asyncio.get_running_loop().time()
        await imported(bob, archive, piece=len(archive))
        answer = await bob.find(QUERY)
        waited = asyncio.get_running_loop().time() - began
        assert answer.pending_passages
        assert answer.passage_lag.ToMicroseconds() / 1e6 <= waited < 3
    server.stop()


async def stopped(server: ServerProcess, command: Callable[[], Any]) -> None:
    await asyncio.to_thread(server.stop)
    await asyncio.to_thread(command)
    await asyncio.to_thread(server.start)


def rebuild(server: ServerProcess, settings: dict[str, str]) -> Callable[[], Awaitable[None] | None]:
    def run() -> None:
        environment = server._environment | settings
        command = [sys.executable, "-m", "runekeep_server.rebuild", "--data-dir", str(server.data_dir), "--json"]
        subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, timeout=SECONDS)
        server._environment |= settings

    return run


@pytest.mark.parametrize("before", ["none", "minilm"], ids=["with the first embedder", "with the same one"])
async def test_a_rebuild(own_server: Servers, fresh_store: dict[str, str], before: str) -> None:
    server = await asyncio.to_thread(own_server, fresh_store | {"RUNEKEEP_EMBEDDER": before})
    async with channel_to(server) as channel:
        caller = Caller(channel, "ann")
        await filled(channel, caller)
        await caller.searchable()
    await stopped(server, rebuild(server, MINILM))
    async with channel_to(server) as channel:
        await Questions(Caller(channel, "ann")).finds_all(MEMORIES, MESSAGES)
    server.stop()


async def test_a_restore(own_server: Servers, tmp_path: Path) -> None:
    """The backup was made while passages and vectors waited."""
    server = await asyncio.to_thread(own_server, MINILM)
    async with channel_to(server) as channel:
        await filled(channel, Caller(channel, "ann"))
        backup = ("backup", tmp_path / "backup", "--data-dir", server.data_dir)
        assert (await asyncio.to_thread(run_module, "runekeep", *backup)).returncode == 0
    server.stop()
    restore = ("restore", tmp_path / "backup", "--data-dir", tmp_path / "restored")
    assert (await asyncio.to_thread(run_module, "runekeep", *restore)).returncode == 0
    restored = await asyncio.to_thread(own_server, MINILM, "restored")
    async with channel_to(restored) as channel:
        await Questions(Caller(channel, "ann")).finds_all(MEMORIES, MESSAGES)
    restored.stop()
