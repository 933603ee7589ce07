"""Brings the index after the store: outbox in revision order, then the watermark; passages and late vectors behind.

Every step may be repeated: points are immutable and named by their rows. A server that dies anywhere in it leaves
work that any server's relay takes up again. The index may be away, at the start too: it is opened as soon as it is
there, and what it does not hold is written to it. Several servers may relay to one index at once.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import structlog

from schemas import failpoints
from schemas.registry import Registry
from storage import backfill, outbox, passages, rows, sessions, watermarks
from storage.attachment import Attachment
from storage.database import Database, Space, Tx
from storage.embedders import Embedder, EmbedderUnavailable
from storage.errors import StoreUnavailable
from storage.index.base import IndexMismatch, IndexPoint, IndexUnavailable
from storage.rebuild import write_space
from storage.recheck import corrections, put_out
from storage.reconcile import compare
from storage.records import Archive
from storage.rows import passage_point_of

BATCH = 256
"""Outbox entries of one space that are read at once."""
SPACES = 100
"""Spaces that are looked at in one pass."""
ARCHIVES = 16
"""Archives that are read at once."""
SLICE = 256
"""Messages of an archive that become passages at once; an archive may hold any number."""
REMOVALS = 1000
"""Points that leave the index by one call; an entry may mean any number."""
LONGEST_WAIT_SECONDS = 30.0
"""After failures; an index that is back is noticed at the latest then."""

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
        self._embedder = embedder
        self._registry = registry
        self._poll = poll_seconds
        self._check_interval = round(check_seconds * 1_000_000)
        self._woken: dict[str, asyncio.Event] = {}
        self._movement = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._set_aside: set[str] = set()
        """Commits whose passages could not be made; tried again by the next server."""
        self._last_space = ("", "")
        self._last_elsewhere = watermarks.FIRST_IN_AN_INDEX
        self._urgent: dict[Space, None] = {}

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._loop("memories", self._relay_memories)),
            asyncio.create_task(self._loop("passages", self._relay_passages)),
            asyncio.create_task(self._loop("upkeep", self._keep_up)),
        ]

    def wake(self) -> None:
        for woken in self._woken.values():
            woken.set()

    def hurry(self, space: Space) -> None:
        """Somebody searches a space that is not in the index: it is written before all others."""
        self._urgent[space] = None
        if "upkeep" in self._woken:
            self._woken["upkeep"].set()

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
        """What another server told: that there is something to relay, or that it moved a watermark."""
        if subject == watermarks.MOVED:
            self._tell_moved()
        else:
            self.wake()

    def _tell_moved(self) -> None:
        movement, self._movement = self._movement, asyncio.Event()
        movement.set()

    async def _loop(self, name: str, step: Callable[[str], Awaitable[bool]]) -> None:
        """Runs `step` again and again: at once while it says that there is more, then when woken or after a poll."""
        woken = self._woken[name] = asyncio.Event()
        failures = 0
        while True:
            woken.clear()
            try:
                more = await step(await self._attachment.attach())
                failures = 0
            except (IndexUnavailable, IndexMismatch, StoreUnavailable) as error:
                if isinstance(error, IndexUnavailable):
                    self._attachment.doubt()
                failures += 1
                more = False
                log.warning("relay_waits", part=name, failures=failures, error=str(error))
            except Exception:
                # The relay must outlive any single bad row; what failed stays in the outbox and is seen in the logs.
                failures += 1
                more = False
                log.exception("relay_failed", part=name, failures=failures)
            if failures:
                await asyncio.sleep(min(self._poll * 2 ** min(failures - 1, 5), LONGEST_WAIT_SECONDS))
            elif not more:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._poll):
                        await woken.wait()

    async def _relay_memories(self, index_id: str) -> bool:
        """One batch of each space that waits."""
        waiting = await self._database.read(outbox.waiting_spaces, index_id, self._last_space, SPACES)
        many = len(waiting) == SPACES
        # On from the last one: spaces whose rows are bad must not keep those behind them from their turn.
        went_on = self._last_space != ("", "")
        self._last_space = (waiting[-1].account, waiting[-1].user) if many else ("", "")
        sent = []
        for space in waiting:
            with self._apart("memories", space):
                batch = await self._send(space, index_id)
                if batch is not None:
                    sent.append(batch)
        if sent:
            # What the outbox forgets is never sent again, so it must outlive a power cut.
            await self._index.flush()
            failpoints.reached(failpoints.RELAY_BEFORE_MARK)
            marked = []
            for batch in sent:
                with self._apart("memories", batch.space):
                    await self._database.write(_mark, batch.space, batch, index_id, self._model)
                    marked.append(batch)
            self._tell_moved()
            sent = marked
        # Where nothing came through, trying again at once would be no better.
        return bool(sent) and (many or went_on or any(batch.more for batch in sent))

    async def _send(self, space: Space, index_id: str) -> _Sent | None:
        due = await self._database.read(_due, space, index_id, self._model)
        if due is None:
            return None
        newest, entries, points = due
        if points:
            await self._index.upsert(points)
            failpoints.reached(failpoints.RELAY_AFTER_UPSERT)
        removed = (point for entry in entries for point in entry.removed_points(space))
        while some := list(islice(removed, REMOVALS)):
            await self._index.delete(some)
        whole = len(entries) < BATCH
        # A batch that was cut may hold only a part of its last revision.
        return _Sent(space, entries, points, newest if whole else entries[-1].revision - 1, more=not whole)

    async def _relay_passages(self, index_id: str) -> bool:
        done = False
        for space, archive in await self._database.read(passages.waiting, limit=ARCHIVES + len(self._set_aside)):
            if archive.task_id not in self._set_aside:
                with self._apart("passages", space):
                    self._set_aside.add(archive.task_id)
                    await self._index_archive(space, index_id, archive)
                    self._set_aside.remove(archive.task_id)
                    done = True
        return done or await self._fill_vectors()

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
            with self._apart("upkeep", space):
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
        with self._apart("upkeep", space):
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
    def _apart(self, part: str, space: Space) -> Iterator[None]:
        """What is wrong with one space's rows must not keep the others waiting; it is in the logs until mended."""
        try:
            yield
        except (IndexUnavailable, StoreUnavailable):
            self._set_aside.clear()
            raise
        except Exception:
            log.exception("relay_set_aside", part=part, account=space.account, user=space.user)

    async def _index_archive(self, space: Space, index_id: str, archive: Archive) -> None:
        first = archive.first_sequence
        while True:
            last = min(first + SLICE - 1, archive.last_sequence)
            messages = await self._database.read(sessions.messages_between, space, archive.session_id, first, last)
            found = passages.of_messages(archive, messages)
            vectors = await self._vectors([passage.content for passage in found])
            # Words are counted in Python: on the event loop a long archive would hold up every call.
            made = await asyncio.to_thread(passages.with_words, found, vectors)
            points = [passage_point_of(space, archive.task_id, *one) for one in made]
            if points:
                await self._index.upsert(points)
                await self._index.flush()
            whole = last == archive.last_sequence
            there = await self._database.write(passages.store, space, index_id, archive, made, self._model, whole=whole)
            if whole or not there:
                return
            first = last + 1

    @property
    def _model(self) -> str:
        return self._embedder.model if self._embedder else ""

    async def _vectors(self, texts: list[str]) -> list[bytes | None]:
        """Vectors, or None for each when the embedder is down: the words are searched at once, vectors follow."""
        if self._embedder is None or not texts:
            return [None] * len(texts)
        try:
            return list(await self._embedder.embed(texts, bulk=True))
        except EmbedderUnavailable as error:
            log.warning("relay_without_vectors", texts=len(texts), error=str(error))
            return [None] * len(texts)

    async def _fill_vectors(self) -> bool:
        """Makes vectors that are missing; the points follow by the outbox."""
        if self._embedder is None:
            return False
        missing = await self._database.read(backfill.missing, self._registry, 64)
        if not missing:
            return False
        try:
            vectors = await self._embedder.embed([row.text for row in missing], bulk=True)
        except EmbedderUnavailable as error:
            log.warning("backfill_waits", rows=len(missing), error=str(error))
            return False
        await self._database.write(backfill.fill, list(zip(missing, vectors, strict=True)), self._model)
        self.wake()
        return True


async def _due(
    tx: Tx, space: Space, index_id: str, model: str
) -> tuple[int, list[outbox.Entry], list[IndexPoint]] | None:
    """Newest revision, entries that are due, and the points that they bring; None for a space that is not in the index:
    it is written as a whole, and what is taken out before that would come back."""
    if (await watermarks.standing(tx, space, index_id)).indexed < 0:
        return None
    newest, entries = await outbox.due(tx, space, BATCH)
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
