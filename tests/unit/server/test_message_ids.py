"""Ids that messages get when they bring none."""

import uuid

import pytest

from runekeep.v1 import common_pb2
from server.wire import messages


def test_an_id_is_a_uuid_that_begins_with_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for milliseconds in (1, 2, 1_700_000_000_000, 1_700_000_000_001):
        monkeypatch.setattr(messages, "time_ns", lambda now=milliseconds: now * 1_000_000)
        sent = common_pb2.Message(role=common_pb2.ROLE_USER)
        made.append(messages.from_wire("messages[0]", sent).message_id)

    assert made == sorted(made)
    found = [uuid.UUID(one.removeprefix("msg_")) for one in made]
    assert [one.int >> 80 for one in found] == [1, 2, 1_700_000_000_000, 1_700_000_000_001]
    assert {(one.version, one.variant) for one in found} == {(7, uuid.RFC_4122)}


def test_ids_of_one_moment_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "time_ns", lambda: 0)
    sent = common_pb2.Message(role=common_pb2.ROLE_USER)

    assert len({messages.from_wire("messages[0]", sent).message_id for _ in range(1000)}) == 1000


def test_an_id_that_was_sent_is_kept() -> None:
    sent = common_pb2.Message(id="mine", role=common_pb2.ROLE_USER)

    assert messages.from_wire("messages[0]", sent).message_id == "mine"
