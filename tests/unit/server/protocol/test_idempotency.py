"""A mutation and the answer that is kept of it."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runekeep.v1 import common_pb2
from runekeep.v1 import session_service_pb2 as pb
from runekeep_server.protocol.idempotency import find_answer, mutate
from runekeep_storage.database import Space, Tx
from runekeep_storage.drivers.sqlite.driver import SqliteDatabase
from runekeep_storage.errors import RequestReused
from runekeep_storage.sessions import sessions

SPACE = Space("acme", "ada")


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    database = SqliteDatabase(tmp_path / "runekeep.db")
    await database.open()
    await database.write(sessions.create, SPACE, "s")
    yield database
    await database.close()


def request(text: str = "Hello", request_id: str = "r") -> pb.AddMessagesRequest:
    part = common_pb2.Part(text=common_pb2.TextPart(text=text))
    message = common_pb2.Message(role=common_pb2.ROLE_USER, parts=[part])
    return pb.AddMessagesRequest(session="s", messages=[message], request_id=request_id)


class Work:
    def __init__(self) -> None:
        self.done = 0

    async def __call__(self, tx: Tx) -> pb.AddMessagesResponse:
        self.done += 1
        return pb.AddMessagesResponse(live_message_count=self.done)


async def test_a_repeat_is_given_the_first_answer(database: SqliteDatabase) -> None:
    work, asked = Work(), request()

    first = await mutate(database, SPACE, asked, pb.AddMessagesResponse, work, session_id="s")
    again = await mutate(database, SPACE, request(), pb.AddMessagesResponse, work, session_id="s")

    assert (first.live_message_count, again, work.done) == (1, first, 1)
    assert await find_answer(database, SPACE, request(), pb.AddMessagesResponse) == first
    assert asked == request(), "whoever asks keeps a request as it was sent"
    with pytest.raises(RequestReused):
        await mutate(database, SPACE, request("Good bye"), pb.AddMessagesResponse, work, session_id="s")


async def test_without_a_request_id_nothing_is_kept(database: SqliteDatabase) -> None:
    work = Work()

    for number in (1, 2):
        answer = await mutate(database, SPACE, request(request_id=""), pb.AddMessagesResponse, work, session_id="s")
        assert answer.live_message_count == number


async def test_what_is_kept_of_a_request_is_the_same_in_every_release(database: SqliteDatabase) -> None:
    """Else a server of the next one would take a repeat for another request under a used id."""
    await mutate(database, SPACE, request(), pb.AddMessagesResponse, Work(), session_id="s")

    async def digest(tx: Tx) -> str:
        [row] = await tx.fetch("SELECT digest FROM requests WHERE account = $1 AND user_id = $2", "acme", "ada")
        return str(row["digest"])

    body = bytes.fromhex("0a0173" + "120d" + "1801" + "2209" + "0a07" + "0a05") + b"Hello"
    assert pb.AddMessagesRequest.FromString(body) == request(request_id="")
    assert await database.read_global(digest) == hashlib.sha256(body).hexdigest()
