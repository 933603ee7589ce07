"""Backups of servers under load: what comes back is one moment, with every blob and every memory of it."""

import asyncio
import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc

from runekeep.v1 import common_pb2, history_service_pb2, session_service_pb2
from tests.acceptance.test_operations_pages import commands
from tests.acceptance.test_operations_pages import run as follow_page
from tests.integration.conftest import CHANNEL_OPTIONS
from tests.support.callers import Caller, said, used_tool
from tests.support.changes import put, written
from tests.support.fork_server import run_module
from tests.support.pages import DOCS, section
from tests.support.postgres import EMPTY, PostgresServer
from tests.support.server_process import ROOT, ServerProcess

USERS = 3
LARGE = 30_000
"""Characters of a tool output that is kept apart."""

MEMORY = "memories/preferences/round.md"

OwnServer = Callable[..., ServerProcess]


@dataclass
class Load:
    """Users who go on saying, showing and writing things until `stopped`. Each round of a user is a message, a large
    tool output and a version of one memory, in this order, all with the number of the round."""

    callers: list[Caller]
    rounds: list[int] = field(default_factory=lambda: [0] * USERS)
    stopped: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        await asyncio.gather(*(self._talk(number) for number in range(USERS)))

    async def _talk(self, number: int) -> None:
        caller = self.callers[number]
        session = await caller.session(session_id="s")
        while not self.stopped:
            at = self.rounds[number]
            await caller.add(session, said(f"round {at}"))
            await caller.add(session, used_tool(f"call-{at}", f"{at}-".ljust(LARGE, "x")))
            await written(caller, put("preferences", at, topic="round", content=f"round {at}"))
            self.rounds[number] += 1
            self.news.set()

    async def goes_on(self, rounds: int) -> None:
        """Waits until every user has made so many more."""
        wanted = [done + rounds for done in self.rounds]
        while any(done < want for done, want in zip(self.rounds, wanted, strict=True)):
            self.news.clear()
            await self.news.wait()


async def everything_said(caller: Caller) -> list[common_pb2.Part]:
    """The first parts of all messages of the session."""
    parts: list[common_pb2.Part] = []
    token = ""
    while True:
        page = await caller.sessions.ListMessages(
            session_service_pb2.ListMessagesRequest(
                session="s", scope=session_service_pb2.MESSAGE_SCOPE_ALL, page_size=20, page_token=token
            )
        )
        parts += [message.parts[0] for message in page.messages]
        token = page.next_page_token
        if not token:
            return parts


async def assert_one_moment(before: list[int], restored: list[Caller], original: list[Caller]) -> None:
    """Each user's data is that of one moment after `before`: no round has a gap in it, every output can be read, and
    the memory is what the original server says it was at that revision."""
    for done, here, there in zip(before, restored, original, strict=True):
        parts = await everything_said(here)
        texts = [part.text.text for part in parts if part.HasField("text")]
        calls = [part.tool.tool_id for part in parts if part.HasField("tool")]
        assert done <= len(calls) <= len(texts) <= len(calls) + 1
        assert texts == [f"round {at}" for at in range(len(texts))]
        assert calls == [f"call-{at}" for at in range(len(calls))]
        for at, call in enumerate(calls):
            document = await here.read(here.uri(f"sessions/s/tools/{call}/tool.json"))
            assert json.loads(document.text)["output"] == f"{at}-".ljust(LARGE, "x")
        newest = (await here.history.ListRevisions(history_service_pb2.ListRevisionsRequest(page_size=1))).revisions[0]
        uri, as_of = here.uri(MEMORY), common_pb2.AsOf(revision=newest.number)
        now, then = await here.memory(uri), await there.memory(uri, as_of=as_of)
        assert done <= now.version <= len(calls) <= now.version + 1
        assert (now.version, now.fields["content"].string_value) == (then.version, then.fields["content"].string_value)
        found = await here.find("round", min_revision=newest.number)
        assert uri in {one.memory.uri for one in found.results}


def run(*command: object) -> str:
    ran = subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{command}: {ran.stdout}{ran.stderr}"
    return ran.stdout


def runekeep(*arguments: object) -> Any:
    ran = run_module("runekeep", *arguments, "--json")
    assert ran.returncode == 0, f"{arguments}: {ran.stdout}{ran.stderr}"
    return json.loads(ran.stdout)


