"""The input of a job whose session goes away while it is read: all of it, or the loss of the lease."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep_server.extraction.job_input import JobInput
from runekeep_storage.blobs.blobs import FolderBlobs
from runekeep_storage.database import Database
from runekeep_storage.erasure.deletion import delete_session
from runekeep_storage.errors import LeaseLost
from runekeep_storage.store import Store
from runekeep_storage.turns import jobs
from tests.support.storage.databases import ANN, claim
from tests.support.storage.turns import say, submit

pytestmark = pytest.mark.postgres_long

T = TypeVar("T")


class Deleting:
    """A store whose session is deleted before its transaction of that number, from 0; `begun` counts them."""

    def __init__(self, database: Database, before: int) -> None:
        self.begun = 0
        self._database = database
        self._before = before

    async def read(self, work: Callable[..., Awaitable[T]], *args: Any) -> T:
        await self._begin()
        return await self._database.read(work, *args)

    async def write(self, work: Callable[..., Awaitable[T]], *args: Any) -> T:
        await self._begin()
        return await self._database.write(work, *args)

    async def _begin(self) -> None:
        if self.begun == self._before:
            await self._database.write(delete_session, ANN, "s", "")
        self.begun += 1


@pytest.mark.parametrize("before", range(4))
async def test_a_session_that_is_deleted_while_a_bucket_job_is_read(
    database: Database, tmp_path: Path, before: int
) -> None:
    await say(database, "t1")
    await submit(database, "t1", objective="one")
    await database.write(jobs.queue_reconcile, ANN, "s", "", 10)
    job = await claim(database)
    store = Deleting(database, before)
    source = JobInput(cast(Store, SimpleNamespace(database=store, blobs=FolderBlobs(tmp_path), registry=())))
    pieces: list[pb.GetJobInputResponse] = []
    try:
        async for piece in source.pieces(job):
            pieces.append(piece)
    except LeaseLost:
        assert before < store.begun, "nothing was deleted"
    else:
        assert before >= store.begun
        assert [turn.turn.turn_id for piece in pieces for turn in piece.turns.turns] == ["t1"]
