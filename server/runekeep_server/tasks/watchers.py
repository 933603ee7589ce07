"""Notifies the watchers of tasks on this server: of its own changes at once, and of other servers' changes through
notices and one poll for all watchers."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import structlog

from runekeep_storage.database import Space, SpaceDatabase
from runekeep_storage.errors import StoreUnavailable
from runekeep_storage.jobs import tasks

log = structlog.get_logger(__name__)


@dataclass(eq=False, slots=True)
class Watch:
    """One watcher of one task. `last`: number of the newest event that it read from the store; `told`: of the newest
    event in a notice."""

    space: Space
    task_id: str
    last: int = 0
    told: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)
    _asked: bool = False
    """Whether somebody signalled news without an event number since the last read."""

    def look(self) -> None:
        """Call it before the store is read: signals from here on are news, unless the read finds them."""
        self._asked = False
        self.news.clear()

    def found(self, last: int) -> None:
        self.last = last
        if not self._asked and self.told <= last:
            self.news.clear()

    def tell(self, number: int | None = None) -> None:
        """Signals an event, by its number if known. A server is told of its own changes twice, directly and by the
        notice, and one read finds both."""
        if number is not None:
            if number <= self.last:
                return
            self.told = max(self.told, number)
            self.news.set()
        elif self.told <= self.last:
            self.ask()
        # Otherwise notices arrive, and one for this event follows.

    def ask(self) -> None:
        """Requests another read of the store, whatever is known."""
        self._asked = True
        self.news.set()


class Watchers:
    """Watchers of all tasks on this server. Call `start`, and `close` at the end. `news` only means that the store must
    be read."""

    def __init__(self, database: SpaceDatabase, poll_seconds: float) -> None:
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
        """Signals that this server changed the task."""
        for watch in self._waiting.get(task_id, ()):
            watch.tell()

    def heard(self, subject: str) -> None:
        """Handles a notice: a task id, and the number of an event, which the previous release does not send."""
        task_id, _, number = subject.partition(" ")
        for watch in self._waiting.get(task_id, ()):
            watch.tell(int(number) if number.isdecimal() else None)

    async def wait(self, watch: Watch, seconds: float) -> None:
        """Returns when there is news, or after `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await watch.news.wait()

    async def drain(self) -> None:
        """Wakes all watchers for the last time. They continue at another server."""
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
                # Without this loop no watcher would learn of other servers' changes again.
                log.exception("loop_failed", loop="watch")

    async def _look(self) -> None:
        """Wakes the watchers whose task has new events or is gone, with one read for all of them."""
        watches = self._all()
        if not watches:
            return
        keys = {(watch.space, watch.task_id) for watch in watches}
        newest = await self._database.read_global(tasks.newest_events, keys)
        for watch in watches:
            number = newest.get((watch.space, watch.task_id))
            if number is None or number > watch.last:
                # Not `tell`: the next change by this server may have no notice that follows.
                watch.ask()

    def _all(self) -> list[Watch]:
        return [watch for waiting in self._waiting.values() for watch in waiting]
