"""Work that goes on when the call that asked for it has ended."""

import asyncio
import contextlib

import pytest
from structlog.testing import capture_logs

from runekeep_server.protocol.idempotency import run_to_completion
from runekeep_storage import deadline


@pytest.mark.parametrize("fails", [False, True])
async def test_it_ends_after_its_call_and_under_no_deadline(fails: bool) -> None:
    go_on, ended = asyncio.Event(), asyncio.Event()
    until: list[float | None] = []

    async def work() -> None:
        await go_on.wait()
        until.append(deadline.until())
        ended.set()
        if fails:
            raise OSError

    async def call() -> None:
        deadline.begin(0.0)
        await run_to_completion(work())

    calling = asyncio.create_task(call())
    await asyncio.sleep(0)
    calling.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await calling
    with capture_logs() as logs:
        go_on.set()
        async with asyncio.timeout(20):
            await ended.wait()
            # The callback that tells of it comes in the next round of the loop.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
    assert until == [None]
    assert [line["error"] for line in logs] == (["OSError"] if fails else [])


async def test_its_result_and_its_failure_reach_a_call_that_waits() -> None:
    async def work(fails: bool) -> int:
        if fails:
            raise OSError
        return 7

    assert await run_to_completion(work(False)) == 7
    with pytest.raises(OSError):
        await run_to_completion(work(True))
