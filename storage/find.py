"""Search: candidates from the index, joined with the store, at one revision of the space."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from storage import fusion, memories, outbox, passages, sparse, watermarks
from storage.attachment import Attachment
from storage.database import Database, Space, Tx
from storage.embedders import Embedder, EmbedderUnavailable
from storage.fusion import Fused
from storage.index.base import Hit, IndexHits, IndexQuery, IndexUnavailable, PointKind
from storage.overlay import Overlay
from storage.records import Memory, Passage
from storage.watermarks import Standing

MOST_CANDIDATES = 2000
MOST_LAID_OVER = 5000
"""Memories beside the index that one search reads from their rows, some 2 KB each."""
LONGEST = outbox.GRACE // 2
"""Microseconds from the look at the watermark to the last answer of the index, within which every version of that
watermark is still in the index. Half of the grace: it runs from the beginning of the transaction that moved the
watermark on, which may have been under way at the look."""
WIDENING = 4
"""A search that is not full asks each leg for so many times more candidates, up to MOST_CANDIDATES."""

log = structlog.get_logger(__name__)


class SearchUnanswerable(IndexUnavailable):
    """The index is well, and yet this search cannot be answered now. The message, in whole sentences, is for the caller
    and says why."""


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
    """Answer exactly at this revision, with rows laid over that the index has not got yet, or not any more."""


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
    """`degraded` names parts that could not run: `dense`, the embedder is down; `rebuilding`, the space is being
    written to a new index, so that passages may be missing, and at revision 0 all memories are. `pending_passages`
    counts archived messages not yet to be found."""

    results: list[Found]
    revision: int
    latest_revision: int
    pending_passages: int
    degraded: list[str]


@dataclass(frozen=True, slots=True)
class _Start:
    """How far the index was when a search began, and when that was by the store's clock."""

    index_id: str
    at: int
    standing: Standing


class Finder:
    """Answers searches in one space at a time. `hurry` is told of spaces that are searched and not in the index."""

    def __init__(
        self,
        database: Database,
        attachment: Attachment,
        embedder: Embedder | None,
        ranking: Ranking,
        hurry: Callable[[Space], None],
    ) -> None:
        self._database = database
        self._attachment = attachment
        self._embedder = embedder
        self.ranking = ranking
        self._hurry = hurry

    async def find(self, space: Space, request: FindRequest) -> FindAnswer:
        """Raises IndexUnavailable when nothing can be searched at all, SearchUnanswerable when this cannot."""
        try:
            return await self._find(space, request)
        except SearchUnanswerable:
            raise
        except IndexUnavailable:
            self._attachment.doubt()
            raise

    async def _find(self, space: Space, request: FindRequest) -> FindAnswer:
        index_id = await self._attachment.id()
        degraded: list[str] = []
        # Before the watermark is read: from then on the grace of superseded points runs.
        dense = await self._query_vector(request.text, degraded)
        words = sparse.encode_query(request.text)
        start = await self._database.read(_start, space, index_id)
        standing = start.standing
        kinds = request.kinds or tuple(PointKind)
        if standing.indexed < 0:
            degraded.append("rebuilding")
            self._hurry(space)
            # Some of the memories may be there already; rows and points cannot be ranked fairly side by side.
            kinds = tuple(kind for kind in kinds if kind is PointKind.PASSAGE)
        revision, overlay = await self._overlay(space, request, standing, dense, words)
        query = IndexQuery(
            account=space.account,
            user=space.user,
            dense=dense,
            sparse=words,
            kinds=kinds,
            uri_prefix=request.uri_prefix or None,
            memory_types=request.memory_types,
            limit_per_leg=max(self.ranking.candidates, request.limit),
        )
        while True:
            hits = await self._attachment.index.query(query) if kinds else IndexHits()
            whole = max(len(hits.dense), len(hits.sparse)) < query.limit_per_leg
            results, pending = await self._ranked(space, request, overlay.laid_over(hits), revision, start)
            # Candidates that are not alive at the revision, or that a filter drops, may have crowded out others.
            if len(results) == request.limit or whole or query.limit_per_leg >= MOST_CANDIDATES:
                break
            query = replace(query, limit_per_leg=min(query.limit_per_leg * WIDENING, MOST_CANDIDATES))
        if await self._attachment.id() != index_id:
            raise SearchUnanswerable("The index was replaced during the search")
        return FindAnswer(results, revision, standing.revision, pending, degraded)

    async def _overlay(
        self,
        space: Space,
        request: FindRequest,
        standing: Standing,
        dense: bytes | None,
        words: sparse.SparseVector,
    ) -> tuple[int, Overlay]:
        """The revision of the answer, and the memories of that revision that the index may lack."""
        revision = standing.indexed if request.at_revision is None else request.at_revision
        if standing.indexed < 0 and request.at_revision is None:
            revision = standing.revision
        if revision == standing.indexed or (request.kinds and PointKind.MEMORY not in request.kinds):
            return revision, Overlay()
        laid = await self._database.read(memories.beside_index, space, standing.indexed, revision, MOST_LAID_OVER + 1)
        if len(laid) <= MOST_LAID_OVER:
            wanted = [one for one in laid if _wanted(one[0], request)]
            return revision, await asyncio.to_thread(Overlay.of, space, wanted, dense, words)
        if request.at_revision is None:
            # No memory rather than a part of them: a revision is seen as a whole or not at all.
            return 0, Overlay()
        raise SearchUnanswerable(
            f"More than {MOST_LAID_OVER} memories differ between the index, which is at revision {standing.indexed},"
            f" and revision {revision}"
        )

    async def _ranked(
        self, space: Space, request: FindRequest, hits: IndexHits, revision: int, start: _Start
    ) -> tuple[list[Found], int]:
        rank = self.ranking
        fused = fusion.fuse(hits, dense_weight=rank.dense_weight, sparse_weight=rank.sparse_weight, k=rank.k)
        before = {candidate.id: candidate.score for candidate in fused}
        ranked = fusion.smooth(fused, weight=rank.neighbours)
        return await self._database.read(_join, space, request, ranked, before, revision, start)

    async def _query_vector(self, text: str, degraded: list[str]) -> bytes | None:
        if self._embedder is None:
            return None
        try:
            return (await self._embedder.embed([text]))[0]
        except EmbedderUnavailable as error:
            log.warning("find_without_dense", error=str(error))
            degraded.append("dense")
            return None


