"""Who waits for news of a task on this server: told by it at once, and by other servers through one poll for all."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import structlog

from storage import tasks
from storage.database import Database, Space
from storage.errors import StoreUnavailable

log = structlog.get_logger(__name__)


@dataclass(eq=False, slots=True)
class Watch:
    """One watcher of one task. `last`: number of the newest event that it found in the store; `told`: of the newest one
    that a notice named."""

    space: Space
    task_id: str
    last: int = 0
    told: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)
    _asked: bool = False
    """Whether somebody who knows no number said since the last look that there is something new."""

    def look(self) -> None:
        """To be called before the store is asked: what is told from here on is news, unless it is found."""
        self._asked = False
        self.news.clear()

    def found(self, last: int) -> None:
        self.last = last
        if not self._asked and self.told <= last:
            self.news.clear()

    def tell(self, number: int | None = None) -> None:
        """Of an event, by its number where that is known. What a server changes it is told twice, by itself and by the
        notice, and finds both by one look."""
        if number is not None:
            if number <= self.last:
                return
            self.told = max(self.told, number)
            self.news.set()
        elif self.told <= self.last:
            self.ask()
        # Else notices come, and one of this too.

    def ask(self) -> None:
        """Has the store asked once more, whatever is known."""
        self._asked = True
        self.news.set()


class Watchers:
    """`start`, and `close` in the end. `news` says no more than that it is time to ask the store."""

    def __init__(self, database: Database, poll_seconds: float) -> None:
        self._database = database
        self._poll_seconds = poll_seconds
        self._waiting: defaultdict[str, set[Watch]] = defaultdict(set)
        self._poller: asyncio.Task[None] | None = None
        self.draining = False

    async def start(self) -> None:
        self._poller = asyncio.create_task(self._poll())

    async def close(self) -> None:
        if self._poller is not None:
            self._poller.cancel()
            await asyncio.wait([self._poller])

    @contextlib.contextmanager
    def watching(self, space: Space, task_id: str) -> Iterator[Watch]:
        watch = Watch(space, task_id)
        self._waiting[task_id].add(watch)
        try:
            yield watch
        finally:
            self._waiting[task_id].discard(watch)
            if not self._waiting[task_id]:
                del self._waiting[task_id]

    def changed(self, task_id: str) -> None:
        """By this server."""
        for watch in self._waiting.get(task_id, ()):
            watch.tell()

    def heard(self, subject: str) -> None:
        """By a notice: of a task, and of an event by its number, which the release before does not tell."""
        task_id, _, number = subject.partition(" ")
        for watch in self._waiting.get(task_id, ()):
            watch.tell(int(number) if number.isdecimal() else None)

    async def wait(self, watch: Watch, seconds: float) -> None:
        """Returns at news, or after so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await watch.news.wait()

    async def drain(self) -> None:
        """Wakes everybody for the last time: watching goes on at another server."""
        self.draining = True
        for watch in self._all():
            watch.ask()

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._poll_seconds)
            try:
                await self._look()
            except StoreUnavailable as error:
                log.warning("loop_waits", loop="watch", error=str(error))
            except Exception:
                # Without it no watcher would hear of another server again.
                log.exception("loop_failed", loop="watch")

    async def _look(self) -> None:
        """Wakes those whose task has an event more than they found, or is gone: one read, however many they are."""
        watches = self._all()
        if not watches:
            return
        keys = {(watch.space, watch.task_id) for watch in watches}
        newest = await self._database.read(tasks.newest_events, keys)
        for watch in watches:
            number = newest.get((watch.space, watch.task_id))
            if number is None or number > watch.last:
                # Not `tell`: what this server changes next may have no notice that follows.
                watch.ask()

    def _all(self) -> list[Watch]:
        return [watch for waiting in self._waiting.values() for watch in waiting]
