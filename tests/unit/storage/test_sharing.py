"""Queues that accounts share: an account that brings much waits for itself, and no other account waits for it."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack

import pytest

from storage import sharing
from storage.sharing import FairSlots, FairThreads


@pytest.fixture
def threads() -> Iterator[FairThreads]:
    made = FairThreads(2, "test")
    yield made
    made.shutdown()


def submit(threads: FairThreads, account: str, order: list[str], held: threading.Event | None = None) -> Future[None]:
    def work() -> None:
        if held is not None:
            held.wait(30)
        order.append(account)

    sharing.begin(account)
    return threads.submit(work)


async def test_an_account_never_has_the_last_thread(threads: FairThreads) -> None:
    held = threading.Event()
    order: list[str] = []
    try:
        for _ in range(60):
            submit(threads, "greedy", order, held)
        for _ in range(3):
            await asyncio.wrap_future(submit(threads, "modest", order))
        assert order == ["modest"] * 3
    finally:
        held.set()


async def test_accounts_take_turns_at_threads() -> None:
    one = FairThreads(1, "test")
    held = threading.Event()
    order: list[str] = []
    submit(one, "first", order, held)
    waiting = [submit(one, account, order) for account in ("a", "a", "a", "b", "b", "c")]
    held.set()
    await asyncio.gather(*map(asyncio.wrap_future, waiting))
    one.shutdown()
    assert order[:4] == ["first", "a", "b", "c"] and len(order) == 7


async def test_what_waits_is_done_before_the_end() -> None:
    one = FairThreads(1, "test")
    order: list[str] = []
    for account in ("a", "a", "b"):
        submit(one, account, order)
    await asyncio.to_thread(one.shutdown)
    assert sorted(order) == ["a", "a", "b"]


async def test_what_is_cancelled_or_fails_frees_its_thread(threads: FairThreads) -> None:
    held = threading.Event()
    sharing.begin("a")
    busy = threads.submit(held.wait, 30)
    waiting = threads.submit(held.wait, 30)
    assert waiting.cancel()
    failing = threads.submit(int, "no number")
    held.set()
    with pytest.raises(ValueError, match="no number"):
        await asyncio.wrap_future(failing)
    assert busy.result() and await asyncio.wrap_future(threads.submit(int, "1")) == 1


class Holder:
    """Takes slots for an account until it is told to release them."""

    def __init__(self, slots: FairSlots, account: str, weight: int = 1) -> None:
        self.held = False
        self._let_go = asyncio.Event()
        self.task = asyncio.create_task(self._hold(slots, account, weight))

    async def _hold(self, slots: FairSlots, account: str, weight: int) -> None:
        sharing.begin(account)
        async with slots.take(weight):
            self.held = True
            await self._let_go.wait()
        self.held = False

    async def let_go(self) -> None:
        self._let_go.set()
        await self.task


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_accounts_have_slots_of_their_own() -> None:
    slots = FairSlots(4, 2)
    greedy = [Holder(slots, "greedy") for _ in range(10)]
    await settle()
    assert [one.held for one in greedy] == [True, True, *[False] * 8]
    modest = [Holder(slots, "modest") for _ in range(2)]
    await settle()
    assert all(one.held for one in modest)
    await greedy[0].let_go()
    await settle()
    assert greedy[2].held
    for one in (*greedy[1:], *modest):
        await one.let_go()
    await settle()
    async with AsyncExitStack() as stack:
        sharing.begin("next")
        for _ in range(2):
            await stack.enter_async_context(slots.take())


async def test_accounts_take_turns_at_slots() -> None:
    slots = FairSlots(1, 1)
    holders = [Holder(slots, account) for account in ("a", "a", "a", "b", "c")]
    order = []
    for _ in holders:
        await settle()
        (holding,) = [one for one in holders if one.held]
        order.append(holders.index(holding))
        await holding.let_go()
    assert order == [0, 3, 4, 1, 2] or order == [0, 1, 3, 4, 2]


async def test_what_weighs_much_comes_to_its_turn() -> None:
    slots = FairSlots(10, 8)
    small = [Holder(slots, account, 4) for account in ("a", "b")]
    await settle()
    large = Holder(slots, "large", 1000)
    await settle()
    behind = Holder(slots, "c", 2)
    await settle()
    assert not large.held and not behind.held, "it would be passed by all that weigh little"
    for one in small:
        await one.let_go()
    await settle()
    assert large.held and behind.held


async def test_who_does_not_wait_any_more_takes_nothing() -> None:
    slots = FairSlots(1, 1)
    first = Holder(slots, "a")
    await settle()
    gone, next_one = Holder(slots, "b"), Holder(slots, "c")
    await settle()
    gone.task.cancel()
    # Even if it is granted and cancelled in the same step.
    await first.let_go()
    await settle()
    assert next_one.held and not gone.held
    last = Holder(slots, "d")
    await settle()
    next_one._let_go.set()
    await settle()
    assert last.held
    await last.let_go()