def _wanted(memory: Memory, request: FindRequest) -> bool:
    prefix = request.uri_prefix
    inside = not prefix or memory.uri == prefix or memory.uri.startswith(prefix.rstrip("/") + "/")
    return inside and (not request.memory_types or memory.memory_type in request.memory_types)


async def _start(tx: Tx, space: Space, index_id: str) -> _Start:
    return _Start(index_id, tx.now(), await watermarks.standing(tx, space, index_id))


async def _check_grace(tx: Tx, space: Space, start: _Start) -> None:
    """Raises SearchUnanswerable when versions of the watermark that a search began with may have left the index."""
    if tx.now() - start.at <= LONGEST:
        return
    if (await watermarks.standing(tx, space, start.index_id)).indexed != start.standing.indexed:
        raise SearchUnanswerable("The search took so long that the index went on meanwhile")


async def _join(
    tx: Tx,
    space: Space,
    request: FindRequest,
    ranked: Sequence[Fused],
    before: Mapping[str, float],
    revision: int,
    start: _Start,
) -> tuple[list[Found], int]:
    """Keeps what is alive at the revision and fills up to the limit from the candidates behind; counts what waits.

    Raises SearchUnanswerable, see `_check_grace`.
    """
    await _check_grace(tx, space, start)
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
        memory = (await memories.alive(tx, space, [key], revision)).get(key)
        # A user who was deleted and began again counts versions from 1 again; revisions go on.
        return memory if memory is not None and memory.rev_from == hit.order else None
    return await passages.of_point(tx, space, hit.session or "", hit.sequence or 0, hit.id)


def _fields_match(item: Memory | Passage, wanted: Mapping[str, Any]) -> bool:
    if not wanted:
        return True
    if isinstance(item, Passage):
        return False
    fields = json.loads(item.fields)
    return all(fields.get(name) == value for name, value in wanted.items())
