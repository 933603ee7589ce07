"""What waits for the writer thread of SQLite, and when it is enough to be committed together.

A commit costs about the same for one request as for sixteen: a sync to disk, and the pages that they share. Callers who
wait for an answer before they ask again come back together, the first of them a moment before the others; a writer that
took the first at once would make it a commit of its own, and let all the others wait behind it. So the writer waits for
as many as it knows to be about, for as long as they keep coming, and never for longer than a few milliseconds. A caller
who is alone waits for nobody.
"""

import threading
from collections import deque
from time import monotonic
from typing import Generic, TypeVar

T = TypeVar("T")

PAUSE_SECONDS = 0.002
"""When so long nothing came, nothing is waited for. Several times what the event loop takes for one call of those who
come back together: each of them has to get through it before the next."""
LONGEST_SECONDS = 0.010
"""After which the first that waits is taken in any case."""
_NEVER = 2**62


class WriteQueue(Generic[T]):
    """Filled by any thread, emptied by one. `most`: what is taken at once at most."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: deque[T] = deque()
        # No queue.SimpleQueue: of Python 3.11 its `get` with a timeout may wait for ever, where the thread was held up
        # between two looks for longer than the timeout.
        self._bell = threading.Event()
        self._wanted = _NEVER
        """How many have to wait for the bell to be rung."""
        self._about = 1
        """How many were being done or waited when the last ones were answered."""
        self._taken = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, one: T) -> None:
        self._waiting.append(one)
        if len(self._waiting) >= self._wanted:
            # Once: whoever is waked need not be waked by the next one too.
            self._wanted = _NEVER
            self._bell.set()

    def take(self) -> list[T]:
        """The next ones in their order, one at least. Waits for it, and for those who are likely to follow."""
        while not self._wait(1, None):
            pass
        if self._about > 1:
            self._gather()
        taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._most))]
        self._taken = len(taken)
        return taken

    def answer(self) -> None:
        """To be called before those who were taken last are told: one who comes afterwards may be one of them."""
        self._about = max(1, min(self._taken + len(self._waiting), self._most))

    def _gather(self) -> None:
        end = monotonic() + LONGEST_SECONDS
        seen = 0
        while seen < len(self._waiting) and monotonic() < end:
            seen = len(self._waiting)
            if self._wait(self._about, PAUSE_SECONDS):
                return

    def _wait(self, wanted: int, seconds: float | None) -> bool:
        """Whether so many wait, when they do or after `seconds`."""
        # Cleared first: what is put from the next line on rings it again.
        self._bell.clear()
        self._wanted = wanted
        if len(self._waiting) < wanted:
            self._bell.wait(seconds)
        self._wanted = _NEVER
        return len(self._waiting) >= wanted
