"""The relay's share behind the commits: passages of archived messages, and dense vectors that rows miss."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable

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
from storage.outbox import FIRST, Name
from storage.records import Archive, Message
from storage.rows import passage_point_of

SPACES = 16
"""Spaces that get a turn in one step."""
ARCHIVES = 16
"""Archives of a space that are read for one of its turns."""
LARGE_ARCHIVE = 256
"""An archive of more messages is first indexed without vectors, this many messages at a time, so that all of it can be
found by its words long before the embedder has finished."""
LARGE_SLICES = 8
"""Slices of a large archive in one turn of its space. Words take a fraction of the time that vectors take."""
VECTORS = 32
"""Rows of a space that get their vectors in one of its turns."""

log = structlog.get_logger(__name__)


class PassageRelay:
    """Makes passages and vectors, a few of each space in turn, so that no user waits for everything that another one
    archived. Any server may repeat any step: points are named by their rows, and rows are marked once their points are
    on disk.

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
        self._passage_turns = Turns(database, passages.waiting_spaces)
        self._vector_turns = Turns(database, backfill.waiting_spaces)
        self._bad: dict[Space, set[str]] = {}
        """Commits whose passages could not be made; tried again by the next server."""
        self._refused: dict[Space, set[str]] = {}
        """Commits whose passages the index or the store did not accept. They are tried again after the others of their
        space."""
        self._read_to: dict[str, int] = {}
        """Sequence of the last message that is done, by commit, because a slice without words leaves no passage to show
        it."""
        self._undescribed: dict[str, dict[str, None]] = {}
        """Digests of the URLs of images up to there that no passage follows, by commit. A description that arrives now
        leaves them to the relay, see `captions.rewrite`: they are read once more."""

    async def step(self, index_id: str) -> bool:
        """Gives a turn to some spaces that wait for passages, then to some that wait for vectors. Returns whether there
        may be more to do now."""
        failed: IndexUnavailable | StoreUnavailable | None = None
        more = False
        try:
            more = await self._make_passages(index_id)
        except (IndexUnavailable, StoreUnavailable) as error:
            # Vectors do not wait for passages that the index may never accept.
            failed = error
        more = await self._fill_vectors() or more
        if failed is not None:
            raise failed
        return more

    async def _make_passages(self, index_id: str) -> bool:
        await self._passage_turns.refill()
        made = False
        while (space := self._passage_turns.next()) is not None:
            made = await self._index_some(space, index_id) or made
        return made or self._passage_turns.has_more

    async def _index_some(self, space: Space, index_id: str) -> bool:
        """Makes passages of some of the oldest archives of a space, SLICE messages or a few more. Returns whether there
        were any."""
        bad, refused = self._bad.get(space, set()), self._refused.get(space, set())
        limit = ARCHIVES + len(bad | refused)
        oldest = await self._database.read(passages.waiting, space, limit)
        waiting = [archive for archive in oldest if archive.task_id not in bad]
        fresh = [archive for archive in waiting if archive.task_id not in refused]
        if not fresh:
            self._refused.pop(space, None)
            fresh = waiting
        # Several servers have the same list; in another order each they seldom do the same.
        random.shuffle(fresh)
        left = passages.SLICE
        for archive in fresh:
            await self._index_apart(space, index_id, archive)
            left -= archive.last_sequence - archive.first_sequence + 1
            if left <= 0:
                break
        return bool(fresh)

    async def _index_apart(self, space: Space, index_id: str, archive: Archive) -> None:
        """What is wrong with one archive must not keep the others waiting; it is in the logs until mended."""
        try:
            asked = await traces.of_job(self._database, space, archive.task_id)
            with tracing.batch("index passages", asked):
                slices = LARGE_SLICES if _is_large(archive) else 1
                while slices and await self._index_slice(space, index_id, archive):
                    slices -= 1
        except (IndexUnavailable, StoreUnavailable):
            self._refused.setdefault(space, set()).add(archive.task_id)
            raise
        except Exception:
            self._bad.setdefault(space, set()).add(archive.task_id)
            log.exception("relay_set_aside", part="passages", account=space.account, user=space.user)

    async def _index_slice(self, space: Space, index_id: str, archive: Archive) -> bool:
        """Makes the next passages of an archive; for a large one without their vectors, which follow later. Returns
        whether some are left."""
        is_large = _is_large(archive)
        done = await self._database.read(passages.last_made, space, archive)
        done = max(done, self._read_to.pop(archive.task_id, 0))
        before_these = self._undescribed.pop(archive.task_id, {})
        last = min(done + (LARGE_ARCHIVE if is_large else passages.SLICE), archive.last_sequence)
        messages = await self._database.read(_messages, space, archive, done, last)
        if messages is None:
            return False
        undescribed = before_these | _undescribed(messages)
        read = passages.of_messages(archive, messages)
        found = [passage for passage in read if passage.sequence > done]
        before = read[0] if len(read) > len(found) else None
        if is_large:
            vectors: list[bytes | None] = [None] * len(found)
        else:
            vectors = await self._vectors(passages.with_leads(found, before))
        # Python counts the words: on the event loop a long archive would block every call.
        made = await asyncio.to_thread(passages.with_words, found, vectors)
        points = [passage_point_of(space, archive.task_id, *one) for one in made]
        if points:
            await self._index.upsert(points)
            await self._index.flush()
            telemetry.RELAYED.labels("passages").inc(len(points))
        whole = last == archive.last_sequence
        stored = await self._database.write(
            passages.store, space, index_id, archive, made, self._model, whole=whole, undescribed=list(undescribed)
        )
        if not stored:
            # A commit brought the description of an image meanwhile: the same slice is made again, with it.
            return True
        if not whole:
            self._read_to[archive.task_id] = last
            if found:
                undescribed = _undescribed(one for one in messages if one.sequence > found[-1].sequence)
            self._undescribed[archive.task_id] = undescribed
        return not whole

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
        """Makes vectors that rows of one space lack; the points follow through the outbox. Returns whether there may be
        more to do now. Only one space, so that the words of new archives wait for few vectors of others."""
        if self._embedder is None:
            return False
        await self._vector_turns.refill()
        written = False
        while (space := self._vector_turns.next()) is not None:
            missing = await self._database.read(backfill.missing, space, self._registry, VECTORS)
            if not missing:
                continue
            try:
                vectors = await self._embedder.embed([row.text for row in missing], bulk=True)
            except EmbedderUnavailable as error:
                log.warning("backfill_waits", rows=len(missing), error=str(error))
                return False
            if await self._fill(space, list(zip(missing, vectors, strict=True))):
                written = True
                self._wake()
            break
        return written or self._vector_turns.has_more

    async def _fill(self, space: Space, filled: list[tuple[Missing, bytes]]) -> bool:
        """Returns whether the vectors were written."""
        try:
            await self._database.write(backfill.fill, space, filled, self._model)
        except StoreUnavailable as error:
            # The error may concern this space only.
            log.warning("backfill_waits", account=space.account, user=space.user, error=str(error))
        except Exception:
            log.exception("backfill_failed", account=space.account, user=space.user)
        else:
            return True
        return False


