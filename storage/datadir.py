"""The data directory: everything embedded lives under it, and one server process at a time works on it."""

import fcntl
import os
import time
from pathlib import Path
from typing import IO

from storage.errors import DataDirectoryInUse

WAIT_SECONDS = 10.0
"""A server that was killed is given this long to be gone."""


class DataDirectory:
    """Paths under one data directory, held by a lock for the life of the process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.database = root / "runekeep.db"
        self.index = root / "index"
        self.blobs = root / "blobs"
        self._lock: IO[str] | None = None

    def acquire(self) -> None:
        """Makes the directory (readable by its owner alone) and locks it. Raises DataDirectoryInUse."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = open(self.root / "lock", "a+")  # noqa: SIM115 (held until release)
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    lock.seek(0)
                    holder = lock.read().strip() or "unknown"
                    lock.close()
                    raise DataDirectoryInUse(
                        f"{self.root} is in use by the server with process id {holder}; stop it, or give this one"
                        " a data directory of its own"
                    ) from None
                time.sleep(0.1)
        lock.seek(0)
        lock.truncate()
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock

    def release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None
