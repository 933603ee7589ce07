"""Brings the index after the store: outbox in revision order, then the watermark; passages and late vectors behind
(`storage.passage_relay`).

Every step may be repeated: points are immutable and named by their rows. A server that dies anywhere in it leaves
work that any server's relay takes up again. The index may be away, at the start too: it is opened as soon as it is
there, and what it does not hold is written to it. Several servers may relay to one index at once.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial

import structlog

from schemas import failpoints
from schemas.registry import Registry
from schemas.telemetry import tracing
from storage import outbox, rows, telemetry, traces, watermarks
from storage.attachment import Attachment
from storage.database import Database, Space, Tx
from storage.embedders import Embedder
from storage.errors import StoreLost, StoreUnavailable
from storage.index.base import IndexMismatch, IndexPoint, IndexUnavailable
from storage.passage_relay import PassageRelay
from storage.rebuild import write_space
from storage.recheck import corrections, put_out
from storage.reconcile import compare

MEMORIES, PASSAGES, UPKEEP = "memories", "passages", "upkeep"
"""The three tasks of a relay."""
BATCH = 256
"""Outbox entries of one space that are read at once."""
SPACES = 100
"""Spaces with entries, and spaces with revisions to mark, that are looked at in one pass."""
MAX_WAIT_SECONDS = 0.5
"""After failures. An index that is back is used again after at most this long."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Sent:
    """What the index has got of one space: the entries, the points of those that brought some, the watermark that they
    allow, and whether more wait."""

    space: Space
    entries: list[outbox.Entry]
    points: list[IndexPoint]
    indexed: int
    more: bool


