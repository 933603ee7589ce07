"""The index as this server has it open: opened again when it was away, and never taken for another one."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from storage import watermarks
from storage.database import Database
from storage.errors import StoreLost
from storage.index.base import IndexMismatch, IndexUnavailable, VectorIndex, VectorSpace

log = structlog.get_logger(__name__)


class Attachment:
    """Keeps the index open and knows its id. The relay attaches it, and again whenever somebody came to doubt it."""

    def __init__(
        self,
        database: Database,
        index: VectorIndex,
        space: VectorSpace,
        check: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`check` raises what contradicts this index, before it is opened."""
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
        """Id of the index that is open. Raises IndexUnavailable while none is."""
        if self._could_not_open:
            # Callers do not wait for one attempt after another: they may work without the index, or try again later.
            raise IndexUnavailable(self._problem)
        async with self._opening:
            if not self._id:
                raise IndexUnavailable(self._problem)
            return self._id

    def doubt(self) -> None:
        """The index failed a call: it may be gone, or another one by now."""
        self._doubted = True

    async def attach(self) -> str:
        """Opens the index, unless it is open and is the one that the store is searched by. Returns its id.

        A newly created index becomes the one that the store is searched by, and the relay fills it. Raises
        IndexUnavailable, IndexMismatch, StoreLost.
        """
        async with self._opening:
            if self._id and not self._doubted and await self._database.read(watermarks.index_of_store) == self._id:
                return self._id
            # Whatever fails from here on, the driver may serve another index than before.
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
        stored = await self._database.read(watermarks.index_of_store)
        if stored == opened:
            return opened
        if stored and opened == self._last_id:
            # It was the one; another server has made the store another since, and would take it back for ever.
            raise IndexUnavailable("another server searches this store by another index: give all one index_url")
        await self._database.write(watermarks.adopt, opened)
        if stored:
            log.warning("index_is_new", index=opened, before=stored)
        return opened
