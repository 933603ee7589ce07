"""The release before and this one side by side: on one store, with each other's workers, one server after another."""

import asyncio
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Awaitable, Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import grpc
import pytest

from runekeep.v1 import session_service_pb2, task_service_pb2
from runekeep_storage.migrations.migrate import HEAD, sqlite_schema
from tests.acceptance.processes import environment
from tests.support.callers import Caller, Failure, said, used_tool
from tests.support.postgres import EMPTY, PostgresServer
from tests.support.releases import import_path, module_of
from tests.support.server_process import ROOT, ServerProcess

RELEASE_BEFORE = "c089acea4df45c3282bfe96f9ca04e96500fb488"
"""The newest commit with the schema before HEAD's."""
SCHEMA_BEFORE = "r0001"
USERS = 2
SETTINGS = {
    "RUNEKEEP_LEASE_SECONDS": "4",
    "RUNEKEEP_HEARTBEAT_SECONDS": "1",
    "RUNEKEEP_FIRST_LEASE_SECONDS": "2",
    "RUNEKEEP_MAX_LOST_LEASES": "1000",
}
PASSING = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
"""The last one is how gRPC ends a call that reaches a server in the moment it stops."""


@pytest.fixture(scope="module")
def release_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its sources."""
    folder = tmp_path_factory.mktemp("release-before")
    with tarfile.open(fileobj=io.BytesIO(sources(ROOT, RELEASE_BEFORE))) as archive:
        archive.extractall(folder, filter="data")
    return folder


def sources(clone: Path, commit: str) -> bytes:
    """A tar file of them. A clone that was not made with the whole history gets what it lacks from its origin."""

    def git(*arguments: str) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            ["git", *arguments],
            cwd=clone,
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},
            capture_output=True,
            timeout=120,
            check=False,
        )

    found = git("archive", commit)
    if found.returncode:
        fetched = git("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "origin", commit)
        found = git("archive", commit)
        if found.returncode:
            why = (fetched.stderr or found.stderr).decode(errors="replace").strip()
            pytest.fail(
                f"{clone} has not the release before, commit {commit}, and cannot fetch it: {why}\n"
                f"Run `git fetch --unshallow`, or `git fetch <where the history is> {commit}`."
            )
    return found.stdout


def test_a_clone_without_the_release_before_fetches_it_or_says_what_to_do(tmp_path: Path) -> None:
    def git(*arguments: object) -> str:
        identity = ("-c", "user.name=Ann", "-c", "user.email=ann@example.com")
        command = ["git", *identity, *map(str, arguments)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()

    git("init", "-q", "whole")
    (tmp_path / "whole" / "before").touch()
    git("-C", "whole", "add", "before")
    git("-C", "whole", "commit", "-q", "-m", "The release before")
    before = git("-C", "whole", "rev-parse", "HEAD")
    git("-C", "whole", "commit", "-q", "--allow-empty", "-m", "This one")
    git("-C", "whole", "config", "uploadpack.allowAnySHA1InWant", "true")
    git("clone", "-q", "--depth=1", (tmp_path / "whole").as_uri(), "shallow")
    git("clone", "-q", "--depth=1", (tmp_path / "whole").as_uri(), "alone")
    git("-C", "alone", "remote", "remove", "origin")

    with pytest.raises(pytest.fail.Exception, match="fetch --unshallow"):
        sources(tmp_path / "alone", before)
    with tarfile.open(fileobj=io.BytesIO(sources(tmp_path / "shallow", before))) as archive:
        assert archive.getnames() == ["before"]


class Fleet:
    """Servers and extractors of both releases; all are gone when a test ends."""

    def __init__(self, root: Path, settings: dict[str, str]) -> None:
        self._root = root
        self._settings = settings
        self._servers: list[ServerProcess] = []
        self._extractors: list[subprocess.Popen[bytes]] = []

    def server(self, name: str, source: Path, address: str = "127.0.0.1:0") -> ServerProcess:
        server = ServerProcess(self._root / name, self._settings, source=source)
        self._servers.append(server)
        return server.start(address)

    def extractor(self, name: str, source: Path, server: ServerProcess) -> "subprocess.Popen[bytes]":
        command = [
            sys.executable,
            "-m",
            module_of("extractor", source),
            "--server",
            server.address,
            "--engine",
            "offline",
        ]
        with (self._root / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                command, cwd=source, env=environment(import_path(source)), stdout=log, stderr=log
            )
        self._extractors.append(process)
        return process

    def end(self) -> None:
        for process in self._extractors:
            process.kill()
            process.wait()
        for server in self._servers:
            server.discard()


@pytest.fixture
def fleets(tmp_path: Path) -> Iterator[Callable[[dict[str, str]], Fleet]]:
    made: list[Fleet] = []

    def make(settings: dict[str, str]) -> Fleet:
        made.append(Fleet(tmp_path, settings))
        return made[-1]

    yield make
    for fleet in made:
        fleet.end()


class User:
    """Talks and commits round after round, by whichever server answers, until it is told to stop."""

    def __init__(self, channels: list[grpc.aio.Channel], name: str) -> None:
        self._callers = [Caller(channel, name) for channel in channels]
        self.rounds = 0
        self.stopped = False
        self.tasks: list[str] = []
        self._news = asyncio.Event()

    async def insisted(self, call: Callable[[Caller], Awaitable[Any]]) -> Any:
        for caller in cycle(self._callers):
            try:
                return await call(caller)
            except grpc.aio.AioRpcError as error:
                assert error.code() in PASSING, Failure(error)
                await asyncio.sleep(0.05)

    async def talk(self) -> None:
        pb = session_service_pb2
        await self.insisted(
            lambda to: to.sessions.CreateSession(pb.CreateSessionRequest(session_id="s", request_id="c"))
        )
        while not self.stopped:
            at = self.rounds
            add = pb.AddMessagesRequest(
                session="s", messages=[said(f"round {at}"), used_tool(f"call-{at}", "found")], request_id=f"a-{at}"
            )
            commit = pb.CommitSessionRequest(session="s", request_id=f"k-{at}")
            await self.insisted(lambda to, add=add: to.sessions.AddMessages(add))  # type: ignore[misc]  # mypy cannot infer such lambdas
            answer = await self.insisted(lambda to, commit=commit: to.sessions.CommitSession(commit))  # type: ignore[misc]  # as above
            self.tasks.append(answer.task_id)
            await self.ended(answer.task_id)
            self.rounds += 1
            for caller in self._callers:
                # What either release wrote to the index is read by both. Not insisted on: a server may be away.
                try:
                    await self.found(caller)
                except grpc.aio.AioRpcError as error:
                    assert error.code() in PASSING, Failure(error)
            self._news.set()

    async def ended(self, task_id: str) -> None:
        updates = await self.insisted(lambda to: to.watch(task_id))
        assert updates[-1].ended.state == task_service_pb2.TASK_STATE_COMPLETED, updates[-1]

    async def found(self, caller: Caller) -> tuple[set[str], set[str], bool]:
        """Texts of passages and names of memories that a search finds, and whether all there is was searched."""
        answer = await caller.find("round grep", limit=100)
        passages = {
            one.passage.text.rpartition(": ")[2] for one in answer.results if one.WhichOneof("item") == "passage"
        }
        memories = {one.memory.uri for one in answer.results if one.WhichOneof("item") == "memory"}
        caught_up = answer.revision == answer.latest_revision and not answer.pending_passages
        return passages, memories, caught_up and "rebuilding" not in answer.degraded

    async def finds_all(self) -> None:
        """By every server that it talks to."""
        for caller in self._callers:
            async with asyncio.timeout(30):
                while not (found := await self.found(caller))[2]:  # noqa: ASYNC110 (told to nobody)
                    await asyncio.sleep(0.05)
            passages, memories, _ = found
            assert {f"round {at}" for at in range(self.rounds)} <= passages
            assert caller.uri("memories/tools/grep.md") in memories

    async def goes_on(self, rounds: int) -> None:
        wanted = self.rounds + rounds
        while self.rounds < wanted:
            self._news.clear()
            await self._news.wait()

    async def done(self) -> None:
        """Each commit was counted once, and every message is there once, in its order, and found."""
        assert len(set(self.tasks)) == self.rounds
        caller = self._callers[-1]
        request = session_service_pb2.ListMessagesRequest(
            session="s", scope=session_service_pb2.MESSAGE_SCOPE_ALL, page_size=200
        )
        texts = [one.parts[0].text.text for one in (await caller.sessions.ListMessages(request)).messages]
        assert [text for text in texts if text] == [f"round {at}" for at in range(self.rounds)]
        memory = await caller.memory(caller.uri("memories/tools/grep.md"))
        assert memory.fields["total_calls"].int64_value == self.rounds
        await self.finds_all()


def stop_release_before(server: ServerProcess) -> None:
    """Stops a server of the release before. A read of it may have failed once and been repeated later, when a migration
    changed the table behind its prepared statement."""
    server.terminate()
    try:
        server.ended()
    except AssertionError:
        faults = server.faults()
        if not faults or not all("InvalidCachedStatementError" in one.get("exception", "") for one in faults):
            raise


@pytest.mark.long
async def test_servers_are_upgraded_one_by_one_under_load_and_nothing_is_lost_or_doubled(
    fleets: Callable[[dict[str, str]], Fleet], release_before: Path, postgres_server: PostgresServer, index_url: str
) -> None:
    """The first new one migrates while the old ones serve; workers of both releases work for servers of both."""
    name = postgres_server.create(EMPTY)
    fleet = fleets({**SETTINGS, "RUNEKEEP_STORE_URL": postgres_server.url(name), "RUNEKEEP_INDEX_URL": index_url})
    old = [await asyncio.to_thread(fleet.server, f"old-{number}", release_before) for number in range(2)]
    assert postgres_server.sql("SELECT version_num FROM alembic_version", name) == SCHEMA_BEFORE
    fleet.extractor("of-before", release_before, old[0])
    fleet.extractor("of-now", ROOT, old[1])
    channels = [grpc.aio.insecure_channel(server.address) for server in old]
    users = [User(channels if number % 2 else channels[::-1], f"user-{number}") for number in range(USERS)]
    talking = [asyncio.create_task(user.talk()) for user in users]

    async def under_load(rounds: int = 1) -> None:
        going_on = asyncio.gather(*(user.goes_on(rounds) for user in users))
        await asyncio.wait([going_on, *talking], return_when=asyncio.FIRST_COMPLETED)
        for failed in talking:
            if failed.done():
                failed.result()

    async with asyncio.timeout(120):
        await under_load()
        now = []
        for number, server in enumerate(old):
            # The address stays: workers and callers find the new one where the old one was.
            await asyncio.to_thread(stop_release_before, server)
            now.append(await asyncio.to_thread(fleet.server, f"new-{number}", ROOT, server.address))
            assert postgres_server.sql("SELECT version_num FROM alembic_version", name) == HEAD
            await under_load()
        for user in users:
            user.stopped = True
        await asyncio.gather(*talking)
        # gRPC waits before it connects again to a server that was refused.
        await asyncio.gather(*(channel.channel_ready() for channel in channels))
        for user in users:
            await user.done()
    await asyncio.gather(*(channel.close() for channel in channels))
    for server in now:
        await asyncio.to_thread(server.stop)
    postgres_server.drop(name)


async def test_an_embedded_store_of_the_release_before_is_opened_with_all_it_holds(
    fleets: Callable[[dict[str, str]], Fleet], release_before: Path, tmp_path: Path
) -> None:
    fleet = fleets(SETTINGS)
    old = await asyncio.to_thread(fleet.server, "data", release_before)
    extractor = fleet.extractor("of-before", release_before, old)
    async with grpc.aio.insecure_channel(old.address) as channel:
        user = User([channel], "ann")
        talking = asyncio.create_task(user.talk())
        await user.goes_on(3)
        user.stopped = True
        await talking
        await user.done()
    extractor.kill()
    old.stop()
    found = sqlite_schema(tmp_path / "data" / "runekeep.db")
    assert found is not None and found.revision == SCHEMA_BEFORE

    new = await asyncio.to_thread(fleet.server, "data", ROOT)
    async with grpc.aio.insecure_channel(new.address) as channel:
        again = User([channel], "ann")
        again.rounds, again.tasks = user.rounds, user.tasks
        await again.done()
    new.stop()
    found = sqlite_schema(tmp_path / "data" / "runekeep.db")
    assert found is not None and found.revision == HEAD
