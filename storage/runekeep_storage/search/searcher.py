"""Searches a space: takes candidates from the index and joins them with the store at one revision."""

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from time import monotonic
from typing import NamedTuple

import structlog

from runekeep_schemas.recall_budget import PASSAGES
from runekeep_storage.database import Space, SpaceDatabase
from runekeep_storage.embedders import EmbedderUnavailable
from runekeep_storage.index import sparse
from runekeep_storage.index.base import Hit, IndexHits, IndexQuery, IndexUnavailable, PointKind
from runekeep_storage.indexing.attachment import Attachment
from runekeep_storage.indexing.embedder_change import Models
from runekeep_storage.indexing.space_embedders import SpaceEmbedders
from runekeep_storage.memories import memories
from runekeep_storage.rerankers import Rerankers
from runekeep_storage.search import explaining, filters, joining, ranking, relevance, snapshot
from runekeep_storage.search.backlog import WITHOUT_EMBEDDER
from runekeep_storage.search.explaining import Explanation, Outcome, Target
from runekeep_storage.search.ranking import Order, Ranking, Words
from runekeep_storage.search.relevance import Calibration
from runekeep_storage.search.requests import FindAnswer, FindRequest, SearchUnanswerable
from runekeep_storage.search.reranking import Reranking
from runekeep_storage.search.snapshot import SearchStart
from runekeep_storage.search.unindexed_versions import UnindexedVersions
from runekeep_storage.spaces.watermarks import IndexProgress

MAX_CANDIDATES = 2000
MAX_LAID_OVER = 5000
"""Maximum number of memories missing from the index that one search reads from their rows, some 2 KB each."""
MICROSECONDS = 1_000_000
"""Microseconds in a second."""
STALE_SECONDS = 1.0
"""Maximum age of a snapshot when the embedder is done. An older one is read again, so that the rest of SNAPSHOT_TTL_US
is left for the index."""
WIDENING = 4
"""Factor by which a search that is not full increases the candidates of each leg, up to MAX_CANDIDATES."""
MIN_THREADED_HITS = 500
"""Number of hits from which ranking runs in a thread: it takes a millisecond or more, and some 15 with MAX_CANDIDATES
of each kind."""

log = structlog.get_logger(__name__)


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


@dataclass(frozen=True, slots=True)
class _Search:
    """A search that is done. `hits`: all candidates; `words`: of the query."""

    answer: FindAnswer
    start: SearchStart
    hits: IndexHits
    words: sparse.SparseVector


class _QueryVector(NamedTuple):
    """The vector of the query, None while the embedder is down, and the embedder's model, empty without one."""

    vector: bytes | None
    model: str


