"""Erasures, second part, behind the calls: points and blobs go, then what store and index keep of deleted data, and
then all is looked through for what was left."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from schemas import failpoints
from storage import erasing, erasures, leftovers, outbox
from storage.attachment import Attachment
from storage.blobs import GRACE_SECONDS, Blobs
from storage.cleaner import Cleaner, remove_unnamed
from storage.database import Database, Space, Tx
from storage.erasure_check import left
from storage.erasures import Erasure, Kind, State
from storage.errors import StoreUnavailable
from storage.index.base import IndexMismatch, IndexUnavailable
from storage.reconcile import compare
from storage.relay import Relay

LOOK_SECONDS = 60.0
"""How often it is looked for what another server left undone."""

# Beyond the grace of blobs, for clocks that differ.
_BLOBS = round((GRACE_SECONDS + 60) * 1_000_000)

_Open = tuple[Space, Erasure]


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds: from one purge to the next at least, for store and index write all anew that is left, for however many
    erasures; from one look to the next while nothing but blobs stands out, or after a fault; and after something was
    found that ought to be gone, which is also the longest from one purge that failed to the next. `rest`: how many
    times as long as a purge of the store took it is left alone after it at least, for nobody writes meanwhile."""

    purge: float = 60.0
    blobs: float = 60.0
    incomplete: float = 3600.0
    rest: float = 20.0


log = structlog.get_logger(__name__)


class Eraser:
    """A background task a server. `wake` after an erasure saves it the wait for its next look. `model` is the
    embedder's; times are in seconds.

    Every step may be repeated, by any server: what is to be done is found by what is there.
    """

    def __init__(
        self,
        database: Database,
        attachment: Attachment,
        blobs: Blobs,
        relay: Relay,
        cleaner: Cleaner,
        model: str,
        *,
        poll_seconds: float,
        waits: Waits = Waits(),
    ) -> None:
        self._database = database
        self._attachment = attachment
        self._blobs = blobs
        self._relay = relay
        self._cleaner = cleaner
        self._model = model
        self._poll = poll_seconds
        self._waits = waits
        self._purge_at = 0.0
        self._failed_purges = 0
        self._purged: set[str] = set()
        """Erasures that were purged by this server and are to be verified."""
        self._not_before: dict[str, float] = {}
        """By erasure, on the clock of the event loop."""
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
        """Returns when no row of the scope is left, and the space is open again."""
        # A transaction each, so that everybody else's writes come in between.
        while await self._database.write(erasing.go_on, space, erasure_id):
            await self._cleaner.empty(space)

    async def step(self) -> bool:
        """Brings all erasures as far as they go now; whether any is left."""
        await self._each(self._remove, await self._database.read(erasures.unverified))
        found = await self._database.read(erasures.unverified)
        purging = [(space, erasure) for space, erasure in found if erasure.state is State.PURGING]
        self._purged &= {erasure.erasure_id for _, erasure in purging}
        waiting = [erasure.erasure_id for _, erasure in purging if not self._needs_none(erasure)]
        if waiting and asyncio.get_running_loop().time() >= self._purge_at:
            await self._purge()
            self._purged.update(waiting)
        await self._each(self._verify, [one for one in purging if self._needs_none(one[1])])
        return bool(found)

    def _needs_none(self, erasure: Erasure) -> bool:
        """Whether it can be verified without a purge, or without another one."""
        return erasure.remains.nothing or erasure.erasure_id in self._purged

    async def _each(self, work: Callable[[Space, Erasure], Awaitable[None]], some: Sequence[_Open]) -> None:
        """What is wrong with one space keeps no other waiting."""
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
            await self._database.write(erasures.move, space, erasure.erasure_id, State.PURGING)

    def _wait(self, erasure: Erasure, seconds: float) -> None:
        self._not_before[erasure.erasure_id] = asyncio.get_running_loop().time() + seconds

    async def _is_removed(self, space: Space, erasure: Erasure) -> bool:
        """Whether points, blobs and what is left of sessions are gone; it takes away what it can."""
        if await self._database.read(_waits, space, erasure):
            self._cleaner.wake()
            self._relay.wake()
            return False
        # A relay that had read a row before it went has told the index of it by then, and taken that back.
        async with self._relay.at_rest():
            pass
        if await self._orphans(space) != 0:
            return False
        whole = await remove_unnamed(self._database, self._blobs, space)
        # Until their grace is over, young blobs may be of rows that are about to be.
        if whole or await self._database.read(_now) > erasure.created_at + _BLOBS:
            return True
        self._wait(erasure, self._waits.blobs)
        return False

    async def _orphans(self, space: Space) -> int | None:
        """How many points without a row the index held, which it took out; None while the space is being written to
        another index."""
        index_id = await self._attachment.id()
        compared = await compare(self._database, self._attachment.index, index_id, space, self._model)
        return compared.orphans if compared is not None else None

    async def _purge(self) -> None:
        """Raises StoreUnavailable and IndexUnavailable; the more often in a row, the longer until the next."""
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
        # A relay brings points of rows that go meanwhile, and takes them back when it looks again: those are no
        # leftovers.
        async with self._relay.at_rest():
            orphans = await self._orphans(space)
        if orphans is None and not found:
            # The relay is at it; nothing has to be purged anew for that.
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
        await self._database.write(erasures.move, space, erasure.erasure_id, state)

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
    """Whether cleaner or relay still have to take something of it away."""
    of_user = erasure.kind is Kind.USER
    # Of other scopes every erased version has an entry of its own besides, which is due at once.
    if await outbox.removes_up_to(tx, space, erasure.remains.outbox, superseded=of_user):
        return True
    if of_user:
        return await leftovers.of_space(tx, space, "")
    return erasure.kind is Kind.SESSION and await leftovers.of_space(tx, space, erasure.remains.session_id)


async def _now(tx: Tx) -> int:
    return tx.now()
