"""Searches a space: takes candidates from the index and joins them with the store at one revision."""

import asyncio
import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, takewhile
from time import monotonic
from typing import Any, NamedTuple

import structlog

from runekeep_schemas.recall_budget import PASSAGES
from runekeep_storage.database import Space, SpaceDatabase, Tx
from runekeep_storage.embedders import EmbedderUnavailable
from runekeep_storage.index import sparse
from runekeep_storage.index.base import Hit, IndexHits, IndexQuery, IndexUnavailable, PointKind
from runekeep_storage.indexing import outbox, passages
from runekeep_storage.indexing.attachment import Attachment
from runekeep_storage.indexing.space_embedders import SpaceEmbedders
from runekeep_storage.memories import memories
from runekeep_storage.records import Memory, Passage
from runekeep_storage.search import found_texts, ranking, snapshot
from runekeep_storage.search.backlog import WITHOUT_EMBEDDER
from runekeep_storage.search.found_texts import ROOM_FOR_ALL, Depth, Outline, Room
from runekeep_storage.search.ranking import Ranked, Ranking, Words
from runekeep_storage.search.result_selector import Known, ResultSelector
from runekeep_storage.search.snapshot import SearchStart
from runekeep_storage.search.unindexed_versions import UnindexedVersions
from runekeep_storage.spaces import watermarks
from runekeep_storage.spaces.watermarks import IndexProgress

MAX_CANDIDATES = 2000
MAX_LAID_OVER = 5000
"""Maximum number of memories missing from the index that one search reads from their rows, some 2 KB each."""
MICROSECONDS = 1_000_000
"""Microseconds in a second."""
SNAPSHOT_TTL_US = outbox.GRACE // 2
"""Maximum time in microseconds from reading the watermark to the last answer of the index. Within it every version of
that watermark is still in the index. It is half of the grace, because the grace starts when the transaction that moves
the watermark begins, which may have been under way at the read."""
STALE_SECONDS = 1.0
"""Maximum age of a snapshot when the embedder is done. An older one is read again, so that the rest of SNAPSHOT_TTL_US
is left for the index."""
WIDENING = 4
"""Factor by which a search that is not full increases the candidates of each leg, up to MAX_CANDIDATES."""
READ_BATCH = 100
"""Minimum number of candidates whose rows are read together, after the first read left places free."""
MIN_THREADED_HITS = 500
"""Number of hits from which ranking runs in a thread: it takes a millisecond or more, and some 15 with MAX_CANDIDATES
of each kind."""

log = structlog.get_logger(__name__)


class SearchUnanswerable(IndexUnavailable):
    """The index works, but this search cannot be answered now. The message is for the caller and says why, in whole
    sentences."""


@dataclass(frozen=True, slots=True)
class FindRequest:
    """A search. Empty filters match everything. `fields`: required values of memory fields; `peers`: None is the user;
    `tags`: all must be present; `sessions`: those that a passage was said in or a memory came from; `since` is
    inclusive and `until` exclusive, in microseconds since 1970."""

    text: str
    limit: int = 10
    uri_prefix: str = ""
    kinds: tuple[PointKind, ...] = ()
    memory_types: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    peers: tuple[str | None, ...] = ()
    tags: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    score_threshold: float | None = None
    at_revision: int | None = None
    """Answer exactly at this revision. Versions that the index does not hold yet or any more are read from their
    rows."""
    archived_by: int | None = None
    """Only passages archived by then, in microseconds since 1970."""
    known: Known | None = None
    """Whether the caller already knows a hit. Known hits come in addition to the `limit` others."""
    quotas: Mapping[str, int] = field(default_factory=dict)
    """Maximum number of results of a memory type, or of `passages`, in addition to the `limit` others."""
    room: Room = ROOM_FOR_ALL
    """The room for the texts of memories."""


@dataclass(frozen=True, slots=True)
class Found:
    """One result: a memory or a passage, and its rank. `depth`: how much of a memory was read."""

    item: Memory | Passage
    ranked: Ranked
    depth: Depth = Depth.FULL

    @property
    def score(self) -> float:
        return self.ranked.score


