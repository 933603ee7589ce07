"""Writers of a client before a server that has no stream; those before real servers are in test_append_streams."""

import grpc
import pytest

from runekeep import AsyncClient, Client, InvalidArgumentError, NotFoundError, Writer
from runekeep.v1 import session_service_pb2 as pb
from tests.unit.runekeep.server_double import Refusal, ServerDouble


def added(sequence: int) -> pb.AddMessagesResponse:
    return pb.AddMessagesResponse(messages=[pb.AddedMessage(id=f"m{sequence}", sequence=sequence)])


async def test_a_server_without_the_stream_gets_a_call_for_each_append(server: ServerDouble) -> None:
    server.script("AddMessages", *map(added, range(1, 21)))
    async with AsyncClient(server.address) as client:
        async with client.session("s").writer() as writer:
            handles = [await writer.add("user", f"{number}") for number in range(20)]
        assert [(await one.result()).messages[0].sequence for one in handles] == list(range(1, 21))
    requests = server.requests("AddMessages")
    assert [one.messages[0].parts[0].text.text for one in requests] == [f"{number}" for number in range(20)]
    assert [one.request_id for one in requests] == [one.request_id for one in handles]


def test_a_refusal_is_raised_by_its_append_and_once_by_flush(server: ServerDouble) -> None:
    server.script("AddMessages", added(1), Refusal(grpc.StatusCode.NOT_FOUND, "RESOURCE_NOT_FOUND"), added(2))
    with Client(server.address) as client, client.session("s").writer() as writer:
        assert isinstance(writer, Writer)
        first, second, third = (writer.add("user", text) for text in ("one", "two", "three"))
        with pytest.raises(NotFoundError):
            writer.flush()
        assert first.done and first.result().messages[0].sequence == 1
        with pytest.raises(NotFoundError) as caught:
            second.result()
        assert caught.value.reason == "RESOURCE_NOT_FOUND"
        assert third.result(timeout=20).messages[0].sequence == 2
        writer.flush()


def test_an_error_in_the_block_is_not_hidden_by_that_of_an_append(server: ServerDouble) -> None:
    server.script("AddMessages", Refusal(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID"))
    with Client(server.address) as client:
        with pytest.raises(ZeroDivisionError), client.session("s").writer() as writer:
            writer.add("user", "one")
            raise ZeroDivisionError
        with pytest.raises(InvalidArgumentError), client.session("s").writer() as writer:
            writer.add("user", "one")


def test_a_session_that_a_writer_wrote_to_commits_at_its_end(server: ServerDouble) -> None:
    server.script("AddMessages", added(1))
    with Client(server.address) as client, client.session("s") as session:
        with session.writer() as writer:
            writer.add("user", "one")
        assert not server.requests("CommitSession")
    assert len(server.requests("CommitSession")) == 1


async def test_what_fails_by_its_form_is_not_sent(server: ServerDouble) -> None:
    async with AsyncClient(server.address) as client, client.session("s").writer() as writer:
        with pytest.raises(ValueError, match="nobody"):
            await writer.add("nobody", "one")  # type: ignore[arg-type]  # as the test wants it
    assert not server.requests("AddMessages")
