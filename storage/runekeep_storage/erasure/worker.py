"""The second part of erasures, in the background: removes points and blobs, then what store and index keep of deleted
data, and then verifies that nothing is left."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from runekeep_common import failpoints
from runekeep_storage.blobs.blobs import GRACE_SECONDS, Blobs
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.erasure import receipts, transactions
from runekeep_storage.erasure.cleanup import Cleaner, remove_unnamed
from runekeep_storage.erasure.receipts import Erasure, Kind, State
from runekeep_storage.erasure.verification import left
from runekeep_storage.errors import StoreUnavailable
from runekeep_storage.index.base import IndexMismatch, IndexUnavailable
from runekeep_storage.indexing import outbox
from runekeep_storage.indexing.attachment import Attachment
from runekeep_storage.relay.reconcile import compare
from runekeep_storage.relay.relay import Relay
from runekeep_storage.spaces import pending_deletions

LOOK_SECONDS = 60.0
"""Seconds between two checks for work that another server left undone."""

# Longer than the grace of blobs, because clocks differ.
_BLOBS = round((GRACE_SECONDS + 60) * 1_000_000)

_Open = tuple[Space, Erasure]


@dataclass(frozen=True, slots=True)
class Waits:
    """Delays in seconds. `purge`: minimum time between two purges, because store and index rewrite everything that is
    left, for however many erasures; `blobs`: between two checks while only blobs are left, or after an error;
    `incomplete`: after something was found that must be gone, and the maximum between failed purges. `rest`: minimum
    pause after a purge of the store, as a multiple of its duration, because nobody can write meanwhile."""

    purge: float = 60.0
    blobs: float = 60.0
    incomplete: float = 3600.0
    rest: float = 20.0


log = structlog.get_logger(__name__)


class Eraser:
    """A background task for each server. `wake` after an erasure skips the wait for the next check. Times are in
    seconds.

    Any server may repeat any step: what is left to do is what still exists.
    """

    def __init__(
        self,
        database: Database,
        attachment: Attachment,
        blobs: Blobs,
        relay: Relay,
        cleaner: Cleaner,
        *,
        poll_seconds: float,
        waits: Waits = Waits(),
    ) -> None:
        self._database = database
        self._attachment = attachment
        self._blobs = blobs
        self._relay = relay
        self._cleaner = cleaner
        self._poll = poll_seconds
        self._waits = waits
        self._purge_at = 0.0
        self._failed_purges = 0
        self._purged: set[str] = set()
        """Erasures that this server has purged and that must be verified."""
        self._not_before: dict[str, float] = {}
        """The earliest time of the next step of each erasure, on the clock of the event loop."""
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

    async def take(self, space: Space, erasure_id: str) -> None:
        """Returns once no row of the scope is left and the space is unlocked."""
        # One transaction for each slice, so that other writes run in between.
        while await self._database.write(transactions.go_on, space, erasure_id):
            await self._cleaner.empty(space)

    async def step(self) -> bool:
        """Advances all erasures as far as possible now. Returns whether any is left."""
        await self._each(self._remove, await self._database.read_global(receipts.unverified))
        found = await self._database.read_global(receipts.unverified)
        purging = [(space, erasure) for space, erasure in found if erasure.state is State.PURGING]
        self._purged &= {erasure.erasure_id for _, erasure in purging}
        waiting = [erasure.erasure_id for _, erasure in purging if not self._needs_none(erasure)]
        if waiting and asyncio.get_running_loop().time() >= self._purge_at:
            await self._purge()
            self._purged.update(waiting)
        await self._each(self._verify, [one for one in purging if self._needs_none(one[1])])
        return bool(found)

    def _needs_none(self, erasure: Erasure) -> bool:
        """Returns whether the erasure can be verified without a purge, or without another one."""
        return erasure.remains.nothing or erasure.erasure_id in self._purged

    async def _each(self, work: Callable[[Space, Erasure], Awaitable[None]], some: Sequence[_Open]) -> None:
        """Isolates errors: a fault in one space blocks no other."""
        for space, erasure in some:
            if self._not_before.get(erasure.erasure_id, 0.0) > asyncio.get_running_loop().time():
                continue
            try:
                await work(space, erasure)
            except (StoreUnavailable, IndexUnavailable, IndexMismatch) as error:
                log.warning("erasure_waits", account=space.account, user=space.user, error=str(error))
            except Exception:
                log.exception("erasure_failed", account=space.account, user=space.user)
                self._wait(erasure, self._waits.blobs)

    async def _remove(self, space: Space, erasure: Erasure) -> None:
        if erasure.state is State.TAKING:
            await self.take(space, erasure.erasure_id)
        elif erasure.state is State.REMOVING and await self._is_removed(space, erasure):
            self._not_before.pop(erasure.erasure_id, None)
            await self._database.write(receipts.move, space, erasure.erasure_id, State.PURGING)

    def _wait(self, erasure: Erasure, seconds: float) -> None:
        self._not_before[erasure.erasure_id] = asyncio.get_running_loop().time() + seconds

    async def _is_removed(self, space: Space, erasure: Erasure) -> bool:
        """Returns whether points, blobs and the rest of sessions are gone; removes what it can."""
        if await self._database.read(_waits, space, erasure):
            self._cleaner.wake()
            self._relay.wake()
            return False
        # A relay that had read a row before its deletion has, at rest, written the point and removed it again.
        async with self._relay.at_rest():
            pass
        if await self._orphans(space) != 0:
            return False
        whole = await remove_unnamed(self._database, self._blobs, space)
        # Until their grace is over, young blobs may belong to rows that are about to be written.
        if whole or await self._database.read_global(_now) > erasure.created_at + _BLOBS:
            return True
        self._wait(erasure, self._waits.blobs)
        return False

    async def _orphans(self, space: Space) -> int | None:
        """Removes points without a row from the index. Returns how many there were; None while the space is being
        written to another index."""
        index_id = await self._attachment.id()
        compared = await compare(self._database, self._attachment.index, index_id, space, self._attachment.models)
        return compared.orphans if compared is not None else None

    async def _purge(self) -> None:
        """Purges store and index. Raises StoreUnavailable and IndexUnavailable. Repeated failures increase the time
        until the next purge."""
        clock = asyncio.get_running_loop().time
        began = rested = clock()
        done = False
        try:
            failpoints.reached(failpoints.ERASURE_BEFORE_PURGE)
            try:
                await self._database.purge()
            finally:
                rested = clock()
            failpoints.reached(failpoints.ERASURE_MID_PURGE)
            await self._attachment.index.purge()
            failpoints.reached(failpoints.ERASURE_AFTER_PURGE)
            done = True
        finally:
            self._failed_purges = 0 if done else self._failed_purges + 1
            rest = max(self._waits.purge, self._waits.rest * (rested - began))
            longer = max(rest, min(rest * 2.0 ** min(self._failed_purges, 16), self._waits.incomplete))
            self._purge_at = clock() + longer

    async def _verify(self, space: Space, erasure: Erasure) -> None:
        found = await self._database.read(left, space, erasure)
        # A relay may write points of rows that are being deleted, and removes them when it checks again. These are no
        # leftovers.
        async with self._relay.at_rest():
            orphans = await self._orphans(space)
        if orphans is None and not found:
            # The relay is working on it; that needs no new purge.
            return
        if orphans:
            found["index"] = orphans
        self._purged.discard(erasure.erasure_id)
        if found:
            log.error("erasure_incomplete", account=space.account, user=space.user, **found)
            self._wait(erasure, self._waits.incomplete)
        else:
            log.info("erasure_verified", account=space.account, user=space.user)
        state = State.REMOVING if found else State.VERIFIED
        await self._database.write(receipts.move, space, erasure.erasure_id, state)

    async def _forever(self) -> None:
        while True:
            self._woken.clear()
            more = True
            try:
                more = await self.step()
            except (StoreUnavailable, IndexUnavailable, IndexMismatch) as error:
                log.warning("eraser_waits", error=str(error))
            except Exception:
                log.exception("eraser_failed")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(self._poll, LOOK_SECONDS) if more else LOOK_SECONDS):
                    await self._woken.wait()


async def _waits(tx: Tx, space: Space, erasure: Erasure) -> bool:
    """Returns whether the cleaner or the relay still has something to remove."""
    of_user = erasure.kind is Kind.USER
    # In other scopes every erased version also has an entry of its own, which is due at once.
    if await outbox.removes_up_to(tx, space, erasure.remains.outbox, superseded=of_user):
        return True
    if of_user:
        return await pending_deletions.of_space(tx, space, "")
    return erasure.kind is Kind.SESSION and await pending_deletions.of_space(tx, space, erasure.remains.session_id)


async def _now(tx: Tx) -> int:
    return tx.now()