class Relay:
    """Three background tasks a server: for memories, for passages and late vectors, and for spaces that the index lacks
    or that are due to be compared with it. `wake` after a commit saves them the wait for their next look.

    Times are in seconds; `check_seconds` is the time from one comparison of a space to the next.
    """

    def __init__(
        self,
        database: Database,
        attachment: Attachment,
        embedder: Embedder | None,
        registry: Registry,
        *,
        poll_seconds: float,
        check_seconds: float,
    ) -> None:
        self._database = database
        self._attachment = attachment
        self._index = attachment.index
        self._poll = poll_seconds
        self._check_interval = round(check_seconds * 1_000_000)
        self._woken: dict[str, asyncio.Event] = {}
        self._movement = asyncio.Event()
        self._steps = [asyncio.Lock() for _ in range(3)]
        """Held by each of the tasks through a step."""
        self._tasks: list[asyncio.Task[None]] = []
        self._passages = PassageRelay(database, attachment, embedder, registry, partial(self.wake, MEMORIES))
        self._model = embedder.model if embedder else ""
        self._last_space = outbox.FIRST
        self._last_elsewhere = watermarks.FIRST_IN_AN_INDEX
        self._urgent: dict[Space, None] = {}

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._loop(name, step, lock))
            for (name, step), lock in zip(
                ((MEMORIES, self._relay_memories), (PASSAGES, self._passages.step), (UPKEEP, self._keep_up)),
                self._steps,
                strict=True,
            )
        ]

    def wake(self, *parts: str) -> None:
        """Saves these of MEMORIES, PASSAGES and UPKEEP the wait for their next look; without a name all of them."""
        for name, woken in self._woken.items():
            if not parts or name in parts:
                woken.set()

    def hurry(self, space: Space) -> None:
        """Somebody searches a space that is not in the index: it is written before all others."""
        self._urgent[space] = None
        self.wake(UPKEEP)

    @contextlib.asynccontextmanager
    async def at_rest(self) -> AsyncIterator[None]:
        """No point is on its way from this server to the index meanwhile."""
        async with contextlib.AsyncExitStack() as held:
            # The longest steps first: nobody else waits for their end.
            for step in reversed(self._steps):
                await held.enter_async_context(step)
            yield

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks = []

    @property
    def movement(self) -> asyncio.Event:
        """Is set when the next watermark moves. Taken before a look at the store, it misses no move."""
        return self._movement

    async def moved(self, movement: asyncio.Event | None = None, seconds: float | None = None) -> None:
        """Returns after a watermark moved, after the polling interval, or after so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._poll if seconds is None else min(seconds, self._poll)):
                await (movement or self._movement).wait()

    def heard(self, subject: str) -> None:
        """What a server told: that there is something to relay, or that it moved a watermark. An empty subject, as the
        release before has it, is the one or the other."""
        match subject:
            case watermarks.MOVED:
                self._tell_moved()
            case watermarks.ADDED:
                self.wake(MEMORIES)
            case watermarks.ARCHIVED:
                self.wake(PASSAGES)
            case _:
                # Not for spaces that the index lacks: these come of no commit.
                self.wake(MEMORIES, PASSAGES)

    def _tell_moved(self) -> None:
        movement, self._movement = self._movement, asyncio.Event()
        movement.set()

    async def _loop(self, name: str, step: Callable[[str], Awaitable[bool]], lock: asyncio.Lock) -> None:
        """Runs `step` again and again: at once while it says that there is more, then when woken or after a poll."""
        woken = self._woken[name] = asyncio.Event()
        failures = 0
        while True:
            woken.clear()
            try:
                async with lock:
                    more = await step(await self._attachment.attach())
                if failures:
                    log.info("relay_goes_on", part=name, failures=failures)
                failures = 0
            except (IndexUnavailable, IndexMismatch, StoreUnavailable, StoreLost) as error:
                if isinstance(error, IndexUnavailable):
                    self._attachment.doubt()
                failures += 1
                more = False
                telemetry.RELAY_FAILURES.labels(name).inc()
                # The first one, and then ever more rarely: an outage may last for hours.
                if failures.bit_count() == 1:
                    log.warning("relay_waits", part=name, failures=failures, error=str(error))
            except Exception:
                # The relay must outlive any single bad row; what failed stays in the outbox and is seen in the logs.
                failures += 1
                more = False
                telemetry.RELAY_FAILURES.labels(name).inc()
                log.exception("relay_failed", part=name, failures=failures)
            if failures:
                await asyncio.sleep(min(self._poll * 2 ** min(failures - 1, 5), MAX_WAIT_SECONDS))
            elif not more:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._poll):
                        await woken.wait()

    async def _relay_memories(self, index_id: str) -> bool:
        """One batch of each space that waits."""
        went_on = self._last_space != outbox.FIRST
        waiting, self._last_space = await self._database.read(outbox.waiting_spaces, index_id, self._last_space, SPACES)
        many = self._last_space != outbox.FIRST
        sent: list[_Sent] = []
        failed: IndexUnavailable | StoreUnavailable | None = None
        for space in waiting:
            try:
                with _apart("memories", space):
                    batch = await self._send(space, index_id)
                    if batch is not None:
                        sent.append(batch)
            except (IndexUnavailable, StoreUnavailable) as error:
                # It may be this space alone that is refused: those behind it are next, and it comes round again.
                failed, self._last_space = error, (space.account, space.user)
                break
        marked = await self._mark_all(sent, index_id) if sent else []
        if failed is not None:
            raise failed
        # At the end of the walk, where nothing came through, trying again at once would be no better.
        return many or (bool(marked) and (went_on or any(batch.more for batch in marked)))

    async def _mark_all(self, sent: list[_Sent], index_id: str) -> list[_Sent]:
        """Those that are marked."""
        # What the outbox forgets is never sent again, so it must outlive a power cut.
        await self._index.flush()
        failpoints.reached(failpoints.RELAY_BEFORE_MARK)
        marked = []

        async def mark(batch: _Sent) -> None:
            with _apart("memories", batch.space):
                await self._database.write(_mark, batch.space, batch, index_id, self._model)
                marked.append(batch)

        # At once, so that the store commits them together.
        ended = await asyncio.gather(*map(mark, sent), return_exceptions=True)
        if marked:
            self._tell_moved()
        for error in ended:
            if error is not None:
                raise error
        return marked

    async def _send(self, space: Space, index_id: str) -> _Sent | None:
        due = await self._database.read(_due, space, index_id, self._model)
        if due is None:
            return None
        newest, entries, points = due
        if points:
            revisions = [entry.revision for entry in entries if not entry.takes]
            asked = await traces.of_revisions(self._database, space, min(revisions), max(revisions))
            with tracing.batch("index memories", asked, {"runekeep.points": len(points)}):
                await self._index.upsert(points)
            telemetry.RELAYED.labels("memories").inc(len(points))
            failpoints.reached(failpoints.RELAY_AFTER_UPSERT)
        removed = [point for entry in entries for point in entry.removed_points(space)]
        if removed:
            await self._index.delete(removed)
        brought = [entry for entry in entries if not entry.takes]
        whole = len(brought) < BATCH
        # A batch that was cut may hold only a part of its last revision.
        indexed = newest if whole else brought[-1].revision - 1
        return _Sent(space, entries, points, indexed, more=len(entries) == BATCH or len(removed) >= outbox.REMOVALS)

    async def _keep_up(self, index_id: str) -> bool:
        """Writes spaces that are not in the index, the urgent ones first; when there are none, compares one."""
        places = await self._database.read(watermarks.elsewhere, index_id, self._last_elsewhere, SPACES)
        self._last_elsewhere = places[-1] if places else watermarks.FIRST_IN_AN_INDEX
        waiting = [Space(account, user) for _, account, user in places]
        # Several servers walk the same way; in another order each they seldom do the same.
        random.shuffle(waiting)
        while waiting or self._urgent:
            space = next(iter(self._urgent), None) or waiting.pop()
            self._urgent.pop(space, None)
            with _apart("upkeep", space):
                await self._write(space, index_id)
        return bool(places) or await self._compare(index_id)

    async def _write(self, space: Space, index_id: str) -> None:
        standing = await self._database.read(watermarks.standing, space, index_id)
        if standing.indexed >= 0:
            return
        counts: dict[str, int] = dict.fromkeys(rows.TABLES, 0)

        def count(table: rows.Table, written: int) -> None:
            counts[table] += written

        await write_space(self._database, self._index, index_id, space, self._model, count)
        log.info("index_written", account=space.account, user=space.user, **counts)
        self._tell_moved()

    async def _compare(self, index_id: str) -> bool:
        """Compares the space whose turn it is, if there is one."""
        due = await self._database.read(watermarks.due_for_check, index_id, self._check_interval)
        if due is None:
            return False
        space, last = due
        # Counts as done from here on, so that no other server does the same.
        if not await self._database.write(watermarks.claim_check, space, last):
            return True
        with _apart("upkeep", space):
            try:
                compared = await compare(self._database, self._index, index_id, space, self._model)
            except (IndexUnavailable, StoreUnavailable):
                await self._database.write(watermarks.set_checked, space, last)
                raise
            if compared is not None:
                found = {"points": compared.points, "orphans": compared.orphans, "missing": compared.missing}
                level = log.warning if compared.orphans or compared.missing else log.debug
                level("index_compared", account=space.account, user=space.user, **found)
        return True


@contextlib.contextmanager
def _apart(part: str, space: Space) -> Iterator[None]:
    """What is wrong with one space's rows must not keep the others waiting; it is in the logs until mended."""
    try:
        yield
    except (IndexUnavailable, StoreUnavailable):
        raise
    except Exception:
        log.exception("relay_set_aside", part=part, account=space.account, user=space.user)


