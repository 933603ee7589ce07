"""The data directory holds everything that is embedded. One server process at a time uses it."""

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from runekeep_storage.drivers.common.lock_owner import Owner, describe_owner
from runekeep_storage.drivers.common.private_files import LOST_AND_FOUND, make_private
from runekeep_storage.drivers.sqlite.file_lock import database_files, owner_file
from runekeep_storage.errors import DataDirectoryInUse, DataDirectoryUnusable, StoreError

WAIT_SECONDS = 10.0
"""How long a killed server may take to release the lock."""


class RestoreUnfinished(StoreError):
    """A restore into this directory was interrupted, so the data is incomplete."""


class DataDirectory:
    """Paths under one data directory. A lock protects it for the life of the process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.database = root / "runekeep.db"
        self.index = root / "index"
        self.blobs = root / "blobs"
        self.embedder_check = root / "embedder.json"
        self.next_embedder_check = root / "embedder-next.json"
        self.lock_file = root / "lock"
        self._restore_mark = root / "restore-unfinished"
        self._restore_draft = root / "restore-unfinished.draft"
        self._lock: IO[str] | None = None

    def acquire(self, *, restoring: bool = False) -> None:
        """Creates the directory, locks it, and makes it private. A restore (`restoring`) may still be refused, so it
        does not make the directory private. Raises DataDirectoryInUse, DataDirectoryUnusable; and RestoreUnfinished,
        except for a restore."""
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.check_writable([self.root])
            if not restoring:
                self.make_private()
            lock = open(self.lock_file, "a+")  # noqa: SIM115 (held until release)
        except OSError as error:
            raise _unusable(error) from error
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    lock.seek(0)
                    holder = describe_owner(lock.read())
                    lock.close()
                    raise DataDirectoryInUse(
                        f"{self.root} is in use by the server with {holder}; stop it, or give this one"
                        " a data directory of its own"
                    ) from None
                time.sleep(0.1)
        if not restoring and self.restore_is_unfinished():
            lock.close()
            raise RestoreUnfinished(f"a restore into {self.root} was interrupted; run it again")
        lock.truncate(0)
        # Only messages use this text, so a full disk must not stop the start.
        with contextlib.suppress(OSError):
            os.write(lock.fileno(), Owner.this_process().note().encode())
        self._lock = lock

    def make_private(self) -> None:
        """Removes the permissions of other users from the directory and from Runekeep's files in it. Leaves other files
        alone, because the configured directory may be the wrong one. Raises DataDirectoryUnusable."""
        marks = [self.lock_file, self.embedder_check, self.next_embedder_check, self._restore_mark, self._restore_draft]
        make_private([self.index, self.blobs], [*database_files(self.database), *marks], parents=[self.root])

    def check_writable(self, folders: Iterable[Path]) -> None:
        """Raises DataDirectoryUnusable for the first existing folder that may not be written to."""
        for folder in folders:
            if folder.exists() and not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
                mounted_read_only = os.statvfs(folder).f_flag & os.ST_RDONLY
                code = errno.EROFS if mounted_read_only else errno.EACCES
                raise _unusable(OSError(code, os.strerror(code), str(folder)))

    def restore_is_unfinished(self) -> bool:
        return self._restore_mark.exists()

    def is_restored_to(self, database: Path) -> bool:
        """Returns whether the unfinished restore writes its database to this path."""
        return self.restore_is_unfinished() and self._restore_mark.read_text("utf-8") == str(database.absolute())

    def occupants(self) -> list[str]:
        """Returns the names of the entries of the directory. Ignores the lock, entries of the file system, and an empty
        restore mark: a restore writes nothing before its mark is complete."""
        ignored = {self.lock_file.name, self._restore_draft.name, LOST_AND_FOUND, owner_file(self.database).name}
        if self.restore_is_unfinished() and not self._restore_mark.read_bytes():
            ignored.add(self._restore_mark.name)
        return sorted(entry.name for entry in self.root.iterdir() if entry.name not in ignored)

    def mark_restore(self, database: Path) -> None:
        """Records that a restore writes a store here, with its database at that path; on disk when this returns. Leaves
        a mark with the same path as it is."""
        if self.is_restored_to(database):
            return
        with self._restore_draft.open("w", encoding="utf-8") as draft:
            draft.write(str(database.absolute()))
            draft.flush()
            os.fsync(draft.fileno())
        self._restore_draft.replace(self._restore_mark)
        self._sync()

    def end_restore(self) -> None:
        """Records that the restore is complete."""
        self._restore_mark.unlink()
        self._sync()

    def _sync(self) -> None:
        handle = os.open(self.root, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _unusable(error: OSError) -> DataDirectoryUnusable:
    return DataDirectoryUnusable(
        f"{error.filename}: {error.strerror}; the server must be able to make, read and write files in its data"
        " directory"
    )
