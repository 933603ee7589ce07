"""Brings the index after the store: outbox in revision order, then the watermark; passages and late vectors behind.

Every step may be repeated: points are immutable and named by their rows. A server that dies anywhere in it leaves
work that any server's relay takes up again.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator

import structlog

from schemas.registry import Registry
from schemas.uris import archive_uri
from storage import backfill, outbox, passages, sparse
from storage.database import Database, Space
from storage.embedders import Embedder, EmbedderUnavailable
from storage.errors import StoreUnavailable
from storage.index.base import IndexPoint, IndexUnavailable, PointKind, VectorIndex
from storage.points import passage_point
from storage.records import Archive, Passage
from storage.rows import memory_points

BATCH = 256
"""Outbox entries of one space that are read at once."""
ARCHIVES = 16
"""Archives that are read at once."""

log = structlog.get_logger(__name__)


class Relay:
    """One background task a server. `wake` after a commit saves it the wait for its next look."""

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
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._tasks = []

    async def moved(self) -> None:
        """Returns after a watermark of this server moved, or after the polling interval."""
        async with self._moved:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._moved.wait(), self._poll)

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
                    await asyncio.wait_for(woken.wait(), self._poll)

    async def _relay_memories(self) -> bool:
        more = False
        for space in await self._database.read(outbox.waiting_spaces):
            with self._apart("memories", space):
                more |= await self._relay_space(space)
        return more

    async def _relay_space(self, space: Space) -> bool:
        """One batch of a space; True when there is more."""
        newest, entries = await self._database.read(outbox.due, space, BATCH)
        whole = len(entries) < BATCH
        upserts = [(entry.uri, entry.version) for entry in entries if entry.op == "upsert"]
        if upserts:
            model = self._embedder.model if self._embedder else ""
            await self._index.upsert(await self._database.read(memory_points, space, upserts, model))
        deletes = [entry.point_id for entry in entries if entry.op == "delete"]
        if deletes:
            await self._index.delete(deletes)
        # A batch that was cut may hold only a part of its last revision.
        indexed = newest if whole else entries[-1].revision - 1
        await self._database.write(outbox.done, space, entries, indexed)
        async with self._moved:
            self._moved.notify_all()
        return not whole

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
        found = []
        for message in await self._database.read(passages.messages_of, space, archive):
            text = passages.text_of(message)
            if text:
                found.append(
                    Passage(
                        archive.session_id,
                        message.sequence,
                        archive.index,
                        message.message_id,
                        message.peer_id,
                        text,
                        message.created_at,
                    )
                )
        vectors = await self._vectors([passage.content for passage in found])
        rows = [
            (passage, dense, sparse.encode_document(passage.content))
            for passage, dense in zip(found, vectors, strict=True)
        ]
        uri = archive_uri(space.user, archive.session_id, archive.index) + "/messages.jsonl"
        points = [
            IndexPoint(
                id=passage_point(space, archive.task_id, passage.sequence),
                account=space.account,
                user=space.user,
                kind=PointKind.PASSAGE,
                uri=uri,
                version=1,
                order=passage.sequence,
                sparse=words,
                dense=dense,
                peer=passage.peer_id or None,
                session=passage.session_id,
                sequence=passage.sequence,
                time=passage.created_at // 1_000_000,
            )
            for passage, dense, words in rows
        ]
        if points:
            await self._index.upsert(points)
        model = self._embedder.model if self._embedder else ""
        stored = [(passage, dense, words.to_bytes()) for passage, dense, words in rows]
        await self._database.write(passages.store, space, archive, stored, model)

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
        model = self._embedder.model
        await self._index.upsert([backfill.point(row, dense, model) for row, dense in filled])
        await self._database.write(backfill.fill, filled, model)
        return True
