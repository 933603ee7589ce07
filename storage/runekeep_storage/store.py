"""Builds the parts of the store, and opens and closes them together."""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

import structlog

from runekeep_schemas.type_files.registry import Registry
from runekeep_storage.blobs.blobs import Blobs, FolderBlobs
from runekeep_storage.blobs.scrub import BlobScrub
from runekeep_storage.database import Database, SpaceDatabase
from runekeep_storage.drivers.common.data_directory import DataDirectory
from runekeep_storage.drivers.common.fair_turns import HEAVY_REST, FairSlots
from runekeep_storage.drivers.common.private_files import make_private
from runekeep_storage.drivers.sqlite.driver import SqliteDatabase
from runekeep_storage.drivers.sqlite.file_lock import database_files
from runekeep_storage.drivers.sqlite.integrity import IntegrityCheck
from runekeep_storage.drivers.sqlite.wal_check import check_log
from runekeep_storage.embedders import Embedder, EmbeddingOptions
from runekeep_storage.embedders.embedder_set import EmbedderSet
from runekeep_storage.erasure.cleanup import Cleaner
from runekeep_storage.erasure.worker import Eraser, Waits
from runekeep_storage.errors import DatabaseDamaged, StoreError
from runekeep_storage.identity.store_guard import MarkedPart, StoreGuard
from runekeep_storage.index.base import (
    SPARSE_ONLY,
    IndexUnavailable,
    VectorDatatype,
    VectorIndex,
    VectorSpace,
)
from runekeep_storage.indexing import embedder_change
from runekeep_storage.indexing.attachment import Attachment
from runekeep_storage.indexing.space_embedders import SpaceEmbedders
from runekeep_storage.relay.missing_vectors import known_types
from runekeep_storage.relay.rebuild import Progress, write_all
from runekeep_storage.relay.reembedding import Reembedder
from runekeep_storage.relay.relay import Relay
from runekeep_storage.rerankers import RerankOptions, open_rerankers
from runekeep_storage.search.ranking import Ranking
from runekeep_storage.search.relevance import Calibration
from runekeep_storage.search.searcher import Searcher
from runekeep_storage.spaces.space_locks import OpenSpaces

log = structlog.get_logger(__name__)

POSTGRES_SCHEMES = ("postgresql://", "postgres://")
SQLITE_SCHEME = "sqlite:///"
"""Followed by the absolute path of the database file, whose folder must exist."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Locations and settings of the store's parts. `url` empty: SQLite under `data_dir`; `index_url` empty: the
    embedded index there; `blob_url` empty: blobs in `blob_dir`, None for a folder under `data_dir`. Several servers on
    one PostgreSQL must share one index and one blob store. `next_embedding`: of another embedder, see
    `runekeep_storage.indexing.embedder_change`. `store_wait_seconds`: how long to wait for a PostgreSQL that
    does not answer. `withhold_secrets`: passages get notes in place of secrets. `calibrations`: see `Searcher`."""

    data_dir: Path
    url: str = ""
    store_wait_seconds: float = 0.0
    embedder: str = "minilm"
    embedder_threads: int = 2
    embedding: EmbeddingOptions = field(default_factory=EmbeddingOptions)
    reranker: str = "none"
    rerank: RerankOptions = field(default_factory=RerankOptions)
    next_embedding: EmbeddingOptions = field(default_factory=EmbeddingOptions)
    index_url: str = ""
    index_api_key: str | None = None
    index_datatype: VectorDatatype = VectorDatatype.FLOAT32
    blob_dir: Path | None = None
    blob_url: str = ""
    poll_seconds: float = 1.0
    index_check_seconds: float = 86_400.0
    erasure_purge_seconds: float = 60.0
    accept_data_loss: str = ""
    start_check_seconds: float = 5.0
    data_check_seconds: float = 86_400.0
    blob_check_bytes_per_second: float = 4e6
    withhold_secrets: bool = True
    ranking: Ranking = field(default_factory=Ranking)
    calibrations: Mapping[str, Calibration] = field(default_factory=dict)


