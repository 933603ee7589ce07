"""From two ranked lists to one: weighted reciprocal rank fusion, and evidence shared between neighbouring turns.

Done here and not by the engine, so that every engine gives the same order.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from storage.index.base import Hit, IndexHits, PointKind

# A small k lets the first ranks of either list weigh heavily. On conversation turns 5 found a tenth more evidence
# than the customary 60.
RANK_CONSTANT = 5
NEIGHBOUR_WEIGHT = 0.3


@dataclass(frozen=True, slots=True)
class Fused:
    """A point found by one leg or both. `score` only orders the results of one search; ranks count from 1 and are
    None, like the score beside them, where that leg did not find the point."""

    hit: Hit
    score: float
    dense_rank: int | None = None
    dense_score: float | None = None
    sparse_rank: int | None = None
    sparse_score: float | None = None

    @property
    def id(self) -> str:
        return self.hit.id


def fuse(
    hits: IndexHits, *, dense_weight: float = 1.0, sparse_weight: float = 1.0, k: int = RANK_CONSTANT
) -> list[Fused]:
    """Both legs in one list, best first, equal scores by id: each leg adds weight / (k + rank)."""
    fused: dict[str, Fused] = {}
    for rank, hit in enumerate(hits.dense, start=1):
        fused[hit.id] = Fused(hit, dense_weight / (k + rank), dense_rank=rank, dense_score=hit.score)
    for rank, hit in enumerate(hits.sparse, start=1):
        found = fused.get(hit.id, Fused(hit, 0.0))
        score = found.score + sparse_weight / (k + rank)
        fused[hit.id] = replace(found, score=score, sparse_rank=rank, sparse_score=hit.score)
    return _ordered(fused.values())


def smooth(fused: Sequence[Fused], *, weight: float = NEIGHBOUR_WEIGHT) -> list[Fused]:
    """Let each passage gain `weight` times the score of the messages just before and after it in its session.

    An answer is often said in reply to the turn that names its subject. Only messages among the candidates count; of
    several passages of one message, the best speaks for it. Memories keep their score.
    """
    turns: dict[tuple[str, int], float] = {}
    for candidate in fused:
        turn = _turn(candidate.hit)
        if turn is not None:
            turns[turn] = max(turns.get(turn, 0.0), candidate.score)
    smoothed = []
    for candidate in fused:
        turn = _turn(candidate.hit)
        if turn is not None:
            session, sequence = turn
            around = turns.get((session, sequence - 1), 0.0) + turns.get((session, sequence + 1), 0.0)
            candidate = replace(candidate, score=candidate.score + weight * around)
        smoothed.append(candidate)
    return _ordered(smoothed)


def _turn(hit: Hit) -> tuple[str, int] | None:
    """Where in which session a passage was said; None for what was not said in a session."""
    if hit.kind is not PointKind.PASSAGE or hit.session is None or hit.sequence is None:
        return None
    return hit.session, hit.sequence


def _ordered(fused: Iterable[Fused]) -> list[Fused]:
    return sorted(fused, key=lambda candidate: (-candidate.score, candidate.id))
