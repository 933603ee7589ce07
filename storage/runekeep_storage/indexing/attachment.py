"""Holds the index that this server has open: reopens it after it was away, and never mistakes another index for it."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from runekeep_storage.database import Database
from runekeep_storage.errors import StoreLost
from runekeep_storage.index.base import IndexMismatch, IndexUnavailable, VectorIndex, VectorSpace
from runekeep_storage.spaces import watermarks

log = structlog.get_logger(__name__)


class Attachment:
    """Keeps the index open and knows its id. The relay attaches it, and attaches it again after `doubt`."""

    def __init__(
        self,
        database: Database,
        index: VectorIndex,
        space: VectorSpace,
        check: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`check` raises an error if something contradicts this index; it is called before the index is opened."""
        self.index = index
        self._database = database
        self._space = space
        self._check = check
        self._id = ""
        self._last_id = ""
        self._problem = "the index has not been opened yet"
        self._doubted = False
        self._could_not_open = False
        self._opening = asyncio.Lock()

    async def id(self) -> str:
        """Returns the id of the open index. Raises IndexUnavailable if none is open."""
        if self._could_not_open:
            # Callers do not wait for repeated attempts: they may work without the index, or try again later.
            raise IndexUnavailable(self._problem)
        async with self._opening:
            if not self._id:
                raise IndexUnavailable(self._problem)
            return self._id

    def doubt(self) -> None:
        """Reports that the index failed a call: it may be gone, or be another one by now."""
        self._doubted = True

    async def attach(self) -> str:
        """Opens the index, unless it is open and is the one that the store is searched by. Returns its id.

        A newly created index becomes the one that the store is searched by, and the relay fills it. Raises
        IndexUnavailable, IndexMismatch, StoreLost.
        """
        async with self._opening:
            if (
                self._id
                and not self._doubted
                and await self._database.read_global(watermarks.index_of_store) == self._id
            ):
                return self._id
            # If anything fails from here on, the driver may serve another index than before.
            self._id = ""
            if not self._could_not_open:
                self._problem = "the index is being opened"
            try:
                opened = await self._index_of_store()
            except (IndexUnavailable, IndexMismatch, StoreLost) as error:
                self._problem, self._could_not_open = str(error), True
                raise
            self._id = self._last_id = opened
            self._doubted = self._could_not_open = False
            return opened

    async def _index_of_store(self) -> str:
        if self._check is not None:
            await self._check()
        opened = await self.index.open(self._space)
        stored = await self._database.read_global(watermarks.index_of_store)
        if stored == opened:
            return opened
        if stored and opened == self._last_id:
            # It was adopted before, and another server has adopted a different one since. Adopting this one again would
            # repeat for ever.
            raise IndexUnavailable("another server searches this store by another index: give all one index_url")
        await self._database.write_global(watermarks.adopt, opened)
        if stored:
            log.warning("index_is_new", index=opened, before=stored)
        return opened
