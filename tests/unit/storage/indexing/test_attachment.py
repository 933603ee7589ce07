"""The index as a server holds it, while it cannot be opened."""

import asyncio
from typing import Any

import pytest

from runekeep_storage.index.base import IndexUnavailable, VectorSpace
from runekeep_storage.indexing.attachment import Attachment


class FailingIndex:
    """It cannot be opened at first; the next attempt never ends."""

    def __init__(self) -> None:
        self.attempts = 0
        self.opening = asyncio.Event()

    async def open(self, space: VectorSpace, other: VectorSpace | None = None) -> str:
        self.attempts += 1
        if self.attempts == 1:
            raise IndexUnavailable("its files are damaged")
        self.opening.set()
        await asyncio.Event().wait()
        raise AssertionError


class UnusedStore:
    async def read_global(self, work: Any) -> tuple[str, None]:
        """No index and no change of the embedder."""
        return "", None


async def test_while_the_index_cannot_be_opened_searches_fail_at_once() -> None:
    index: Any = FailingIndex()
    database: Any = UnusedStore()
    attachment = Attachment(database, index, VectorSpace("four-numbers", 4))
    with pytest.raises(IndexUnavailable):
        await attachment.attach()
    again = asyncio.create_task(attachment.attach())
    await index.opening.wait()
    with pytest.raises(IndexUnavailable, match="its files are damaged"):
        async with asyncio.timeout(5):
            await attachment.id()
    again.cancel()
