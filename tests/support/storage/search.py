"""A store that can be searched, put together as a server does, and waiting for what its relay does."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from runekeep_schemas.type_files.registry import Registry
from runekeep_storage.database import Database, Space
from runekeep_storage.index.base import VectorIndex, VectorSpace
from runekeep_storage.index.edge import EdgeIndex
from runekeep_storage.indexing import outbox, rows
from runekeep_storage.indexing.attachment import Attachment
from runekeep_storage.indexing.space_embedders import SpaceEmbedders
from runekeep_storage.records import Memory, MemoryWrite, Passage
from runekeep_storage.relay import missing_vectors
from runekeep_storage.relay.relay import Relay
from runekeep_storage.search import backlog
from runekeep_storage.search.requests import FindAnswer, FindRequest
from runekeep_storage.search.searcher import Ranking, Searcher
from runekeep_storage.spaces import watermarks
from tests.doubles.word_embedder import DIMENSION, WordEmbedder, vector
from tests.support.storage import databases
from tests.support.storage.databases import (
    SECOND,
)
from tests.support.storage.edge_in_thread import EdgeHere

POLL = 0.02
GRACE_SECONDS = outbox.GRACE / SECOND + 1
CHECK_SECONDS = 86_400.0
VECTORS = VectorSpace(WordEmbedder.model, DIMENSION)


@pytest.fixture(scope="session")
def registry() -> Registry:
    return Registry.load()


@dataclass
class Search:
    """What a server puts together."""

    database: Database
    index: VectorIndex
    attachment: Attachment
    embedder: WordEmbedder
    embedders: SpaceEmbedders
    relay: Relay
    finder: Searcher
    registry: Registry

    @classmethod
    def of(
        cls, database: Database, index: VectorIndex, registry: Registry, attachment: Attachment | None = None
    ) -> "Search":
        """The parts of one server, of which none runs yet; the index is not open, unless an attachment to it is."""
        embedder = WordEmbedder()
        attachment = attachment or Attachment(database, index, VECTORS)
        embedders = SpaceEmbedders(database, attachment, embedder)
        relay = Relay(database, attachment, embedders, registry, poll_seconds=POLL, check_seconds=CHECK_SECONDS)
        finder = Searcher(
            database, attachment, embedders, Ranking(candidates=20), relay.hurry, missing_vectors.known_types(registry)
        )
        return cls(database, index, attachment, embedder, embedders, relay, finder, registry)

    async def standing(self, space: Space) -> watermarks.IndexProgress:
        """Newest revision, and the one that is in the index."""
        return await self.database.read(watermarks.standing, space, await self.attachment.id())

    async def find(self, space: Space, words: str, **options: Any) -> FindAnswer:
        return await self.finder.find(space, FindRequest(words, **options))

    async def listed(self, space: Space) -> list[str]:
        """Points of the space in the index, sorted."""
        return sorted(await self.index.list_ids(space.account, space.user, limit=10_000))

    async def named(self, space: Space) -> list[str]:
        """Points that the rows of the space ask for, sorted."""
        asked = [await self.database.read(rows.names, space, table, rows.FIRST, 10_000) for table in rows.TABLES]
        return sorted(named.point_id for names in asked for named in names)

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        """Looks again whenever the relay moved, and every few moments."""
        async with asyncio.timeout(30):
            while not await holds():
                await self.relay.moved()

    async def caught_up(self, *of: Space) -> None:
        """Waits for the watermark and the passages of the spaces."""

        async def holds() -> bool:
            for space in of:
                standing = await self.standing(space)
                if (
                    standing.indexed < standing.revision
                    or (await self.database.read(backlog.of_space, space)).messages > 0
                ):
                    return False
            return True

        self.relay.wake()
        await self.until(holds)

    async def counts(self, space: Space, points: int) -> None:
        """Waits until the index has that many points of the space."""

        async def holds() -> bool:
            return await self.index.count(space.account, space.user) == points

        self.relay.wake()
        await self.until(holds)


@pytest.fixture
def edge_class() -> type[EdgeIndex]:
    """Of the index; a test that needs its process has a parameter of this name."""
    return EdgeHere


@pytest.fixture
async def search(
    database: Database, registry: Registry, tmp_path: Path, edge_class: type[EdgeIndex]
) -> AsyncIterator[Search]:
    """The index is open, the relay does not run yet."""
    made = Search.of(database, edge_class(tmp_path / "index"), registry)
    await made.attachment.attach()
    yield made
    made.embedder.go.set()
    await made.relay.stop()
    await made.index.close()


def write(space: Space, name: str, base: int, version: int, content: str, **columns: Any) -> MemoryWrite:
    """A preference with its vector, as the server makes it while the embedder is up."""
    columns = {"dense": vector(content), "dense_model": WordEmbedder.model} | columns
    fields = json.dumps({"topic": name, "content": content})
    return databases.write(space, name, base, version, content, fields=fields, **columns)


def wordless(write: MemoryWrite) -> MemoryWrite:
    """As it is made while the embedder is down."""
    return replace(write, dense=None, dense_model="")


def memories(answer: FindAnswer) -> list[str]:
    return [found.item.content for found in answer.results if isinstance(found.item, Memory)]


def said(answer: FindAnswer) -> list[str]:
    return [found.item.content for found in answer.results if isinstance(found.item, Passage)]


async def nothing_waits(search: Search) -> bool:
    waiting, _ = await search.database.read_global(outbox.waiting_spaces, await search.attachment.id())
    return not waiting
