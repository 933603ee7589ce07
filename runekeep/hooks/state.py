"""Files that hooks leave between two calls: a log, and a spool of what is not handed in yet. Only their owner reads
them."""

import contextlib
import fcntl
import os
import time
from collections.abc import Generator
from pathlib import Path

MAX_LOG_BYTES = 1_000_000
MAX_SPOOLED = 10_000
"""The oldest are dropped beyond it: a server that was away for weeks shall not fill the disk."""


class HookState:
    """Below XDG_STATE_HOME, else below ~/.local/state."""

    def __init__(self, folder: Path | None = None) -> None:
        base = os.environ.get("XDG_STATE_HOME")
        self.folder = folder or (Path(base) if base else Path.home() / ".local" / "state") / "runekeep" / "hooks"
        self._spool = self.folder / "spool"

    @property
    def log_file(self) -> Path:
        return self.folder / "hooks.log"

    def log(self, line: str) -> None:
        """Adds a line with the time. It must quote nothing that somebody said. A full disk is no reason to fail."""
        with contextlib.suppress(OSError):
            self._make(self.folder)
            if self.log_file.exists() and self.log_file.stat().st_size > MAX_LOG_BYTES:
                self.log_file.replace(self.log_file.with_suffix(".log.1"))
            with _private(self.log_file, os.O_APPEND) as descriptor:
                os.write(descriptor, f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {line}\n".encode())

    def put(self, text: str) -> None:
        """Puts a text into the spool; it is there in whole or not at all."""
        self._make(self._spool)
        name = f"{time.time_ns():020d}-{os.getpid()}"
        with _private(self._spool / f".{name}", os.O_TRUNC) as descriptor:
            os.write(descriptor, text.encode())
        (self._spool / f".{name}").replace(self._spool / f"{name}.json")

    def spooled(self) -> list[Path]:
        """The files of the spool, oldest first."""
        found = sorted(self._spool.glob("[0-9]*.json"))
        for old in found[:-MAX_SPOOLED]:
            old.unlink(missing_ok=True)
        return found[-MAX_SPOOLED:]

    @contextlib.contextmanager
    def only_one(self) -> Generator[None, None, None]:
        """Waits until no other process hands in what is spooled."""
        self._make(self.folder)
        with _private(self.folder / "lock", 0) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield

    @staticmethod
    def _make(folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


@contextlib.contextmanager
def _private(path: Path, flags: int) -> Generator[int, None, None]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
