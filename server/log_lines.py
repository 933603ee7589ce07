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

LINES_A_WRITE: Final = 8
"""So that what is written at once fits into what a pipe takes whole (PIPE_BUF, 4096 bytes): processes that share one do
not cut each other's lines apart."""


class Lines:
    """What structlog takes for a logger. Used by any thread. `stream` is flushed with every write."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._waiting: deque[str] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        """Which will write what waits at the end of its turn."""
        # Of two threads that write, the second does not overtake the first. What is thrown away meanwhile may log too.
        self._writing = RLock()
        atexit.register(self.flush)

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
        """Writes all that waits."""
        with self._writing:
            while self._waiting:
                some = [self._waiting.popleft() for _ in range(min(len(self._waiting), LINES_A_WRITE))]
                self._stream.write("\n".join([*some, ""]))
                self._stream.flush()

    def write(self, text: str) -> None:
        """As a stream of whole lines, behind all that waits."""
        self.now(text.removesuffix("\n"))
