"""The process that runs Qdrant Edge: requests arrive on standard input, answers leave on standard output.

`runekeep_storage.index.edge` starts it as `python -m runekeep_storage.index.edge_process DIRECTORY DATATYPE`. It ends
when its input ends, so a killed server leaves no process behind, and a lock on the directory keeps a second process
out.
"""

import fcntl
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO

from runekeep_storage import deadline
from runekeep_storage.index.base import IndexUnavailable, VectorDatatype
from runekeep_storage.index.edge_engine import EdgeEngine
from runekeep_storage.index.frames import HEADER_SIZE, Answer, Request, body_size, error_of, pack, request_of

# Edge keeps acknowledged writes through a crash of the process, but only flushed ones through a power failure.
FLUSH_EVERY_SECONDS = 5.0
# How long a predecessor whose server was killed may take to notice that and close its files.
LOCK_PATIENCE_SECONDS = 10.0

OPERATIONS = frozenset(
    {
        "open",
        "upsert",
        "delete",
        "delete_space",
        "drop_vectors",
        "query",
        "list_ids",
        "count",
        "count_all",
        "occupancy",
        "clear",
        "flush",
        "purge_start",
        "purge_step",
        "purge_drop",
    }
)


def main() -> None:
    """Serves until the input ends."""
    # Ctrl-C in a terminal and the stop of a service manager reach the whole process group. The server still needs its
    # index while it drains; it ends this process by closing the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    inbox, outbox = _private_streams()
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    engine = EdgeEngine(directory, VectorDatatype(sys.argv[2]))
    try:
        EdgeServer(inbox, outbox, engine, DirectoryLock(directory / "lock")).run()
    except BrokenPipeError:
        pass  # The server is gone; its acknowledged writes are closed properly below.
    finally:
        engine.close()


def _private_streams() -> tuple[BinaryIO, BinaryIO]:
    """Returns the standard streams, moved so that nothing a library prints can land between two frames."""
    inbox = os.fdopen(os.dup(0), "rb", buffering=0)
    outbox = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    return inbox, outbox


class EdgeServer:
    """Answers requests until the input ends, and flushes between them."""

    def __init__(self, inbox: BinaryIO, outbox: BinaryIO, engine: EdgeEngine, lock: "DirectoryLock") -> None:
        self._inbox = inbox
        self._outbox = outbox
        self._engine = engine
        self._lock = lock
        self._flush_at: float | None = None

    def run(self) -> None:
        while (request := self._next_request()) is not None:
            self._outbox.write(pack(self._answer(request)))
            self._outbox.flush()
            if self._engine.dirty and self._flush_at is None:
                self._flush_at = time.monotonic() + FLUSH_EVERY_SECONDS

    def _next_request(self) -> Request | None:
        """Waits for a request and flushes when it is time. Returns None at the end of the input."""
        while self._flush_at is not None:
            patience = self._flush_at - time.monotonic()
            if patience > 0 and select.select([self._inbox], [], [], patience)[0]:
                break
            self._flush()
        header = self._read(HEADER_SIZE)
        body = self._read(body_size(header)) if header else b""
        return request_of(body) if body else None

    def _flush(self) -> None:
        self._flush_at = None
        try:
            self._engine.flush()
        except Exception as error:
            # A full disk must not stop searches. The engine stays dirty, so the flush is tried again.
            print(f"the index could not be flushed, trying again: {error}", file=sys.stderr)
            self._flush_at = time.monotonic() + FLUSH_EVERY_SECONDS

    def _read(self, size: int) -> bytes:
        """Returns exactly that many bytes; none if the input ended first."""
        data = bytearray()
        while len(data) < size:
            part = self._inbox.read(size - len(data))
            if not part:
                return b""
            data += part
        return bytes(data)

    def _answer(self, request: Request) -> Answer:
        try:
            if request.operation not in OPERATIONS:
                raise ValueError(f"unknown index operation {request.operation!r}")
            deadline.check(request.until)
            self._lock.take()
            result: Any = getattr(self._engine, request.operation)(*request.arguments)
        except Exception as error:
            return Answer(request.number, None, error_of(error))
        return Answer(request.number, result, None)


class DirectoryLock:
    """A lock on a directory, held by at most one process until that process ends in any way."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def take(self) -> None:
        """Takes the lock if it is not held yet. Raises IndexUnavailable if another process keeps it."""
        if self._file is not None:
            return
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        patient_until = time.monotonic() + LOCK_PATIENCE_SECONDS
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > patient_until:
                    os.close(file)
                    raise IndexUnavailable(f"another process has the index in {self._path.parent} open") from None
                time.sleep(0.05)
            else:
                self._file = file
                return


if __name__ == "__main__":
    main()