class Turns:
    """The spaces that wait, in turns: each gets one turn before any gets another, however much it has waiting.

    `waiting_spaces` reads the next ones, see `space_walk.waiting_spaces`.
    """

    def __init__(self, database: Database, waiting_spaces: Callable[..., Awaitable[tuple[list[Space], Name]]]) -> None:
        self._database = database
        self._waiting_spaces = waiting_spaces
        self._after = FIRST
        self._due: list[Space] = []

    @property
    def has_more(self) -> bool:
        """Whether some spaces may not have had their turn since the current walk over them began."""
        return bool(self._due) or self._after != FIRST

    async def refill(self) -> None:
        """Reads the next spaces, unless some are left from a turn that failed: no space loses its turn to another's
        failure."""
        if self._due:
            return
        self._due, self._after = await self._database.read(self._waiting_spaces, self._after, SPACES)
        # Several servers walk the same way. In different orders they seldom do the same work.
        random.shuffle(self._due)

    def next(self) -> Space | None:
        """Returns the space whose turn it is."""
        return self._due.pop() if self._due else None


def _undescribed(messages: Iterable[Message]) -> dict[str, None]:
    """Digests of the URLs of the images without a caption, in order."""
    return dict.fromkeys(map(image_descriptions.digest_of_url, image_descriptions.uncaptioned(list(messages))))


def _is_large(archive: Archive) -> bool:
    return archive.last_sequence - archive.first_sequence >= LARGE_ARCHIVE


async def _messages(tx: Tx, space: Space, archive: Archive, first: int, last: int) -> list[Message] | None:
    """Messages of an archive; None when it waits no more: another server was faster, or its session is gone."""
    if not await passages.waits(tx, space, archive):
        return None
    messages = await sessions.messages_between(tx, space, archive.session_id, first, last)
    return await image_descriptions.captioned(tx, space, messages)
