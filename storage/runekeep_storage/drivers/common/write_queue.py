"""The queue of SQLite's writer thread. It decides when the requests that wait are enough for one group commit.

A commit costs about the same for one request as for sixteen: one sync to disk, and the pages that the requests share.
Callers that wait for a response before they call again come back together, the first a moment before the others. A
writer that took the first one at once would commit it alone and make all others wait. So the writer waits for the
number of callers that it expects, while they keep coming, for a few milliseconds at most. A single caller never waits.
"""

import threading
from collections import deque
from time import monotonic
from typing import Generic, TypeVar

T = TypeVar("T")

PAUSE_SECONDS = 0.002
"""Stop waiting if nothing arrives for this long. It is several times what the event loop needs for one of the calls
that come back together: each has to pass through the loop before the next."""
MAX_SECONDS = 0.010
"""Maximum time that the first request waits."""
_NEVER = 2**62


class WriteQueue(Generic[T]):
    """A queue that any thread fills and one thread empties. `most`: maximum batch size."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: deque[T] = deque()
        # Not `queue.SimpleQueue`: in Python 3.11 its `get` with a timeout may block forever if the thread is held up
        # between two checks for longer than the timeout.
        self._bell = threading.Event()
        self._wanted = _NEVER
        """Number of waiting entries at which `put` sets the event."""
        self._about = 1
        """Number of entries that were in progress or waiting when the last batch was answered."""
        self._taken = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, one: T) -> None:
        self._waiting.append(one)
        if len(self._waiting) >= self._wanted:
            # Set it once: a thread that is awake need not be woken again.
            self._wanted = _NEVER
            self._bell.set()

    def take(self) -> list[T]:
        """Returns the next entries in order, at least one. Waits for the first, and for those that are likely to
        follow."""
        while not self._wait(1, None):
            pass
        if self._about > 1:
            self._gather()
        taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._most))]
        self._taken = len(taken)
        return taken

    def answer(self) -> None:
        """Call this before you resolve the last batch: an entry that arrives afterwards may come from one of its
        callers."""
        self._about = max(1, min(self._taken + len(self._waiting), self._most))

    def _gather(self) -> None:
        end = monotonic() + MAX_SECONDS
        seen = 0
        while seen < len(self._waiting) and monotonic() < end:
            seen = len(self._waiting)
            if self._wait(self._about, PAUSE_SECONDS):
                return

    def _wait(self, wanted: int, seconds: float | None) -> bool:
        """Returns whether `wanted` entries wait, as soon as they do or after `seconds`."""
        # Cleared before the check: an entry that arrives after this line sets it again.
        self._bell.clear()
        self._wanted = wanted
        if len(self._waiting) < wanted:
            self._bell.wait(seconds)
        self._wanted = _NEVER
        return len(self._waiting) >= wanted
