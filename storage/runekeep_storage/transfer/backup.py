"""Backs up an embedded store, while its server runs or while none does.

A process other than the server's reads the database in one SQLite snapshot, and `VACUUM INTO` writes the live data, so
the copy holds nothing that was deleted before. A blob is stored before a row names it, and is removed no sooner than
its row, but then perhaps at once. So blobs are copied before the snapshot, and those that arrived meanwhile after it;
the latter are younger than the grace of blobs, so nobody removes them.

The backup gets its name once it is complete and on disk: an interrupted one never looks like a backup, and is removed
when the next one is made in its place. The index is left out; a server builds it again.
"""

import contextlib
import errno
import fcntl
import os
import re
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from runekeep_storage.blobs import sweeps
from runekeep_storage.blobs.blobs import FolderBlobs
from runekeep_storage.database import Space
from runekeep_storage.drivers.sqlite.driver import system_clock
from runekeep_storage.drivers.sqlite.errors import is_damage
from runekeep_storage.drivers.sqlite.transaction import SqliteTx
from runekeep_storage.drivers.sqlite.wal_check import check_log
from runekeep_storage.errors import NotFound, StoreError
from runekeep_storage.migrations.migrate import HEAD, sqlite_schema
from runekeep_storage.transfer import statements
from runekeep_storage.transfer.backup_manifest import (
    BLOBS,
    DATABASE,
    MANIFEST,
    Blobs,
    File,
    Manifest,
    digest_of_file,
)

ROUNDS = 3
"""Maximum number of snapshots, taken until all blobs of one are found, or until two lack the same blobs: those the
store itself lacks."""
BUSY_SECONDS = 60.0
"""How long to wait for a purge of the server, which blocks readers for a moment."""
_NAME = re.compile("[0-9a-f]{64}")
_DEPTH = 3
"""Folders above a blob: account, user, and the first characters of its name."""
# Errors when a hard link is impossible: another file system, one without links, or a file with too many.
_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EACCES)

_DAMAGED = "the store's database is damaged"
_RESCUE = "Restore a backup of before: docs/operate/errors.md, DATA_DAMAGED"

Named = dict[Space, set[str]]
"""Names of blobs by the space whose rows name them."""


class BackupFailed(StoreError):
    """No backup was made. The message says why, for operators."""


@dataclass(frozen=True, slots=True)
class Source:
    """An embedded store: its database file, and the folder of its blobs; None when they are in an object store."""

    database: Path
    blobs: Path | None


async def make(source: Source, target: Path) -> Manifest:
    """Creates the backup in the folder `target`, which must not exist. Returns its manifest. Raises BackupFailed,
    SchemaTooNew, StoreLost."""
    try:
        check_log(source.database)
        schema = sqlite_schema(source.database)
        if schema is None:
            raise BackupFailed(f"there is no store at {source.database}")
        if schema.revision > HEAD:
            schema.is_served()
        with _unfinished(target) as partial:
            copied = _Copy(source, partial)
            lacking = await copied.take()
            manifest = Manifest(
                format=1,
                runekeep=_release(),
                revision=schema.revision,
                compatible_from=schema.compatible_from,
                snapshot_at=copied.snapshot_at,
                made_at=datetime.now(UTC),
                database=copied.database_file(),
                blobs=copied.blobs(lacking),
            )
            _finish(partial, target, manifest)
            return manifest
    except sqlite3.Error as error:
        if is_damage(error):
            raise BackupFailed(f"{_DAMAGED}: {error}. {_RESCUE}") from error
        raise BackupFailed(f"the store cannot be copied: {error}") from error
    except OSError as error:
        raise BackupFailed(f"{error.filename or target}: {error.strerror}") from error


class _Copy:
    """The files of a backup while they are written to `folder`."""

    def __init__(self, source: Source, folder: Path) -> None:
        self._source = source
        self._database = folder / DATABASE
        self._blobs = folder / BLOBS
        self._named: Named = {}
        self.snapshot_at = datetime.now(UTC)

    async def take(self) -> set[str]:
        """Copies database and blobs. Returns blobs that rows name and the store lacks."""
        lacking: set[str] = set()
        for _ in range(ROUNDS):
            before = lacking
            if self._source.blobs is not None:
                self._copy_blobs(self._source.blobs)
            self.snapshot_at = datetime.now(UTC)
            self._copy_database()
            self._named = await named_blobs(self._database)
            lacking = set() if self._source.blobs is None else self._copy_later(FolderBlobs(self._source.blobs))
            if not lacking or lacking == before:
                break
        self._drop_unnamed()
        return lacking

    def database_file(self) -> File:
        return File(bytes=self._database.stat().st_size, sha256=digest_of_file(self._database))

    def blobs(self, lacking: set[str]) -> Blobs:
        """Describes the blobs. Reads all of them, so that damage is reported now and not when they are needed."""
        if self._source.blobs is None:
            return Blobs(place="object_store", count=0, bytes=0)
        count = size = 0
        damaged = []
        for space, name in each(self._named):
            path = self._path(space, name)
            if path.exists():
                count, size = count + 1, size + path.stat().st_size
                if digest_of_file(path) != name:
                    damaged.append(place_of(space, name))
        return Blobs(place="backup", count=count, bytes=size, missing=tuple(sorted(lacking)), damaged=tuple(damaged))

    def _copy_blobs(self, folder: Path) -> None:
        # Folders may vanish during the walk, with the last of their blobs. Blobs missed here that a row names are
        # requested by name after the snapshot.
        for parent, _, names in os.walk(folder):
            within = Path(parent).relative_to(folder)
            for name in names:
                if len(within.parts) == _DEPTH and _NAME.fullmatch(name):
                    with contextlib.suppress(FileNotFoundError):
                        _take(Path(parent, name), self._blobs / within / name)

    def _copy_database(self) -> None:
        self._database.unlink(missing_ok=True)
        uri = f"{self._source.database.absolute().as_uri()}?mode=rw"
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            # Before the copy: SQLite copies some damage into a file that looks whole, and for other damage reports
            # misleading errors, such as a full disk.
            if problem := _problem(connection):
                raise BackupFailed(f"{_DAMAGED}: {problem}. {_RESCUE}")
            _check_space(connection, self._database.parent)
            connection.execute("VACUUM INTO ?", (str(self._database),))
        finally:
            connection.close()
        sync(self._database)
        problem = quick_check(self._database)
        if problem:
            raise BackupFailed(f"the copy is damaged: {problem}")

    def _copy_later(self, there: FolderBlobs) -> set[str]:
        lacking = set()
        for space, name in each(self._named):
            path = self._path(space, name)
            if not path.exists():
                try:
                    data = there.get(space, name)
                except NotFound:
                    lacking.add(place_of(space, name))
                    continue
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
                sync(path)
        return lacking

    def _drop_unnamed(self) -> None:
        """Removes blobs that were deleted between their copy and the snapshot, and those that refused calls left
        behind."""
        kept = {self._path(space, name) for space, name in each(self._named)}
        for path in self._blobs.glob("*/*/*/*"):
            if path not in kept:
                path.unlink()

    def _path(self, space: Space, name: str) -> Path:
        return self._blobs / space.account / space.user / name[:2] / name


