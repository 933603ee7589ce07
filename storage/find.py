"""Search: candidates from the index, joined with the store, at one revision of the space."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from storage import fusion, memories, passages, spaces, sparse
from storage.database import Database, Space, Tx
from storage.embedders import Embedder, EmbedderUnavailable
from storage.embedders.vectors import cosine
from storage.fusion import Fused
from storage.index.base import Hit, IndexHits, IndexQuery, PointKind, VectorIndex
from storage.points import memory_point
from storage.records import Memory, Passage

MOST_CANDIDATES = 2000
WIDENING = 4
"""A search that is not full asks each leg for so many times more candidates, up to MOST_CANDIDATES."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FindRequest:
    """Empty filters let everything pass. `fields` asks for equality on fields of memories."""

    text: str
    limit: int = 10
    uri_prefix: str = ""
    kinds: tuple[PointKind, ...] = ()
    memory_types: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    score_threshold: float | None = None
    at_revision: int | None = None
    """Answer exactly at this revision, with rows laid over that the index has not got yet."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Weights of the parts of a score and the number of candidates of each leg."""

    dense_weight: float = 1.0
    sparse_weight: float = 1.0
    k: int = fusion.RANK_CONSTANT
    neighbours: float = fusion.NEIGHBOUR_WEIGHT
    candidates: int = 100


@dataclass(frozen=True, slots=True)
class Found:
    """One result: a memory or a passage, its score and the parts of it."""

    item: Memory | Passage
    score: float
    neighbours: float
    fused: Fused


@dataclass(frozen=True, slots=True)
class FindAnswer:
    """`degraded` names legs that could not run; `pending_passages` counts archived messages not yet to be found."""

    results: list[Found]
    revision: int
    latest_revision: int
    pending_passages: int
    degraded: list[str]


class Finder:
    """Answers searches in one space at a time."""

    def __init__(self, database: Database, index: VectorIndex, embedder: Embedder | None, ranking: Ranking) -> None:
        self._database = database
        self._index = index
        self._embedder = embedder
        self._ranking = ranking

    async def find(self, space: Space, request: FindRequest) -> FindAnswer:
        """Raises IndexUnavailable when nothing can be searched at all."""
        latest, indexed = await self._database.read(spaces.revisions, space)
        revision = indexed if request.at_revision is None else request.at_revision
        degraded: list[str] = []
        dense = await self._query_vector(request.text, degraded)
        words = sparse.encode_query(request.text)
        query = IndexQuery(
            account=space.account,
            user=space.user,
            dense=dense,
            sparse=words,
            kinds=request.kinds,
            uri_prefix=request.uri_prefix or None,
            memory_types=request.memory_types,
            limit_per_leg=max(self._ranking.candidates, request.limit),
        )
        while True:
            hits = await self._index.query(query)
            whole = max(len(hits.dense), len(hits.sparse)) < query.limit_per_leg
            if request.at_revision is not None and request.at_revision > indexed:
                hits = await self._laid_over(space, request, hits, indexed, dense, words)
            results, pending = await self._ranked(space, request, hits, revision)
            # Candidates that are not alive at the revision, or that a filter drops, may have crowded out others.
            if len(results) == request.limit or whole or query.limit_per_leg >= MOST_CANDIDATES:
                break
            query = replace(query, limit_per_leg=min(query.limit_per_leg * WIDENING, MOST_CANDIDATES))
        return FindAnswer(results, revision, latest, pending, degraded)

    async def _ranked(
        self, space: Space, request: FindRequest, hits: IndexHits, revision: int
    ) -> tuple[list[Found], int]:
        rank = self._ranking
        fused = fusion.fuse(hits, dense_weight=rank.dense_weight, sparse_weight=rank.sparse_weight, k=rank.k)
        before = {candidate.id: candidate.score for candidate in fused}
        ranked = fusion.smooth(fused, weight=rank.neighbours)
        return await self._database.read(_join, space, request, ranked, before, revision)

    async def _query_vector(self, text: str, degraded: list[str]) -> bytes | None:
        if self._embedder is None:
            return None
        try:
            return (await self._embedder.embed([text]))[0]
        except EmbedderUnavailable as error:
            log.warning("find_without_dense", error=str(error))
            degraded.append("dense")
            return None

    async def _laid_over(
        self,
        space: Space,
        request: FindRequest,
        hits: IndexHits,
        indexed: int,
        dense: bytes | None,
        words: sparse.SparseVector,
    ) -> IndexHits:
        """Adds rows made after the watermark. Their words are weighed without IDF, which only the index knows."""
        revision = request.at_revision or 0
        dense_hits, sparse_hits = list(hits.dense), list(hits.sparse)
        if request.kinds and PointKind.MEMORY not in request.kinds:
            return hits
        known = {hit.id for hit in (*dense_hits, *sparse_hits)}
        for memory, vector, packed in await self._database.read(memories.made_after, space, indexed, revision):
            if not _wanted(memory, request) or memory_point(space, memory.uri, memory.version) in known:
                continue
            if dense is not None and vector is not None and len(vector) == len(dense):
                dense_hits.append(_hit(space, memory, cosine(dense, vector)))
            score = _dot(words, sparse.SparseVector.from_bytes(packed)) if packed else 0.0
            if score > 0:
                sparse_hits.append(_hit(space, memory, score))
        return IndexHits(tuple(sorted(dense_hits, key=_best_first)), tuple(sorted(sparse_hits, key=_best_first)))


