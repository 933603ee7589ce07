"""DeleteUser as a call: who may make it, what it answers when it is repeated, and what becomes of files."""

import asyncio
import os
from collections.abc import Callable

import grpc

from runekeep.v1 import memory_service_pb2, session_service_pb2
from runekeep_storage.blobs.blobs import GRACE_SECONDS
from tests.support.callers import Caller, failure, said, used_tool
from tests.support.changes import put, written
from tests.support.server_process import ServerProcess
from tests.support.victims import NOT_FOUND, ONLY_PREFERENCES, SECRET, SESSION, delete_user, state
from tests.support.waiting import until

Servers = Callable[..., ServerProcess]


async def test_only_the_own_name_deletes(caller: Caller) -> None:
    await caller.session(ONLY_PREFERENCES, session_id=SESSION)
    for name in ("", "somebody", caller.user.upper(), f"{caller.user} ", "x" * 129):
        failed = await failure(caller.memories.DeleteUser(memory_service_pb2.DeleteUserRequest(user=name)))
        assert (failed.seen, failed.fields) == (("INVALID_ARGUMENT", "FIELD_INVALID"), ["user"])
    assert (await caller.sessions.GetSession(session_service_pb2.GetSessionRequest(session=SESSION))).session.uri


async def test_who_never_was_there_can_be_deleted(caller: Caller) -> None:
    answer = await caller.memories.DeleteUser(delete_user(caller))
    assert answer == memory_service_pb2.DeleteUserResponse()


async def test_a_call_repeated_after_the_deletion_does_not_say_that_it_is_done(caller: Caller) -> None:
    """A client repeats a call whose answer was lost; what it did is deleted by then, and must not be done again."""
    session = session_service_pb2.CreateSessionRequest(session_id=SESSION, request_id="r1")
    add = session_service_pb2.AddMessagesRequest(session=SESSION, messages=[said(SECRET)], request_id="r2")
    tea = put("preferences", topic="Music", content=f"Is a {SECRET}.")
    await caller.sessions.CreateSession(session)
    first = await caller.sessions.AddMessages(add)
    await written(caller, tea, request_id="r3")
    assert await caller.sessions.AddMessages(add) == first

    await caller.memories.DeleteUser(delete_user(caller))
    await caller.session(ONLY_PREFERENCES, session_id=SESSION)

    for call in (
        caller.sessions.CreateSession(session),
        caller.sessions.AddMessages(add),
        written(caller, tea, request_id="r3"),
    ):
        failed = await failure(call)
        assert (failed.seen, failed.resource[0]) == (NOT_FOUND, "request")
        assert "request_id" in failed.message
    read = await state(caller)
    assert all(SECRET.encode() not in one.SerializeToString() for one in read)
    add.request_id = "r4"
    assert (await caller.sessions.AddMessages(add)).messages[0].sequence == 1


async def test_large_outputs_of_a_deleted_user_leave_the_disk(own_server: Servers) -> None:
    server = own_server()
    async with grpc.aio.insecure_channel(server.address) as channel:
        callers = [Caller(channel, "ann"), Caller(channel, "bob")]
        for caller in callers:
            await caller.session(ONLY_PREFERENCES, session_id=SESSION)
            await caller.add(SESSION, used_tool("call-1", SECRET * 3000))
        folder = server.data_dir / "blobs" / "acme"
        blobs = [path for path in folder.rglob("*") if path.is_file()]
        assert len(blobs) == 2
        for path in blobs:
            os.utime(path, (path.stat().st_atime, path.stat().st_mtime - GRACE_SECONDS - 60))

        await callers[0].memories.DeleteUser(delete_user(callers[0]))

        await asyncio.to_thread(until, lambda: not (folder / "ann").exists())
        kept = await callers[1].read(callers[1].uri(f"sessions/{SESSION}/tools/call-1/tool.json"))
        assert SECRET in kept.text
    server.stop()
