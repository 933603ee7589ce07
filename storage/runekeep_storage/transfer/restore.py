"""Restores a backup to a place without an embedded store. The restored store has an identity of its own.

A marker lies in the data directory until everything is on disk. No server starts while it is there, and after an
interruption the next restore starts over.
"""

import shutil
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from runekeep_storage.drivers.common.data_directory import DataDirectory
from runekeep_storage.drivers.sqlite.driver import SqliteDatabase
from runekeep_storage.errors import StoreError
from runekeep_storage.identity import store_identity
from runekeep_storage.identity.store_identity import STORE_ACCOUNT
from runekeep_storage.migrations.migrate import HEAD, Schema
from runekeep_storage.transfer.backup import each, named_blobs, place_of, quick_check, sync
from runekeep_storage.transfer.backup_manifest import (
    BLOBS,
    DATABASE,
    BackupInvalid,
    Manifest,
    digest_of_file,
    read_manifest,
)

_BESIDE = ("-wal", "-shm", "-journal")
"""Suffixes of files that SQLite keeps beside a database. It would apply leftover ones to whatever database it finds
there."""


class RestoreRefused(StoreError):
    """Nothing was restored. The message says why, for operators."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a server with the same settings looks. `database` and the folder `blobs` may lie outside the data
    directory; `blobs` is None if they are in an object store."""

    data_dir: Path
    database: Path
    blobs: Path | None


async def check(backup: Path) -> Manifest:
    """Reads a whole backup and checks that it holds what was put into it. Returns its manifest. Raises BackupInvalid,
    SchemaTooNew."""
    manifest = read_manifest(backup)
    if manifest.revision > HEAD:
        Schema(manifest.revision, manifest.compatible_from).is_served()
    try:
        _check_database(backup / DATABASE, manifest)
        if manifest.blobs.place == "backup":
            await _check_blobs(backup, manifest)
    except OSError as error:
        raise BackupInvalid(f"{error.filename}: {error.strerror}") from error
    except sqlite3.Error as error:
        raise BackupInvalid(f"{backup / DATABASE}: {error}") from error
    return manifest


def _check_database(database: Path, manifest: Manifest) -> None:
    if digest_of_file(database) != manifest.database.sha256:
        raise BackupInvalid(f"{database} is not the file that the backup was made with")
    problem = quick_check(database)
    if problem:
        raise BackupInvalid(f"{database} is damaged: {problem}")


async def _check_blobs(backup: Path, manifest: Manifest) -> None:
    known = {*manifest.blobs.missing, *manifest.blobs.damaged}
    for space, name in each(await named_blobs(backup / DATABASE)):
        if place_of(space, name) not in known:
            path = backup / BLOBS / space.account / space.user / name[:2] / name
            if digest_of_file(path) != name:
                raise BackupInvalid(f"{path} is damaged")


async def restore(backup: Path, destination: Destination) -> Manifest:
    """Restores a backup to an empty place. Raises BackupInvalid, SchemaTooNew, RestoreRefused, DataDirectoryInUse,
    DataDirectoryUnusable."""
    manifest = await check(backup)
    if manifest.blobs.place == "backup" and destination.blobs is None:
        raise RestoreRefused("the backup holds blobs, but the settings name an object store (RUNEKEEP_BLOB_URL)")
    if manifest.blobs.place == "object_store" and destination.blobs is not None:
        raise RestoreRefused(
            "the blobs of the backup are in an object store, but the settings name none (RUNEKEEP_BLOB_URL)"
        )
    directory = DataDirectory(destination.data_dir)
    directory.acquire(restoring=True)
    try:
        _make_room(directory, destination)
        directory.make_private()
        directory.mark_restore(destination.database)
        _put(backup, destination, manifest)
        await _set_restored(destination.database)
        directory.end_restore()
    except OSError as error:
        raise RestoreRefused(f"{error.filename or destination.data_dir}: {error.strerror}; begin again") from error
    finally:
        directory.release()
    return manifest


async def _set_restored(database: Path) -> None:
    """Gives the restored store a new identity. It lacks what was committed after the backup, which would look like a
    loss to the index and the blobs. A backup of an older release is migrated first, to get the table for the identity.
    """
    opened = SqliteDatabase(database)
    try:
        await opened.open()
        await opened.write_in_account(store_identity.set_restored, STORE_ACCOUNT, uuid4().hex)
    finally:
        await opened.close()


def _make_room(directory: DataDirectory, destination: Destination) -> None:
    if directory.is_restored_to(destination.database):
        shutil.rmtree(directory.blobs, ignore_errors=True)
        for file in _files_of(destination.database):
            file.unlink(missing_ok=True)
        return
    there = directory.occupants()
    if destination.database.parent != directory.root:
        there += [str(file) for file in _files_of(destination.database) if file.exists()]
    if there:
        raise RestoreRefused(
            f"{directory.root} is not empty ({', '.join(there[:5])}): a restore overwrites nothing. Move what is there"
            " away, or name another directory"
        )


def _files_of(database: Path) -> list[Path]:
    return [database, *(database.with_name(f"{database.name}{ending}") for ending in _BESIDE)]


def _put(backup: Path, destination: Destination, manifest: Manifest) -> None:
    if manifest.blobs.place == "backup" and destination.blobs is not None:
        folders: set[Path] = set()
        for path in (backup / BLOBS).glob("*/*/*/*"):
            copy = destination.blobs / path.relative_to(backup / BLOBS)
            # A folder of blobs outside the data directory may already have the blob, intact or damaged.
            if not copy.exists() or digest_of_file(copy) != copy.name:
                copy.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                _copy(path, copy)
            folders |= set(copy.parents[:4])
        for folder in folders:
            sync(folder)
    _copy(backup / DATABASE, destination.database)
    if digest_of_file(destination.database) != manifest.database.sha256:
        raise RestoreRefused(f"{destination.database} could not be written as it was read; begin again")
    sync(destination.database.parent)


def _copy(path: Path, copy: Path) -> None:
    """Copies, never links, so that the backup stays intact whatever happens to the store."""
    unfinished = copy.with_name(f"{copy.name}.restoring")
    shutil.copyfile(path, unfinished)
    sync(unfinished)
    unfinished.replace(copy)
