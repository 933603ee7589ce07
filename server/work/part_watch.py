"""Makes jobs due that wait for a part of the server, such as the index, soon after the part answers again.

A job that met an outage waits for longer each time, so that an outage of hours costs little. Without this watch it
would sit out that wait after the outage has ended.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import structlog

from storage import jobs
from storage.errors import StoreError
from storage.index.base import IndexMismatch, IndexUnavailable
from storage.store import Store

LOOK_SECONDS = 0.25
"""From one look at the parts that jobs wait for to the next."""
PROBE_SECONDS = 3.0
"""After which a part that does not answer is away."""
MIN_WAKE_SECONDS = 15.0
"""From one wake for a part to the next where no look saw the part away: it may answer these looks and still fail jobs,
which would otherwise be tried again without a pause."""

log = structlog.get_logger(__name__)

Probe = Callable[[], Awaitable[None]]
"""Returns when the part serves; raises when it does not."""


class PartWatch:
    """One a server. It looks at a part only while jobs wait for it.

    After a start it takes every part to be awaited: jobs that an earlier process put off may wait for any.
    """

    def __init__(self, store: Store, *, probes: Mapping[str, Probe] | None = None) -> None:
        """`probes`: by name of the part; those of the store by default."""
        self._database = store.all_spaces
        self._probes = dict(probes) if probes is not None else probes_of(store)
        self._awaited: set[str] = set(self._probes)
        self._seen_away: set[str] = set()
        self._woken_at: dict[str, float] = {}

    def covers(self, part: str) -> bool:
        """Whether jobs that wait for the part are woken."""
        return part in self._probes

    def wait_for(self, part: str) -> None:
        """A job was put off because of that part."""
        if self.covers(part):
            self._awaited.add(part)

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
        # Before the write: a job that is put off meanwhile makes the part awaited again.
        self._awaited.discard(part)
        try:
            woken = 0
            while more := await self._database.write(jobs.end_wait, part):
                woken += more
        except BaseException:
            self._awaited.add(part)
            raise
        self._seen_away.discard(part)
        self._woken_at[part] = asyncio.get_running_loop().time()
        if woken:
            log.info("part_is_back", part=part, jobs=woken)


def probes_of(store: Store) -> dict[str, Probe]:
    """How to find out whether the index and the blob store serve."""

    async def index() -> None:
        # What failed a search has to be opened again; the relay would do it too, but later.
        await store.attachment.attach()
        if not await store.index.healthy():
            raise IndexUnavailable("the index does not answer")

    async def blobs() -> None:
        await asyncio.to_thread(store.blobs.probe)

    return {"index": index, "blobs": blobs}
