"""The number of calls under way, as a scrape shows it."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import grpc

from runekeep.v1 import task_service_pb2
from tests.integration.conftest import CHANNEL_OPTIONS
from tests.support.callers import Caller, failure, unique
from tests.support.scrapes import metrics_address, scraped
from tests.support.server_process import ServerProcess

PATIENCE = 20.0


def in_flight(address: str) -> dict[tuple[str, ...], float]:
    return scraped(address).all("runekeep_rpc_in_flight", "kind")


async def comes_to(address: str, streams: int) -> None:
    """A call that has ended for its caller ends in the server a little later."""
    async with asyncio.timeout(PATIENCE):
        while in_flight(address) != {("unary",): 0, ("stream",): streams}:  # noqa: ASYNC110  # told to nobody
            await asyncio.sleep(0.05)


async def test_streams_count_while_they_are_open_and_calls_that_end_badly_do_not_stay(
    own_server: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    server = own_server({"RUNEKEEP_METRICS_ADDRESS": "127.0.0.1:0"})
    address = metrics_address(tmp_path / "data.log")
    assert in_flight(address) == {("unary",): 0, ("stream",): 0}
    async with grpc.aio.insecure_channel(server.address, options=CHANNEL_OPTIONS) as channel:
        caller = Caller(channel, unique("user"), unique("account"))
        committed = await caller.committed()
        await failure(caller.task("task-that-is-not-there"))
        watches = [
            caller.tasks.WatchTask(task_service_pb2.WatchTaskRequest(task_id=committed.task_id)) for _ in range(3)
        ]
        for watch in watches:
            assert await watch.read()
        await comes_to(address, streams=3)
        watches[0].cancel()
        await comes_to(address, streams=2)
        await caller.cancel_open()
        for watch in watches[1:]:
            while await watch.read() is not grpc.aio.EOF:
                pass
        await comes_to(address, streams=0)
