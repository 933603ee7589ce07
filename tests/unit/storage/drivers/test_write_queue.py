"""When the writer of SQLite has enough to commit."""

import threading
import time

import pytest

from runekeep_storage.drivers.common import write_queue
from runekeep_storage.drivers.common.write_queue import WriteQueue


def put_all(waiting: WriteQueue[int], *numbers: int) -> None:
    for number in numbers:
        waiting.put(number)


def test_what_waits_is_taken_in_its_order_and_never_more_than_allowed() -> None:
    waiting = WriteQueue[int](most=3)
    put_all(waiting, 1, 2, 3, 4)

    assert len(waiting) == 4
    assert waiting.take() == [1, 2, 3]
    assert waiting.take() == [4]
    assert len(waiting) == 0


def test_who_takes_waits_for_the_first_one() -> None:
    waiting = WriteQueue[int](most=8)
    taken: list[list[int]] = []
    taker = threading.Thread(target=lambda: taken.append(waiting.take()))
    taker.start()

    waiting.put(1)
    taker.join(20)

    assert taken == [[1]]


def test_those_who_came_together_before_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runekeep_storage.drivers.common.write_queue.PAUSE_SECONDS", 20.0)
    monkeypatch.setattr("runekeep_storage.drivers.common.write_queue.MAX_SECONDS", 60.0)
    waiting = WriteQueue[int](most=8)
    put_all(waiting, 1, 2, 3)
    assert waiting.take() == [1, 2, 3]
    taken: list[list[int]] = []
    taker = threading.Thread(target=lambda: taken.append(waiting.take()))
    waiting.put(4)
    waiting.answer()
    taker.start()
    while taker.is_alive() and waiting._wanted != 4:
        time.sleep(0)

    put_all(waiting, 5, 6, 7)
    taker.join(10)

    # Three were taken while one waited: woken by the fourth, and not by the end of a pause.
    assert taken == [[4, 5, 6, 7]]


def test_those_who_do_not_come_again_are_not_waited_for() -> None:
    waiting = WriteQueue[int](most=8)
    put_all(waiting, 1, 2, 3)
    waiting.take()
    waiting.answer()
    waiting.put(4)

    taken: list[int] = []
    taker = threading.Thread(target=lambda: taken.extend(waiting.take()), daemon=True)
    taker.start()
    taker.join(20)
    assert taken == [4]


def test_one_who_comes_back_at_once_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runekeep_storage.drivers.common.write_queue.PAUSE_SECONDS", 60.0)
    monkeypatch.setattr("runekeep_storage.drivers.common.write_queue.MAX_SECONDS", 60.0)
    waiting = WriteQueue[int](most=8)
    taken: list[list[int]] = []

    def take_all() -> None:
        for _ in range(3):
            taken.append(waiting.take())
            waiting.answer()
            # As whoever was told comes back before the writer looks again.
            waiting.put(len(taken))

    waiting.put(0)
    taker = threading.Thread(target=take_all, daemon=True)
    taker.start()
    taker.join(20)

    assert taken == [[0], [1], [2]]


def test_who_is_held_up_for_longer_than_the_pause_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bell that was rung for nobody must not turn the next short wait into one for ever."""
    monkeypatch.setattr(write_queue, "PAUSE_SECONDS", 2e-6)
    rounds = 40_000

    def taken() -> None:
        for _ in range(rounds):
            waiting = WriteQueue[int](most=8)
            put_all(waiting, 1, 2)
            waiting.take()
            waiting.answer()
            # Two were about, so that this one is thought to be the first of several.
            waiting.put(3)
            waiting.take()

    writer = threading.Thread(target=taken, daemon=True)
    writer.start()
    writer.join(120)
    assert not writer.is_alive()
