"""When a lane of PostgreSQL's writer has enough to begin with."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from runekeep_storage.database import Space, Tx
from runekeep_storage.drivers.common import write_queue
from runekeep_storage.drivers.common.write_requests import Joint, Request
from runekeep_storage.drivers.postgres.writer_shard_queue import LaneQueue


async def none(tx: Tx, items: Sequence[tuple[Space, str]]) -> list[str | Exception]:
    raise AssertionError("nothing runs here")


def request(*, joint: bool = True) -> Request:
    shared: Joint[Any, Any] = Joint(none, Space("a", "u"), "item")
    return Request(shared.alone, "a", asyncio.get_running_loop().create_future(), None, shared if joint else None)


def put(queue: LaneQueue, *requests: Request) -> None:
    for one in requests:
        queue.put(one)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_queue, "PAUSE_SECONDS", 60.0)
    monkeypatch.setattr(write_queue, "MAX_SECONDS", 60.0)


async def test_what_waits_is_taken_in_its_order_but_who_has_gone_and_never_more_than_allowed() -> None:
    queue, all_of_them = LaneQueue(3), [request() for _ in range(4)]
    put(queue, *all_of_them)
    all_of_them[1].future.cancel()

    assert list(queue) == all_of_them and len(queue) == 4
    assert queue.take(beside=3) == [] and queue.take(beside=2) == [all_of_them[0]]
    assert queue.take(beside=1) == [all_of_them[2]]
    assert queue.take() == [all_of_them[3]]
    assert queue.take() == [] and not queue


async def test_those_who_came_together_before_are_waited_for(patient: None) -> None:
    queue = LaneQueue(8)
    put(queue, request(), request(), request(joint=False))
    await queue.gather()
    taken = queue.take()
    queue.put(request())
    queue.answer(taken)

    gathering = asyncio.create_task(queue.gather())
    for _ in range(2):
        await asyncio.sleep(0)
        assert not gathering.done()
        queue.put(request())
    async with asyncio.timeout(20):
        await gathering
    assert len(queue) == 3


async def test_those_who_do_not_come_again_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_queue, "MAX_SECONDS", 60.0)
    queue = LaneQueue(8)
    queue.answer([request() for _ in range(5)])
    queue.put(request())
    async with asyncio.timeout(20):
        await queue.gather()
    # Once they have stayed away they are not expected any more.
    monkeypatch.setattr(write_queue, "PAUSE_SECONDS", 60.0)
    queue.answer(queue.take())
    queue.put(request())
    async with asyncio.timeout(20):
        await queue.gather()


async def test_what_shares_no_statements_waits_for_nobody(patient: None) -> None:
    queue = LaneQueue(8)
    queue.answer([request() for _ in range(5)])
    put(queue, request(joint=False), request())
    async with asyncio.timeout(20):
        await queue.gather()


async def test_others_are_not_counted_nor_those_beyond_what_is_begun_with(patient: None) -> None:
    queue = LaneQueue(2)
    queue.answer([request(joint=False) for _ in range(5)])
    queue.put(request())
    async with asyncio.timeout(20):
        await queue.gather()
    queue.answer([request() for _ in range(5)])
    queue.put(request())
    async with asyncio.timeout(20):
        await queue.gather()


async def test_those_who_keep_coming_are_waited_for_no_longer_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_queue, "PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(write_queue, "MAX_SECONDS", 0.2)
    queue = LaneQueue(1_000_000)
    queue.answer([request()] * 1_000_000)
    queue.put(request())

    async def come() -> None:
        while True:
            queue.put(request())
            await asyncio.sleep(0)

    coming = asyncio.create_task(come())
    async with asyncio.timeout(20):
        await queue.gather()
    coming.cancel()
