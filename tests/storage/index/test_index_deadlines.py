"""The embedded index and calls whose time is over: they end in time, and nothing of them is done later."""

import asyncio
import os
import signal
from io import BytesIO
from pathlib import Path
from time import monotonic
from typing import Any, cast

import pytest

from runekeep_storage import deadline
from runekeep_storage.errors import DeadlinePassed
from runekeep_storage.index.edge import EdgeIndex
from runekeep_storage.index.edge_engine import EdgeEngine
from runekeep_storage.index.edge_process import DirectoryLock, EdgeServer
from runekeep_storage.index.frames import HEADER_SIZE, Request, answer_of, body_size, exception_of, pack
from tests.support.storage.index_points import ask, opened, point


class Engine:
    """Says which calls came to it."""

    dirty = False

    def __init__(self) -> None:
        self.served: list[str] = []

    def count(self, account: str, user: str) -> int:
        self.served.append(user)
        return len(self.served)


def test_the_child_leaves_what_nobody_waits_for(tmp_path: Path) -> None:
    requests = (
        Request(1, "count", ("acme", "late"), monotonic() - 1),
        Request(2, "count", ("acme", "in time"), monotonic() + 60),
        Request(3, "count", ("acme", "whenever")),
    )
    engine, outbox = Engine(), BytesIO()

    EdgeServer(
        cast(Any, BytesIO(b"".join(map(pack, requests)))),
        outbox,
        cast(EdgeEngine, engine),
        DirectoryLock(tmp_path / "lock"),
    ).run()

    assert engine.served == ["in time", "whenever"]
    data = outbox.getvalue()
    size = body_size(data[:HEADER_SIZE])
    first = answer_of(data[HEADER_SIZE : HEADER_SIZE + size])
    assert first.number == 1 and first.error is not None
    assert isinstance(exception_of(first.error), DeadlinePassed)


async def test_calls_to_an_index_that_is_held_end_in_time_and_are_not_done_afterwards(tmp_path: Path) -> None:
    async with opened(EdgeIndex(tmp_path / "index")) as index:
        tea = point("tea")
        await index.upsert([tea])
        pid = index.child_pid
        assert pid is not None

        async def call(what: Any) -> None:
            deadline.begin(0.05)
            with pytest.raises((TimeoutError, DeadlinePassed)):
                async with asyncio.timeout(0.05):
                    await what

        os.kill(pid, signal.SIGSTOP)
        try:
            async with asyncio.timeout(20):
                await asyncio.gather(*(call(index.query(ask("tea"))) for _ in range(50)))
                # A change shows whether it was done; in no other way the child tells.
                await asyncio.create_task(call(index.delete([tea.id])))
        finally:
            os.kill(pid, signal.SIGCONT)

        assert await index.count("acme", "ann") == 1
        assert index.child_pid == pid, "a caller in a hurry is no sign of a child that is stuck"
