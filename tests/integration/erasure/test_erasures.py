"""Data erased from a real server with a real index: not a byte of it stays in the data directory, whatever happens."""

import asyncio
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import grpc
import pytest

from runekeep.v1 import common_pb2, memory_service_pb2, session_service_pb2, task_service_pb2
from runekeep.v1 import extractor_service_pb2 as worker_pb
from runekeep.v1 import space_service_pb2 as pb
from runekeep_common import failpoints
from runekeep_storage.blobs.blobs import GRACE_SECONDS
from tests.support.bytes_on_disk import files_with
from tests.support.callers import Caller, failure, policy, said, used_tool
from tests.support.changes import put, written
from tests.support.postgres import PostgresServer
from tests.support.server_process import ServerProcess
from tests.support.worker import Worker, write

Servers = Callable[..., ServerProcess]

ROOT = Path(__file__).parents[3]
WORD = "quökkaburrow"
KEPT = "wallabygrass"
PEER = "quinn"
SESSION = "talk"
NOT_FOUND = ("NOT_FOUND", "RESOURCE_NOT_FOUND")
MESSAGES = 900
"""Of each third one the word is said: enough for pages of the store to be split and joined again."""


async def erased(caller: Caller, **scope: Any) -> pb.Erasure:
    return (await caller.spaces.EraseData(pb.EraseDataRequest(**scope))).erasure


async def receipt(caller: Caller, erasure_id: str) -> pb.Erasure:
    return (await caller.spaces.GetErasure(pb.GetErasureRequest(erasure_id=erasure_id))).erasure


async def verified(caller: Caller, erasure_id: str) -> pb.Erasure:
    async with asyncio.timeout(90):
        while (one := await receipt(caller, erasure_id)).state != pb.ERASURE_STATE_VERIFIED:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return one


def age_blobs(data: Path) -> None:
    """As if they had been put before their grace."""
    for path in (data / "blobs").rglob("*"):
        if path.is_file():
            os.utime(path, (0, path.stat().st_mtime - GRACE_SECONDS - 60))


def ids_of_word() -> list[str]:
    return [f"m{number}" for number in range(MESSAGES) if number % 3 == 0]


async def lived(channel: grpc.aio.Channel, caller: Caller) -> None:
    """A user who says the word in every way, and much else in between, that stays."""
    await caller.session(policy(types=["preferences"], peer=True), session_id=SESSION)
    for start in range(0, MESSAGES, 100):
        batch = []
        for number in range(start, start + 100):
            text = f"{WORD} {number} " * (number % 40 + 1) if number % 3 == 0 else f"{KEPT} {number} " * 9
            batch.append(said(text, id=f"m{number}", peer=PEER if number % 3 == 0 else ""))
        await caller.add(SESSION, *batch)
    await caller.add(SESSION, used_tool("call-1", f"{WORD} " * 4000, id="tool"))
    async with Worker(channel) as worker:
        await caller.commit(SESSION)
        lease = (await worker.take()).lease
        calls = [_answer(f"{WORD} was said")]
        about = write("preferences", topic=WORD, content=f"Likes the {WORD}.", ranges=[(1, 1)])
        kept = write("preferences", topic="Grass", content=f"Likes {KEPT}.", ranges=[(2, 2)])
        summary = f"About a {WORD}"
        verdict = await worker.deliver(lease, about, kept, summary=summary, model_calls=calls)
        assert verdict.outcome == worker_pb.JOB_OUTCOME_APPLIED
        await caller.add(SESSION, said(f"more {WORD}", id="more", peer=PEER))
        await caller.commit(SESSION)
        again = (await worker.take()).lease
        changed = write("preferences", topic="Grass", content=f"Likes {KEPT} and {WORD}.", ranges=[(902, 902)])
        assert (await worker.deliver(again, changed)).outcome == worker_pb.JOB_OUTCOME_APPLIED
    await written(caller, put("preferences", topic="Own", content=f"{KEPT} by hand"), request_id="by-hand")
    await caller.searchable()


def _answer(text: str) -> Any:
    return common_pb2.ModelCall(phase="operations", model="m", prompt_digest="ab" * 32, answer=text)


def scope_of(name: str, caller: Caller) -> dict[str, Any]:
    match name:
        case "user":
            return {"user": caller.user}
        case "peer":
            return {"peer_id": PEER}
        case "session":
            return {"session": SESSION}
        case _:
            ids = [*ids_of_word(), "more", "tool"]
            return {"messages": pb.MessageSet(session=SESSION, message_ids=ids)}


