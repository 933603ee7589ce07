"""Lines of the log on their way to a stream.

Each write lets go of the interpreter's lock, which threads wait for: of a call that appends a message it was a tenth of
the server's work. Calls that were committed together end in the same turn of the event loop, and what they log up to
`info` is written at the end of that turn, together. A warning or an error is written at once, behind what waits; so is
everything that is logged where no loop runs.
"""

import asyncio
import atexit
from collections import deque
from threading import RLock
from typing import Final, TextIO

BYTES_A_WRITE: Final = 4096
"""What a pipe takes whole (PIPE_BUF): processes that share one do not cut each other's lines apart. A longer line is
written by itself."""


class Lines:
    """What structlog takes for a logger. Used by any thread. `stream` is flushed with every write."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._waiting: deque[str] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        """Which will write what waits at the end of its turn."""
        # Of two threads that write, the second does not overtake the first. What is thrown away meanwhile may log too.
        self._writing = RLock()

    def flush_at_exit(self) -> None:
        """In place of those that were to be written then; what waits of them is written now."""
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
        # First: what is logged from here on waits for the next turn.
        self._loop = None
        self.flush()

    def flush(self) -> None:
        """Writes all that waits. Where the stream refuses some, the rest is written all the same.

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
        """The lines that are written at once: at least one."""
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
        """As a stream of whole lines, behind all that waits."""
        self.now(text.removesuffix("\n"))


_at_exit: Lines | None = None


def _end_process() -> None:
    if _at_exit is not None:
        _at_exit.flush()
