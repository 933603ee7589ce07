"""An import whose server is killed, whose caller goes, or that nobody hears of any more: the user has nothing then, and
may begin again."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import grpc
import pytest

from runekeep.v1 import session_service_pb2
from runekeep.v1 import space_service_pb2 as pb
from tests.integration.conftest import CHANNEL_OPTIONS
from tests.support.callers import Caller, Failure, failure, said
from tests.support.exports import PIECE, exported, imported, spaces
from tests.support.server_process import ServerProcess

Servers = Callable[..., ServerProcess]
SETTINGS = {"RUNEKEEP_LEASE_SECONDS": "2", "RUNEKEEP_HEARTBEAT_SECONDS": "0.5", "RUNEKEEP_FIRST_LEASE_SECONDS": "1"}
LIST = session_service_pb2.ListSessionsRequest()
SECONDS = 60.0
BUSY = ("UNAVAILABLE", "SPACE_BUSY")


class Half:
    """An import of which the beginning was sent, and the rest waits until it is let go."""

    def __init__(self, caller: Caller, archive: bytes, part: float = 0.8) -> None:
        self._archive = archive
        self._cut = int(len(archive) * part)
        self.go_on = asyncio.Event()
        metadata = (("x-runekeep-account", caller.account), ("x-runekeep-user", caller.user))
        self.call = spaces(caller).ImportSpace(self._requests(), metadata=metadata)

    async def _requests(self) -> AsyncIterator[pb.ImportSpaceRequest]:
        yield pb.ImportSpaceRequest(options=pb.ImportOptions())
        for start in range(0, len(self._archive), PIECE):
            if start > self._cut:
                await self.go_on.wait()
            yield pb.ImportSpaceRequest(data=self._archive[start : start + PIECE])

    async def begun(self, caller: Caller) -> None:
        """Returns when callers are refused."""
        await becomes(caller, lambda found: found == BUSY)


async def outcome(caller: Caller) -> tuple[str, str] | int:
    """How many sessions the user has, or why nobody can tell."""
    try:
        return len((await caller.sessions.ListSessions(LIST)).sessions)
    except grpc.aio.AioRpcError as error:
        return Failure(error).seen


async def becomes(caller: Caller, wanted: Callable[[tuple[str, str] | int], bool]) -> tuple[str, str] | int:
    """What `outcome` tells when it is what is wanted: nobody tells when a space is shut or opened."""
    deadline = asyncio.get_running_loop().time() + SECONDS
    while not wanted(found := await outcome(caller)):
        assert asyncio.get_running_loop().time() < deadline, found
    return found


async def empty_again(caller: Caller) -> None:
    await becomes(caller, lambda found: found == 0)


async def full(caller: Caller) -> bytes:
    """The export of a user with a few hundred messages."""
    for name in ("a", "b", "c"):
        await caller.session(session_id=name)
        for number in range(8):
            await caller.add(
                name, *(said(f"{name} {number} {one} of green tea {hash((name, number, one))}") for one in range(50))
            )
        await caller.commit(name)
    return await exported(caller)


@pytest.fixture
def process(own_server: Servers) -> ServerProcess:
    return own_server(SETTINGS)


async def test_a_server_that_is_killed_leaves_nothing_of_an_import(process: ServerProcess) -> None:
    async with grpc.aio.insecure_channel(process.address, options=CHANNEL_OPTIONS) as channel:
        archive = await full(Caller(channel, "ann"))
        half, bob = Half(Caller(channel, "bob"), archive), Caller(channel, "bob")
        await half.begun(bob)
        await asyncio.sleep(0.5)
        process.kill()
        with suppress(grpc.aio.AioRpcError):
            await half.call
    process.start()
    async with grpc.aio.insecure_channel(process.address, options=CHANNEL_OPTIONS) as channel:
        bob = Caller(channel, "bob")
        await empty_again(bob)
        answer = await imported(bob, archive)
        assert (answer.contents.messages, len((await bob.sessions.ListSessions(LIST)).sessions)) == (1200, 3)
        async with asyncio.timeout(SECONDS):
            while (found := await bob.find("green tea", limit=5)).pending_passages:  # noqa: ASYNC110  # told to nobody
                await asyncio.sleep(0.02)
        assert len(found.results) == 5
    process.stop()


async def test_a_caller_who_goes_leaves_nothing_of_an_import(process: ServerProcess) -> None:
    async with grpc.aio.insecure_channel(process.address, options=CHANNEL_OPTIONS) as channel:
        archive = await full(Caller(channel, "ann"))
        bob = Caller(channel, "bob")
        half = Half(bob, archive)
        await half.begun(bob)
        half.call.cancel()
        await empty_again(bob)
        assert (await imported(bob, archive)).contents.messages == 1200
    process.stop()


async def test_a_slow_caller_is_waited_for(process: ServerProcess) -> None:
    """For longer than it takes until an import is taken to be dead."""
    async with grpc.aio.insecure_channel(process.address, options=CHANNEL_OPTIONS) as channel:
        archive = await full(Caller(channel, "ann"))
        bob = Caller(channel, "bob")
        half = Half(bob, archive)
        await half.begun(bob)
        await asyncio.sleep(5)
        assert await outcome(bob) == BUSY
        again = await failure(imported(bob, archive))
        assert again.seen == BUSY
        half.go_on.set()
        assert (await half.call).contents.messages == 1200
        assert await outcome(bob) == 3
    process.stop()


async def test_a_server_that_stood_still_for_too_long_does_not_go_on(process: ServerProcess) -> None:
    """Its time was over when it went on; whichever of the two came first, nothing half is there."""
    async with grpc.aio.insecure_channel(process.address, options=CHANNEL_OPTIONS) as channel:
        archive = await full(Caller(channel, "ann"))
        bob = Caller(channel, "bob")
        half = Half(bob, archive)
        await half.begun(bob)
        process.pause()
        await asyncio.sleep(3)
        process.go_on()
        half.go_on.set()
        try:
            whole = (await half.call).contents.messages
        except grpc.aio.AioRpcError:
            whole = 0
        found = await becomes(bob, lambda found: isinstance(found, int))
        assert (whole, found) in ((1200, 3), (0, 0))
    process.stop()
