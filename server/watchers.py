"""Who waits for news of a task on this server. News from other servers come by polling."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterator


class Watchers:
    """Events by task id. Waiting is only ever a saving of time: the store is asked in any case."""

    def __init__(self) -> None:
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self.draining = False

    @contextlib.contextmanager
    def watching(self, task_id: str) -> Iterator[asyncio.Event]:
        event = asyncio.Event()
        self._waiting[task_id].add(event)
        try:
            yield event
        finally:
            self._waiting[task_id].discard(event)
            if not self._waiting[task_id]:
                del self._waiting[task_id]

    def changed(self, task_id: str) -> None:
        for event in self._waiting.get(task_id, ()):
            event.set()

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()

    async def drain(self) -> None:
        """Wakes everybody for the last time: watching goes on at another server."""
        self.draining = True
        for task_id in list(self._waiting):
            self.changed(task_id)
