"""What is read of a request's bytes before it is parsed."""

import pytest

from runekeep.v1 import session_service_pb2 as pb
from runekeep_server.protocol.api_error import ApiError
from runekeep_server.protocol.message_shape import count_field


@pytest.mark.parametrize("count", [0, 1, 300])
def test_items_of_a_list_are_counted_in_its_bytes(count: int) -> None:
    appends = [pb.AddMessagesRequest(session="s" * number) for number in range(count)]
    assert count_field(pb.StreamMessagesRequest(appends=appends).SerializeToString(), 1) == count


def test_other_fields_are_not_counted() -> None:
    window = pb.StreamMessagesResponse(window=pb.AppendWindow(appends=300, bytes=2**40))
    assert count_field(window.SerializeToString(), 2) == 0
    assert count_field(b"\x10\x01" + b"\x19" + b"\0" * 8 + b"\x25" + b"\0" * 4 + b"\x0a\x00", 1) == 1


@pytest.mark.parametrize("data", [b"\x0a", b"\x0a\x05ab", b"\x0b", b"\xff" * 20])
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(ApiError):
        count_field(data, 1)