@dataclass(frozen=True, slots=True)
class FindAnswer:
    """The answer to a search. `degraded` names parts that could not run in full: `dense`, the embedder is down;
    `vectors`, some memories or passages have no vector in the index yet and are found by their words only;
    `rebuilding`, the space is being written to a new index, so passages may be missing, and at revision 0 all memories
    are.

    `pending_passages` counts archived messages that are not in the index yet, or are there without their vectors;
    `pending_memories` counts memories that wait for their vectors. `lag` is how long the oldest message that is not in
    the index at all has waited, in microseconds.
    """

    results: list[Found]
    revision: int
    latest_revision: int
    pending_passages: int
    pending_memories: int
    lag: int
    degraded: list[str]
    model: str
    """Of the embedder that the space is searched by; empty without one."""


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The state of the index and the query at the start. `at`: monotonic clock in seconds, taken before the read."""

    at: float
    start: SearchStart
    query: IndexQuery


@dataclass(frozen=True, slots=True)
class _SparseHits:
    """The sparse hits. `whole`: the index has no more of them; `words`: derived from them for ranking, None if that
    takes a thread."""

    hits: tuple[Hit, ...]
    words: Words | None
    whole: bool


@dataclass(frozen=True, slots=True)
class _DenseHits:
    """The dense hits. `whole`: the index has no more of them; `vector`: of the query, None without an embedder or while
    it is down; nothing was searched then. `model`: see `_QueryVector`."""

    vector: bytes | None
    model: str
    hits: tuple[Hit, ...]
    whole: bool


class _QueryVector(NamedTuple):
    """The vector of the query, None while the embedder is down, and the embedder's model, empty without one."""

    vector: bytes | None
    model: str