async def under_load(server: ServerProcess, back_up: Callable[[], object]) -> tuple[list[int], list[int]]:
    """Rounds that were done before the backup began, and when the load ended after it."""
    async with grpc.aio.insecure_channel(server.address, options=CHANNEL_OPTIONS) as channel:
        load = Load([Caller(channel, f"user-{number}") for number in range(USERS)])
        running = asyncio.create_task(load.run())
        await load.goes_on(5)
        before = list(load.rounds)
        await asyncio.to_thread(back_up)
        await load.goes_on(2)
        load.stopped = True
        await running
    return before, list(load.rounds)


async def compare(before: list[int], restored: ServerProcess, original: ServerProcess) -> None:
    async with (
        grpc.aio.insecure_channel(restored.address, options=CHANNEL_OPTIONS) as here,
        grpc.aio.insecure_channel(original.address, options=CHANNEL_OPTIONS) as there,
    ):
        users = [f"user-{number}" for number in range(USERS)]
        await assert_one_moment(before, [Caller(here, user) for user in users], [Caller(there, user) for user in users])


async def test_an_embedded_store_is_backed_up_while_its_server_works(tmp_path: Path, own_server: OwnServer) -> None:
    server = own_server()

    def back_up() -> None:
        told.update(runekeep("backup", tmp_path / "backup", "--data-dir", server.data_dir))

    told: dict[str, Any] = {}
    before, after = await under_load(server, back_up)

    assert told["done"] == "made" and told["missing_blobs"] == []
    assert sum(before) <= told["blobs"] <= sum(after)
    assert runekeep("restore", tmp_path / "backup", "--check")["blobs"] == told["blobs"]
    runekeep("restore", tmp_path / "backup", "--data-dir", tmp_path / "restored")
    restored = await asyncio.to_thread(own_server, None, "restored")
    await compare(before, restored, server)
    restored.stop()
    server.stop()


async def test_a_postgresql_is_backed_up_and_restored_as_the_page_says_while_its_server_works(
    tmp_path: Path, own_server: OwnServer, postgres_server: PostgresServer
) -> None:
    name = postgres_server.create(EMPTY)
    (tmp_path / "blobs").mkdir()
    server = own_server({"RUNEKEEP_STORE_URL": postgres_server.url(name), "RUNEKEEP_BLOB_DIR": str(tmp_path / "blobs")})
    lines = commands(section(DOCS / "operate" / "backup.md", "PostgreSQL"))
    programs = [line.split()[0] for line in lines]
    assert programs == ["mkdir", "cp", "pg_dump", "cp", "createdb", "pg_restore", "psql", "cp"]
    address = urlsplit(postgres_server.url(name))
    variables = {
        "PATH": f"{postgres_server.program('psql').parent}{os.pathsep}{os.environ['PATH']}",
        "PGHOST": str(address.hostname), "PGPORT": str(address.port), "PGUSER": str(address.username),
    }  # fmt: skip

    def follow(lines: list[str]) -> None:
        for line in lines:
            for database, there in (("database", name), ("restored", "restored")):
                line = line.replace(f"postgresql://user@host/{database}", postgres_server.url(there))
            follow_page(line, tmp_path, **variables)

    try:
        before, _ = await under_load(server, lambda: follow(lines[:4]))
        await asyncio.to_thread(follow, lines[4:])
        settings = {
            "RUNEKEEP_STORE_URL": postgres_server.url("restored"),
            "RUNEKEEP_BLOB_DIR": str(tmp_path / "restored-blobs"),
        }
        restored = await asyncio.to_thread(own_server, settings, "restored")
        await compare(before, restored, server)
        restored.stop()
        server.stop()
    finally:
        postgres_server.sql("DROP DATABASE IF EXISTS restored WITH (FORCE)")
        postgres_server.drop(name)


def test_a_postgresql_is_left_to_its_own_programs(tmp_path: Path) -> None:
    environment = {**os.environ, "RUNEKEEP_STORE_URL": "postgresql://ann:hidden@127.0.0.1/store"}
    ran = run_module("runekeep", "backup", tmp_path / "backup", "--data-dir", tmp_path, environment=environment)
    assert ran.returncode == 2 and "its own programs" in ran.stderr and "hidden" not in ran.stderr
    assert list(tmp_path.iterdir()) == []
