"""Restores a backup to a place without an embedded store. The restored store has an identity of its own.

A marker lies in the data directory until everything is on disk. No server starts while it is there, and after an
interruption the next restore starts over.
"""

import shutil
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from storage import store_identity
from storage.backup import each, named_blobs, place_of, quick_check, sync
from storage.backup_manifest import BLOBS, DATABASE, BackupInvalid, Manifest, digest_of_file, read_manifest
from storage.datadir import DataDirectory
from storage.errors import StoreError
from storage.migrate import HEAD, Schema
from storage.sqlite import SqliteDatabase
from storage.store_identity import STORE_LANE

_BESIDE = ("-wal", "-shm", "-journal")
"""Endings of what SQLite keeps beside a database; it would put what is in them into whatever is found there."""


class RestoreRefused(StoreError):
    """Nothing was put anywhere. The message says why, for operators."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a server with the same settings looks: `database` may lie outside of the data directory, and so may
    `blobs`, the folder; None when they are in an object store."""

    data_dir: Path
    database: Path
    blobs: Path | None


async def check(backup: Path) -> Manifest:
    """Reads all of a backup: what is in it is what was put into it. Raises BackupInvalid, SchemaTooNew."""
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
        await opened.write(store_identity.set_restored, STORE_LANE, uuid4().hex)
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
            # A folder of blobs outside of the data directory may have it already, whole or rotten.
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
    """Never a link: the backup stays whole whatever becomes of the store."""
    unfinished = copy.with_name(f"{copy.name}.restoring")
    shutil.copyfile(path, unfinished)
    sync(unfinished)
    unfinished.replace(copy)
