"""Brings the index up to date with the store: the outbox in revision order, then the watermark;
`runekeep_storage.relay.passage_relay` adds passages and late vectors.

Every step may be repeated: points are immutable and named by their rows. If a server dies at any point, the relay of
any server resumes its work. The index may be away, even at the start: it is opened as soon as it is there, and what it
lacks is written to it. Several servers may relay to one index at once.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from runekeep_common import failpoints
from runekeep_common.telemetry import tracing
from runekeep_schemas.type_files.registry import Registry
from runekeep_storage import telemetry
from runekeep_storage.database import Row, Space, SpaceDatabase, Tx
from runekeep_storage.errors import StoreLost, StoreUnavailable
from runekeep_storage.index.base import IndexMismatch, IndexPoint, IndexUnavailable
from runekeep_storage.indexing import outbox, rows, statements, traces
from runekeep_storage.indexing.attachment import Attachment
from runekeep_storage.indexing.embedder_change import Models
from runekeep_storage.indexing.space_embedders import SpaceEmbedders
from runekeep_storage.indexing.stale_points import delete, find_stale
from runekeep_storage.relay.line_vectors import LineVectors
from runekeep_storage.relay.passage_relay import PassageRelay
from runekeep_storage.relay.rebuild import write_space
from runekeep_storage.relay.reconcile import compare
from runekeep_storage.relay.reembedding import Reembedder
from runekeep_storage.spaces import watermarks

MEMORIES, PASSAGES, UPKEEP, EMBEDDER, LINES = "memories", "passages", "upkeep", "embedder", "lines"
"""The tasks of a relay."""
BATCH = 256
"""Maximum number of outbox entries of one space read at once."""
SPACES = 100
"""Maximum number of spaces with entries, and of spaces with revisions to mark, examined in one pass."""
MAX_WAIT_SECONDS = 0.5
"""Maximum delay after failures. An index that is back is used again after at most this long."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Sent:
    """What the index has received of one space: the entries, the points that they wrote and the models of their
    vectors, the watermark that they allow, and whether more wait."""

    space: Space
    entries: list[outbox.Entry]
    points: list[IndexPoint]
    models: Models
    indexed: int
    more: bool


