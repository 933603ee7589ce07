"""Writes log lines to a stream in batches.

Each write releases the interpreter's lock, for which threads wait; for a call that appends a message, writes were a
tenth of the server's work. Calls of the same group commit end in the same turn of the event loop, so lines up to `info`
are written together at the end of that turn. Warnings and errors are written at once, after the waiting lines. So is
every line that is logged without a running loop.
"""

import asyncio
import atexit
from collections import deque
from threading import RLock
from typing import Final, TextIO

BYTES_A_WRITE: Final = 4096
"""Bytes that a pipe writes atomically (PIPE_BUF), so that processes that share a pipe do not split each other's lines.
A longer line is written alone."""


class Lines:
    """A logger for structlog that buffers lines. Any thread may use it. `stream` is flushed after every write."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._waiting: deque[str] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop that will write the waiting lines at the end of its turn."""
        # Keeps the order of lines when two threads write. Reentrant: a destructor that runs meanwhile may log too.
        self._writing = RLock()

    def flush_at_exit(self) -> None:
        """Makes this object the one that is flushed at exit. Flushes the object that it replaces."""
        global _at_exit
        before, _at_exit = _at_exit, self
        if before is None:
            atexit.register(_end_process)
        else:
            before.flush()

    def soon(self, line: str) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.now(line)
            return
        self._waiting.append(line)
        if self._loop is not loop:
            self._loop = loop
            loop.call_soon(self._end_turn)

    def now(self, line: str) -> None:
        self._waiting.append(line)
        self.flush()

    debug = info = msg = soon
    warn = warning = error = err = exception = critical = fatal = failure = now

    def _end_turn(self) -> None:
        # Reset first, so that later lines schedule the next flush.
        self._loop = None
        self.flush()

    def flush(self) -> None:
        """Writes all waiting lines. If the stream refuses some, the rest is written all the same.

        Raises the stream's last OSError at the end.
        """
        refused: OSError | None = None
        with self._writing:
            while self._waiting:
                some = self._next()
                try:
                    self._stream.write(some)
                    self._stream.flush()
                except OSError as error:
                    refused = error
        if refused is not None:
            raise refused

    def _next(self) -> str:
        """Returns the lines of the next write: at least one."""
        some = ""
        room = BYTES_A_WRITE
        while self._waiting:
            line = self._waiting.popleft()
            room -= 1 + (len(line) if line.isascii() else len(line.encode(errors="backslashreplace")))
            if some and room < 0:
                self._waiting.appendleft(line)
                break
            some += f"{line}\n"
        return some

    def write(self, text: str) -> None:
        """Writes whole lines, after the waiting ones, so that this object can be used as a stream."""
        self.now(text.removesuffix("\n"))


_at_exit: Lines | None = None


def _end_process() -> None:
    if _at_exit is not None:
        _at_exit.flush()