class Searcher:
    """Answers searches, each in one space. `hurry` is called with spaces that are searched but not in the index;
    `known_types`: see `backfill.known_types`."""

    def __init__(
        self,
        database: SpaceDatabase,
        attachment: Attachment,
        embedders: SpaceEmbedders,
        ranking: Ranking,
        hurry: Callable[[Space], None],
        known_types: str = WITHOUT_EMBEDDER,
    ) -> None:
        self._database = database
        self._attachment = attachment
        self._embedders = embedders
        self.ranking = ranking
        self._hurry = hurry
        self._known_types = known_types

    async def find(self, space: Space, request: FindRequest) -> FindAnswer:
        """Returns the answer. Raises IndexUnavailable if nothing can be searched at all, SearchUnanswerable if this
        request cannot be answered."""
        try:
            return await self._find(space, request)
        except SearchUnanswerable:
            raise
        except IndexUnavailable:
            self._attachment.doubt()
            raise

    async def _find(self, space: Space, request: FindRequest) -> FindAnswer:
        index_id = await self._attachment.id()
        words = sparse.encode_query(request.text)
        # Depends on nothing else, so it runs beside the snapshot and the sparse leg.
        embedding = asyncio.create_task(self._query_vector(space, request.text))
        try:
            for patience in (STALE_SECONDS, math.inf):
                look = await self._look(space, request, index_id)
                worded, near = await self._legs(look, request.quotas, words, embedding, patience)
                if near is not None:
                    break
                if embedding.done() and not _fits(look, embedding.result()):
                    embedding = asyncio.create_task(self._query_vector(space, request.text))
        finally:
            # Nobody needs the vector if a leg failed.
            embedding.cancel()
        assert near is not None, "there is no end to patience"
        start, query = look.start, replace(look.query, dense=near.vector, model=near.model, sparse=words)
        hits, whole = IndexHits(near.hits, worded.hits), near.whole and worded.whole
        revision, overlay = await self._overlay(space, request, start.standing, query, words)
        while True:
            results, full = await self._ranked(space, request, overlay.laid_over(hits), revision, start, worded)
            # Candidates that are not alive at the revision, are known, or are dropped by a filter or a quota may have
            # displaced others.
            if full or whole or query.limit_per_leg >= MAX_CANDIDATES:
                break
            query = replace(query, limit_per_leg=min(query.limit_per_leg * WIDENING, MAX_CANDIDATES))
            hits, whole = await self._hits(query, request.quotas)
        if await self._attachment.id() != index_id:
            raise SearchUnanswerable("The index was replaced during the search")
        degraded, backlog = [], start.backlog
        if near.vector is None:
            degraded += ["dense"] if near.model else []
        elif backlog.lacks_vectors:
            degraded.append("vectors")
        if start.standing.indexed < 0:
            degraded.append("rebuilding")
        return FindAnswer(
            results,
            revision,
            start.standing.revision,
            backlog.messages + backlog.passages,
            backlog.memories,
            backlog.lag,
            degraded,
            near.model,
        )

    async def _look(self, space: Space, request: FindRequest, index_id: str) -> _Snapshot:
        """Reads the snapshot before the index is queried: what the watermark covers is in the index from then on."""
        at = monotonic()
        start = await self._database.read(snapshot.read, space, index_id, self._known_types)
        kinds = request.kinds or tuple(PointKind)
        if start.standing.indexed < 0:
            self._hurry(space)
            # Some of the memories may be there already, but rows and points cannot be ranked fairly side by side.
            kinds = tuple(kind for kind in kinds if kind is PointKind.PASSAGE)
        if request.fields:
            # Passages have no fields.
            kinds = tuple(kind for kind in kinds if kind is PointKind.MEMORY)
        query = IndexQuery(
            account=space.account,
            user=space.user,
            kinds=kinds,
            uri_prefix=request.uri_prefix or None,
            memory_types=request.memory_types,
            peers=request.peers,
            sessions=request.sessions,
            tags=request.tags,
            # The index stores whole seconds, so it lets through the whole of both border seconds; `_join` checks
            # exactly.
            since=None if request.since is None else request.since // MICROSECONDS,
            until=None if request.until is None else -(-request.until // MICROSECONDS),
            limit_per_leg=max(self.ranking.candidates, request.limit),
        )
        return _Snapshot(at, start, query)

    async def _legs(
        self,
        look: _Snapshot,
        quotas: Mapping[str, int],
        words: sparse.SparseVector,
        embedding: asyncio.Task[_QueryVector],
        patience: float,
    ) -> tuple[_SparseHits, _DenseHits | None]:
        """Returns the sparse hits and the result of `_by_meaning`. Neither leg waits for the other: the hits of one are
        prepared while the index works on the other."""
        legs = (
            asyncio.create_task(self._by_words(look, quotas, words)),
            asyncio.create_task(self._by_meaning(look, quotas, embedding, patience)),
        )
        try:
            return await asyncio.gather(*legs)
        finally:
            # If one leg failed, cancel the other.
            for leg in legs:
                leg.cancel()

    async def _by_words(self, look: _Snapshot, quotas: Mapping[str, int], words: sparse.SparseVector) -> _SparseHits:
        hits, whole = await self._hits(replace(look.query, sparse=words), quotas)
        weighed = ranking.Words(hits.sparse) if len(hits.sparse) < MIN_THREADED_HITS // 2 else None
        return _SparseHits(hits.sparse, weighed, whole)

    async def _by_meaning(
        self, look: _Snapshot, quotas: Mapping[str, int], embedding: asyncio.Task[_QueryVector], patience: float
    ) -> _DenseHits | None:
        """Returns None if the vector took so long that the snapshot is older than `patience` seconds: the grace of
        superseded points runs from the read of the watermark. Also if the space is searched by another embedder by
        then; if that happens with endless patience, only words are searched."""
        vector, model = asked = await embedding
        if not _fits(look, asked):
            return _DenseHits(None, model, (), True) if math.isinf(patience) else None
        if monotonic() - look.at > patience:
            return None
        if vector is None:
            return _DenseHits(None, model, (), True)
        hits, whole = await self._hits(replace(look.query, dense=vector, model=model), quotas)
        return _DenseHits(vector, model, hits.dense, whole)

    async def _hits(self, query: IndexQuery, quotas: Mapping[str, int]) -> tuple[IndexHits, bool]:
        """Returns candidates, and whether the index has no more of them that could take one of the `limit` places. With
        quotas, each kind gets as many candidates as all kinds would, so that neither displaces the other."""
        if not query.kinds:
            return IndexHits(), True
        if not quotas:
            hits = await self._attachment.index.query(query)
            return hits, max(len(hits.dense), len(hits.sparse)) < query.limit_per_leg
        parts = [replace(query, kinds=(kind,)) for kind in query.kinds]
        found = await asyncio.gather(*map(self._attachment.index.query, parts))
        whole = all(
            max(len(hits.dense), len(hits.sparse)) < query.limit_per_leg
            # Passages with a quota of their own take none of those places, however many more there are.
            or (PASSAGES in quotas and part.kinds == (PointKind.PASSAGE,))
            for part, hits in zip(parts, found, strict=True)
        )
        dense = [hit for hits in found for hit in hits.dense]
        words = [hit for hits in found for hit in hits.sparse]
        return IndexHits(tuple(sorted(dense, key=_best)), tuple(sorted(words, key=_best))), whole

    async def _overlay(
        self,
        space: Space,
        request: FindRequest,
        standing: IndexProgress,
        query: IndexQuery,
        words: sparse.SparseVector,
    ) -> tuple[int, UnindexedVersions]:
        """Returns the revision of the answer, and the memories of that revision that the index may lack."""
        revision = standing.indexed if request.at_revision is None else request.at_revision
        if standing.indexed < 0 and request.at_revision is None:
            revision = standing.revision
        if revision == standing.indexed or (request.kinds and PointKind.MEMORY not in request.kinds):
            return revision, UnindexedVersions()
        laid = await self._database.read(
            memories.beside_index, space, standing.indexed, revision, MAX_LAID_OVER + 1, query.model
        )
        if len(laid) <= MAX_LAID_OVER:
            wanted = [one for one in laid if _wanted(one[0], request)]
            return revision, await asyncio.to_thread(UnindexedVersions.of, space, wanted, query.dense, words)
        if request.at_revision is None:
            # No memories rather than some of them: a revision is shown as a whole or not at all.
            return 0, UnindexedVersions()
        raise SearchUnanswerable(
            f"More than {MAX_LAID_OVER} memories differ between the index, which is at revision {standing.indexed},"
            f" and revision {revision}"
        )

    async def _ranked(
        self,
        space: Space,
        request: FindRequest,
        hits: IndexHits,
        revision: int,
        start: SearchStart,
        worded: _SparseHits,
    ) -> tuple[list[Found], bool]:
        uses: dict[str, int] = {}
        if self.ranking.usage_weight:
            remembered = {hit.uri for hit in (*hits.dense, *hits.sparse) if hit.kind is PointKind.MEMORY}
            uses = await self._database.read(memories.active_counts, space, remembered)
        now = start.at // MICROSECONDS
        # With unindexed versions merged in, or with more hits, these are different sparse hits.
        words = worded.words if hits.sparse is worded.hits else None
        if len(hits.dense) + len(hits.sparse) < MIN_THREADED_HITS:
            ranked = ranking.rank(hits, self.ranking, uses=uses, now=now, words=words)
        else:
            ranked = await asyncio.to_thread(ranking.rank, hits, self.ranking, uses=uses, now=now)
        return await self._database.read(_join, space, request, ranked, revision, start)

    async def _query_vector(self, space: Space, text: str) -> _QueryVector:
        embedder = await self._embedders.of_space(space)
        if embedder is None:
            return _QueryVector(None, "")
        try:
            return _QueryVector((await embedder.embed([text], query=True, space=space))[0], embedder.model)
        except EmbedderUnavailable as error:
            log.warning("find_without_dense", error=str(error))
            return _QueryVector(None, embedder.model)


def _fits(look: _Snapshot, asked: _QueryVector) -> bool:
    """Returns whether the vector is by the embedder that the space is searched by."""
    return look.start.model in (None, asked.model)


def _best(hit: Hit) -> tuple[float, str]:
    return -hit.score, hit.id


def _wanted(memory: Memory, request: FindRequest) -> bool:
    """Whether a row passes the filters that the index applies to points."""
    prefix = request.uri_prefix
    return (
        (not prefix or memory.uri == prefix or memory.uri.startswith(prefix.rstrip("/") + "/"))
        and (not request.memory_types or memory.memory_type in request.memory_types)
        and (not request.peers or (memory.peer_id or None) in request.peers)
        and _in_time(memory, request)
        and (not request.tags or set(request.tags) <= set(json.loads(memory.tags)))
        and (not request.sessions or not set(memory.sessions).isdisjoint(request.sessions))
    )


def _in_time(item: Memory | Passage, request: FindRequest) -> bool:
    at = item.time if isinstance(item, Memory) else item.created_at
    return (request.since is None or at >= request.since) and (request.until is None or at < request.until)


async def _check_grace(tx: Tx, space: Space, start: SearchStart) -> None:
    """Raises SearchUnanswerable if versions of the search's watermark may have left the index."""
    if tx.now() - start.at <= SNAPSHOT_TTL_US:
        return
    if (await watermarks.standing(tx, space, start.index_id)).indexed != start.standing.indexed:
        raise SearchUnanswerable("The search took so long that the index went on meanwhile")


async def _join(
    tx: Tx,
    space: Space,
    request: FindRequest,
    ranked: Sequence[Ranked],
    revision: int,
    start: SearchStart,
) -> tuple[list[Found], bool]:
    """Returns candidates alive at the revision, up to the limit, and whether the result is final: the limit is reached,
    or the candidates already fall below the threshold.

    Raises SearchUnanswerable, see `_check_grace`.
    """
    await _check_grace(tx, space, start)
    least = -math.inf if request.score_threshold is None else request.score_threshold
    cut = bool(ranked) and ranked[-1].score < least
    results: list[Found] = []
    outlines: dict[tuple[str, int], Outline] = {}
    choice = ResultSelector(request.limit, request.known, request.quotas)
    above = takewhile(lambda candidate: candidate.score >= least, ranked)
    rest = (candidate for candidate in above if choice.wants(candidate.hit))
    size = request.limit
    while not choice.full and (some := list(islice(rest, size))):
        size = max(size, READ_BATCH)
        items, read = await _items(tx, space, [candidate.hit for candidate in some], revision, request)
        for candidate in some:
            item = items.get(candidate.id)
            if choice.full:
                break
            fits = item is not None and _in_time(item, request) and _fields_match(item, request.fields)
            if item is not None and fits and choice.takes(candidate.hit, item):
                results.append(Found(item, candidate))
        outlines |= {one.key: one for one in read}
    return await _with_texts(tx, space, results, outlines, revision, request.room), choice.full or cut


async def _with_texts(
    tx: Tx,
    space: Space,
    results: Sequence[Found],
    outlines: Mapping[tuple[str, int], Outline],
    revision: int,
    room: Room,
) -> list[Found]:
    """Returns the results with their texts, as far as there is room."""
    said = [one.item.content for one in results if isinstance(one.item, Passage)]
    taken = sum(len(text.encode()) + found_texts.RESULT_BYTES for text in said)
    found = [outlines[one.item.uri, one.item.version] for one in results if isinstance(one.item, Memory)]
    read = await found_texts.read(tx, space, found, revision, room, taken) if found else {}
    told = []
    for one in results:
        if isinstance(one.item, Passage):
            told.append(one)
        elif (texts := read.get((one.item.uri, one.item.version))) is not None:
            told.append(Found(texts[0], one.ranked, texts[1]))
    return told


async def _items(
    tx: Tx, space: Space, hits: Sequence[Hit], revision: int, request: FindRequest
) -> tuple[dict[str, Memory | Passage], Collection[Outline]]:
    """Returns the existing items of the hits by point id, and outlines of the memories. Memories have only the texts
    that a filter needs; the outlines have their sizes."""
    said = [hit for hit in hits if hit.kind is PointKind.PASSAGE]
    found: dict[str, Memory | Passage] = dict(
        await passages.of_points(
            tx, space, [((hit.session or "", hit.sequence or 0), hit.id) for hit in said], request.archived_by
        )
    )
    remembered = [hit for hit in hits if hit.kind is PointKind.MEMORY]
    keys = [(hit.uri, hit.version) for hit in remembered]
    alive = await found_texts.outlines(tx, space, keys, revision, with_fields=bool(request.fields))
    for hit in remembered:
        outline = alive.get((hit.uri, hit.version))
        # A deleted user who began again counts versions from 1 again, but revisions continue.
        if outline is not None and outline.memory.rev_from == hit.order:
            found[hit.id] = outline.memory
    return found, alive.values()


def _fields_match(item: Memory | Passage, wanted: Mapping[str, Any]) -> bool:
    if not wanted:
        return True
    if isinstance(item, Passage):
        return False
    fields = json.loads(item.fields)
    return all(fields.get(name) == value for name, value in wanted.items())
