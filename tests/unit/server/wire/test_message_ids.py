"""Ids that messages get when they bring none."""

import uuid

from runekeep.v1 import common_pb2
from runekeep_server.wire import messages


def test_an_id_is_one_that_begins_with_the_time() -> None:
    sent = common_pb2.Message(role=common_pb2.ROLE_USER)
    made = messages.from_wire("messages[0]", sent).message_id

    assert made.startswith("msg_") and uuid.UUID(made.removeprefix("msg_")).version == 7


def test_an_id_that_was_sent_is_kept() -> None:
    sent = common_pb2.Message(id="mine", role=common_pb2.ROLE_USER)

    assert messages.from_wire("messages[0]", sent).message_id == "mine"
