"""What is read of a request's bytes before it is parsed."""

import pytest

from runekeep.v1 import session_service_pb2 as pb
from runekeep_server.protocol.api_error import ApiError
from runekeep_server.protocol.message_shape import count_items


@pytest.mark.parametrize(("count", "counted"), [(0, 0), (1, 1), (300, 300), (301, None)])
def test_items_of_a_list_are_counted_in_its_bytes(count: int, counted: int | None) -> None:
    appends = [pb.AddMessagesRequest(session="s" * number) for number in range(count)]
    assert count_items(pb.StreamMessagesRequest(appends=appends).SerializeToString(), 1, 300) == counted


def test_the_first_other_field_ends_the_count() -> None:
    # What follows is no message, and is not read.
    assert count_items(b"\x0a\x00" + b"\x10\x01" + b"\xff" * 20, 1, 300) is None


@pytest.mark.parametrize("data", [b"\x0a", b"\x0a\x05ab", b"\xff" * 20])
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(ApiError):
        count_items(data, 1, 300)