class Store:
    """Relational store, blobs, index, embedder, relay and search of one server.

    Calls use `database`. The relay and the cleaner use `all_spaces`, because they also work on locked spaces.
    """

    def __init__(self, options: StoreOptions, registry: Registry) -> None:
        self._options = options
        self.registry = registry
        self.directory = DataDirectory(options.data_dir)
        self.all_spaces: Database = _database(options)
        self.database: SpaceDatabase = OpenSpaces(self.all_spaces)
        self.blobs: Blobs = _blobs(options, self.directory)
        self.embedder_set = EmbedderSet(
            options.embedder,
            options.embedder_threads,
            (
                replace(options.embedding, check_file=self.directory.embedder_check),
                replace(options.next_embedding, check_file=self.directory.next_embedder_check),
            ),
        )
        self.rerankers = open_rerankers(options.reranker, threads=options.embedder_threads, options=options.rerank)
        self.embedder: Embedder | None = self.embedder_set.own
        """The embedder in the settings; for the texts of a space see `embedders`."""
        self.index: VectorIndex = _index(options, self.directory)
        self.guard = StoreGuard(
            self.all_spaces,
            _database_place(options),
            (_index_part(self.index), _blobs_part(self.blobs)),
            options.accept_data_loss,
        )
        self.attachment = Attachment(self.all_spaces, self.index, self.vector_space, self.guard.check_index)
        self.embedders = SpaceEmbedders(self.all_spaces, self.attachment, self.embedder, self.embedder_set.find)
        self._reembedder = Reembedder(self.all_spaces, self.attachment, self.embedders, registry)
        self.relay = Relay(
            self.all_spaces,
            self.attachment,
            self.embedders,
            registry,
            poll_seconds=options.poll_seconds,
            check_seconds=options.index_check_seconds,
            withhold_secrets=options.withhold_secrets,
            reembedder=self._reembedder,
        )
        self.integrity = _integrity(options, self.all_spaces)
        self.scrub = BlobScrub(
            self.all_spaces,
            self.blobs,
            interval=options.data_check_seconds,
            bytes_per_second=options.blob_check_bytes_per_second,
        )
        self.grep_slots = FairSlots(2, 1, rest=HEAVY_REST)
        """Slots for slices of text searches; each account holds at most one."""
        self.cleaner = Cleaner(self.all_spaces, self.blobs)
        self.eraser = Eraser(
            self.all_spaces,
            self.attachment,
            self.blobs,
            self.relay,
            self.cleaner,
            poll_seconds=options.poll_seconds,
            waits=Waits(options.erasure_purge_seconds),
        )
        self.finder = Searcher(
            self.database,
            self.attachment,
            self.embedders,
            options.ranking,
            self.relay.hurry,
            known_types(registry),
            self.rerankers,
            options.calibrations,
        )

    @property
    def vector_space(self) -> VectorSpace:
        if self.embedder is None:
            return SPARSE_ONLY
        return VectorSpace(self.embedder.model, self.embedder.dimension)

    @property
    def left_to_operator(self) -> tuple[str, ...]:
        """Sentences that tell the operator what to do by hand to remove erased data for good."""
        return (
            *self.all_spaces.left_to_operator,
            *self.attachment.index.left_to_operator,
            *self.blobs.left_to_operator,
        )

    async def open(self) -> None:
        """Opens all parts. Does not fail if the index is unavailable: the relay keeps trying, and only searches need
        it.

        Raises DataDirectoryInUse, DataDirectoryUnusable, DatabaseInUse, StoreUnavailable, SchemaTooNew, IndexHeld,
        IndexMismatch, StoreLost, DatabaseDamaged.
        """
        await self.open_relational()
        try:
            await self.attachment.attach()
        except (IndexUnavailable, DatabaseDamaged) as error:
            log.warning("index_unavailable", error=str(error))
        self.attachment.check_ended_change()
        if self.integrity is not None:
            self.integrity.start()
        self.scrub.start()
        self.rerankers.start()
        self.relay.start()
        self.cleaner.start()
        self.eraser.start()
        self.guard.start()

    async def open_relational(self) -> None:
        """Opens only the relational store, unless the index or the blobs show that it lost data. Raises the errors of
        `open`."""
        await asyncio.to_thread(self.directory.acquire)
        folders = _own_folders(self._options, self.directory)
        self.directory.check_writable(folders)
        await asyncio.to_thread(make_private, folders, _own_files(self._options))
        if not self._options.url.startswith(POSTGRES_SCHEMES):
            file = embedded_database(self._options)
            if not file.exists():
                await self.guard.check_vanished()
            # Take the lock first: another server may be writing to the file.
            await self._claim()
            await asyncio.to_thread(check_log, file)
        if self.integrity is not None:
            await self.integrity.check_at_start()
        await self.all_spaces.open()
        await self.all_spaces.hold_index(alone=not self._options.index_url)
        await self.guard.check()

    async def _claim(self) -> None:
        if isinstance(self.all_spaces, SqliteDatabase):
            await self.all_spaces.claim()

    async def probe(self) -> None:
        """Raises StoreUnavailable if the store cannot serve, DatabaseDamaged, StoreReadOnly."""
        self.all_spaces.damage.check()
        await self.all_spaces.probe()

    async def close(self) -> None:
        await self.scrub.stop()
        if self.integrity is not None:
            await self.integrity.stop()
        await self.eraser.stop()
        await self.cleaner.stop()
        await self.relay.stop()
        with contextlib.suppress(StoreError):
            await self._reembedder.release()
        await self.guard.stop()
        await self.index.close()
        await self.rerankers.close()
        await self.embedder_set.close()
        await self.all_spaces.close()
        self.directory.release()


