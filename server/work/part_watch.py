"""Wakes jobs that wait for a part of the server, such as the index, soon after the part answers again.

The delay of a job grows with each attempt that meets the outage, so that an outage of hours costs little. Without this
watch the job would wait out its last delay after the outage has ended.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import structlog

from storage import jobs
from storage.errors import StoreError
from storage.index.base import IndexMismatch, IndexUnavailable
from storage.store import Store

LOOK_SECONDS = 0.25
"""Pause between two probes of the parts that jobs wait for."""
PROBE_SECONDS = 3.0
"""A part that does not answer a probe for this long is away."""
LOOKS = 4
"""At a part that answers, until it counts as awaited by no job."""
MIN_WAKE_SECONDS = 15.0
"""Pause between two wakes for a part that no probe saw away: it may answer probes and still fail jobs, which would
otherwise be tried again without a pause."""

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
        self._awaited = dict.fromkeys(self._probes, LOOKS)
        """Looks that are left for each part, if none of them finds a job that waits."""
        self._seen_away: set[str] = set()
        self._woken_at: dict[str, float] = {}

    def covers(self, part: str) -> bool:
        """Whether this watch wakes jobs that wait for the part."""
        return part in self._probes

    def wait_for(self, part: str) -> None:
        """Called when a job was delayed because of that part."""
        if self.covers(part):
            self._awaited[part] = LOOKS

    async def look(self) -> None:
        """Wakes the jobs whose part answers. Raises StoreUnavailable."""
        for part in sorted(self._awaited):
            if not await self._answers(part):
                self._seen_away.add(part)
            elif part in self._seen_away or self._rested(part):
                await self._wake(part)

    async def _answers(self, part: str) -> bool:
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await self._probes[part]()
        except (StoreError, IndexUnavailable, IndexMismatch, OSError, TimeoutError):
            return False
        return True

    def _rested(self, part: str) -> bool:
        woken_at = self._woken_at.get(part)
        return woken_at is None or asyncio.get_running_loop().time() - woken_at >= MIN_WAKE_SECONDS

    async def _wake(self, part: str) -> None:
        # Before the write: a job that is put off during it makes the part awaited again.
        left = self._awaited.pop(part)
        try:
            woken = 0
            while more := await self._database.write(jobs.end_wait, part):
                woken += more
        except BaseException:
            self._awaited[part] = LOOKS
            raise
        self._seen_away.discard(part)
        if woken:
            self._woken_at[part] = asyncio.get_running_loop().time()
            log.info("part_is_back", part=part, jobs=woken)
        elif left > 1:
            # `wait_for` is called before the transaction that puts the job off is committed.
            self._awaited.setdefault(part, left - 1)


def probes_of(store: Store) -> dict[str, Probe]:
    """Returns the probes of the index and the blob store."""

    async def index() -> None:
        # An index that failed a search must be opened again. The relay would do it too, but later.
        await store.attachment.attach()
        if not await store.index.healthy():
            raise IndexUnavailable("the index does not answer")

    async def blobs() -> None:
        await asyncio.to_thread(store.blobs.probe)

    return {"index": index, "blobs": blobs}
