"""DeleteUser of a user with more rows than one transaction takes, by a whole server, and by one that dies over it."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc

from runekeep.v1 import session_service_pb2
from tests.support.callers import Caller, failure, said
from tests.support.changes import put, written
from tests.support.server_process import ServerProcess
from tests.support.victims import NOT_FOUND, ONLY_PREFERENCES, SECRET, SESSION, delete_user, state
from tests.support.waiting import until

Servers = Callable[..., ServerProcess]
REVISIONS = 200_000
GET = session_service_pb2.GetSessionRequest(session=SESSION)
GET_OR_MAKE = session_service_pb2.GetSessionRequest(session=SESSION, auto_create=True)
DELETED_NOW = ("UNAVAILABLE", "SPACE_BUSY")


def grown(data: Path) -> None:
    """Ann has a session and a memory already; now she has many commits, by a hand faster than calls."""
    with closing(sqlite3.connect(data / "runekeep.db")) as connection, connection:
        connection.execute(
            "INSERT INTO commits (account, user_id, revision, job_id)"
            " WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)"
            " SELECT 'acme', 'ann', 1000 + n, '' FROM numbers",
            (REVISIONS,),
        )
        connection.execute("UPDATE spaces SET revision = ? WHERE user_id = 'ann'", (1000 + REVISIONS,))


def rows(data: Path, table: str) -> int:
    with closing(sqlite3.connect(data / "runekeep.db", timeout=30)) as connection:
        (count,) = connection.execute(f"SELECT COUNT(*) FROM {table} WHERE user_id = 'ann'").fetchone()
    return int(count)


async def lived(caller: Caller) -> None:
    await caller.session(ONLY_PREFERENCES, session_id=SESSION)
    await caller.add(SESSION, said(SECRET))
    await written(caller, put("preferences", topic="Music", content=f"Is a {SECRET}."))


async def large_user(server: ServerProcess) -> None:
    """Leaves the server ended."""
    async with grpc.aio.insecure_channel(server.address) as channel:
        for name in ("ann", "bob"):
            await lived(Caller(channel, name))
    await asyncio.to_thread(server.stop)
    await asyncio.to_thread(grown, server.data_dir)


async def test_a_large_user_is_gone_at_once_and_begins_again(own_server: Servers) -> None:
    server = own_server()
    await large_user(server)
    server.start()
    async with grpc.aio.insecure_channel(server.address) as channel:
        ann, bob = Caller(channel, "ann"), Caller(channel, "bob")
        of_bob = await state(bob)
        deletion = asyncio.ensure_future(ann.memories.DeleteUser(delete_user(ann, "d1")))
        refused = 0
        await asyncio.to_thread(until, lambda: rows(server.data_dir, "shut_spaces"))
        while not deletion.done():
            seen: Any = (await failure(ann.sessions.GetSession(GET))).seen
            assert seen in (DELETED_NOW, NOT_FOUND)
            refused += seen == DELETED_NOW
            assert await state(bob) == of_bob
        answer = await deletion

        assert refused and (answer.sessions, answer.memories) == (1, 1)
        # Nobody waits any more.
        assert await ann.memories.DeleteUser(delete_user(ann, "d1")) == answer
        assert (await ann.sessions.GetSession(GET_OR_MAKE)).created
        assert [rows(server.data_dir, table) for table in ("commits", "memories", "shut_spaces")] == [0, 0, 0]
        assert all(SECRET.encode() not in one.SerializeToString() for one in await state(ann))
    await asyncio.to_thread(server.stop)


async def test_a_server_that_is_killed_over_it_finishes_when_it_is_back(own_server: Servers) -> None:
    server = own_server()
    await large_user(server)
    server.start()
    async with grpc.aio.insecure_channel(server.address) as channel:
        ann = Caller(channel, "ann")
        deletion = asyncio.ensure_future(ann.memories.DeleteUser(delete_user(ann, "d1")))
        await asyncio.to_thread(until, lambda: rows(server.data_dir, "shut_spaces"))
        await asyncio.to_thread(server.kill)
        await failure(deletion)
    assert 0 < rows(server.data_dir, "commits") < REVISIONS + 1, "killed in the middle"

    server.start()

    async with grpc.aio.insecure_channel(server.address) as channel:
        ann = Caller(channel, "ann")
        await asyncio.to_thread(until, lambda: not rows(server.data_dir, "shut_spaces"))
        assert [rows(server.data_dir, table) for table in ("commits", "memories")] == [0, 0]
        answer = await ann.memories.DeleteUser(delete_user(ann, "d1"))
        assert (answer.sessions, answer.memories) == (1, 1), "of the first call"
        assert (await failure(ann.sessions.GetSession(GET))).seen == NOT_FOUND
        await lived(ann)
    await asyncio.to_thread(server.stop)
