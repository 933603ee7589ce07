"""Holds the index that this server has open: reopens it after it was away or the embedder is changed, and never
mistakes another index for it."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from runekeep_storage.database import Database
from runekeep_storage.errors import StoreLost
from runekeep_storage.index.base import IndexMismatch, IndexUnavailable, VectorIndex, VectorSpace, describe
from runekeep_storage.indexing import embedder_change
from runekeep_storage.indexing.embedder_change import Change, ChangeState, Models, of_space
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
        """`space`: the kind of vectors by the server's settings. `check` raises an error if something contradicts this
        index; it is called before the index is opened."""
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
        self._spaces: tuple[VectorSpace, ...] = (space,)
        """The spaces that the index is open for."""
        self.change: Change | None = None
        """The newest change of the embedder, as of the last `attach`."""

    @property
    def main(self) -> VectorSpace:
        """The space of the vectors by the store's embedder, as of the last `attach`."""
        return self._spaces[0]

    @property
    def models(self) -> Models:
        """The models of the vectors that points get, as of the last `attach`."""
        return Models(*map(of_space, self._spaces))

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
            searched, change = await self._read()
            spaces = self._spaces_in(change)
            if self._id and not self._doubted and searched == self._id and spaces == self._spaces:
                self.change = change
                return self._id
            if self._id and not self._doubted and searched == self._id:
                log.info("index_opened_for", models=[space.model for space in spaces])
            # If anything fails from here on, the driver may serve another index than before.
            self._id = ""
            if not self._could_not_open:
                self._problem = "the index is being opened"
            try:
                if change is not None and change.state not in embedder_change.ENDED:
                    self._check_settings(change)
                opened = await self._index_of_store(searched, spaces)
            except (IndexUnavailable, IndexMismatch, StoreLost) as error:
                self._problem, self._could_not_open = str(error), True
                raise
            self._id = self._last_id = opened
            self._spaces, self.change = spaces, change
            self._doubted = self._could_not_open = False
            return opened

    def check_ended_change(self) -> None:
        """Raises IndexMismatch if the settings name the old embedder of a finished change. After an undone one they may
        name the new embedder: the operator had set it before. For the start: a server that runs goes on."""
        change = self.change
        if change is None or change.state not in embedder_change.ENDED or self._space != change.dropped:
            return
        if change.state is ChangeState.UNDONE:
            log.warning("embedder_undone", model=self._space.model, searched_by=change.main.model)
            return
        raise IndexMismatch(
            f"the vectors by this embedder (model {self._space.model!r}) were dropped when the change to"
            f" {change.name} was finished: set {change.name!r}, with its model {change.main.model!r}"
        )

    async def _read(self) -> tuple[str, Change | None]:
        return await self._database.read_global(embedder_change.with_index)

    def _spaces_in(self, change: Change | None) -> tuple[VectorSpace, ...]:
        if change is None:
            return (self._space,)
        if change.other is not None:
            return (change.main, change.other)
        # Once a change has ended, the settings decide again, unless they still name the embedder that is gone.
        if change.state in embedder_change.ENDED and self._space != change.dropped:
            return (self._space,)
        return (change.main,)

    def _check_settings(self, change: Change) -> None:
        if self._space not in (change.source, change.target):
            raise IndexMismatch(
                f"the embedder is being changed from {change.source_name} ({describe(change.source)}) to {change.name}"
                f" ({describe(change.target)}), and the server is set to {describe(self._space)}: set it to one of them"
            )

    async def _index_of_store(self, stored: str, spaces: tuple[VectorSpace, ...]) -> str:
        if self._check is not None:
            await self._check()
        opened = await self.index.open(*spaces)
        if stored != opened:
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
