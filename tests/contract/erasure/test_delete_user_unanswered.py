"""DeleteUser of a large user, of which nobody hears the end: the cleaner empties the space without waiting for its next
look."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runekeep.v1 import memory_service_pb2 as pb
from runekeep_server.identity import development_caller, enter_principal, new_trace
from runekeep_server.memories.service import MemoryService
from runekeep_storage.blobs import sweeps
from runekeep_storage.blobs.blobs import FolderBlobs
from runekeep_storage.database import Database, Space
from runekeep_storage.erasure import deletion
from runekeep_storage.erasure.cleanup import Cleaner
from runekeep_storage.errors import StoreUnavailable
from runekeep_storage.spaces import space_locks
from runekeep_storage.spaces.space_locks import OpenSpaces
from tests.support.storage.databases import ANN, ON_SQLITE
from tests.support.storage.deletions import STAYS, dump, live_a_little

pytestmark = ON_SQLITE


class Noted:
    """A database that tells when a cleaner has looked at everything, and what becomes of the deletion itself."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.idle = asyncio.Event()
        self.writing = asyncio.Event()
        self.go_on = asyncio.Event()
        self.breaks = False

    async def read_global(self, work: Any, *args: Any) -> Any:
        answer = await self._database.read_global(work, *args)
        if work is sweeps.waiting and answer is None:
            self.idle.set()
        return answer

    async def read(self, work: Any, space: Space, *args: Any) -> Any:
        return await self._database.read(work, space, *args)

    async def write(self, work: Any, space: Space, *args: Any, **kwargs: Any) -> Any:
        if work is not deletion.empty and work is not sweeps.done:
            self.writing.set()
            await self.go_on.wait()
        answer = await self._database.write(work, space, *args, **kwargs)
        if self.writing.is_set() and self.breaks:
            self.breaks = False
            raise StoreUnavailable("it is unknown whether the change was written")
        return answer


@pytest.fixture
async def noted(database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Noted]:
    monkeypatch.setattr(deletion, "AT_ONCE", 3)
    await live_a_little(database, ANN)
    yield Noted(database)


async def deleted(noted: Noted, tmp_path: Path, *, cancel: bool) -> None:
    """Calls DeleteUser while the cleaner sleeps, and returns when there is nothing left of the user."""
    database: Any = noted
    cleaner = Cleaner(database, FolderBlobs(tmp_path))
    cleaner.start()
    async with asyncio.timeout(30):
        await noted.idle.wait()
        noted.idle.clear()
        store: Any = SimpleNamespace(
            database=OpenSpaces(database), cleaner=cleaner, relay=SimpleNamespace(wake=lambda: None)
        )
        service = MemoryService(store, ask=cast(Any, None), cancelled=lambda job, reason: None, withhold_secrets=False)
        enter_principal(
            development_caller((("x-runekeep-account", ANN.account), ("x-runekeep-user", ANN.user)), new_trace())
        )
        context: Any = None
        call = asyncio.ensure_future(service.DeleteUser(pb.DeleteUserRequest(user=ANN.user), context))
        await noted.writing.wait()
        if cancel:
            call.cancel()
            await asyncio.wait([call])
        noted.go_on.set()
        await asyncio.wait([call])
        assert call.cancelled() if cancel else isinstance(call.exception(), StoreUnavailable)
        while set(await dump(noted._database, ANN)) - STAYS:
            await noted.idle.wait()
            noted.idle.clear()
    await cleaner.stop()
    assert await noted._database.read_global(space_locks.waiting) == []


async def test_a_call_that_is_cancelled_is_done_to_its_end(noted: Noted, tmp_path: Path) -> None:
    await deleted(noted, tmp_path, cancel=True)


async def test_a_deletion_of_which_nobody_knows_whether_it_was_written(noted: Noted, tmp_path: Path) -> None:
    noted.breaks = True
    await deleted(noted, tmp_path, cancel=False)
