"""Wakes jobs that wait for a part of the server, such as the index, soon after the part answers again.

The delay of a job grows with each attempt that meets the outage, so that an outage of hours costs little. Without this
watch the job would wait out its last delay after the outage has ended.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import structlog

from runekeep_storage.errors import StoreError
from runekeep_storage.index.base import IndexMismatch, IndexUnavailable
from runekeep_storage.jobs import jobs
from runekeep_storage.store import Store

PROBE_INTERVAL_SECONDS = 0.25
"""Pause between two probes of awaited parts."""
PROBE_TIMEOUT_SECONDS = 3.0
"""Timeout of a probe, after which the part counts as unavailable."""
MAX_IDLE_PROBES = 4
"""Number of probes that find an available part and no waiting job, until the part is no longer probed."""
MIN_WAKE_INTERVAL_SECONDS = 15.0
"""Pause between two wakes for a part that no probe found unavailable. It may answer probes and still fail jobs, which
would otherwise be retried without a pause."""

log = structlog.get_logger(__name__)

Probe = Callable[[], Awaitable[None]]
"""Returns when the part serves; raises if it does not."""


class PartWatch:
    """Probes each part only while jobs wait for it. There is one per server.

    After a start it assumes that jobs wait for every part, because an earlier process may have delayed them.
    """

    def __init__(self, store: Store, *, probes: Mapping[str, Probe] | None = None) -> None:
        """`probes` by the name of the part; by default those of the store."""
        self._database = store.all_spaces
        self._probes = dict(probes) if probes is not None else probes_of(store)
        self._awaited = dict.fromkeys(self._probes, MAX_IDLE_PROBES)
        """Remaining probes of each part, if none of them finds a waiting job."""
        self._unavailable: set[str] = set()
        self._woken_at: dict[str, float] = {}

    def covers(self, part: str) -> bool:
        """Returns whether this watch wakes jobs that wait for the part."""
        return part in self._probes

    def wait_for(self, part: str) -> None:
        """Starts watching the part, because a job was delayed by its outage."""
        if self.covers(part):
            self._awaited[part] = MAX_IDLE_PROBES

    async def probe(self) -> None:
        """Wakes the jobs of each part that answers. Raises StoreUnavailable."""
        for part in sorted(self._awaited):
            if not await self._answers(part):
                self._unavailable.add(part)
            elif part in self._unavailable or self._may_wake(part):
                await self._wake(part)

    async def _answers(self, part: str) -> bool:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_SECONDS):
                await self._probes[part]()
        except (StoreError, IndexUnavailable, IndexMismatch, OSError, TimeoutError):
            return False
        return True

    def _may_wake(self, part: str) -> bool:
        woken_at = self._woken_at.get(part)
        return woken_at is None or asyncio.get_running_loop().time() - woken_at >= MIN_WAKE_INTERVAL_SECONDS

    async def _wake(self, part: str) -> None:
        # Removed before the write: a job that is delayed during the write adds the part again.
        left = self._awaited.pop(part)
        try:
            woken = 0
            while more := await self._database.write_global(jobs.end_wait, part):
                woken += more
        except BaseException:
            self._awaited[part] = MAX_IDLE_PROBES
            raise
        self._unavailable.discard(part)
        if woken:
            self._woken_at[part] = asyncio.get_running_loop().time()
            log.info("dependency_back", part=part, jobs=woken)
        elif left > 1:
            # `wait_for` is called before the transaction that delays the job is committed.
            self._awaited.setdefault(part, left - 1)


def probes_of(store: Store) -> dict[str, Probe]:
    """Returns the probes of the index and the blob store."""

    async def index() -> None:
        # An index that failed a search must be reopened. The relay would do it too, but later.
        await store.attachment.attach()
        if not await store.index.healthy():
            raise IndexUnavailable("the index does not answer")

    async def blobs() -> None:
        await asyncio.to_thread(store.blobs.probe)

    return {"index": index, "blobs": blobs}
