"""The relay's share behind the commits: passages of archived messages, and dense vectors that rows miss."""

import asyncio
import random
from collections.abc import Callable

import structlog

from schemas.registry import Registry
from schemas.telemetry import tracing
from storage import backfill, image_descriptions, passages, sessions, telemetry, traces
from storage.attachment import Attachment
from storage.backfill import Missing
from storage.database import Database, Space, Tx
from storage.embedders import Embedder, EmbedderUnavailable
from storage.errors import StoreUnavailable
from storage.index.base import IndexUnavailable
from storage.records import Archive, Message
from storage.rows import passage_point_of

ARCHIVES = 16
"""Archives that are read at once."""
SLICE = 256
"""Messages of an archive that become passages at once; an archive may hold any number."""
VECTORS = 64
"""Rows that get their vectors at once."""

log = structlog.get_logger(__name__)


class PassageRelay:
    """Every step may be repeated, by any server: points are named by their rows, and marked when they are on disk.

    `wake` is called when there is something in the outbox.
    """

    def __init__(
        self,
        database: Database,
        attachment: Attachment,
        embedder: Embedder | None,
        registry: Registry,
        wake: Callable[[], None],
    ) -> None:
        self._database = database
        self._index = attachment.index
        self._embedder = embedder
        self._registry = registry
        self._wake = wake
        self._model = embedder.model if embedder else ""
        self._bad: set[str] = set()
        """Commits whose passages could not be made; tried again by the next server."""
        self._refused: set[str] = set()
        """Commits whose passages the index or the store did not take; tried again when the others had their turn."""

    async def step(self, index_id: str) -> bool:
        """Passages of some of the oldest archives that wait, or vectors when none does; whether there was anything."""
        aside = len(self._bad | self._refused)
        oldest = await self._database.read(passages.waiting, limit=ARCHIVES + aside)
        waiting = [(space, archive) for space, archive in oldest if archive.task_id not in self._bad]
        fresh = [(space, archive) for space, archive in waiting if archive.task_id not in self._refused]
        if not fresh:
            # Before those that were refused: vectors must not wait for what may never be taken. Nor must these wait for
            # vectors that are never taken: where that fails, they are next.
            refused, self._refused = self._refused, set()
            if await self._fill_vectors():
                self._refused = refused
                return True
            fresh = waiting
        # Several servers have the same list; in another order each they seldom do the same.
        random.shuffle(fresh)
        for space, archive in fresh:
            await self._index_apart(space, index_id, archive)
        return bool(fresh)

    async def _index_apart(self, space: Space, index_id: str, archive: Archive) -> None:
        """What is wrong with one archive must not keep the others waiting; it is in the logs until mended."""
        try:
            asked = await traces.of_job(self._database, space, archive.task_id)
            with tracing.batch("index passages", asked):
                await self._index_archive(space, index_id, archive)
        except (IndexUnavailable, StoreUnavailable):
            self._refused.add(archive.task_id)
            raise
        except Exception:
            self._bad.add(archive.task_id)
            log.exception("relay_set_aside", part="passages", account=space.account, user=space.user)

    async def _index_archive(self, space: Space, index_id: str, archive: Archive) -> None:
        for first in range(archive.first_sequence, archive.last_sequence + 1, SLICE):
            last = min(first + SLICE - 1, archive.last_sequence)
            messages = await self._database.read(_messages, space, archive, first - 1, last)
            if messages is None:
                return
            read = passages.of_messages(archive, messages)
            found = [passage for passage in read if passage.sequence >= first]
            before = read[0] if len(read) > len(found) else None
            vectors = await self._vectors(passages.with_leads(found, before))
            # Words are counted in Python: on the event loop a long archive would hold up every call.
            made = await asyncio.to_thread(passages.with_words, found, vectors)
            points = [passage_point_of(space, archive.task_id, *one) for one in made]
            if points:
                await self._index.upsert(points)
                await self._index.flush()
                telemetry.RELAYED.labels("passages").inc(len(points))
            whole = last == archive.last_sequence
            await self._database.write(passages.store, space, index_id, archive, made, self._model, whole=whole)

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
        """Makes vectors that rows miss; the points follow by the outbox. Whether any were written."""
        if self._embedder is None:
            return False
        missing = await self._database.read(backfill.missing, self._registry, VECTORS)
        if not missing:
            return False
        try:
            vectors = await self._embedder.embed([row.text for row in missing], bulk=True)
        except EmbedderUnavailable as error:
            log.warning("backfill_waits", rows=len(missing), error=str(error))
            return False
        filled: dict[Space, list[tuple[Missing, bytes]]] = {}
        for row, vector in zip(missing, vectors, strict=True):
            filled.setdefault(row.space, []).append((row, vector))
        written = False
        for space, some in filled.items():
            try:
                await self._database.write(backfill.fill, space, some, self._model)
                written = True
            except StoreUnavailable as error:
                # It may be this space alone.
                log.warning("backfill_waits", account=space.account, user=space.user, error=str(error))
            except Exception:
                log.exception("backfill_failed", account=space.account, user=space.user)
        if written:
            self._wake()
        return written


async def _messages(tx: Tx, space: Space, archive: Archive, first: int, last: int) -> list[Message] | None:
    """Messages of an archive; None when it waits no more: another server was faster, or its session is gone."""
    if not await passages.waits(tx, space, archive):
        return None
    messages = await sessions.messages_between(tx, space, archive.session_id, first, last)
    return await image_descriptions.captioned(tx, space, messages)
