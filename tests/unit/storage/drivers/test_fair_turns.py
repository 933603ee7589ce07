"""Queues that accounts share: an account that brings much waits for itself, and no other account waits for it."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import AsyncExitStack

import pytest

from runekeep_storage.drivers.common import fair_turns
from runekeep_storage.drivers.common.fair_turns import FairSlots, FairThreads


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

    fair_turns.begin(account)
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
    fair_turns.begin("a")
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
        fair_turns.begin(account)
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
        fair_turns.begin("next")
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


@pytest.fixture
def callers() -> Iterator[None]:
    """Nobody has called yet."""
    fair_turns._latest.clear()
    yield
    fair_turns._latest.clear()


def called(account: str) -> None:
    fair_turns.begin(account)
    fair_turns.note_call()


async def worked(slots: FairSlots, seconds: float) -> None:
    """Heavy work of the current account."""
    async with slots.take():
        await asyncio.sleep(seconds)


@pytest.mark.usefixtures("callers")
async def test_heavy_work_rests_while_others_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_turns, "_FREE_REST_SECONDS", 0.0)
    slots = FairSlots(1, 1, rest=3)
    called("modest")
    called("greedy")
    await worked(slots, 0.05)
    began = asyncio.get_running_loop().time()
    await worked(slots, 0)
    assert asyncio.get_running_loop().time() - began >= 0.14


@pytest.mark.usefixtures("callers")
async def test_who_calls_alone_or_works_little_never_rests() -> None:
    slots = FairSlots(1, 1, rest=1000)
    called("greedy")
    called("greedy")
    await worked(slots, 0.01)
    again = Holder(slots, "greedy")
    await settle()
    assert again.held
    await again.let_go()

    called("modest")
    called("greedy")
    # Less than what is free: a millisecond of work at most.
    slots = FairSlots(1, 1, rest=3)
    await worked(slots, 0)
    little = Holder(slots, "greedy")
    await settle()
    assert little.held
    await little.let_go()


@pytest.mark.usefixtures("callers")
async def test_accounts_call_until_a_second_after_their_last_call(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(fair_turns, "monotonic", lambda: now)
    called("a")
    called("b")
    called("b")
    assert fair_turns.do_others_call()
    called("a")
    assert fair_turns.do_others_call()
    now += 1.5
    called("a")
    assert not fair_turns.do_others_call()
    fair_turns.begin("c")
    assert fair_turns.do_others_call()


async def test_slots_are_held_until_they_are_released() -> None:
    slots = FairSlots(2, 2)
    fair_turns.begin("a")
    release = await slots.hold(5)
    waiting = asyncio.create_task(slots.hold(1))
    await asyncio.sleep(0)
    assert not waiting.done(), "as many as an account may have are held"
    release()
    (await waiting)()
    async with slots.take(2):
        pass