def quick_check(database: Path) -> str:
    """Returns what SQLite finds wrong in a file that nobody writes to; empty if nothing. Raises sqlite3.Error."""
    connection = opened(database)
    try:
        return _problem(connection)
    finally:
        connection.close()


def _problem(connection: sqlite3.Connection) -> str:
    """Returns what SQLite finds wrong; empty if nothing. Raises any sqlite3.Error except one that says that the file is
    damaged."""
    try:
        found = [row[0] for row in connection.execute("PRAGMA quick_check(3)")]
    except sqlite3.Error as error:
        if not is_damage(error):
            raise
        return str(error)
    return "" if found == ["ok"] else "; ".join(found)


def opened(database: Path) -> sqlite3.Connection:
    """Opens a file that nobody writes to, for reading. Leaves no other file beside it."""
    connection = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    connection.row_factory = sqlite3.Row
    return connection


async def named_blobs(database: Path) -> Named:
    """Returns the blobs that rows of a backup's database name, for all accounts."""
    connection = opened(database)
    try:
        tx = SqliteTx(connection, system_clock)
        rows = await tx.fetch(statements.SPACES)
        spaces = [Space(row["account"], row["user_id"]) for row in rows]
        return {space: names for space in spaces if (names := await sweeps.named(tx, space))}
    finally:
        connection.close()


def each(named: Named) -> Iterator[tuple[Space, str]]:
    """Yields each blob, always in the same order."""
    return ((space, name) for space, names in named.items() for name in sorted(names))


def place_of(space: Space, name: str) -> str:
    """Returns the name of a blob in a manifest."""
    return f"{space.account}/{space.user}/{name}"


def _check_space(connection: sqlite3.Connection, folder: Path) -> None:
    """Raises BackupFailed if the copy would not fit: on a full disk the server cannot write either."""
    pages, unused, size = (
        connection.execute(f"PRAGMA {what}").fetchone()[0] for what in ("page_count", "freelist_count", "page_size")
    )
    wanted, free = (pages - unused) * size, shutil.disk_usage(folder).free
    if free < wanted:
        raise BackupFailed(f"{folder} has {free / 1e6:.1f} MB free, and the database takes {wanted / 1e6:.1f} MB")


def _take(path: Path, copy: Path) -> None:
    """Copies a blob as a hard link if possible. A blob's file is never changed, only replaced, so a link is a copy."""
    if copy.exists():
        return
    copy.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(path, copy)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        shutil.copyfile(path, copy)
        sync(copy)


@contextlib.contextmanager
def _unfinished(target: Path) -> Iterator[Path]:
    """Yields an empty folder beside `target`, for one process at a time, and removes whatever an earlier process left
    there."""
    partial = target.absolute().with_name(f".{target.name}.partial")
    if target.exists():
        raise BackupFailed(f"{target} is there already; name another folder")
    if not partial.parent.is_dir():
        raise BackupFailed(f"there is no folder {partial.parent}")
    partial.mkdir(mode=0o700, exist_ok=True)
    handle = os.open(partial, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackupFailed(f"another process is making {target}") from None
        if not partial.exists() or not os.path.samestat(os.fstat(handle), partial.stat()):
            raise BackupFailed(f"another process has just made {target}")
        for entry in partial.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        try:
            yield partial
        except BaseException:
            # Nobody would look for it, and it holds memories.
            shutil.rmtree(partial, ignore_errors=True)
            raise
    finally:
        os.close(handle)


def _finish(partial: Path, target: Path, manifest: Manifest) -> None:
    (partial / MANIFEST).write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")
    sync(partial / MANIFEST)
    for folder, _, _ in os.walk(partial):
        sync(Path(folder))
    if target.exists():
        raise BackupFailed(f"{target} was made meanwhile")
    partial.rename(target)
    sync(partial.parent)


def sync(path: Path) -> None:
    """Brings a file, or the names in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _release() -> str:
    try:
        return version("runekeep")
    except PackageNotFoundError:
        return "unknown"
