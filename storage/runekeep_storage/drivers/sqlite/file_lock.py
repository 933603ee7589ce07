"""Locks a SQLite database file: one process owns the file, whatever name, link or data directory leads to it.

The lock is on the file itself, so it follows device and inode, and nobody can delete it without the database. It
belongs to an open file description (`F_OFD_SETLK`). Unlike a POSIX lock, it is not released when another descriptor of
the file is closed. On systems that keep both kinds in one list (NFS, macOS), flock() would collide with SQLite's own
locks; this lock covers one byte far behind those that SQLite locks.

Closing any descriptor of the file drops all locks that SQLite holds on it in this process. So the lock is taken before
SQLite opens the file and released after SQLite has closed it, and a process that holds the lock never opens the file
again to try for a second lock.
"""

import errno
import fcntl
import os
import struct
import sys
import time
from pathlib import Path
from typing import Final

import structlog

from runekeep_storage.drivers.common.lock_owner import Owner, describe_owner
from runekeep_storage.errors import DatabaseInUse, StoreReadOnly, StoreUnavailable

OWNER_SUFFIX: Final = ".owner"
"""Suffix of the file beside the database that names the process that holds the lock."""
_LOCKED_BYTE: Final = 1 << 62
_MODE: Final = 0o600
"""SQLite gives the files beside a database the mode of the database."""
_RETRY_SECONDS: Final = 0.1
_READ_ONLY: Final = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_UNSUPPORTED: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK})
_held: Final[set[tuple[int, int]]] = set()
"""Device and inode of each file that this process owns."""

_log = structlog.get_logger(__name__)


class DatabaseLock:
    """The lock of the database file at `path`. `acquire` it before SQLite opens the file; `release` it after SQLite has
    closed all its connections."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._identity = (0, 0)

    def acquire(self, wait_seconds: float) -> None:
        """Takes the lock unless it is held already, and creates the file if it does not exist.

        Raises DatabaseInUse when the owner keeps the lock for longer than `wait_seconds`, StoreReadOnly,
        StoreUnavailable.
        """
        if self._descriptor is not None:
            return
        end = time.monotonic() + wait_seconds
        while not self._try():
            if time.monotonic() >= end:
                raise DatabaseInUse(
                    f"{self._path} is in use by the server with {describe_owner(_read_note(self._path))}; stop it, or"
                    " give this one a database of its own"
                )
            time.sleep(_RETRY_SECONDS)
        self._note_owner()

    def release(self) -> None:
        if self._descriptor is None:
            return
        owner_file(self._path).unlink(missing_ok=True)
        _held.discard(self._identity)
        os.close(self._descriptor)
        self._descriptor = None

    def _try(self) -> bool:
        if _is_held_here(self._path):
            return False
        descriptor = _open(self._path)
        locked = False
        try:
            locked = _lock(descriptor, self._path) and self._is_at_path(descriptor)
        finally:
            if not locked:
                os.close(descriptor)
        if locked:
            there = os.fstat(descriptor)
            self._descriptor, self._identity = descriptor, (there.st_dev, there.st_ino)
            _held.add(self._identity)
        return locked

    def _is_at_path(self, descriptor: int) -> bool:
        """Returns False if the file was replaced after it was opened: then the lock is on a deleted file."""
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(self._path))
        except FileNotFoundError:
            return False

    def _note_owner(self) -> None:
        """Only messages use this file, so a full disk does not end the start."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        try:
            descriptor = os.open(owner_file(self._path), flags, _MODE)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(Owner.this_process().note())
        except OSError as error:
            _log.warning("database_owner_not_noted", error=error.strerror)


def owner_of(path: Path) -> str | None:
    """Describes the process that owns the database file at `path`; None if no process does or the file may not be read.
    No SQLite connection of this process may be open on the file."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _packed(fcntl.F_WRLCK))
    except (OSError, AttributeError):
        return None
    finally:
        os.close(descriptor)
    return None if _lock_type(answer) == fcntl.F_UNLCK else describe_owner(_read_note(path))


def owner_file(database: Path) -> Path:
    """Returns the file that names the owner: it lies beside the database itself if the path is a symbolic link."""
    real = Path(os.path.realpath(database))
    return real.with_name(real.name + OWNER_SUFFIX)


def database_files(database: Path) -> list[Path]:
    """Returns the database file and the files that SQLite and this module keep beside it."""
    real = Path(os.path.realpath(database))
    return [real, *(real.with_name(real.name + suffix) for suffix in ("-wal", "-shm", "-journal", OWNER_SUFFIX))]


def _is_held_here(path: Path) -> bool:
    try:
        there = os.stat(path)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) in _held


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, _MODE)
    except OSError as error:
        if error.errno in _READ_ONLY:
            raise StoreReadOnly(
                f"{path} cannot be opened for writing: {error.strerror}; a server must be able to write to the database"
                " and to its folder"
            ) from error
        raise StoreUnavailable(f"cannot open {path}: {error.strerror}") from error


def _lock(descriptor: int, path: Path) -> bool:
    """Returns whether the lock was free. On systems without such locks, the lock of the data directory must do."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _packed(fcntl.F_WRLCK))
    except (BlockingIOError, PermissionError):
        return False
    except (OSError, AttributeError) as error:
        if isinstance(error, OSError) and error.errno not in _UNSUPPORTED:
            raise StoreUnavailable(f"cannot lock {path}: {error.strerror}") from error
        _log.warning("database_lock_unsupported", path=str(path))
    return True


def _packed(kind: int) -> bytes:
    """Returns a `struct flock` for the locked byte."""
    if sys.platform == "darwin":
        return struct.pack("@qqihh", _LOCKED_BYTE, 1, 0, kind, os.SEEK_SET)
    return struct.pack("@hhqqi4x", kind, os.SEEK_SET, _LOCKED_BYTE, 1, 0)


def _lock_type(packed: bytes) -> int:
    if sys.platform == "darwin":
        return int(struct.unpack("@qqihh", packed)[3])
    return int(struct.unpack("@hhqqi4x", packed)[0])


def _read_note(database: Path) -> str:
    try:
        return owner_file(database).read_text("utf-8")
    except (OSError, ValueError):
        return ""
