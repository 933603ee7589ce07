"""Takes away, behind deletions, what nothing can reach any more: rows in slices, and blobs that no row names."""

import asyncio
import contextlib
from collections.abc import Iterator

import structlog

from storage import blob_sweeps, deletion, leftovers, shut_spaces
from storage.blobs import Blobs
from storage.database import Database, Space
from storage.errors import StoreUnavailable

LOOK_SECONDS = 60.0
"""How often it is looked for what another server left undone."""

log = structlog.get_logger(__name__)


@contextlib.contextmanager
def _apart(space: Space) -> Iterator[None]:
    """What is wrong with one space is in the logs. A store that is away is found out by the next look at it."""
    try:
        yield
    except StoreUnavailable as error:
        log.warning("cleaner_waits", account=space.account, user=space.user, error=str(error))
    except Exception:
        # What could not be taken away stays marked, and nobody can reach it.
        log.exception("cleaner_failed", account=space.account, user=space.user)


async def remove_unnamed(database: Database, blobs: Blobs, space: Space) -> bool:
    """Whether nothing is left to remove; blobs that were put a short while ago are left.

    Blobs are listed first and rows read second: a row that comes after that names a blob that was put before it, so
    that the blob is young by then.
    """
    old, young = await asyncio.to_thread(blobs.names, space)
    if not old and not young:
        return True
    named = await database.read(blob_sweeps.named, space)
    for name in old - named:
        await asyncio.to_thread(blobs.remove, space, name)
    return young <= named


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
        """Takes away all that can go now. A space where that fails keeps no other one waiting, and has its turn again
        at the next look.
        """
        failed: set[Space] = set()
        await self._empty_shut(failed)
        last = leftovers.BEFORE_ALL
        while (space := await self._database.read(leftovers.waiting, last)) is not None:
            last = space
            with _apart(space):
                while await self._database.write(leftovers.clear, space):
                    # Callers wait for these, and nobody for leftovers.
                    await self._empty_shut(failed)
        while (sweep := await self._database.read(blob_sweeps.waiting)) is not None:
            await self._sweep(sweep)
            await self._empty_shut(failed)

    async def _empty_shut(self, failed: set[Space]) -> None:
        """Empties the spaces that are shut, but for those of `failed`, and adds to these."""
        for space in await self._database.read(shut_spaces.waiting):
            if space not in failed:
                failed.add(space)
                with _apart(space):
                    await self.empty(space)
                    failed.discard(space)

    async def empty(self, space: Space) -> None:
        """Returns when a user who was deleted has no rows any more, and may begin again."""
        # A transaction each, so that everybody else's writes come in between.
        while await self._database.write(deletion.empty, space):
            pass

    async def _sweep(self, sweep: blob_sweeps.Sweep) -> None:
        try:
            whole = await remove_unnamed(self._database, self._blobs, sweep.space)
        except (OSError, StoreUnavailable) as error:
            # One folder that cannot be written, or an object store that is away, must not keep the others waiting.
            log.error("blobs_not_removed", account=sweep.space.account, user=sweep.space.user, error=str(error))
            whole = False
        await self._database.write(blob_sweeps.done, sweep.space, sweep, whole=whole)

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
                async with asyncio.timeout(await self._pause()):
                    await self._woken.wait()

    async def _pause(self) -> float:
        """Seconds until the next look: an import whose server died keeps its user out until then."""
        with contextlib.suppress(StoreUnavailable):
            lapse = await self._database.read(shut_spaces.next_lapse)
            if lapse is not None:
                return min(max(lapse / 1_000_000, 0.0) + 0.1, LOOK_SECONDS)
        return LOOK_SECONDS
