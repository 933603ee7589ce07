"""Brings the index after the store: outbox in revision order, then the watermark; passages and late vectors behind.

Every step may be repeated: points are immutable and named by their rows. A server that dies anywhere in it leaves
work that any server's relay takes up again.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

import structlog

from schemas import failpoints
from schemas.registry import Registry
from storage import backfill, outbox, passages, sessions
from storage.database import Database, Space
from storage.embedders import Embedder, EmbedderUnavailable
from storage.errors import StoreUnavailable
from storage.index.base import IndexUnavailable, VectorIndex
from storage.records import Archive
from storage.rows import memory_points, passage_point_of

BATCH = 256
"""Outbox entries of one space that are read at once."""
ARCHIVES = 16
"""Archives that are read at once."""
SLICE = 256
"""Messages of an archive that become passages at once; an archive may hold any number."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Sent:
    """What the index has got of one space: the entries, the watermark that they allow, and whether more wait."""

    space: Space
    entries: list[outbox.Entry]
    indexed: int
    more: bool


class Relay:
    """Two background tasks a server, one for memories and one for passages and late vectors. `wake` after a commit
    saves them the wait for their next look.
    """

    def __init__(
        self,
        database: Database,
        index: VectorIndex,
        embedder: Embedder | None,
        registry: Registry,
        *,
        poll_seconds: float,
    ) -> None:
        self._database = database
        self._index = index
        self._embedder = embedder
        self._registry = registry
        self._poll = poll_seconds
        self._woken: dict[str, asyncio.Event] = {}
        self._moved = asyncio.Condition()
        self._memory_points = asyncio.Lock()
        """From reading rows to writing their points: a late vector must not be overwritten by its row read before."""
        self._tasks: list[asyncio.Task[None]] = []
        self._set_aside: set[str] = set()
        """Commits whose passages could not be made; tried again by the next server."""

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._loop("memories", self._relay_memories)),
            asyncio.create_task(self._loop("passages", self._relay_passages)),
        ]

    def wake(self) -> None:
        for woken in self._woken.values():
            woken.set()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks = []

    async def moved(self) -> None:
        """Returns after a watermark of this server moved, or after the polling interval."""
        async with self._moved:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._poll):
                    await self._moved.wait()

    async def _loop(self, name: str, step: Callable[[], Awaitable[bool]]) -> None:
        """Runs `step` again and again: at once while it says that there is more, then when woken or after a poll."""
        woken = self._woken[name] = asyncio.Event()
        failures = 0
        while True:
            woken.clear()
            try:
                more = await step()
                failures = 0
            except (IndexUnavailable, StoreUnavailable) as error:
                failures += 1
                more = False
                log.warning("relay_waits", part=name, failures=failures, error=str(error))
            except Exception:
                # The relay must outlive any single bad row; what failed stays in the outbox and is seen in the logs.
                failures += 1
                more = False
                log.exception("relay_failed", part=name, failures=failures)
            if failures:
                await asyncio.sleep(min(self._poll * 2 ** min(failures - 1, 5), 30.0))
            elif not more:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._poll):
                        await woken.wait()

    async def _relay_memories(self) -> bool:
        """One batch of each space that waits."""
        sent = []
        for space in await self._database.read(outbox.waiting_spaces):
            with self._apart("memories", space):
                sent.append(await self._send(space))
        if not sent:
            return False
        # What the outbox forgets is never sent again, so it must outlive a power cut.
        await self._index.flush()
        failpoints.reached(failpoints.RELAY_BEFORE_MARK)
        for batch in sent:
            with self._apart("memories", batch.space):
                await self._database.write(outbox.done, batch.space, batch.entries, batch.indexed)
        async with self._moved:
            self._moved.notify_all()
        return any(batch.more for batch in sent)

    async def _send(self, space: Space) -> _Sent:
        newest, entries = await self._database.read(outbox.due, space, BATCH)
        upserts = [(entry.uri, entry.version) for entry in entries if entry.op == "upsert"]
        if upserts:
            async with self._memory_points:
                await self._index.upsert(await self._database.read(memory_points, space, upserts, self._model))
            failpoints.reached(failpoints.RELAY_AFTER_UPSERT)
        deletes = [entry.point_id for entry in entries if entry.op == "delete"]
        if deletes:
            await self._index.delete(deletes)
        whole = len(entries) < BATCH
        # A batch that was cut may hold only a part of its last revision.
        return _Sent(space, entries, newest if whole else entries[-1].revision - 1, more=not whole)

    async def _relay_passages(self) -> bool:
        done = False
        for space, archive in await self._database.read(passages.waiting, limit=ARCHIVES + len(self._set_aside)):
            if archive.task_id not in self._set_aside:
                with self._apart("passages", space):
                    self._set_aside.add(archive.task_id)
                    await self._index_archive(space, archive)
                    self._set_aside.remove(archive.task_id)
                    done = True
        return done or await self._fill_vectors()

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

    async def _index_archive(self, space: Space, archive: Archive) -> None:
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
            there = await self._database.write(passages.store, space, archive, made, self._model, whole=whole)
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
        if self._embedder is None:
            return False
        rows = await self._database.read(backfill.missing, self._registry, 64)
        if not rows:
            return False
        try:
            vectors = await self._embedder.embed([row.text for row in rows], bulk=True)
        except EmbedderUnavailable as error:
            log.warning("backfill_waits", rows=len(rows), error=str(error))
            return False
        filled = list(zip(rows, vectors, strict=True))
        async with self._memory_points:
            await self._index.upsert([backfill.point(row, dense, self._model) for row, dense in filled])
            await self._index.flush()
            await self._database.write(backfill.fill, filled, self._model)
        return True
