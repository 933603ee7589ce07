"""Calls with little time against a store and an index that are held: they end, and leave nothing to be done later."""

import asyncio
import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import pytest

from runekeep.v1 import memory_service_pb2, session_service_pb2
from tests.support.callers import Caller, said
from tests.support.server_process import ServerProcess

HURRY = 0.05
MANY = 30


@contextmanager
def held_store(server: ServerProcess) -> Iterator[None]:
    """Another process has the writers' lock, as a backup tool may."""
    connection = sqlite3.connect(server.data_dir / "runekeep.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


async def in_a_hurry(call: "asyncio.Future[object]") -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_writes_that_came_too_late_are_not_made(caller: Caller, server: ServerProcess) -> None:
    session = await caller.session()
    with held_store(server):
        async with asyncio.timeout(8):
            # The first one holds the writer's thread; the others stand behind it.
            await asyncio.gather(
                *(
                    in_a_hurry(
                        caller.sessions.AddMessages(
                            session_service_pb2.AddMessagesRequest(session=session, messages=[said(f"late {number}")]),
                            timeout=HURRY,
                        )
                    )
                    for number in range(MANY)
                )
            )
    await caller.add(session, said("in time"))
    listed = await caller.sessions.ListMessages(session_service_pb2.ListMessagesRequest(session=session))
    assert [one.parts[0].text.text for one in listed.messages] == ["in time"]


async def test_searches_that_came_too_late_leave_the_index_alone(caller: Caller, server: ServerProcess) -> None:
    await caller.committed(said("tea"))
    await caller.find("tea")
    (child,) = server.children()
    request = memory_service_pb2.FindMemoriesRequest(query="tea")
    os.kill(child, signal.SIGSTOP)
    try:
        async with asyncio.timeout(8):
            await asyncio.gather(
                *(in_a_hurry(caller.memories.FindMemories(request, timeout=HURRY)) for _ in range(MANY))
            )
    finally:
        os.kill(child, signal.SIGCONT)
    found = await caller.find("tea")
    assert not found.degraded
    assert server.children() == [child]
