"""Ids that begin with the time."""

import os
import random
from uuid import RFC_4122, UUID

import pytest

from runekeep import ids


def test_an_id_is_a_uuid_that_begins_with_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for milliseconds in (1, 2, 1_700_000_000_000, 1_700_000_000_001):
        monkeypatch.setattr(ids, "time_ns", lambda now=milliseconds: now * 1_000_000)
        made.append(ids.new_uuid())

    assert made == sorted(made)
    found = [UUID(one) for one in made]
    assert [one.int >> 80 for one in found] == [1, 2, 1_700_000_000_000, 1_700_000_000_001]
    assert {(one.version, one.variant) for one in found} == {(7, RFC_4122)}


def test_ids_of_one_moment_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "time_ns", lambda: 0)

    assert len({ids.new_uuid() for _ in range(1000)}) == 1000


def test_a_child_process_draws_ids_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "time_ns", lambda: 0)
    ids.new_uuid()
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writing, ids.new_uuid().encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 36).decode() != ids.new_uuid()
    os.close(reading)
    os.close(writing)


def test_a_program_that_seeds_its_own_chances_draws_no_id_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "time_ns", lambda: 0)
    made = set()
    for _ in range(100):
        random.seed(1)
        before = random.getstate()
        made.add(ids.new_uuid())
        assert random.getstate() == before

    assert len(made) == 100


def test_every_bit_that_is_free_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "time_ns", lambda: 0)
    numbers = [UUID(ids.new_uuid()).int for _ in range(1000)]
    ones, zeros = 0, 0
    for number in numbers:
        ones |= number
        zeros |= ~number
    assert (ones & zeros).bit_count() == 74
