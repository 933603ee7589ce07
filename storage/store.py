"""The parts of the store, opened and closed together."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from schemas.registry import Registry
from storage.attachment import Attachment
from storage.backfill import known_types
from storage.blobs import Blobs, FolderBlobs
from storage.cleaner import Cleaner
from storage.database import Database
from storage.datadir import DataDirectory
from storage.embedders import Embedder, open_embedder
from storage.eraser import Eraser, Waits
from storage.find import Finder
from storage.index.base import SPARSE_ONLY, IndexUnavailable, VectorIndex, VectorSpace
from storage.ranking import Ranking
from storage.rebuild import Progress, write_all
from storage.relay import Relay
from storage.shut_spaces import OpenSpaces
from storage.sqlite import SqliteDatabase

log = structlog.get_logger(__name__)

POSTGRES_SCHEMES = ("postgresql://", "postgres://")
SQLITE_SCHEME = "sqlite:///"
"""Followed by the path of the database file, from the root; its folder must exist."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Where things are. `url` empty: SQLite under `data_dir`; `index_url` empty: the embedded index there; `blob_url`
    empty: blobs in `blob_dir`, None for a folder there. Several servers on one PostgreSQL need one index and one place
    of blobs that all of them reach.
    """

    data_dir: Path
    url: str = ""
    embedder: str = "minilm"
    embedder_threads: int = 2
    index_url: str = ""
    index_api_key: str | None = None
    blob_dir: Path | None = None
    blob_url: str = ""
    poll_seconds: float = 1.0
    index_check_seconds: float = 86_400.0
    erasure_purge_seconds: float = 60.0
    ranking: Ranking = field(default_factory=Ranking)


class Store:
    """Relational store, blobs, index, embedder, relay and search of one server.

    `database` is for what callers ask; relay and cleaner go on in `all_spaces`, also where one is shut.
    """

    def __init__(self, options: StoreOptions, registry: Registry) -> None:
        self._options = options
        self.registry = registry
        self.directory = DataDirectory(options.data_dir)
        self.all_spaces: Database = _database(options)
        self.database: Database = OpenSpaces(self.all_spaces)
        self.blobs: Blobs = _blobs(options, self.directory)
        self.embedder: Embedder | None = open_embedder(options.embedder, threads=options.embedder_threads)
        self.index: VectorIndex = _index(options, self.directory)
        self.attachment = Attachment(self.all_spaces, self.index, self.vector_space)
        self.relay = Relay(
            self.all_spaces,
            self.attachment,
            self.embedder,
            registry,
            poll_seconds=options.poll_seconds,
            check_seconds=options.index_check_seconds,
        )
        self.cleaner = Cleaner(self.all_spaces, self.blobs)
        self.eraser = Eraser(
            self.all_spaces,
            self.attachment,
            self.blobs,
            self.relay,
            self.cleaner,
            self.embedder.model if self.embedder is not None else "",
            poll_seconds=options.poll_seconds,
            waits=Waits(options.erasure_purge_seconds),
        )
        self.types_with_vectors = known_types(registry) if self.embedder is not None else ""
        """Memory types whose vectors are waited for, as `storage.search_backlog` wants them."""
        self.finder = Finder(
            self.database,
            self.attachment,
            self.embedder,
            options.ranking,
            self.relay.hurry,
            self.types_with_vectors,
        )

    @property
    def vector_space(self) -> VectorSpace:
        if self.embedder is None:
            return SPARSE_ONLY
        return VectorSpace(self.embedder.model, self.embedder.dimension)

    @property
    def left_to_operator(self) -> tuple[str, ...]:
        """What has to be done by hand for data that is erased to be gone for good, as sentences."""
        return (
            *self.database.left_to_operator,
            *self.attachment.index.left_to_operator,
            *self.blobs.left_to_operator,
        )

    async def open(self) -> None:
        """Opens all but an index that is away: the relay goes on trying, and nothing but searching needs it.

        Raises DataDirectoryInUse, StoreUnavailable, SchemaTooNew, IndexHeld, IndexMismatch.
        """
        await asyncio.to_thread(self.directory.acquire)
        await self.database.open()
        await self.database.hold_index(alone=not self._options.index_url)
        try:
            await self.attachment.attach()
        except IndexUnavailable as error:
            log.warning("index_unavailable", error=str(error))
        self.relay.start()
        self.cleaner.start()
        self.eraser.start()

    async def close(self) -> None:
        await self.eraser.stop()
        await self.cleaner.stop()
        await self.relay.stop()
        await self.index.close()
        if self.embedder is not None:
            await self.embedder.close()
        await self.database.close()
        self.directory.release()


def _database(options: StoreOptions) -> Database:
    if options.url.startswith(POSTGRES_SCHEMES):
        from storage.postgres import PostgresDatabase

        return PostgresDatabase(options.url)
    return SqliteDatabase(embedded_database(options))


def embedded_database(options: StoreOptions) -> Path:
    """The file of a SQLite store."""
    if options.url:
        return Path("/" + options.url.removeprefix(SQLITE_SCHEME).lstrip("/"))
    return DataDirectory(options.data_dir).database


def _blobs(options: StoreOptions, directory: DataDirectory) -> Blobs:
    """Raises ValueError for a URL that names no object store."""
    if options.blob_url:
        from storage.object_blobs import ObjectBlobs

        return ObjectBlobs.at(options.blob_url)
    return FolderBlobs(options.blob_dir or directory.blobs)


def _index(options: StoreOptions, directory: DataDirectory) -> VectorIndex:
    if options.index_url:
        from storage.index.qdrant import QdrantIndex

        return QdrantIndex(options.index_url, api_key=options.index_api_key)
    from storage.index.edge import EdgeIndex

    return EdgeIndex(directory.index)


async def rebuild_index(options: StoreOptions, registry: Registry, progress: Progress) -> dict[str, int]:
    """Drops the index and writes all spaces to a new one; points written, by table, see `write_all`.

    What is cut short is taken up by the next server. No server may run on the data directory meanwhile. Servers that
    share the index with this one may: they search the rows of what is not there yet, and help.
    """
    store = Store(options, registry)
    await asyncio.to_thread(store.directory.acquire)
    try:
        await store.database.open()
        await store.database.hold_index(alone=not options.index_url)
        await store.index.clear()
        model = store.embedder.model if store.embedder is not None else ""
        return await write_all(store.all_spaces, store.attachment, model, progress)
    finally:
        await store.index.close()
        await store.database.close()
        store.directory.release()
