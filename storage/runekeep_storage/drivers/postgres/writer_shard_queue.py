"""The queue of one lane of PostgreSQL's writer. It decides when the requests that wait are enough to begin.

Statements of joint requests cost the same per batch as for one request. Callers that wait for a response before they
call again come back one by one, as the event loop processes their calls. A lane that began with the first of them split
sixteen requests into about five batches. So the lane waits for the number of callers that it expects, by the rule and
the bounds of `runekeep_storage.drivers.common.write_queue`. Other requests gain nothing by waiting: they join a running
transaction, each with its own statements.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator, Sequence

from runekeep_storage.drivers.common import write_queue
from runekeep_storage.drivers.common.write_requests import Request


class LaneQueue:
    """A queue that one event loop fills and empties. `most`: maximum batch size."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: deque[Request] = deque()
        self._about = 1
        """Number of joint requests that were in progress or waiting when the last batch was answered."""
        self._bell: asyncio.Future[None] | None = None
        """Resolved when `_about` requests wait."""

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._waiting)

    def put(self, request: Request) -> None:
        self._waiting.append(request)
        if self._bell is not None and not self._bell.done() and len(self._waiting) >= self._about:
            self._bell.set_result(None)

    async def gather(self) -> None:
        """Waits for requests that are likely to follow the first one, which must exist."""
        if self._waiting[0].joint is None:
            return
        loop = asyncio.get_running_loop()
        end = loop.time() + write_queue.MAX_SECONDS
        seen = 0
        while seen < len(self._waiting) < self._about and loop.time() < end:
            seen = len(self._waiting)
            self._bell = loop.create_future()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(write_queue.PAUSE_SECONDS):
                    await self._bell
            self._bell = None

    def take(self, beside: int = 0) -> list[Request]:
        """Returns the next requests that may run together with `beside` others. Drops those whose callers have gone."""
        taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._most - beside))]
        return [request for request in taken if not request.future.done()]

    def clear(self) -> None:
        self._waiting.clear()

    def answer(self, requests: Sequence[Request]) -> None:
        """Call this before you resolve the batch: a request that arrives afterwards may come from one of its
        callers."""
        joint = sum(one.joint is not None for some in (requests, self._waiting) for one in some)
        self._about = max(1, min(joint, self._most))
