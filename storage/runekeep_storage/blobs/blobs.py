"""Large values beside the relational store: content-addressed within a space, never shared across spaces."""

import contextlib
import hashlib
import os
import tempfile
import time
from pathlib import Path
from typing import Protocol

import structlog

from runekeep_storage import telemetry
from runekeep_storage.database import Space
from runekeep_storage.drivers.common import mark_file
from runekeep_storage.errors import BlobDamaged, BlobsUnavailable, NotFound

GRACE_SECONDS = 3600.0
"""Age below which a blob is kept, because a row that names it may follow; no call lasts nearly as long."""

MAX_KNOWN = 1000
"""Maximum number of damaged blobs of each kind that a server remembers; more are not counted."""

_log = structlog.get_logger(__name__)

_ASIDE = ".aside"
_LOOKS = 10
"""How often `get` looks in both places of a blob. Each remover that found it old moves it aside and back once, and
there is rarely more than one."""


class Blobs(Protocol):
    """Storage of blobs, called in threads without an event loop. A blob is written before the row that names it. `put`
    and `get` may raise DeadlinePassed, see `runekeep_storage.deadline`."""

    damaged: set[tuple[Space, str]]
    """Blobs that were damaged at their last read, at most MAX_KNOWN; see `verified`."""

    def put(self, space: Space, data: bytes) -> str:
        """Stores data durably and returns its name. Storing the same data again soon returns the same name; later it
        may return another name with the same `digest_of`. Raises BlobsUnavailable."""
        ...

    def get(self, space: Space, name: str) -> bytes:
        """Returns the data. Raises NotFound, BlobsUnavailable, and BlobDamaged for data that does not match its
        name."""
        ...

    def names(self, space: Space) -> tuple[set[str], set[str]]:
        """Returns the names of all blobs of the space: those older than GRACE_SECONDS, and younger ones."""
        ...

    def size(self, space: Space) -> int:
        """Returns the bytes of all blobs of the space. Raises OSError, BlobsUnavailable."""
        ...

    def remove(self, space: Space, name: str) -> None:
        """Removes a blob, unless any caller wrote it within the last GRACE_SECONDS."""
        ...

    def uri(self, space: Space, name: str) -> str:
        """Returns the location of the blob for people; it may not be reachable for the reader."""
        ...

    @property
    def place(self) -> str:
        """The location of all blobs, for messages; without a password."""
        ...

    def read_mark(self) -> str:
        """Returns the text that `write_mark` wrote last, empty if there is none. Raises StoreUnavailable."""
        ...

    def write_mark(self, text: str) -> bool:
        """Stores a short text beside the blobs and returns True. If the blobs have no folder yet, creates nothing and
        returns False. Raises StoreUnavailable."""
        ...

    @property
    def mark_seconds(self) -> float:
        """Minimum time between two marks: writing one may cost money."""
        ...

    def probe(self) -> None:
        """Writes and removes a small object that is not a blob. Raises BlobsUnavailable."""
        ...

    @property
    def left_to_operator(self) -> tuple[str, ...]:
        """Sentences that tell the operator what to do by hand to remove deleted blobs for good."""
        ...


def digest_of(name: str) -> str:
    """Returns the SHA-256 of a blob's data, from its name."""
    return name.partition("-")[0]


def verified(damaged: set[tuple[Space, str]], space: Space, name: str, data: bytes) -> bytes:
    """Returns the data, which must be a whole blob. Raises BlobDamaged if it is not what was stored under that name,
    and records the result in `damaged`."""
    if hashlib.sha256(data).hexdigest() == digest_of(name):
        damaged.discard((space, name))
        return data
    telemetry.DAMAGED_DATA.labels("blob").inc()
    _log.error("blob_damaged", account=space.account, user=space.user, blob=name, bytes=len(data))
    if len(damaged) < MAX_KNOWN:
        damaged.add((space, name))
    telemetry.DAMAGED_BLOBS.labels("damaged").set(len(damaged))
    raise BlobDamaged(name, len(data))


