"""Caches backlog figures of the store and the size of the index, so that scrapes and status calls cause few reads."""

import asyncio
import math
from collections.abc import Iterable
from concurrent.futures import CancelledError as Abandoned
from time import monotonic
from typing import Final

import structlog
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from runekeep_storage.database import SpaceDatabase
from runekeep_storage.errors import StoreError
from runekeep_storage.index.base import IndexUnavailable, VectorIndex
from runekeep_storage.jobs import backlog
from runekeep_storage.jobs.backlog import BacklogStats

FRESH_SECONDS: Final = 5.0
"""How long a result of the store is reused."""
POINTS_SECONDS: Final = 60.0
"""How long a count of the index is reused."""
WAIT_SECONDS: Final = 3.0
"""How long a scrape waits for the store, before it goes without."""
COUNT_WAIT_SECONDS: Final = 1.0
"""How long a scrape waits for a count of the index, before it uses the previous one: counting a large index is slow."""

_MICROSECONDS: Final = 1e6

log = structlog.get_logger(__name__)


class BacklogCache:
    """Caches the backlog of the store. One per server, used on its event loop."""

    def __init__(self, database: SpaceDatabase) -> None:
        self._database = database
        self._reading = asyncio.Lock()
        self._read: BacklogStats | None = None
        self._good_until = 0.0

    async def now(self) -> BacklogStats:
        """Returns figures that are at most FRESH_SECONDS old, within WAIT_SECONDS. Raises StoreError, TimeoutError."""
        # Callers that wait for a read in progress reuse its result.
        async with asyncio.timeout(WAIT_SECONDS), self._reading:
            if self._read is None or monotonic() >= self._good_until:
                self._read = None
                self._read = await self._database.read_global(backlog.read)
                self._good_until = monotonic() + FRESH_SECONDS
            return self._read


class Points:
    """Caches the number of points in the index, over all accounts. Use it on the server's event loop, until `close`."""

    def __init__(self, index: VectorIndex) -> None:
        self._index = index
        self._counting: asyncio.Task[None] | None = None
        self._counted: int | None = None
        self._good_until = 0.0

    async def now(self) -> int | None:
        """Returns the last count, or None if the index failed to answer it or has never been counted. Takes at most
        COUNT_WAIT_SECONDS: a longer count goes on for later callers."""
        if self._counting is None and monotonic() >= self._good_until:
            self._counting = asyncio.create_task(self._count(), name="index-points")
        if self._counting is not None:
            await asyncio.wait([self._counting], timeout=COUNT_WAIT_SECONDS)
        return self._counted

    async def close(self) -> None:
        """Stops counting."""
        if self._counting is not None:
            self._counting.cancel()
            await asyncio.wait([self._counting])
        self._good_until = math.inf

    async def _count(self) -> None:
        try:
            self._counted = await self._index.count_all()
        except IndexUnavailable:
            self._counted = None
        finally:
            self._counting = None
            self._good_until = monotonic() + POINTS_SECONDS


class BacklogCollector(Collector):
    """Exports both to Prometheus, from the thread of a scrape."""

    def __init__(self, standings: BacklogCache, points: Points, loop: asyncio.AbstractEventLoop) -> None:
        self._standings = standings
        self._points = points
        self._loop = loop

    def describe(self) -> Iterable[Metric]:
        """Returns only names and descriptions: asking the store would wait for the event loop, which runs this."""
        return families()

    def collect(self) -> Iterable[Metric]:
        """Leaves out figures that the store does not provide: old ones would suggest that all is well."""
        asked = asyncio.run_coroutine_threadsafe(self._ask(), self._loop)
        found, points = None, None
        try:
            found, points = asked.result(2 * WAIT_SECONDS)
        except (TimeoutError, Abandoned) as error:
            # The event loop is too busy, or has stopped.
            asked.cancel()
            _tell(error)
        return families(found, points, known=found is not None)

    async def _ask(self) -> tuple[BacklogStats | None, int | None]:
        return await asyncio.gather(self._standing(), self._points.now())

    async def _standing(self) -> BacklogStats | None:
        try:
            return await self._standings.now()
        except (StoreError, TimeoutError) as error:
            _tell(error)
            return None


def _tell(error: Exception) -> None:
    log.info("standing_not_known", error=type(error).__name__)


def families(
    found: BacklogStats | None = None, points: int | None = None, *, known: bool | None = None
) -> list[Metric]:
    """Returns all metric families of the store and the index; without arguments, only their names and descriptions."""
    jobs = GaugeMetricFamily(
        "runekeep_jobs",
        f"Jobs that have not ended, by `kind` and `state`, `pending` or `leased`; {backlog.LIMIT:,} of each at most."
        " Of all accounts: servers on one store all say the same.",
        labels=["kind", "state"],
    )
    oldest = GaugeMetricFamily(
        "runekeep_jobs_oldest_seconds",
        "How long ago the oldest of these jobs was queued; 0: there is none.",
        labels=["kind", "state"],
    )
    waiting = {
        "runekeep_relay_archives": "Archives whose messages cannot be found by search yet.",
        "runekeep_relay_messages": "Archived messages that cannot be found by search yet.",
        "runekeep_relay_archives_oldest_seconds": "How long the first of these archives has waited.",
        "runekeep_relay_revisions": "Revisions that the index lacks, over all users.",
        "runekeep_relay_revisions_oldest_seconds": "How long the first of these revisions has waited.",
        "runekeep_relay_users": "Users of whom the index holds nothing yet, for it is new; 1000 at most.",
    }
    said = GaugeMetricFamily(
        "runekeep_backlog_known", "Whether the store answered when it was asked for jobs and the relay: 0 or 1."
    )
    families = {name: GaugeMetricFamily(name, meaning) for name, meaning in waiting.items()}
    in_index = GaugeMetricFamily("runekeep_index_points", "Points in the index, counted once a minute.")
    if found is not None:
        for queue in found.queues:
            labels = [queue.kind, queue.state]
            jobs.add_metric(labels, queue.jobs)
            oldest.add_metric(labels, _age(found.now, queue.oldest_at))
        values = {
            "runekeep_relay_archives": found.index.archives,
            "runekeep_relay_messages": found.index.messages,
            "runekeep_relay_archives_oldest_seconds": _age(found.now, found.index.archives_oldest_at),
            "runekeep_relay_revisions": found.index.revisions,
            "runekeep_relay_revisions_oldest_seconds": _age(found.now, found.index.revisions_oldest_at),
            "runekeep_relay_users": found.index.users,
        }
        for name, value in values.items():
            families[name].add_metric([], value)
    if points is not None:
        in_index.add_metric([], points)
    if known is not None:
        said.add_metric([], known)
    return [jobs, oldest, *families.values(), in_index, said]


def _age(now: int, since: int) -> float:
    return max(now - since, 0) / _MICROSECONDS if since else 0.0
