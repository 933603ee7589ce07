"""The parts of the store, opened and closed together."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import structlog

from schemas.registry import Registry
from storage.attachment import Attachment
from storage.backfill import known_types
from storage.blob_scrub import BlobScrub
from storage.blobs import Blobs, FolderBlobs
from storage.cleaner import Cleaner
from storage.database import Database
from storage.database_lock import database_files
from storage.datadir import DataDirectory
from storage.embedders import Embedder, open_embedder
from storage.eraser import Eraser, Waits
from storage.errors import DatabaseDamaged
from storage.find import Finder
from storage.guard import MarkedPart, StoreGuard
from storage.index.base import SPARSE_ONLY, IndexUnavailable, VectorIndex, VectorSpace
from storage.integrity import IntegrityCheck
from storage.private_files import make_private
from storage.ranking import Ranking
from storage.rebuild import Progress, write_all
from storage.relay import Relay
from storage.shut_spaces import OpenSpaces
from storage.sqlite import SqliteDatabase
from storage.wal_check import check_log

log = structlog.get_logger(__name__)

POSTGRES_SCHEMES = ("postgresql://", "postgres://")
SQLITE_SCHEME = "sqlite:///"
"""Followed by the path of the database file, from the root; its folder must exist."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Where the parts of the store are. `url` empty: SQLite under `data_dir`; `index_url` empty: the embedded index
    there; `blob_url` empty: blobs in `blob_dir`, None for a folder there. Several servers on one PostgreSQL must share
    one index and one blob store. `store_wait_seconds`: how long to wait for a PostgreSQL that does not answer.
    """

    data_dir: Path
    url: str = ""
    store_wait_seconds: float = 0.0
    embedder: str = "minilm"
    embedder_threads: int = 2
    index_url: str = ""
    index_api_key: str | None = None
    blob_dir: Path | None = None
    blob_url: str = ""
    poll_seconds: float = 1.0
    index_check_seconds: float = 86_400.0
    erasure_purge_seconds: float = 60.0
    accept_data_loss: str = ""
    start_check_seconds: float = 5.0
    data_check_seconds: float = 86_400.0
    blob_check_bytes_per_second: float = 4e6
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
        self.guard = StoreGuard(
            self.all_spaces,
            _database_place(options),
            (_index_part(self.index), _blobs_part(self.blobs)),
            options.accept_data_loss,
        )
        self.attachment = Attachment(self.all_spaces, self.index, self.vector_space, self.guard.check_index)
        self.relay = Relay(
            self.all_spaces,
            self.attachment,
            self.embedder,
            registry,
            poll_seconds=options.poll_seconds,
            check_seconds=options.index_check_seconds,
        )
        self.integrity = _integrity(options, self.all_spaces)
        self.scrub = BlobScrub(
            self.all_spaces,
            self.blobs,
            interval=options.data_check_seconds,
            bytes_per_second=options.blob_check_bytes_per_second,
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
        """Memory types that get vectors, in the form that `storage.search_backlog` takes."""
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
        """Opens everything, but does not fail if the index is away: the relay keeps trying, and only searches need it.

        Raises DataDirectoryInUse, DataDirectoryUnusable, DatabaseInUse, StoreUnavailable, SchemaTooNew, IndexHeld,
        IndexMismatch, StoreLost, DatabaseDamaged.
        """
        await self.open_relational()
        try:
            await self.attachment.attach()
        except (IndexUnavailable, DatabaseDamaged) as error:
            log.warning("index_unavailable", error=str(error))
        if self.integrity is not None:
            self.integrity.start()
        self.scrub.start()
        self.relay.start()
        self.cleaner.start()
        self.eraser.start()
        self.guard.start()

    async def open_relational(self) -> None:
        """Opens only the relational store, unless the index or the blobs show that it lost something. Raises the errors
        of `open`."""
        await asyncio.to_thread(self.directory.acquire)
        folders = _own_folders(self._options, self.directory)
        self.directory.check_writable(folders)
        await asyncio.to_thread(make_private, folders, _own_files(self._options))
        if not self._options.url.startswith(POSTGRES_SCHEMES):
            file = embedded_database(self._options)
            if not file.exists():
                await self.guard.check_vanished()
            # Before anything looks at a file that another server may be writing to.
            await self._claim()
            await asyncio.to_thread(check_log, file)
        if self.integrity is not None:
            await self.integrity.check_at_start()
        await self.database.open()
        await self.database.hold_index(alone=not self._options.index_url)
        await self.guard.check()

    async def _claim(self) -> None:
        if isinstance(self.all_spaces, SqliteDatabase):
            await self.all_spaces.claim()

    async def probe(self) -> None:
        """Raises StoreUnavailable while the store cannot serve, DatabaseDamaged, StoreReadOnly."""
        self.database.damage.check()
        await self.all_spaces.probe()

    async def close(self) -> None:
        await self.scrub.stop()
        if self.integrity is not None:
            await self.integrity.stop()
        await self.eraser.stop()
        await self.cleaner.stop()
        await self.relay.stop()
        await self.guard.stop()
        await self.index.close()
        if self.embedder is not None:
            await self.embedder.close()
        await self.database.close()
        self.directory.release()


def _database(options: StoreOptions) -> Database:
    if options.url.startswith(POSTGRES_SCHEMES):
        from storage.postgres import PostgresDatabase

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
    """The file of a SQLite store."""
    if options.url:
        return Path("/" + options.url.removeprefix(SQLITE_SCHEME).lstrip("/"))
    return DataDirectory(options.data_dir).database


def _database_place(options: StoreOptions) -> str:
    """The location of the store, for messages; without a password."""
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
        """Drops the marks only: blobs that no row names are removed in time."""

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
    try:
        await store.open_relational()
        await store.index.clear()
        model = store.embedder.model if store.embedder is not None else ""
        return await write_all(store.all_spaces, store.attachment, model, progress)
    finally:
        await store.index.close()
        await store.database.close()
        store.directory.release()