async def _due(
    tx: Tx, space: Space, index_id: str, model: str
) -> tuple[int, list[outbox.Entry], list[IndexPoint]] | None:
    """Newest revision, entries that are due, and the points that they bring; None for a space that is not in the index:
    it is written as a whole, and what is taken out before that would come back."""
    standing = await watermarks.standing(tx, space, index_id)
    if standing.indexed < 0:
        return None
    newest = standing.revision
    entries = await outbox.due_at(tx, space, newest, standing.indexed, BATCH)
    keys = [(entry.uri, entry.version) for entry in entries if entry.op == "upsert"]
    points = await rows.memory_points(tx, space, keys, model)
    wanted = {entry.point_id: (entry.uri, entry.version) for entry in entries if entry.op == "passage"}
    again = await rows.passage_points(tx, space, list(wanted.values()), model)
    return newest, entries, points + [point for point in again if point.id in wanted]


async def _mark(tx: Tx, space: Space, sent: _Sent, index_id: str, model: str) -> None:
    """The outbox forgets what was sent, the watermark moves, and what changed meanwhile is put out."""
    if not await watermarks.join(tx, space, index_id):
        return
    gone = await outbox.done(tx, space, sent.entries, sent.indexed)
    late = {(entry.uri, entry.version) for entry in gone}
    found = []
    for superseded in (False, True):
        points = [point for point in sent.points if (_key(point) in late) is superseded]
        found += await corrections(tx, space, points, model, superseded=superseded)
    await put_out(tx, space, found)


def _key(point: IndexPoint) -> rows.Key:
    return (point.uri, point.version) if point.session is None else (point.session, point.sequence or 0)