@pytest.mark.parametrize("scope", ["messages", "peer", "session", "user"])
async def test_no_byte_stays(own_server: Servers, scope: str) -> None:
    server = own_server()
    async with grpc.aio.insecure_channel(server.address) as channel:
        ann, bob = Caller(channel, "ann"), Caller(channel, "bob")
        await lived(channel, ann)
        await bob.session(session_id=SESSION)
        await bob.add(SESSION, said(KEPT, id="m0", peer=PEER))
        before = files_with(server.data_dir, WORD)
        assert any(name.startswith("runekeep.db") for name in before)
        assert any(name.startswith("blobs/") for name in before)
        age_blobs(server.data_dir)
        if scope == "peer":
            # The output of the tool is nobody's.
            await verified(ann, (await erased(ann, **scope_of_tool())).erasure_id)

        asked = await erased(ann, **scope_of(scope, ann))

        assert asked.state in (pb.ERASURE_STATE_REMOVING, pb.ERASURE_STATE_PURGING)
        if scope != "user":
            await nobody_reads(ann)
        done = await verified(ann, asked.erasure_id)
        assert (list(done.left_to_operator), done.verify_time.seconds > 0) == ([], True)
        assert done.erased.messages >= MESSAGES // 3
        if scope in ("messages", "peer"):
            grass = await ann.memory("viking://user/memories/preferences/Grass.md")
            assert grass.fields["content"].string_value == f"Likes {KEPT}."
            assert done.memories_reverted + done.erased.memories == 2
        assert (await failure(receipt(bob, done.erasure_id))).seen == NOT_FOUND
        assert not (await bob.spaces.ListErasures(pb.ListErasuresRequest())).erasures
        assert (await bob.sessions.GetSession(session_service_pb2.GetSessionRequest(session=SESSION))).session.uri
        listed = await bob.sessions.ListMessages(session_service_pb2.ListMessagesRequest(session=SESSION))
        assert [one.id for one in listed.messages] == ["m0"]
    assert files_with(server.data_dir, WORD) == {}
    assert bool(files_with(server.data_dir, KEPT))
    server.stop()
    # With what it logged.
    assert files_with(server.data_dir.parent, WORD) == {}


def scope_of_tool() -> dict[str, Any]:
    return {"messages": pb.MessageSet(session=SESSION, message_ids=["tool"])}


async def nobody_reads(caller: Caller) -> None:
    """What a user can ask for holds nothing of it, at once."""
    found = await caller.memories.FindMemories(memory_service_pb2.FindMemoriesRequest(query=WORD, limit=100))
    assert WORD not in repr([(one.memory, one.passage) for one in found.results])
    tree = await caller.memories.ListDirectory(memory_service_pb2.ListDirectoryRequest(depth=9))
    assert WORD not in repr(tree)
    tasks = await caller.tasks.ListTasks(task_service_pb2.ListTasksRequest())
    assert WORD not in repr(tasks)
    for session in (await caller.sessions.ListSessions(session_service_pb2.ListSessionsRequest())).sessions:
        messages = session_service_pb2.ListMessagesRequest(session=session.session_id, page_size=200)
        assert WORD not in repr(await caller.sessions.ListMessages(messages))


@pytest.mark.parametrize("place", failpoints.ERASURE)
async def test_a_server_that_is_killed_leaves_the_rest_to_the_next_one(
    own_server: Servers, tmp_path: Path, place: str
) -> None:
    fired = tmp_path / "fired"
    server = own_server({"RUNEKEEP_FAILPOINT": f"{place}:KILL", "RUNEKEEP_FAILPOINT_LOG": str(fired)})
    async with grpc.aio.insecure_channel(server.address) as channel:
        ann = Caller(channel, "ann")
        await lived(channel, ann)
        age_blobs(server.data_dir)
        request = pb.EraseDataRequest(**scope_of("messages", ann), request_id="e1")
        ending: Awaitable[Any] = ann.spaces.EraseData(request)
        if place == failpoints.ERASURE_BEFORE_COMMIT:
            assert (await failure(ending)).seen[0] == "UNAVAILABLE"
        else:
            await ending
        async with asyncio.timeout(60):
            while not fired.exists():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    server.kill()
    server = own_server()
    async with grpc.aio.insecure_channel(server.address) as channel:
        ann = Caller(channel, "ann")
        answer = (await ann.spaces.EraseData(request)).erasure
        await verified(ann, answer.erasure_id)
        assert len((await ann.spaces.ListErasures(pb.ListErasuresRequest())).erasures) == 1
    assert files_with(server.data_dir, WORD) == {}
    server.stop()
    with sqlite3.connect(server.data_dir / "runekeep.db") as store:
        assert store.execute("SELECT COUNT(*) FROM messages WHERE erased = 1").fetchone()[0] == len(ids_of_word()) + 2