class Relay:
    """Background tasks for each server: for memories, for passages and late vectors, for spaces that the index lacks or
    that are due for comparison, for a change of the embedder, and for vectors of lines. `wake` after a commit skips the
    wait for the next poll.

    Times are in seconds; `check_seconds` is the time between two comparisons of a space.
    """

    def __init__(
        self,
        database: SpaceDatabase,
        attachment: Attachment,
        embedders: SpaceEmbedders,
        registry: Registry,
        *,
        poll_seconds: float,
        check_seconds: float,
        withhold_secrets: bool = False,
        reembedder: Reembedder | None = None,
    ) -> None:
        """`reembedder` is for servers that take part in changes of the embedder."""
        self._database = database
        self._attachment = attachment
        self._index = attachment.index
        self._poll = poll_seconds
        self._check_interval = round(check_seconds * 1_000_000)
        self._woken: dict[str, asyncio.Event] = {}
        self._movement = asyncio.Event()
        self._steps = [asyncio.Lock() for _ in range(3)]
        """One for each task that writes points, held during a step."""
        self._tasks: list[asyncio.Task[None]] = []
        self._passages = PassageRelay(
            database,
            attachment,
            embedders,
            registry,
            # Also the task that made the vectors: late ones are there after its step.
            partial(self.wake, MEMORIES, PASSAGES),
            withhold_secrets=withhold_secrets,
        )
        self._lines = LineVectors(database, embedders, partial(self.wake, LINES))
        self._reembedder = reembedder
        if reembedder is not None:
            reembedder.on_written = partial(self.wake, MEMORIES, EMBEDDER)
        self._last_space = outbox.FIRST
        self._last_elsewhere = watermarks.FIRST_IN_AN_INDEX
        self._urgent: dict[Space, None] = {}

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._loop(name, step, lock))
            for (name, step), lock in zip(
                (
                    (MEMORIES, self._relay_memories),
                    (PASSAGES, self._passages.step),
                    (UPKEEP, self._keep_up),
                    (EMBEDDER, self._change_embedder),
                    (LINES, self._make_line_vectors),
                ),
                # A change of the embedder writes no points: its vectors go through the outbox. Those of lines go to
                # rows alone.
                (*self._steps, asyncio.Lock(), asyncio.Lock()),
                strict=True,
            )
        ]

    async def _change_embedder(self, index_id: str) -> bool:
        if self._reembedder is None:
            return False
        return self._paced(EMBEDDER, *await self._reembedder.step(index_id))

    async def _make_line_vectors(self, _: str) -> bool:
        return await self._lines.step()

    def _paced(self, name: str, more: bool, seconds: float) -> bool:
        """Wakes a task after a pause, if there is one. Returns whether to go on at once."""
        if seconds:
            asyncio.get_running_loop().call_later(seconds, self.wake, name)
        return more and not seconds

    def wake(self, *parts: str) -> None:
        """Skips the wait of the given tasks; without arguments, of all."""
        for name, woken in self._woken.items():
            if not parts or name in parts:
                woken.set()

    def hurry(self, space: Space) -> None:
        """Writes a space that is searched but not in the index before all others."""
        self._urgent[space] = None
        self.wake(UPKEEP)

    @contextlib.asynccontextmanager
    async def at_rest(self) -> AsyncIterator[None]:
        """Within this context, no point is on its way from this server to the index."""
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
        await self._passages.stop()
        await self._lines.stop()
        if self._reembedder is not None:
            await self._reembedder.stop()

    @property
    def movement(self) -> asyncio.Event:
        """An event that is set when the next watermark moves. If it is taken before the store is read, no move is
        missed."""
        return self._movement

    async def moved(self, movement: asyncio.Event | None = None, seconds: float | None = None) -> None:
        """Returns after a watermark moved, after the polling interval, or after `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._poll if seconds is None else min(seconds, self._poll)):
                await (movement or self._movement).wait()

    def heard(self, subject: str) -> None:
        """Handles a notification from a server: there is something to relay, or it moved a watermark. An empty subject,
        sent by the release before, means either."""
        match subject:
            case watermarks.MOVED:
                self._tell_moved()
            case watermarks.ADDED:
                self.wake(MEMORIES, LINES)
            case watermarks.ARCHIVED:
                self.wake(PASSAGES)
            case _:
                # Not UPKEEP: spaces that the index lacks do not come from commits.
                self.wake(MEMORIES, PASSAGES, LINES)

    def _tell_moved(self) -> None:
        movement, self._movement = self._movement, asyncio.Event()
        movement.set()

    async def _loop(self, name: str, step: Callable[[str], Awaitable[bool]], lock: asyncio.Lock) -> None:
        """Runs `step` repeatedly: at once while there is more to do, else after `wake` or a poll."""
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
                # Logs the first failure, then ever fewer: an outage may last for hours.
                if failures.bit_count() == 1:
                    log.warning("relay_waits", part=name, failures=failures, error=str(error))
            except Exception:
                # The relay must survive any single bad row. What failed stays in the outbox and in the logs.
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
        """Relays one batch of each space that waits."""
        went_on = self._last_space != outbox.FIRST
        waiting, self._last_space = await self._database.read_global(
            outbox.waiting_spaces, index_id, self._last_space, SPACES
        )
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
                # Perhaps only this space is refused: the spaces after it are next, and it gets its turn again.
                failed, self._last_space = error, (space.account, space.user)
                break
        marked = await self._mark_all(sent, index_id) if sent else []
        if failed is not None:
            raise failed
        # At the end of a walk that marked nothing, an immediate retry would do no better.
        return many or (bool(marked) and (went_on or any(batch.more for batch in marked)))

    async def _mark_all(self, sent: list[_Sent], index_id: str) -> list[_Sent]:
        """Marks the batches as done. Returns those that were marked."""
        # What leaves the outbox is never sent again, so its points must survive a power failure.
        await self._index.flush()
        failpoints.reached(failpoints.RELAY_BEFORE_MARK)
        marked = []

        async def mark(batch: _Sent) -> None:
            with _apart("memories", batch.space):
                await self._database.write(_mark, batch.space, batch, index_id)
                marked.append(batch)

        # Concurrently, so that the store commits them together.
        ended = await asyncio.gather(*map(mark, sent), return_exceptions=True)
        if marked:
            self._tell_moved()
        for error in ended:
            if error is not None:
                raise error
        return marked

    async def _send(self, space: Space, index_id: str) -> _Sent | None:
        due = await self._database.read(_due, space, index_id)
        if due is None:
            return None
        newest, entries, memories, passages = due
        # Takes some 50 ms for a full batch, which would delay all calls: PostgreSQL transactions run on the event loop.
        models = self._attachment.models
        points = await asyncio.to_thread(_points, memories, passages, models)
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
        return _Sent(
            space, entries, points, models, indexed, more=len(entries) == BATCH or len(removed) >= outbox.REMOVALS
        )

    async def _keep_up(self, index_id: str) -> bool:
        """Writes spaces that are not in the index, urgent ones first; if there are none, compares one space."""
        places = await self._database.read_global(watermarks.elsewhere, index_id, self._last_elsewhere, SPACES)
        self._last_elsewhere = places[-1] if places else watermarks.FIRST_IN_AN_INDEX
        waiting = [Space(account, user) for _, account, user in places]
        # Several servers walk the same way. In different orders they seldom do the same work.
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

        await write_space(self._database, self._index, index_id, space, self._attachment.models, count)
        log.info("index_written", account=space.account, user=space.user, **counts)
        self._tell_moved()

    async def _compare(self, index_id: str) -> bool:
        """Compares the space whose turn it is, if any. Returns whether there was one."""
        due = await self._database.read_global(watermarks.due_for_check, index_id, self._check_interval)
        if due is None:
            return False
        space, last = due
        # Marked as done first, so that no other server does the same.
        if not await self._database.write(watermarks.claim_check, space, last):
            return True
        with _apart("upkeep", space):
            try:
                compared = await compare(self._database, self._index, index_id, space, self._attachment.models)
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
    """Isolates errors: a fault in one space's rows must not block the others. It stays in the logs until it is
    fixed."""
    try:
        yield
    except (IndexUnavailable, StoreUnavailable):
        raise
    except Exception:
        log.exception("relay_set_aside", part=part, account=space.account, user=space.user)


async def _due(
    tx: Tx, space: Space, index_id: str
) -> tuple[int, list[outbox.Entry], list[Row], list[tuple[str, Row]]] | None:
    """Returns the newest revision, due entries, and what they write: rows of memories, and rows of passages, each with
    its wanted point. Returns None for a space that is not in the index: it is written as a whole, and points removed
    before that would come back."""
    standing = await watermarks.standing(tx, space, index_id)
    if standing.indexed < 0:
        return None
    newest = standing.revision
    entries = await outbox.due_at(tx, space, newest, standing.indexed, BATCH)
    keys = [(entry.uri, entry.version) for entry in entries if entry.op == "upsert"]
    memories = await rows.by_keys(tx, space, "memories", statements.MEMORY_COLUMNS, keys)
    wanted = {entry.point_id: (entry.uri, entry.version) for entry in entries if entry.op == "passage"}
    again = await rows.by_keys(tx, space, "passages", statements.PASSAGE_COLUMNS, list(wanted.values()))
    found = [memories[key] for key in keys if key in memories]
    return newest, entries, found, [(id, again[key]) for id, key in wanted.items() if key in again]


def _points(memories: Sequence[Row], passages: Sequence[tuple[str, Row]], models: Models) -> list[IndexPoint]:
    """Returns the points of rows that `_due` returned. A passage whose point has changed is left out."""
    points = [rows.memory_index_point(row, models) for row in memories]
    made = [(id, rows.passage_index_point(row, models)) for id, row in passages]
    return points + [point for id, point in made if point.id == id]


async def _mark(tx: Tx, space: Space, sent: _Sent, index_id: str) -> None:
    """Deletes sent entries from the outbox, moves the watermark, and queues corrections for rows that changed
    meanwhile."""
    if not await watermarks.join(tx, space, index_id):
        return
    gone = await outbox.done(tx, space, sent.entries, sent.indexed)
    late = {(entry.uri, entry.version) for entry in gone}
    found = []
    for superseded in (False, True):
        points = [point for point in sent.points if (_key(point) in late) is superseded]
        found += await find_stale(tx, space, points, sent.models, superseded=superseded)
    await delete(tx, space, found)


def _key(point: IndexPoint) -> rows.Key:
    return (point.uri, point.version) if point.session is None else (point.session, point.sequence or 0)
