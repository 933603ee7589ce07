"""Files that hooks leave between two calls: a log, and a spool of conversations that are not handed in yet. Only their
owner can read them."""

import contextlib
import fcntl
import os
import time
from collections.abc import Generator
from pathlib import Path

MAX_LOG_BYTES = 1_000_000
MAX_SPOOLED = 10_000
"""The oldest are dropped beyond it, so that a server that is down for weeks does not fill the disk."""


class HookState:
    """Below XDG_STATE_HOME, else below ~/.local/state. `owner` names the spool: the entries of one caller must never
    be handed in with the credentials of another."""

    def __init__(self, folder: Path | None = None, owner: str = "default") -> None:
        base = Path(os.environ.get("XDG_STATE_HOME", ""))
        # Hooks run in the project, so a relative path would lead into it.
        home = base if base.is_absolute() else Path.home() / ".local" / "state"
        self.folder = folder or home / "runekeep" / "hooks"
        self._spool = self.folder / "spool" / owner

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
    def try_lock(self) -> Generator[bool, None, None]:
        """Locks the spool until the block ends. Gives False if another process has the lock."""
        self._make(self._spool)
        with _private(self._spool / "lock", 0) as descriptor:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def _make(self, folder: Path) -> None:
        # The mode of mkdir does not hold for the parents that it creates.
        for path in (self.folder, self.folder / "spool", folder):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)


@contextlib.contextmanager
def _private(path: Path, flags: int) -> Generator[int, None, None]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