async def test_readers_and_writers_go_on_while_data_is_erased(own_server: Servers) -> None:
    server = own_server()
    async with grpc.aio.insecure_channel(server.address) as channel:
        ann, bob = Caller(channel, "ann"), Caller(channel, "bob")
        await lived(channel, ann)
        age_blobs(server.data_dir)
        await bob.session(session_id=SESSION)
        over = asyncio.Event()
        said_by_bob = 0

        async def others() -> None:
            nonlocal said_by_bob
            while not over.is_set():
                await bob.add(SESSION, said(f"{KEPT} {said_by_bob}"))
                said_by_bob += 1
                await bob.memories.FindMemories(memory_service_pb2.FindMemoriesRequest(query=KEPT))

        going = asyncio.create_task(others())
        asked = await erased(ann, **scope_of("messages", ann))
        await verified(ann, asked.erasure_id)
        over.set()
        await going
        session = (await bob.sessions.GetSession(session_service_pb2.GetSessionRequest(session=SESSION))).session
        assert session.message_count == said_by_bob > 0
    assert files_with(server.data_dir, WORD) == {}
    server.stop()


@pytest.fixture
def url(postgres_server: PostgresServer) -> Iterator[str]:
    name = postgres_server.create()
    yield postgres_server.url(name)
    postgres_server.drop(name)


async def test_on_a_shared_store_the_receipt_says_what_is_left_to_do(
    own_server: Servers, url: str, index_url: str
) -> None:
    shared = {"RUNEKEEP_STORE_URL": url, "RUNEKEEP_INDEX_URL": index_url}
    first, second = own_server(shared, "first"), own_server(shared, "second")
    async with (
        grpc.aio.insecure_channel(first.address) as here,
        grpc.aio.insecure_channel(second.address) as there,
    ):
        ann, again = Caller(here, "ann"), Caller(there, "ann")
        await ann.session(policy(types=["preferences"]), session_id=SESSION)
        await ann.add(SESSION, said(KEPT, id="m1"), said(WORD, id="m2"))
        await ann.commit(SESSION)
        async with Worker(here) as worker:
            lease = (await worker.take()).lease
            about = write("preferences", topic="Quest", content=f"Likes the {WORD}.", ranges=[(2, 2)])
            await worker.deliver(lease, about, summary=f"About a {WORD}")
        asked = await erased(again, messages=pb.MessageSet(session=SESSION, message_ids=["m2"]))
        await nobody_reads(ann)
        done = await verified(ann, asked.erasure_id)
        told = " ".join(done.left_to_operator)
        assert all(word in told for word in ("VACUUM (FULL)", "write-ahead log", "Qdrant"))
        assert (done.erased.memories, done.erased.messages) == (1, 1)
    connection = await asyncpg.connect(url)
    try:
        tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        for table in tables:
            rows = await connection.fetch(f"SELECT * FROM {table['tablename']}")
            assert WORD not in repr([dict(row) for row in rows]), table["tablename"]
    finally:
        await connection.close()


def test_the_program_of_the_guide_runs_as_it_stands(own_server: Servers) -> None:
    guide = (ROOT / "docs" / "guides" / "erasing.md").read_text()
    found = re.search(r"<!-- example: erasure.py -->\n```python\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    assert found
    program = found[1].replace("127.0.0.1:7433", own_server().address)
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == re.findall(r"  # (.*)$", found[1], re.MULTILINE)


async def test_what_is_refused(caller: Caller) -> None:
    wrong = await failure(erased(caller, user="somebody"))
    assert (wrong.seen, wrong.fields) == (("INVALID_ARGUMENT", "FIELD_INVALID"), ["user"])
    assert (await failure(erased(caller))).seen[0] == "INVALID_ARGUMENT"
    for scope in (
        {"session": "none"},
        {"peer_id": "none"},
        {"messages": pb.MessageSet(session="none", message_ids=["m1"])},
    ):
        assert (await failure(erased(caller, **scope))).seen == NOT_FOUND
    assert (await failure(receipt(caller, "none"))).seen == NOT_FOUND
    nobody = await erased(caller, user=caller.user)
    assert nobody.erased == pb.SpaceContents()


async def test_a_repeat_is_answered_as_the_first_and_erases_nothing_more(caller: Caller) -> None:
    await caller.session(session_id=SESSION)
    await caller.add(SESSION, said("first", id="m1"))
    request = pb.EraseDataRequest(user=caller.user, request_id="once")
    first = await caller.spaces.EraseData(request)
    await caller.session(session_id=SESSION)
    assert await caller.spaces.EraseData(request) == first
    assert (await caller.sessions.GetSession(session_service_pb2.GetSessionRequest(session=SESSION))).session.uri
    second = await erased(caller, session=SESSION)
    pages = await caller.spaces.ListErasures(pb.ListErasuresRequest(page_size=1))
    assert [one.erasure_id for one in pages.erasures] == [second.erasure_id]
    rest = pb.ListErasuresRequest(page_size=1, page_token=pages.next_page_token)
    assert [one.erasure_id for one in (await caller.spaces.ListErasures(rest)).erasures] == [first.erasure.erasure_id]
