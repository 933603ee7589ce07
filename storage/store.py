"""The parts of the store, opened and closed together."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import structlog

from schemas.registry import Registry
from storage import outbox
from storage.blobs import Blobs, FolderBlobs
from storage.database import Database
from storage.datadir import DataDirectory
from storage.embedders import Embedder, open_embedder
from storage.find import Finder, Ranking
from storage.index.base import SPARSE_ONLY, VectorIndex, VectorSpace
from storage.rebuild import fill_index
from storage.relay import Relay
from storage.sqlite import SqliteDatabase

log = structlog.get_logger(__name__)

POSTGRES_SCHEMES = ("postgresql://", "postgres://")
SQLITE_SCHEME = "sqlite:///"
"""Followed by the path of the database file, from the root; its folder must exist."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Where things are. `url` empty: SQLite under `data_dir`; `index_url` empty: the embedded index there.

    Blobs are under `data_dir` always. Several servers on one PostgreSQL need one index that all of them reach.
    """

    data_dir: Path
    url: str = ""
    embedder: str = "minilm"
    embedder_threads: int = 2
    index_url: str = ""
    index_api_key: str | None = None
    poll_seconds: float = 1.0
    ranking: Ranking = field(default_factory=Ranking)


class Store:
    """Relational store, blobs, index, embedder, relay and search of one server."""

    def __init__(self, options: StoreOptions, registry: Registry) -> None:
        self._options = options
        self.registry = registry
        self.directory = DataDirectory(options.data_dir)
        self.database: Database = _database(options, self.directory)
        self.blobs: Blobs = FolderBlobs(self.directory.blobs)
        self.embedder: Embedder | None = open_embedder(options.embedder, threads=options.embedder_threads)
        self.index: VectorIndex = _index(options, self.directory)
        self.relay = Relay(self.database, self.index, self.embedder, registry, poll_seconds=options.poll_seconds)
        self.finder = Finder(self.database, self.index, self.embedder, options.ranking)

    @property
    def vector_space(self) -> VectorSpace:
        if self.embedder is None:
            return SPARSE_ONLY
        return VectorSpace(self.embedder.model, self.embedder.dimension)

    async def open(self) -> None:
        """Raises DataDirectoryInUse, StoreUnavailable, SchemaTooNew, IndexMismatch, IndexUnavailable."""
        await asyncio.to_thread(self.directory.acquire)
        await self.database.open()
        await self.index.open(self.vector_space)
        if await self.index.count_all() == 0 or await self.database.read(outbox.is_behind):
            # New, lost, or half made: an index with silent gaps would make memories look forgotten.
            space = self.vector_space
            counts = await fill_index(self.database, self.index, space.model, lambda table, count: None)
            if any(counts.values()):
                log.warning("index_made_anew", **counts)
        self.relay.start()

    async def close(self) -> None:
        await self.relay.stop()
        await self.index.close()
        if self.embedder is not None:
            await self.embedder.close()
        await self.database.close()
        self.directory.release()


def _database(options: StoreOptions, directory: DataDirectory) -> Database:
    if options.url.startswith(POSTGRES_SCHEMES):
        from storage.postgres import PostgresDatabase

        return PostgresDatabase(options.url)
    if options.url:
        return SqliteDatabase(Path("/" + options.url.removeprefix(SQLITE_SCHEME).lstrip("/")))
    return SqliteDatabase(directory.database)


def _index(options: StoreOptions, directory: DataDirectory) -> VectorIndex:
    if options.index_url:
        from storage.index.qdrant import QdrantIndex

        where = urlsplit(options.index_url)
        if where.scheme == "grpc":
            return QdrantIndex(f"http://{where.hostname}", api_key=options.index_api_key, grpc_port=where.port or 6334)
        return QdrantIndex(options.index_url, api_key=options.index_api_key)
    from storage.index.edge import EdgeIndex

    return EdgeIndex(directory.index)


async def rebuild_index(
    options: StoreOptions, registry: Registry, progress: Callable[[str, int], None]
) -> dict[str, int]:
    """Makes the index anew, see `fill_index`; the server must not run. Points written, by table."""
    store = Store(options, registry)
    await asyncio.to_thread(store.directory.acquire)
    try:
        await store.database.open()
        await store.index.clear()
        await store.index.open(store.vector_space)
        return await fill_index(store.database, store.index, store.vector_space.model, progress)
    finally:
        await store.index.close()
        await store.database.close()
        store.directory.release()