class FolderBlobs:
    """Stores blobs as files under one folder, with a subfolder for each space. The age of a blob is the time at which
    it was last put. If the folder loses its mark, all methods raise BlobsUnavailable until the mark is back: its volume
    is probably not mounted."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._is_marked = False
        self.damaged: set[tuple[Space, str]] = set()

    def put(self, space: Space, data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        path = self._path(space, name)
        try:
            # An unreadable blob is written again.
            with contextlib.suppress(OSError):
                # A remover of old blobs must see that this one is wanted again.
                os.utime(path)
                if path.read_bytes() == data:
                    return name
            try:
                self._write(path, data)
            except FileNotFoundError:
                # A remover has deleted the empty folder meanwhile.
                self._write(path, data)
        except OSError as error:
            raise BlobsUnavailable(f"cannot write a blob: {error.strerror}") from error
        return name

    def get(self, space: Space, name: str) -> bytes:
        path = self._path(space, name)
        # Alternately: between two looks a remover may move the blob aside and back.
        for place in (path, path.with_suffix(_ASIDE)) * _LOOKS:
            with contextlib.suppress(FileNotFoundError):
                return verified(self.damaged, space, name, _read(place))
        if not self._root.is_dir():
            # Rows name blobs only after these were written to the folder, so it existed: probably a mount is missing.
            raise BlobsUnavailable(f"there is no folder {self._root}")
        raise NotFound("blob", name)

    def names(self, space: Space) -> tuple[set[str], set[str]]:
        old: set[str] = set()
        young: set[str] = set()
        for path in self._files(space):
            if path.suffix == _ASIDE:
                # The remover died before it finished. Restore the blob; the next sweep decides again.
                path.replace(path.with_suffix(""))
                path = path.with_suffix("")
            with contextlib.suppress(FileNotFoundError):
                (old if _is_old(path) else young).add(path.name)
        return old, young

    def size(self, space: Space) -> int:
        size = 0
        for path in self._files(space):
            with contextlib.suppress(FileNotFoundError):
                size += path.stat().st_size
        return size

    def remove(self, space: Space, name: str) -> None:
        path = self._path(space, name)
        aside = path.with_suffix(_ASIDE)
        with contextlib.suppress(FileNotFoundError):
            if not _is_old(path):
                return
            # Hide the blob from `put` before the last age check: a later `put` writes the blob again, and an earlier
            # one has updated the file's age.
            path.rename(aside)
            if not _is_old(aside):
                aside.replace(path)
                return
            aside.unlink()
        # Folders that are not empty stay.
        with contextlib.suppress(OSError):
            for folder in (path.parent, path.parent.parent):
                folder.rmdir()

    def uri(self, space: Space, name: str) -> str:
        return f"blob:{name}"

    @property
    def place(self) -> str:
        return str(self._root)

    def read_mark(self) -> str:
        self._check_mounted()
        try:
            text = mark_file.read_mark(self._root)
        except OSError as error:
            raise BlobsUnavailable(f"cannot read the mark of the blobs: {error.strerror}") from error
        self._is_marked |= bool(text)
        return text

    def write_mark(self, text: str) -> bool:
        self._check_mounted()
        try:
            is_marked = mark_file.write_mark(self._root, text)
        except OSError as error:
            raise BlobsUnavailable(f"cannot write the mark of the blobs: {error.strerror}") from error
        self._is_marked |= is_marked
        return is_marked

    @property
    def mark_seconds(self) -> float:
        return 1.0

    def probe(self) -> None:
        self._check_mounted()
        # The first blob creates the missing folders.
        there = next(folder for folder in (self._root, *self._root.absolute().parents) if folder.is_dir())
        try:
            with tempfile.NamedTemporaryFile(dir=there, prefix=".probe-") as file:
                file.write(b"probe")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise BlobsUnavailable(f"cannot write a blob: {error.strerror}") from error

    @property
    def left_to_operator(self) -> tuple[str, ...]:
        return ()

    def _check_mounted(self) -> None:
        try:
            is_there = not self._is_marked or (self._root / mark_file.NAME).is_file()
        except OSError as error:
            raise BlobsUnavailable(f"cannot look at {self._root}: {error.strerror}") from error
        if not is_there:
            raise BlobsUnavailable(f"{self._root} has no {mark_file.NAME} any more: its volume is probably not mounted")

    def _files(self, space: Space) -> list[Path]:
        self._check_mounted()
        return [path for path in (self._root / space.account / space.user).glob("*/*") if path.is_file()]

    def _write(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Named like a blob of this folder, so that a sweep removes what a crash leaves.
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.parent.name, delete=False) as file:
            try:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                os.replace(file.name, path)
            except BaseException:
                # A full disk must not fill up with partial files that no row names.
                os.unlink(file.name)
                raise
        # Also the parent folders, which may be as new as the file.
        for folder in (path.parent, *path.parent.parents[:3]):
            _sync(folder)

    def _path(self, space: Space, name: str) -> Path:
        self._check_mounted()
        return self._root / space.account / space.user / name[:2] / name


def _read(path: Path) -> bytes:
    """Raises FileNotFoundError, BlobsUnavailable."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise BlobsUnavailable(f"cannot read a blob: {error.strerror}") from error


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _is_old(path: Path) -> bool:
    return time.time() - path.stat().st_mtime > GRACE_SECONDS
