"""What waits for one lane of PostgreSQL's writer, and when it is enough to begin with.

Joint requests cost statements a part, not a request. Callers who wait for an answer before they ask again come back one
by one, each as soon as the event loop has got through its call; begun with the first of them, sixteen became some five
parts. So the lane waits for as many as it knows to be about, by the rule and the bounds of `storage.write_queue`. Other
requests gain nothing by it: they join a transaction that is under way, each with statements of its own.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator, Sequence

from storage import write_queue
from storage.write_requests import Request


class LaneQueue:
    """Filled and emptied on one event loop. `most`: what is begun with at most."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: deque[Request] = deque()
        self._about = 1
        """How many joint ones were being done or waited when the last ones were answered."""
        self._bell: asyncio.Future[None] | None = None
        """Rung when so many wait."""

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._waiting)

    def put(self, request: Request) -> None:
        self._waiting.append(request)
        if self._bell is not None and not self._bell.done() and len(self._waiting) >= self._about:
            self._bell.set_result(None)

    async def gather(self) -> None:
        """Waits for those who are likely to follow the first one; there has to be one."""
        if self._waiting[0].joint is None:
            return
        loop = asyncio.get_running_loop()
        end = loop.time() + write_queue.LONGEST_SECONDS
        seen = 0
        while seen < len(self._waiting) < self._about and loop.time() < end:
            seen = len(self._waiting)
            self._bell = loop.create_future()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(write_queue.PAUSE_SECONDS):
                    await self._bell
            self._bell = None

    def take(self, beside: int = 0) -> list[Request]:
        """The next ones that may be done together with so many others, without those whose callers have gone."""
        taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._most - beside))]
        return [request for request in taken if not request.future.done()]

    def clear(self) -> None:
        self._waiting.clear()

    def answer(self, requests: Sequence[Request]) -> None:
        """To be called before those who were taken are told: one who comes afterwards may be one of them."""
        joint = sum(one.joint is not None for some in (requests, self._waiting) for one in some)
        self._about = max(1, min(joint, self._most))
