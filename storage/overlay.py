"""Memories that the index lacks at the revision that is searched, scored from the vectors in their rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from storage import facts
from storage.database import Space
from storage.embedders.vectors import cosine
from storage.index.base import Hit, IndexHits, PointKind
from storage.points import memory_point
from storage.records import Memory
from storage.sparse import SparseVector

Laid = tuple[Memory, bytes | None, bytes | None]
"""A memory with its dense vector and its packed sparse one, as its row has them."""


@dataclass(frozen=True, slots=True)
class Overlay:
    """Hits of rows, to be laid over those of the index. The scores of the leg of words are without IDF, which only the
    index knows; they order these hits and nothing else."""

    dense: tuple[Hit, ...] = ()
    sparse: tuple[Hit, ...] = ()

    @classmethod
    def of(cls, space: Space, laid: Sequence[Laid], dense: bytes | None, words: SparseVector) -> Self:
        """Scores rows for a query. Takes time: a tenth of a second for a thousand vectors."""
        by_vector, by_words = [], []
        for memory, vector, packed in laid:
            weights = _weights(words, SparseVector.from_bytes(packed or b""))
            if dense is not None and vector is not None and len(vector) == len(dense):
                by_vector.append(_hit(space, memory, cosine(dense, vector), weights))
            score = sum(value * weight for value, weight in zip(words.values, weights, strict=True))
            if score > 0:
                by_words.append(_hit(space, memory, score, weights))
        return cls(tuple(by_vector), tuple(by_words))

    def laid_over(self, hits: IndexHits) -> IndexHits:
        """Both together, best first. What the index has is scored by the index."""
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


def _hit(space: Space, memory: Memory, score: float, words: tuple[float, ...]) -> Hit:
    return Hit(
        memory_point(space, memory.uri, memory.rev_from),
        score,
        PointKind.MEMORY,
        memory.uri,
        memory.version,
        memory.rev_from,
        None,
        None,
        sources=memory.sessions,
        time=memory.time // 1_000_000,
        fact=facts.MEMORY,
        words=words,
        laid=True,
    )
