"""A session or a user is deleted while its commit is under way, at every step of it, and nothing comes back."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import task_service_pb2
from runekeep_storage.index.base import SPARSE_ONLY
from runekeep_storage.index.edge import EdgeIndex
from tests.doubles.qdrant import QdrantDouble
from tests.support.callers import Caller, Failure, failure, said
from tests.support.changes import put, written
from tests.support.postgres import PostgresServer
from tests.support.server_process import ROOT, ServerProcess
from tests.support.stores import on_postgres
from tests.support.victims import (
    MUSIC,
    NOT_FOUND,
    ONLY_PREFERENCES,
    SECRET,
    SESSION,
    STAGES,
    Victim,
    began_again,
    begin_again,
    delete_session,
    delete_user,
    just_applied,
    state,
    talk_is_gone,
    user_is_gone,
)
from tests.support.waiting import until
from tests.support.worker import Worker

Servers = Callable[..., ServerProcess]


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Settings of a server on an empty store."""
    if request.param == "sqlite":
        yield {}
        return
    with on_postgres(request.getfixturevalue("postgres_server")) as settings:
        yield settings


@asynccontextmanager
async def at(server: ServerProcess) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(server.address) as channel:
        yield channel


@pytest.mark.parametrize("whole", ["session", "user"])
async def test_nothing_comes_back_whatever_the_commit_was_at(
    own_server: Servers, store: dict[str, str], whole: str
) -> None:
    gone = talk_is_gone if whole == "session" else user_is_gone
    names = [f"user-{stage.__name__}".replace("_", "-") for stage in STAGES]
    # Somebody of the same account, and somebody of the same name in another one.
    strangers = (("other", "acme"), (names[1], "elsewhere"))
    server = own_server(store)
    async with at(server) as channel, Worker(channel) as worker:
        victims = [Victim(Caller(channel, name)) for name in names]
        others = [Victim(Caller(channel, *who)) for who in strangers]
        for one in (*victims, *others):
            await one.first_commit(worker)
        untouched = [await state(one.caller) for one in others]
        for victim, stage in zip(victims, STAGES, strict=True):
            memories = await memories_of(victim.caller)
            await stage(victim, worker)
            watch = await watching(victim)
            assert await deleted(victim, whole) == (0 if stage is just_applied else 1)
            await gone(victim)
            if stage is not just_applied:
                async with asyncio.timeout(20):
                    assert await watch == (("OK", "") if whole == "session" else NOT_FOUND)
            await victim.refused()
            await gone(victim)
            if whole == "session":
                assert await memories_of(victim.caller) == memories, "they outlive the session that they were made in"
                # The index is told of a space in order: when this is found, all that was to go before has gone.
                await written(victim.caller, put("preferences", topic="Mark", content="Is through."))
                await state(victim.caller)
            elif victim is not victims[0]:
                await begin_again(victim, worker)
        assert [await state(one.caller) for one in others] == untouched
    server.stop()

    left = 2 if whole == "session" else 0
    await points_are(server, victims[0].caller, left)
    assert rebuild(server, store) == points_of_all(whole)
    await points_are(server, victims[0].caller, left)
    await points_are(server, victims[1].caller, 2)
    server.start()
    async with at(server) as channel:
        for number, one in enumerate(victims):
            victim = Victim(Caller(channel, one.caller.user), one.applied, one.open)
            await (gone if whole == "session" or number == 0 else began_again)(victim)
        read = [await state(Caller(channel, *who)) for who in strangers]
        assert [*map(without_scores, read)] == [*map(without_scores, untouched)]
    server.stop()


async def deleted(victim: Victim, whole: str) -> int:
    """Deletes, twice with one request id; the number of commits that this cancelled."""
    caller = victim.caller
    answers = []
    for _ in range(2):
        if whole == "session":
            answers.append(await caller.sessions.DeleteSession(delete_session("d1")))
        else:
            answers.append(await caller.memories.DeleteUser(delete_user(caller, "d1")))
            assert (answers[-1].sessions, answers[-1].memories) == (1, 1)
    assert answers[0] == answers[1]
    return int(answers[0].cancelled_tasks)


async def watching(victim: Victim) -> "asyncio.Task[tuple[str, str]]":
    """A watch of the open commit, which has begun; it gives how it ended, as (code, reason)."""
    watch = victim.caller.tasks.WatchTask(task_service_pb2.WatchTaskRequest(task_id=victim.open.task_id))
    updates = aiter(watch)
    assert (await anext(updates)).HasField("snapshot")

    async def rest() -> tuple[str, str]:
        last = None
        try:
            async for update in updates:
                last = update
        except grpc.aio.AioRpcError as error:
            return Failure(error).seen
        assert last is not None
        assert last.ended.state in (task_service_pb2.TASK_STATE_CANCELLED, task_service_pb2.TASK_STATE_COMPLETED)
        return "OK", ""

    return asyncio.create_task(rest())


async def memories_of(caller: Caller) -> list[Any]:
    listed = await caller.listing(caller.uri("memories"), depth=16)
    return [listed, *[await caller.memory(one.uri) for one in listed.entries if one.memory_type]]


def without_scores(read: list[Any]) -> list[Any]:
    """Scores depend on what else was ever in the index; what is found does not."""
    found = type(read[0])()
    found.CopyFrom(read[0])
    for one in found.results:
        one.ClearField("score")
        one.ClearField("detail")
    return [found, *read[1:]]


