"""Large requests of one account take bounded memory, and no other account waits for them."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from runekeep.v1 import common_pb2, session_service_pb2
from tests.support.callers import Caller, said, unique
from tests.support.server_process import ServerProcess

PATIENCE = 60.0
MAX_REQUEST_BYTES = 8 * 1024 * 1024
MAX_GROWTH_KB = 550 * 1024
"""How much forty requests of 7 MB at once may grow the server's memory: 780 MB were measured without a bound, 360 with
it."""
FLOOD = 40
ADD = "/runekeep.v1.SessionService/AddMessages"
LIMITS = {
    "RUNEKEEP_MAX_MESSAGE_BYTES": str(MAX_REQUEST_BYTES),
    # Two requests of the largest size, one for each account.
    "RUNEKEEP_LIMITS__REQUEST_BYTES": str(2 * MAX_REQUEST_BYTES),
    "RUNEKEEP_LIMITS__ACCOUNT_REQUEST_BYTES": str(MAX_REQUEST_BYTES),
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path / "data", LIMITS).start()
    try:
        yield process
        process.stop()
    finally:
        process.discard()


def resident_kb(pid: int) -> int:
    """Returns the peak memory of the process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


async def test_requests_that_never_arrive_hold_up_nobody_else(channel: grpc.aio.Channel) -> None:
    greedy, modest = (Caller(channel, unique("user"), unique("account")) for _ in range(2))
    metadata = (("x-runekeep-account", greedy.account), ("x-runekeep-user", greedy.user))
    stalled: list[Any] = [channel.stream_unary(ADD)(metadata=metadata, timeout=600) for _ in range(FLOOD)]
    waiting = await start_waiting_call(greedy)
    session = await modest.session()
    for _ in range(20):
        await modest.add(session, said("tea"))
    # The stalled calls end one after the other, so the account had no room for another request all the time.
    assert not all(call.done() for call in stalled)
    for call in stalled:
        call.cancel()
    await waiting


async def start_waiting_call(caller: Caller) -> asyncio.Task[str]:
    """Returns a call that waits for the caller's other calls. Tries again while a call is answered at once, since it
    arrived before those."""
    async with asyncio.timeout(PATIENCE):
        while True:
            call = asyncio.create_task(caller.session())
            done, _ = await asyncio.wait([call], timeout=1)
            if not done:
                return call


async def test_a_request_that_never_arrives_ends(channel: grpc.aio.Channel) -> None:
    """Whatever deadline its caller set: accounts that stall together would take all that is left for the others."""
    caller = Caller(channel, unique("user"), unique("account"))
    metadata = (("x-runekeep-account", caller.account), ("x-runekeep-user", caller.user))
    stalled = channel.stream_unary(ADD)(metadata=metadata, timeout=600)
    async with asyncio.timeout(PATIENCE):
        assert await stalled.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert "did not arrive" in (await stalled.details() or "")


async def test_a_flood_of_large_requests_takes_bounded_memory(server: ServerProcess, channel: grpc.aio.Channel) -> None:
    greedy, modest = (Caller(channel, unique("user"), unique("account")) for _ in range(2))
    session, other = await greedy.session(), await modest.session()
    parts = [common_pb2.Part(text=common_pb2.TextPart(text="word " * 40_000)) for _ in range(35)]
    large = common_pb2.Message(role=common_pb2.ROLE_USER, parts=parts)
    request = session_service_pb2.AddMessagesRequest(session=session, messages=[large])
    # In one piece, so that the client is not slower than the server.
    raw = request.SerializeToString()
    metadata = (("x-runekeep-account", greedy.account), ("x-runekeep-user", greedy.user))
    before = resident_kb(server.pid)
    flood = [channel.unary_unary(ADD)(raw, metadata=metadata, timeout=600) for _ in range(FLOOD)]
    ends = asyncio.gather(*(one.code() for one in flood))
    while not ends.done():
        await modest.add(other, said("tea"))
    assert resident_kb(server.pid) - before < MAX_GROWTH_KB
    assert set(await ends) <= {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED}
