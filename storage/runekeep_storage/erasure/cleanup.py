"""Removes, after deletions, data that can no longer be reached: rows in slices, and blobs that no row names."""

import asyncio
import contextlib
from collections.abc import Iterator
from time import monotonic

import structlog

from runekeep_storage.blobs import sweeps
from runekeep_storage.blobs.blobs import Blobs
from runekeep_storage.database import Space, SpaceDatabase
from runekeep_storage.drivers.common.fair_turns import rest_after
from runekeep_storage.erasure import deletion
from runekeep_storage.errors import StoreUnavailable
from runekeep_storage.spaces import pending_deletions, space_locks

LOOK_SECONDS = 60.0
"""Seconds between two checks for work that another server left undone."""

log = structlog.get_logger(__name__)


@contextlib.contextmanager
def _apart(space: Space) -> Iterator[None]:
    """Isolates errors of one space and logs them. If the store is away, the next check finds out."""
    try:
        yield
    except StoreUnavailable as error:
        log.warning("cleaner_waits", account=space.account, user=space.user, error=str(error))
    except Exception:
        # What could not be removed stays marked, and nobody can reach it.
        log.exception("cleaner_failed", account=space.account, user=space.user)


async def remove_unnamed(database: SpaceDatabase, blobs: Blobs, space: Space) -> bool:
    """Removes blobs that no row names. Returns whether none is left; recently stored blobs are kept.

    Blobs are listed before rows are read: a row written after that names a blob that was stored before it, so that blob
    is still young.
    """
    old, young = await asyncio.to_thread(blobs.names, space)
    if not old and not young:
        return True
    named = await database.read(sweeps.named, space)
    for name in old - named:
        await asyncio.to_thread(blobs.remove, space, name)
    return young <= named


class Cleaner:
    """A background task for each server. `wake` after a deletion skips the wait for the next check."""

    def __init__(self, database: SpaceDatabase, blobs: Blobs) -> None:
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
        """Removes everything that can be removed now. A space where that fails blocks no other one, and is tried again
        at the next check."""
        failed: set[Space] = set()
        await self._empty_shut(failed)
        last = pending_deletions.BEFORE_ALL
        while (space := await self._database.read_global(pending_deletions.waiting, last)) is not None:
            last = space
            with _apart(space):
                began = monotonic()
                while await self._database.write(pending_deletions.clear, space):
                    await rest_after(monotonic() - began)
                    # Callers wait for locked spaces, and nobody for pending deletions.
                    await self._empty_shut(failed)
                    began = monotonic()
        while (sweep := await self._database.read_global(sweeps.waiting)) is not None:
            await self._sweep(sweep)
            await self._empty_shut(failed)

    async def _empty_shut(self, failed: set[Space]) -> None:
        """Empties the locked spaces except those in `failed`, and adds those that fail to it."""
        for space in await self._database.read_global(space_locks.waiting):
            if space not in failed:
                failed.add(space)
                with _apart(space):
                    await self.empty(space)
                    failed.discard(space)

    async def empty(self, space: Space) -> None:
        """Returns once a deleted user has no rows any more and may begin again."""
        # One transaction for each slice, so that other writes run in between.
        while await self._database.write(deletion.empty, space):
            pass

    async def _sweep(self, sweep: sweeps.Sweep) -> None:
        try:
            whole = await remove_unnamed(self._database, self._blobs, sweep.space)
        except (OSError, StoreUnavailable) as error:
            # A folder that cannot be written, or an object store that is away, must not block other spaces.
            log.error("blobs_not_removed", account=sweep.space.account, user=sweep.space.user, error=str(error))
            whole = False
        await self._database.write(sweeps.done, sweep.space, sweep, whole=whole)

    async def _forever(self) -> None:
        while True:
            self._woken.clear()
            try:
                await self.clean()
            except StoreUnavailable as error:
                log.warning("cleaner_waits", error=str(error))
            except Exception:
                # What could not be removed stays marked, and nobody can reach it.
                log.exception("cleaner_failed")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(await self._pause()):
                    await self._woken.wait()

    async def _pause(self) -> float:
        """Returns the seconds until the next check: an import whose server died blocks its user until then."""
        with contextlib.suppress(StoreUnavailable):
            lapse = await self._database.read_global(space_locks.next_expiry)
            if lapse is not None:
                return min(max(lapse / 1_000_000, 0.0) + 0.1, LOOK_SECONDS)
        return LOOK_SECONDS
