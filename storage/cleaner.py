"""Takes away, behind deletions, what nothing can reach any more: rows in slices, and blobs that no row names."""

import asyncio
import contextlib

import structlog

from storage import blob_sweeps, leftovers
from storage.blobs import GRACE_SECONDS, Blobs
from storage.database import Database, Space
from storage.errors import StoreUnavailable

LOOK_SECONDS = 60.0
"""How often it is looked for what another server left undone."""

log = structlog.get_logger(__name__)


class Cleaner:
    """A background task a server. `wake` after a deletion saves it the wait for its next look."""

    def __init__(self, database: Database, blobs: Blobs) -> None:
        self._database = database
        self._blobs = blobs
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._forever())

    def wake(self) -> None:
        self._woken.set()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def clean(self) -> None:
        """Takes away all that can go now."""
        while (space := await self._database.read(leftovers.waiting)) is not None:
            # A transaction each, so that everybody else's writes come in between.
            while await self._database.write(leftovers.clear, space):
                pass
        while (sweep := await self._database.read(blob_sweeps.waiting)) is not None:
            await self._sweep(sweep)

    async def _sweep(self, sweep: blob_sweeps.Sweep) -> None:
        try:
            whole = await self._remove_unnamed(sweep.space)
        except OSError as error:
            # One folder that cannot be written must not keep the others waiting.
            log.error("blobs_not_removed", account=sweep.space.account, user=sweep.space.user, error=str(error))
            whole = False
        again_after = None if whole else round(GRACE_SECONDS * 1_000_000)
        await self._database.write(blob_sweeps.done, sweep.space, sweep, again_after)

    async def _remove_unnamed(self, space: Space) -> bool:
        """Whether nothing is left to remove; blobs that were put a short while ago are left.

        Blobs are listed first and rows read second: a row that comes after that names a blob that was put before it,
        so that the blob is young by then.
        """
        old, young = await asyncio.to_thread(self._blobs.names, space)
        if not old and not young:
            return True
        named = await self._database.read(blob_sweeps.named, space)
        for name in old - named:
            await asyncio.to_thread(self._blobs.remove, space, name)
        return young <= named

    async def _forever(self) -> None:
        while True:
            self._woken.clear()
            try:
                await self.clean()
            except StoreUnavailable as error:
                log.warning("cleaner_waits", error=str(error))
            except Exception:
                # What could not be taken away stays marked, and nobody can reach it.
                log.exception("cleaner_failed")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._woken.wait()
