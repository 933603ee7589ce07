"""The second part of the relay, after the commits: makes passages of archived messages, and dense vectors that rows
lack."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from time import monotonic

import structlog

from runekeep_common.telemetry import tracing
from runekeep_schemas.type_files.registry import Registry
from runekeep_storage import telemetry
from runekeep_storage.database import Space, SpaceDatabase, Tx
from runekeep_storage.embedders import Embedder
from runekeep_storage.errors import StoreUnavailable
from runekeep_storage.index.base import IndexPoint, IndexUnavailable
from runekeep_storage.indexing import passages, traces
from runekeep_storage.indexing.attachment import Attachment
from runekeep_storage.indexing.outbox import FIRST, Name
from runekeep_storage.indexing.rows import passage_point_of
from runekeep_storage.indexing.space_embedders import SpaceEmbedders
from runekeep_storage.records import Archive, Message
from runekeep_storage.relay import missing_vectors
from runekeep_storage.relay.account_vectors import AccountVectors
from runekeep_storage.relay.missing_vectors import Missing
from runekeep_storage.sessions import image_descriptions, sessions

SPACES = 16
"""Number of spaces that get a turn in one step."""
ARCHIVES = 16
"""Number of archives of a space read for one turn."""
LARGE_ARCHIVE = 256
"""Number of messages from which an archive is first indexed without vectors, in slices of this size, so that all of it
is found by words long before the embedder is done."""
LARGE_SLICES = 8
"""Slices of a large archive in one turn of its space. Words take a fraction of the time of vectors."""
MAX_EMBED_SECONDS = 10.0
"""How long new passages wait for their vectors. Then they are found by words, and the vectors follow. Meanwhile
accounts with another endpoint wait too, the first time."""
WALK_SECONDS = 5.0
"""Maximum time between two walks over spaces without vectors while all of them are left alone because the embedder
failed. Each walk costs a look-up for each account."""

log = structlog.get_logger(__name__)


class PassageRelay:
    """Makes passages and vectors, a few for each space in turn, so that no user waits for another user's whole archive.
    Any server may repeat any step: points are named by their rows, and rows are marked once their points are on disk.

    `wake` is called when vectors were written, and with them entries of the outbox. `withhold_secrets`: passages get
    notes in place of secrets.
    """

    def __init__(
        self,
        database: SpaceDatabase,
        attachment: Attachment,
        embedders: SpaceEmbedders,
        registry: Registry,
        wake: Callable[[], None],
        *,
        withhold_secrets: bool = False,
    ) -> None:
        self._database = database
        self._withhold_secrets = withhold_secrets
        self._index = attachment.index
        self._embedders = embedders
        self._registry = registry
        self._wake = wake
        self._missing_vectors = defaultdict[str, AccountVectors](
            lambda: AccountVectors(
                partial(missing_vectors.write_vectors, database), "backfill_waits", self._end_attempt
            )
        )
        """By model: a change of the embedder uses two, and one may fail while the other answers."""
        self._passage_turns = Turns(database, passages.waiting_spaces)
        self._vector_turns = Turns(database, missing_vectors.waiting_spaces)
        self._has_found = False
        """Whether the current walk over spaces without vectors has found any that are not left alone."""
        self._next_walk_at = 0.0
        """The earliest time of the next such walk, on the clock `monotonic`."""
        self._bad: dict[Space, set[str]] = {}
        """Commits whose passages could not be made; the next server tries again."""
        self._refused: dict[Space, set[str]] = {}
        """Commits whose passages the index or the store refused. They are tried again after the others of their
        space."""
        self._read_to: dict[str, int] = {}
        """Sequence of the last message done, by commit, because a slice without words leaves no passage that shows
        it."""
        self._undescribed: dict[str, dict[str, None]] = {}
        """By commit, digests of the URLs of images in messages after the last passage. A description that arrives now
        leaves them to the relay, see `captions.rewrite`, so they are read again."""

    async def stop(self) -> None:
        """Gives up the vectors that are being made."""
        for vectors in self._missing_vectors.values():
            await vectors.stop()

    async def step(self, index_id: str) -> bool:
        """Gives a turn to some spaces that wait for passages, then to some that wait for vectors. Returns whether there
        may be more to do now."""
        failed: IndexUnavailable | StoreUnavailable | None = None
        more = False
        try:
            more = await self._make_passages(index_id)
        except (IndexUnavailable, StoreUnavailable) as error:
            # Vectors must not wait for passages that the index may never accept.
            failed = error
        more = await self._fill_vectors() or more
        if failed is not None:
            raise failed
        return more

    async def _make_passages(self, index_id: str) -> bool:
        await self._passage_turns.refill()
        made = False
        # One space after the other, unless the embedder takes the texts of several at once.
        main = self._embedders.main
        at_once = max(main.bulk_texts // passages.SLICE, 1) if main else 1
        while spaces := self._passage_turns.next(at_once):
            # All of them end before an error is raised: the relay must be at rest after a step.
            ended = await asyncio.gather(*(self._index_some(one, index_id) for one in spaces), return_exceptions=True)
            for result in ended:
                if isinstance(result, BaseException):
                    raise result
                made = made or result
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
        # Several servers read the same list. In different orders they seldom do the same work.
        random.shuffle(fresh)
        left = passages.SLICE
        for archive in fresh:
            await self._index_apart(space, index_id, archive)
            left -= archive.last_sequence - archive.first_sequence + 1
            if left <= 0:
                break
        return bool(fresh)

    async def _index_apart(self, space: Space, index_id: str, archive: Archive) -> None:
        """Isolates errors: a fault in one archive must not block the others. It stays in the logs until it is fixed."""
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
        """Makes the next passages of an archive; for a large one without vectors, which follow later. Returns whether
        some are left."""
        is_large = _is_large(archive)
        done = await self._database.read(passages.last_made, space, archive)
        done = max(done, self._read_to.pop(archive.task_id, 0))
        before_these = self._undescribed.pop(archive.task_id, {})
        last = min(done + (LARGE_ARCHIVE if is_large else passages.SLICE), archive.last_sequence)
        messages = await self._database.read(_messages, space, archive, done, last)
        if messages is None:
            return False
        undescribed = before_these | _undescribed(messages)
        # In a thread, because the search for secrets takes milliseconds.
        read = await asyncio.to_thread(passages.of_messages, archive, messages, withhold_secrets=self._withhold_secrets)
        found = [passage for passage in read if passage.sequence > done]
        before = read[0] if len(read) > len(found) else None
        # By the embedder that the space is searched by. During a change, the vectors of the second embedder follow.
        embedder = await self._embedders.of_space(space)
        model = embedder.model if embedder else ""
        if is_large:
            vectors: list[bytes | None] = [None] * len(found)
        else:
            vectors = await self._vectors(space, embedder, passages.with_leads(found, before))

        def make_points() -> tuple[list[passages.Embedded], list[IndexPoint]]:
            made = passages.with_words(found, vectors)
            return made, [passage_point_of(space, archive.task_id, *one, model) for one in made]

        # CPU-bound Python: on the event loop a long archive would block every call.
        made, points = await asyncio.to_thread(make_points)
        if points:
            await self._index.upsert(points)
            await self._index.flush()
            telemetry.RELAYED.labels("passages").inc(len(points))
        whole = last == archive.last_sequence
        stored = await self._database.write(
            passages.store, space, index_id, archive, made, model, whole=whole, undescribed=list(undescribed)
        )
        if not stored:
            # A commit brought the description of an image meanwhile, so the same slice is made again with it.
            return True
        if not whole:
            self._read_to[archive.task_id] = last
            if found:
                undescribed = _undescribed(one for one in messages if one.sequence > found[-1].sequence)
            self._undescribed[archive.task_id] = undescribed
        return not whole

    async def _vectors(self, space: Space, embedder: Embedder | None, texts: list[str]) -> list[bytes | None]:
        """Returns vectors, or None for each while the embedder is down or slow: passages are found by words at once,
        and vectors follow. After a failure or a late answer, no passage waits until missing vectors of the account are
        made in time, or the pause of the second embedder of a change ends."""
        if embedder is None or not texts:
            return [None] * len(texts)
        of_embedder = self._missing_vectors[embedder.model]
        # Late vectors show whether the main embedder is back. The other one is asked again after its pause.
        is_main = embedder is self._embedders.main
        if of_embedder.is_slow(space.account) and (is_main or not of_embedder.is_due(space.account)):
            return [None] * len(texts)
        vectors = await of_embedder.embed(embedder, space, texts, MAX_EMBED_SECONDS, "relay_without_vectors")
        return [None] * len(texts) if vectors is None else list(vectors)

    async def _fill_vectors(self) -> bool:
        """Makes missing vectors of some spaces, as many as keep the embedder busy; their points follow through the
        outbox. Returns whether there may be more to do now. It takes no more, so that new archives do not wait long for
        vectors of others."""
        embedder = self._embedders.main
        turns = self._vector_turns
        if embedder is None or (not turns.has_more and monotonic() < self._next_walk_at):
            return False
        vectors = self._missing_vectors[embedder.model]
        left_alone, pause_left = vectors.left_alone(), vectors.pause_left
        await turns.refill(left_alone)
        missing: list[Missing] = []
        while len(missing) < embedder.bulk_texts and (spaces := turns.next(1)):
            account = spaces[0].account
            room = vectors.room(account, missing, embedder.bulk_texts)
            if account not in left_alone and room > 0:
                missing += await self._database.read(missing_vectors.missing, spaces[0], self._registry, room)
        self._has_found = self._has_found or bool(missing)
        may_go_on = await vectors.make(embedder, missing)
        if not turns.has_more:
            if pause_left and not self._has_found:
                # Only accounts that are left alone have missing vectors.
                self._next_walk_at = monotonic() + min(pause_left, WALK_SECONDS)
            self._has_found = False
        return may_go_on or turns.has_more

    def _end_attempt(self, _: list[Missing], written: int | None) -> None:
        if written:
            self._next_walk_at = 0.0
            self._wake()


class Turns:
    """The waiting spaces, in turns: each gets one turn before any gets another, however much it has waiting.

    `waiting_spaces` reads the next ones, see `space_walk.waiting_spaces`.
    """

    def __init__(
        self, database: SpaceDatabase, waiting_spaces: Callable[..., Awaitable[tuple[list[Space], Name]]]
    ) -> None:
        self._database = database
        self._waiting_spaces = waiting_spaces
        self._after = FIRST
        self._due: list[Space] = []

    @property
    def has_more(self) -> bool:
        """Whether some spaces may not have had their turn since the current walk began."""
        return bool(self._due) or self._after != FIRST

    async def refill(self, left_out: Collection[str] = ()) -> None:
        """Reads the next spaces, without those of the accounts `left_out`, unless some are left from a failed turn: no
        space loses its turn to another's failure."""
        if self._due:
            return
        self._due, self._after = await self._database.read_global(self._waiting_spaces, self._after, SPACES, left_out)
        # Several servers walk the same way. In different orders they seldom do the same work.
        random.shuffle(self._due)

    def next(self, count: int) -> list[Space]:
        """Returns the spaces whose turn it is, at most `count`."""
        taken, self._due = self._due[:count], self._due[count:]
        return taken


def _undescribed(messages: Iterable[Message]) -> dict[str, None]:
    """Returns the digests of the URLs of images without a caption, in order."""
    return dict.fromkeys(map(image_descriptions.digest_of_url, image_descriptions.uncaptioned(list(messages))))


def _is_large(archive: Archive) -> bool:
    return archive.last_sequence - archive.first_sequence >= LARGE_ARCHIVE


async def _messages(tx: Tx, space: Space, archive: Archive, first: int, last: int) -> list[Message] | None:
    """Returns messages of an archive; None if it no longer waits, because another server was faster or its session is
    gone."""
    if not await passages.waits(tx, space, archive):
        return None
    messages = await sessions.messages_between(tx, space, archive.session_id, first, last)
    return await image_descriptions.captioned(tx, space, messages)
