"""Scores memories that the index lacks at the searched revision, from the vectors in their rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from runekeep_storage.database import Space
from runekeep_storage.embedders.vectors import cosine
from runekeep_storage.index.base import Hit, IndexHits, IndexPoint, PointKind
from runekeep_storage.index.sparse import SparseVector
from runekeep_storage.indexing import facts
from runekeep_storage.indexing.points import memory_point
from runekeep_storage.records import Memory

Laid = tuple[Memory, bytes | None, bytes | None]
"""A memory with its dense vector and its packed sparse vector, as stored in its row."""


@dataclass(frozen=True, slots=True)
class UnindexedVersions:
    """Hits from rows, to be merged with those of the index. Sparse scores lack IDF, which only the index knows; they
    only order these hits."""

    dense: tuple[Hit, ...] = ()
    sparse: tuple[Hit, ...] = ()

    @classmethod
    def of(cls, space: Space, laid: Sequence[Laid], dense: bytes | None, words: SparseVector) -> Self:
        """Scores rows for a query. CPU-heavy: a tenth of a second for a thousand vectors."""
        rows = (
            (_hit(space, memory), vector, SparseVector.from_bytes(packed or b"")) for memory, vector, packed in laid
        )
        return cls._scored(rows, dense, words)

    @classmethod
    def of_point(cls, point: IndexPoint, dense: bytes | None, words: SparseVector) -> Self:
        """Scores one point for a query."""
        hit = Hit(
            point.id,
            0.0,
            point.kind,
            point.uri,
            point.version,
            point.order,
            point.session,
            point.sequence,
            sources=point.sources,
            time=point.time,
            fact=point.fact,
            laid=True,
        )
        return cls._scored([(hit, point.dense, point.sparse)], dense, words)

    @classmethod
    def _scored(
        cls, unscored: Iterable[tuple[Hit, bytes | None, SparseVector]], dense: bytes | None, words: SparseVector
    ) -> Self:
        """Scores hits by their vectors."""
        by_vector, by_words = [], []
        for bare, vector, document in unscored:
            weights = _weights(words, document)
            hit = bare._replace(words=weights)
            if dense is not None and vector is not None and len(vector) == len(dense):
                by_vector.append(hit._replace(score=cosine(dense, vector)))
            score = sum(value * weight for value, weight in zip(words.values, weights, strict=True))
            if score > 0:
                by_words.append(hit._replace(score=score))
        return cls(tuple(by_vector), tuple(by_words))

    def laid_over(self, hits: IndexHits) -> IndexHits:
        """Merges both, best first. A hit that the index has keeps the score of the index."""
        if not self.dense and not self.sparse:
            return hits
        known = {hit.id for hit in (*hits.dense, *hits.sparse)}
        legs = ((hits.dense, self.dense), (hits.sparse, self.sparse))
        dense, sparse = (
            tuple(sorted((*found, *(hit for hit in laid if hit.id not in known)), key=_best_first))
            for found, laid in legs
        )
        return IndexHits(dense, sparse)


def _weights(words: SparseVector, document: SparseVector) -> tuple[float, ...]:
    weights = dict(zip(document.indices, document.values, strict=True))
    return tuple(weights.get(index, 0.0) for index in words.indices)


def _best_first(hit: Hit) -> tuple[float, str]:
    return -hit.score, hit.id


def _hit(space: Space, memory: Memory) -> Hit:
    return Hit(
        memory_point(space, memory.uri, memory.rev_from),
        0.0,
        PointKind.MEMORY,
        memory.uri,
        memory.version,
        memory.rev_from,
        None,
        None,
        sources=memory.sessions,
        time=memory.time // 1_000_000,
        fact=facts.MEMORY,
        laid=True,
    )