async def points_are(server: ServerProcess, caller: Caller, count: int) -> None:
    """Looks into the index of a server that does not run."""
    index = EdgeIndex(server.data_dir / "index")
    await index.open(SPARSE_ONLY)
    try:
        assert await index.count(caller.account, caller.user) == count
    finally:
        await index.close()


def points_of_all(whole: str) -> dict[str, int]:
    """Two strangers have one memory and two messages each. Of victims: two memories, or nothing and what four of them
    wrote when they began again."""
    if whole == "session":
        return {"memories": 2 * 1 + 5 * 2, "passages": 2 * 2}
    return {"memories": 2 * 1 + 4 * 1, "passages": 2 * 2 + 4 * 1}


def rebuild(server: ServerProcess, settings: dict[str, str]) -> dict[str, int]:
    command = [sys.executable, "-m", "runekeep_server.rebuild", "--data-dir", str(server.data_dir), "--json"]
    environment = {**os.environ, "RUNEKEEP_EMBEDDER": "none", **settings}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


# Held at a step of the server itself


@pytest.mark.parametrize("whole", ["session", "user"])
@pytest.mark.parametrize("step", ["apply.prepared", "apply.before_commit", "relay.after_upsert", "relay.before_mark"])
async def test_nothing_comes_back_when_the_server_stood_still_at(
    own_server: Servers, tmp_path: Path, step: str, whole: str
) -> None:
    """The deletion comes while the server stands still, and is done as soon as it goes on, in whatever order."""
    fired = tmp_path / "fired"
    server = own_server({"RUNEKEEP_FAILPOINT": f"{step}:STOP:1", "RUNEKEEP_FAILPOINT_LOG": str(fired)})
    async with at(server) as channel, Worker(channel) as worker:
        victim = Victim(Caller(channel, "ann"))
        await victim.caller.session(ONLY_PREFERENCES, session_id=SESSION)
        victim.applied = await victim.caller.committed(said(f"I am a {SECRET}"), session=SESSION)
        lease = (await worker.take()).lease
        late = asyncio.create_task(victim.delivered(worker, lease))
        await stands_still(fired)
        if whole == "session":
            deletion = victim.caller.sessions.DeleteSession(delete_session())
        else:
            deletion = victim.caller.memories.DeleteUser(delete_user(victim.caller))
        go_on(fired)
        async with asyncio.timeout(30):
            await deletion
            # In time to be applied before it was deleted, or not.
            assert await late in (pb.JOB_OUTCOME_APPLIED, pb.JOB_OUTCOME_CANCELLED, pb.JOB_OUTCOME_LEASE_LOST)
        gone = talk_is_gone if whole == "session" else user_is_gone
        await gone(victim)
        if whole == "user":
            await begin_again(victim, worker)
            await began_again(victim)
    server.stop()


@pytest.fixture
async def shared(postgres_server: PostgresServer, tmp_path: Path) -> AsyncIterator[dict[str, str]]:
    """Settings of servers on one empty store and one empty index."""
    double = QdrantDouble(tmp_path)
    await double.start()
    with on_postgres(postgres_server) as settings:
        yield {**settings, "RUNEKEEP_INDEX_URL": f"grpc://127.0.0.1:{double.port}"}
        await double.stop()


@pytest.mark.parametrize("whole", ["session", "user"])
async def test_what_one_server_had_prepared_is_refused_when_another_deleted(
    own_server: Servers, shared: dict[str, str], tmp_path: Path, whole: str
) -> None:
    """One server holds the prepared commit, and stands still, while the other deletes and the user begins again."""
    fired = tmp_path / "fired"
    held = {"RUNEKEEP_FAILPOINT": "apply.prepared:STOP:1", "RUNEKEEP_FAILPOINT_LOG": str(fired)}
    # In threads: the double answers them on this loop.
    slow = await asyncio.to_thread(own_server, {**shared, **held}, "slow")
    quick = await asyncio.to_thread(own_server, shared, "quick")
    async with at(slow) as channel, at(quick) as other, Worker(channel) as worker, Worker(other) as second:
        victim = Victim(Caller(other, "ann"))
        await victim.caller.session(ONLY_PREFERENCES, session_id=SESSION)
        victim.applied = await victim.caller.committed(said(f"I am a {SECRET}"), session=SESSION)
        lease = (await worker.take()).lease
        late = asyncio.create_task(victim.delivered(worker, lease))
        await stands_still(fired)

        if whole == "session":
            answer = await victim.caller.sessions.DeleteSession(delete_session())
            await talk_is_gone(victim)
        else:
            answer = await victim.caller.memories.DeleteUser(delete_user(victim.caller))
            await user_is_gone(victim)
            await begin_again(victim, second)
        assert answer.cancelled_tasks == 1
        go_on(fired)
        async with asyncio.timeout(30):
            assert await late == (pb.JOB_OUTCOME_CANCELLED if whole == "session" else pb.JOB_OUTCOME_LEASE_LOST)
        if whole == "session":
            await talk_is_gone(victim)
            assert (await failure(victim.caller.memory(victim.caller.uri(MUSIC)))).seen == NOT_FOUND
        else:
            await began_again(victim)
    for server in (slow, quick):
        await asyncio.to_thread(server.stop)


async def stands_still(fired: Path) -> None:
    """Waits until the failpoint has fired and its process is stopped."""
    await asyncio.to_thread(until, lambda: fired.exists() and fired.read_text() and _state(_process(fired)) == "T")


def go_on(fired: Path) -> None:
    os.kill(_process(fired), signal.SIGCONT)


def _process(fired: Path) -> int:
    return int(fired.read_text().split()[1])


def _state(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
