"""Files that were damaged below a running server: what is damaged is named as such, and never served."""

import os
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from runekeep.v1 import session_service_pb2
from tests.support.callers import Caller, failure, said, used_tool
from tests.support.exports import exported
from tests.support.server_process import ServerProcess
from tests.support.worker import Worker, write

Servers = Callable[..., ServerProcess]
DAMAGED = ("DATA_LOSS", "DATA_DAMAGED")
OUTPUT = "one line of a long output\n" * 2000


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def extend(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


def the_blob(server: ServerProcess) -> Path:
    (blob,) = (path for path in (server.data_dir / "blobs").rglob("*") if path.is_file())
    return blob


@pytest.mark.parametrize("damage", [flip, cut, extend])
async def test_a_damaged_blob_is_never_served(own_server: Servers, damage: Callable[[Path], None]) -> None:
    server = own_server()
    async with grpc.aio.insecure_channel(server.address) as channel:
        caller = Caller(channel, "anna")
        session = await caller.session()
        await caller.add(session, used_tool("call-1", OUTPUT))
        uri = f"viking://session/{session}/tools/call-1/tool.json"
        assert (await caller.read(uri)).text

        damage(the_blob(server))

        assert (await failure(caller.read(uri))).seen == DAMAGED
        assert (await failure(caller.read(uri, offset=0, limit=1))).seen == DAMAGED
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await exported(caller)
        assert error.value.code() is grpc.StatusCode.DATA_LOSS
        # The preview lies in the message's own row.
        listed = await caller.sessions.ListMessages(session_service_pb2.ListMessagesRequest(session=session))
        assert listed.messages[0].parts[0].tool.output.startswith("one line")

        # The same output once more makes it whole.
        await caller.add(session, used_tool("call-2", OUTPUT))
        assert (await caller.read(uri)).text


async def test_a_commit_goes_on_without_a_damaged_output(own_server: Servers) -> None:
    server = own_server()
    async with grpc.aio.insecure_channel(server.address) as channel:
        caller = Caller(channel, "anna")
        session = await caller.session()
        await caller.add(session, said("look it up"), used_tool("call-1", OUTPUT))
        flip(the_blob(server))
        await caller.commit(session)
        async with Worker(channel) as worker:
            job = await worker.take()
            given = await worker.input(job.lease)
            output = next(part.tool.output for one in given.messages for part in one.parts if part.HasField("tool"))
            assert output.startswith("one line") and output.endswith("cannot be read.]")
            verdict = await worker.deliver(job.lease, write("preferences", topic="Tea", content="Green."))
        assert verdict.revision == 1


async def test_a_damaged_page_is_no_outage(own_server: Servers) -> None:
    """Pages that hold the texts of messages are overwritten: SQLite serves the bytes, which are no text any more."""
    server = own_server()
    async with grpc.aio.insecure_channel(server.address) as channel:
        caller = Caller(channel, "anna")
        session = await caller.session()
        for _ in range(20):
            await caller.add(session, *(said("tea " * 2000) for _ in range(10)))
    server.stop()
    database = server.data_dir / "runekeep.db"
    server.start()
    with database.open("r+b") as file:
        file.seek(400 * 4096)
        while file.tell() < database.stat().st_size - 4096:
            file.write(os.urandom(4096))
    async with grpc.aio.insecure_channel(server.address) as channel:
        caller = Caller(channel, "anna")
        request = session_service_pb2.ListMessagesRequest(session=session, page_size=200)
        assert (await failure(caller.sessions.ListMessages(request))).seen == DAMAGED
    log = server.log()
    assert "database_damaged" in log and "tea tea" not in log