class Searcher:
    """Answers searches, each in one space. `hurry` is called with spaces that are searched but not in the index;
    `known_types`: see `missing_vectors.known_types`; `calibrations`: by model, for embedders without a
    built-in calibration or to replace it."""

    def __init__(
        self,
        database: SpaceDatabase,
        attachment: Attachment,
        embedders: SpaceEmbedders,
        ranking: Ranking,
        hurry: Callable[[Space], None],
        known_types: str = WITHOUT_EMBEDDER,
        rerankers: Rerankers | None = None,
        calibrations: Mapping[str, Calibration] | None = None,
    ) -> None:
        self._rerankers = rerankers or Rerankers()
        # Scores that other weights make have another meaning.
        is_calibrated = ranking == Ranking()
        self._calibrations = {**relevance.built_in(), **(calibrations or {})} if is_calibrated else {}
        self._database = database
        self._attachment = attachment
        self._embedders = embedders
        self.ranking = ranking
        self._hurry = hurry
        self._known_types = known_types

    @property
    def types_with_vectors(self) -> str:
        """The memory types that get vectors now, in the form that `runekeep_storage.search.backlog` takes."""
        return self._known_types if any(self._attachment.models) else WITHOUT_EMBEDDER

    async def find(self, space: Space, request: FindRequest) -> FindAnswer:
        """Returns the answer. Raises IndexUnavailable if nothing can be searched at all, SearchUnanswerable if this
        request cannot be answered."""
        return (await self._search(space, request)).answer

    async def calibration(self, space: Space) -> Calibration | None:
        """Returns the calibration of the embedder that the space is searched by, None if there is none, or if the
        weights of the ranking are not the default ones."""
        embedder = await self._embedders.of_space(space)
        return None if embedder is None else self._calibrations.get(embedder.model)

    def calibration_of(self, answer: FindAnswer) -> Calibration | None:
        """Returns the calibration for the scores of an answer; None also if its query was searched by words only."""
        return None if "dense" in answer.degraded else self._calibrations.get(answer.model)

    async def explain(self, space: Space, request: FindRequest, target: Target) -> Explanation:
        """Returns what becomes of one document in the search. Raises like `find`."""
        search = await self._search(space, request)
        answer = search.answer
        located = await self._database.read(
            explaining.locate, space, request, target, answer.revision, Models(answer.model)
        )
        if isinstance(located, Outcome):
            return Explanation(answer, located)
        was_candidate = any(hit.id == located.point.id for hit in (*search.hits.dense, *search.hits.sparse))
        added = UnindexedVersions.of_point(located.point, answer.vector, search.words)
        order = await self._rank(space, added.laid_over(search.hits), search.start)
        return await self._database.read(
            explaining.compare,
            space,
            request,
            search.start,
            answer,
            located,
            order,
            was_candidate=was_candidate,
        )

    async def _search(self, space: Space, request: FindRequest) -> _Search:
        try:
            return await self._find(space, request)
        except SearchUnanswerable:
            raise
        except IndexUnavailable:
            self._attachment.doubt()
            raise

    async def _find(self, space: Space, request: FindRequest) -> _Search:
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
        reranking = None
        reranker = self._rerankers.of_account(space.account)
        if request.rerank and reranker is not None:
            reranking = Reranking(reranker, self._database, space, request, revision)
        while True:
            merged = overlay.laid_over(hits)
            # With unindexed versions merged in, or with more hits, these are different sparse hits.
            known_words = worded.words if merged.sparse is worded.hits else None
            order = await self._rank(space, merged, start, known_words)
            if reranking is not None:
                order = await reranking.apply(order)
            results, full = await self._database.read(joining.join, space, request, order, revision, start)
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
        if reranking is not None and reranking.has_failed:
            degraded.append("reranker")
        answer = FindAnswer(
            results,
            revision,
            start.standing.revision,
            backlog.messages + backlog.passages,
            backlog.memories,
            backlog.lag,
            degraded,
            near.model,
            near.vector,
        )
        return _Search(answer, start, merged, words)

    async def _look(self, space: Space, request: FindRequest, index_id: str) -> _Snapshot:
        """Reads the snapshot before the index is queried: what the watermark covers is in the index from then on."""
        at = monotonic()
        start = await self._database.read(snapshot.read, space, index_id, self.types_with_vectors)
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
            # The index stores whole seconds, so it lets through the whole of both border seconds; `join` checks
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
        superseded points runs from the read of the watermark. Also returns None if the embedder of the space changed
        after the vector was made; with infinite `patience` the search goes by words alone instead."""
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
            wanted = [one for one in laid if not any(filters.excluding(one[0], one[0].uri, request))]
            return revision, await asyncio.to_thread(UnindexedVersions.of, space, wanted, query.dense, words)
        if request.at_revision is None:
            # No memories rather than some of them: a revision is shown as a whole or not at all.
            return 0, UnindexedVersions()
        raise SearchUnanswerable(
            f"More than {MAX_LAID_OVER} memories differ between the index, which is at revision {standing.indexed},"
            f" and revision {revision}"
        )

    async def _rank(self, space: Space, hits: IndexHits, start: SearchStart, words: Words | None = None) -> Order:
        uses: dict[str, int] = {}
        if self.ranking.usage_weight:
            remembered = {hit.uri for hit in (*hits.dense, *hits.sparse) if hit.kind is PointKind.MEMORY}
            uses = await self._database.read(memories.active_counts, space, remembered)
        now = start.at // MICROSECONDS
        if len(hits.dense) + len(hits.sparse) < MIN_THREADED_HITS:
            return ranking.rank(hits, self.ranking, uses=uses, now=now, words=words)
        return await asyncio.to_thread(ranking.rank, hits, self.ranking, uses=uses, now=now)

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
