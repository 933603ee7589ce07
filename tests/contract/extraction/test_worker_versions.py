"""Which workers a server takes: those of its own release and of the one before, whose protocol may be older."""

from collections.abc import AsyncIterator

import pytest

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep_server.extraction import connection
from runekeep_server.extraction.connection import OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION
from runekeep_server.identity import Worker, new_trace
from runekeep_server.protocol.api_error import ApiError
from runekeep_storage.database import Database
from tests.contract.extraction.test_work_streams import KINDS, extraction_on
from tests.support.storage.databases import ON_SQLITE


async def welcome(database: Database, version: int) -> pb.WorkResponse:
    async def nothing() -> AsyncIterator[pb.WorkRequest]:
        return
        yield

    hello = pb.Hello(worker_id="w", protocol_version=version, kinds=KINDS)
    worker = Worker(new_trace(), "key:w")
    async for answer in extraction_on(database).new_connection(worker, hello).serve(nothing()):
        return answer
    raise AssertionError("the stream ended without a word")


@ON_SQLITE
@pytest.mark.parametrize(("version", "taken"), [(1, False), (2, True), (3, True), (4, False)])
async def test_a_server_takes_workers_of_its_release_and_of_the_one_before(
    database: Database, monkeypatch: pytest.MonkeyPatch, version: int, taken: bool
) -> None:
    monkeypatch.setattr(connection, "OLDEST_PROTOCOL_VERSION", 2)
    monkeypatch.setattr(connection, "PROTOCOL_VERSION", 3)

    if taken:
        assert (await welcome(database, version)).HasField("welcome")
    else:
        with pytest.raises(ApiError, match=f"version {version} of the protocol; this server speaks versions 2 to 3"):
            await welcome(database, version)


def test_no_more_than_the_release_before_is_spoken() -> None:
    assert PROTOCOL_VERSION - 1 <= OLDEST_PROTOCOL_VERSION <= PROTOCOL_VERSION