def _database(options: StoreOptions) -> Database:
    if options.url.startswith(POSTGRES_SCHEMES):
        from runekeep_storage.drivers.postgres.driver import PostgresDatabase

        return PostgresDatabase(options.url, wait_seconds=options.store_wait_seconds)
    return SqliteDatabase(embedded_database(options))


def _integrity(options: StoreOptions, database: Database) -> IntegrityCheck | None:
    """Returns None for PostgreSQL, which manages its files itself."""
    if options.url.startswith(POSTGRES_SCHEMES):
        return None
    return IntegrityCheck(
        embedded_database(options),
        database.damage,
        start_seconds=options.start_check_seconds,
        interval=options.data_check_seconds,
    )


def embedded_database(options: StoreOptions) -> Path:
    """Returns the database file of a SQLite store."""
    if options.url:
        return Path("/" + options.url.removeprefix(SQLITE_SCHEME).lstrip("/"))
    return DataDirectory(options.data_dir).database


def _database_place(options: StoreOptions) -> str:
    """Returns the location of the store for messages, without a password."""
    if options.url.startswith(POSTGRES_SCHEMES):
        where = urlsplit(options.url)
        return f"{where.path.lstrip('/')} at {where.hostname}"
    return str(embedded_database(options))


def _index_part(index: VectorIndex) -> MarkedPart:
    return MarkedPart("index", index.place, index.read_mark, index.write_mark, index.clear)


def _blobs_part(blobs: Blobs) -> MarkedPart:
    async def read() -> str:
        return await asyncio.to_thread(blobs.read_mark)

    async def write(text: str) -> bool:
        return await asyncio.to_thread(blobs.write_mark, text)

    async def reset() -> None:
        """Drops the marks only: the sweep removes blobs that no row names."""

    return MarkedPart(
        "blob store",
        blobs.place,
        read,
        write,
        reset,
        blobs.mark_seconds,
        is_derived=False,
    )


def _own_folders(options: StoreOptions, directory: DataDirectory) -> list[Path]:
    """Returns the folders beside the database that a server with these options writes to. They need not exist yet."""
    index = [] if options.index_url else [directory.index]
    return index if options.blob_url else [*index, options.blob_dir or directory.blobs]


def _own_files(options: StoreOptions) -> list[Path]:
    """Returns the SQLite database and the files beside it, which need not exist yet. Empty for PostgreSQL."""
    return [] if options.url.startswith(POSTGRES_SCHEMES) else database_files(embedded_database(options))


def _blobs(options: StoreOptions, directory: DataDirectory) -> Blobs:
    """Raises ValueError for a URL that names no object store."""
    if options.blob_url:
        from runekeep_storage.blobs.object_blobs import ObjectBlobs

        return ObjectBlobs.at(options.blob_url)
    return FolderBlobs(options.blob_dir or directory.blobs)


def _index(options: StoreOptions, directory: DataDirectory) -> VectorIndex:
    if options.index_url:
        from runekeep_storage.index.qdrant import QdrantIndex

        return QdrantIndex(options.index_url, api_key=options.index_api_key, datatype=options.index_datatype)
    from runekeep_storage.index.edge import EdgeIndex

    return EdgeIndex(directory.index, datatype=options.index_datatype)


async def rebuild_index(options: StoreOptions, registry: Registry, progress: Progress) -> dict[str, int]:
    """Drops the index and writes all spaces to a new one. Returns the number of points written, by table, see
    `write_all`.

    If this is interrupted, the next server continues it. No server may run on the data directory meanwhile. Servers
    that share this index may run: they search the rows of points that are still missing, and help to write them.
    """
    store = Store(options, registry)
    try:
        await store.open_relational()
        await store.all_spaces.write_global(embedder_change.forget)
        await store.index.clear()
        return await write_all(store.all_spaces, store.attachment, progress)
    finally:
        await store.index.close()
        await store.all_spaces.close()
        store.directory.release()