def _dot(words: sparse.SparseVector, document: sparse.SparseVector) -> float:
    weights = dict(zip(document.indices, document.values, strict=True))
    return sum(value * weights.get(index, 0.0) for index, value in zip(words.indices, words.values, strict=True))


def _best_first(hit: Hit) -> tuple[float, str]:
    return -hit.score, hit.id


def _hit(space: Space, memory: Memory, score: float) -> Hit:
    id = memory_point(space, memory.uri, memory.version)
    return Hit(id, score, PointKind.MEMORY, memory.uri, memory.version, memory.rev_from, None, None)


def _wanted(memory: Memory, request: FindRequest) -> bool:
    prefix = request.uri_prefix
    inside = not prefix or memory.uri == prefix or memory.uri.startswith(prefix.rstrip("/") + "/")
    return inside and (not request.memory_types or memory.memory_type in request.memory_types)


async def _join(
    tx: Tx, space: Space, request: FindRequest, ranked: Sequence[Fused], before: Mapping[str, float], revision: int
) -> tuple[list[Found], int]:
    """Keeps what is alive at the revision and fills up to the limit from the candidates behind; counts what waits."""
    results: list[Found] = []
    for candidate in ranked:
        if len(results) == request.limit:
            break
        if request.score_threshold is not None and candidate.score < request.score_threshold:
            break
        item = await _item(tx, space, candidate.hit, revision)
        if item is not None and _fields_match(item, request.fields):
            neighbours = candidate.score - before[candidate.id]
            results.append(Found(item, candidate.score, neighbours, candidate))
    return results, await passages.pending_count(tx, space)


async def _item(tx: Tx, space: Space, hit: Hit, revision: int) -> Memory | Passage | None:
    if hit.kind is PointKind.MEMORY:
        key = (hit.uri, hit.version)
        return (await memories.alive(tx, space, [key], revision)).get(key)
    place = (hit.session or "", hit.sequence or 0)
    return (await passages.get_many(tx, space, [place])).get(place)


def _fields_match(item: Memory | Passage, wanted: Mapping[str, Any]) -> bool:
    if not wanted:
        return True
    if isinstance(item, Passage):
        return False
    fields = json.loads(item.fields)
    return all(fields.get(name) == value for name, value in wanted.items())
