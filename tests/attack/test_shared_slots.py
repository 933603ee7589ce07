"""One account takes everything it can get of shared resources, and another one is still served."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import grpc
import pytest

from runekeep.v1 import memory_service_pb2 as wire
from runekeep.v1 import space_service_pb2 as pb
from tests.support.callers import Caller, failure, said, unique
from tests.support.server_process import ServerProcess

PATIENCE = 60.0
GREPS = 60
SLOW = "a[ab]{150}c"
"""An expression that takes long in the text of `fill_for_greps`."""


# So long that no test passes only because another caller's silence ended its import.
SERVER_SETTINGS = {"RUNEKEEP_LIMITS__IMPORT_IDLE_SECONDS": "600"}


@pytest.fixture
def greedy(channel: grpc.aio.Channel) -> Caller:
    return Caller(channel, unique("user"), unique("greedy"))


@pytest.fixture
def modest(channel: grpc.aio.Channel) -> Caller:
    return Caller(channel, unique("user"), unique("modest"))


async def talked(caller: Caller, line: str, lines: int) -> None:
    await caller.add(await caller.session(), said("\n".join([line] * lines)))


async def exported(caller: Caller) -> list[bytes]:
    return [part.data async for part in caller.spaces.ExportSpace(pb.ExportSpaceRequest(), timeout=PATIENCE)]


def imported(caller: Caller, parts: Sequence[bytes], *, end: bool = True) -> Any:
    """`end` False: the caller sends nothing more and stays."""

    async def requests() -> AsyncIterator[pb.ImportSpaceRequest]:
        yield pb.ImportSpaceRequest(options=pb.ImportOptions())
        for part in parts:
            yield pb.ImportSpaceRequest(data=part)
        if not end:
            await asyncio.Event().wait()

    return caller.spaces.ImportSpace(requests(), timeout=None)


async def test_idle_imports_shut_out_nobody(greedy: Caller, modest: Caller) -> None:
    await talked(modest, "the kettle is on", 1)
    archive = await exported(modest)
    idle = [imported(greedy, [], end=False) for _ in range(20)]
    # All that may start have started.
    await exported(greedy)
    again = Caller(modest.channel, unique("user"), modest.account)
    async with asyncio.timeout(PATIENCE):
        assert (await imported(again, archive)).contents.messages == 1
    assert not any(one.done() for one in idle)
    for one in idle:
        one.cancel()


async def test_an_import_that_says_nothing_ends(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", {"RUNEKEEP_LIMITS__IMPORT_IDLE_SECONDS": "0.2"}).start()
    try:
        async with grpc.aio.insecure_channel(server.address) as channel, asyncio.timeout(PATIENCE):
            caller = Caller(channel, unique("user"), unique("account"))
            assert (await failure(imported(caller, [], end=False))).code is grpc.StatusCode.UNAVAILABLE
            silent = caller.channel.stream_unary("/runekeep.v1.SpaceService/ImportSpace")
            metadata = (("x-runekeep-account", "acme"), ("x-runekeep-user", "ada"))
            assert (await failure(silent(metadata=metadata))).code is grpc.StatusCode.UNAVAILABLE
        server.stop()
    finally:
        server.discard()


async def fill_for_greps(caller: Caller) -> None:
    """Adds 4 MB of text in which `SLOW` finds nothing, after a long search."""
    session, letters = await caller.session(), Random(1)
    for _ in range(16):
        await caller.add(session, said("\n".join("".join(letters.choices("ab", k=2000)) for _ in range(120))))


async def test_expressions_that_take_long_hold_up_nobody_else(greedy: Caller, modest: Caller) -> None:
    await fill_for_greps(greedy)
    await talked(modest, "the kettle is on", 1)
    slow = wire.GrepDocumentsRequest(pattern=SLOW, uri=greedy.uri(""))

    async def grep() -> None:
        await greedy.memories.GrepDocuments(slow, timeout=None)

    greps = [asyncio.create_task(grep()) for _ in range(GREPS)]
    # The first of them is being searched now.
    await asyncio.wait(greps, return_when=asyncio.FIRST_COMPLETED)
    for _ in range(3):
        quick = wire.GrepDocumentsRequest(pattern="kettle", uri=modest.uri(""))
        assert (await modest.memories.GrepDocuments(quick)).matches
    # On a busy machine those that wait may be refused meanwhile.
    assert sum(one.done() and one.exception() is None for one in greps) < GREPS / 2
    for task in greps:
        task.cancel()
