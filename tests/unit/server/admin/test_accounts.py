"""Limits of accounts as they come from the store."""

import asyncio
from typing import Any, cast

import pytest

from runekeep_server.admin.accounts import Accounts
from runekeep_server.protocol.api_error import ApiError
from runekeep_server.rpc.limits import Limits
from runekeep_server.settings import LimitSettings
from runekeep_storage.accounts import accounts
from runekeep_storage.accounts.accounts import OwnLimits
from runekeep_storage.blobs.blobs import Blobs
from runekeep_storage.database import Database

READ = "SessionService/GetSession"


class Store:
    """Answers what is asked of accounts; the first look at limits is held between what it sees and its answer."""

    def __init__(self) -> None:
        self.own: list[tuple[str, OwnLimits]] = []
        self.seen = asyncio.Event()
        self.go = asyncio.Event()

    async def read_global(self, work: Any, after: str, *rest: object) -> list[Any]:
        if work is accounts.full:
            return []
        assert work is accounts.limited
        found = [one for one in self.own if one[0] > after]
        if not self.seen.is_set():
            self.seen.set()
            await self.go.wait()
        return found


async def test_an_old_look_at_the_limits_does_not_overwrite_a_newer_one() -> None:
    store, settings = Store(), LimitSettings()
    limits = Limits(settings)
    known = Accounts(cast(Database, store), cast(Blobs, None), limits, settings)

    old = asyncio.create_task(known.read_limits())
    await store.seen.wait()
    store.own = [("a", OwnLimits(concurrent_calls=1))]
    new = asyncio.create_task(known.read_limits())
    for _ in range(10):
        await asyncio.sleep(0)
    store.go.set()
    await asyncio.gather(old, new)

    with limits.admit("a", READ), pytest.raises(ApiError):
        limits.admit("a", READ)
