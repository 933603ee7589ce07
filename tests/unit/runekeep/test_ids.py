"""Ids that begin with the time."""

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
