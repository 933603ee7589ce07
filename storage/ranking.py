"""From what two legs found to one list: how near in meaning, which of the query's words are said here or close by, how
much a passage reads like a fact, and how well its session fits.

Done here and not by the engine, so that every engine gives the same order. Chosen on the development half of LoCoMo,
each part by leaving one conversation out; `docs/bench/recall.md` has the figures and what each part gives.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from storage.index.base import Hit, IndexHits, PointKind

REACH = 4
"""Messages before and after one that lend it their words."""
NEAREST = 5
"""Candidates of a session, the nearest in meaning, whose mean says how near the session is."""
_LEAST = 1e-300
"""Of a sum of exponentials, one of which may be too small for a number."""
_WEIGHTLESS = 1e-6
"""No word of a message weighs as little by BM25."""
_PULL = 1e-8
"""Beside squares of BM25 weights, which are about 1; above what scores of 32 bits are off."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Weights of the parts of a score, and how many candidates each leg gives.

    `dense_weight`: of the cosine. `sparse_weight`: of BM25, a word counting with the best weight that it has in a
    message or, times `neighbour_decay` for every step, in one up to REACH away in its session. `fact_weight`: of
    `storage.facts`. `session_weight`: of how well the session fits, which is the logarithm of the sum of what its
    candidates score, as exponents, and what the NEAREST of them have from the cosine, in the mean. `usage_weight`: of
    log(1 + uses) of a memory. `recency_weight`: of what is new, halved every `recency_days`.
    """

    dense_weight: float = 10.0
    sparse_weight: float = 0.3
    neighbour_decay: float = 0.7
    fact_weight: float = 0.6
    session_weight: float = 0.3
    usage_weight: float = 0.0
    recency_weight: float = 0.0
    recency_days: float = 30.0
    candidates: int = 200


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a score: what was measured, and what it added."""

    name: str
    value: float
    added: float


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate with its score, which only orders the results of one search. Ranks count from 1 and are None, like
    the score beside them, where that leg did not find the point."""

    hit: Hit
    score: float
    _columns: "_Columns" = field(repr=False, compare=False)
    _row: int = field(repr=False)
    dense_rank: int | None
    dense_score: float | None
    sparse_rank: int | None
    sparse_score: float | None

    @property
    def id(self) -> str:
        return self.hit.id

    @property
    def parts(self) -> tuple[Part, ...]:
        """They add up to the score."""
        return tuple(
            Part(name, float(values[self._row]), float(added[self._row]))
            for name, (values, added) in self._columns.items()
        )

    @property
    def neighbours(self) -> float:
        """The share of the score that is owed to words of messages beside it."""
        return float(self._columns["neighbours"][1][self._row])


_Columns = dict[str, tuple[Any, Any]]
"""Parts by name: what was measured of each candidate, and what it added, as vectors of floats."""
_NOWHERE = (None, None)


def rank(hits: IndexHits, weights: Ranking, *, uses: Mapping[str, int] | None = None, now: int = 0) -> list[Ranked]:
    """All candidates, best first, equal scores by id. `uses`: how often memories were used, by URI; `now` in seconds
    since 1970, for recency. Takes some milliseconds for 400 candidates, and a tenth of a second for thousands."""
    legs = {hit.id: hit for hit in (*hits.dense, *hits.sparse)}
    if not legs:
        return []
    candidates = _Candidates(sorted(legs.values(), key=_place), hits)
    columns = candidates.columns(weights, uses or {}, now)
    scores = sum(added for _, added in columns.values())
    dense = {hit.id: (place, hit.score) for place, hit in enumerate(hits.dense, 1)}
    sparse = {hit.id: (place, hit.score) for place, hit in enumerate(hits.sparse, 1)}
    found = [
        Ranked(hit, score, columns, row, *dense.get(hit.id, _NOWHERE), *sparse.get(hit.id, _NOWHERE))
        for row, (hit, score) in enumerate(zip(candidates.hits, scores.tolist(), strict=True))
    ]
    found.sort(key=lambda one: (-one.score, one.hit.id))
    return found


def _place(hit: Hit) -> tuple[str, int, str]:
    """By session and sequence; what was not said in a session comes first."""
    return hit.session or "", hit.sequence or 0, hit.id


class _Candidates:
    """What both legs found, in the order of sessions and messages, so that neighbours stand side by side."""

    def __init__(self, hits: Sequence[Hit], legs: IndexHits) -> None:
        import numpy as np  # a server without an embedder may never search

        self.hits = hits
        row_of = {hit.id: row for row, hit in enumerate(hits)}
        self.sessions: dict[str, int] = {}
        # Of a memory a number of its own: it stands beside nothing.
        self.session = np.array(
            [
                self.sessions.setdefault(hit.session, len(self.sessions))
                if hit.session is not None and hit.kind is PointKind.PASSAGE
                else -1 - row
                for row, hit in enumerate(hits)
            ]
        )
        self.sequence = np.array([hit.sequence or 0 for hit in hits])
        # What no vector found is no nearer than the last that one did.
        floor = min((hit.score for hit in legs.dense), default=0.0)
        self.cosine = np.full(len(hits), floor)
        self.cosine[[row_of[hit.id] for hit in legs.dense]] = [hit.score for hit in legs.dense]
        # The leg of vectors may have found points with a word that the leg of words left out: they lend nothing, else
        # what lends its words would depend on the meaning.
        worded = [hit for hit in legs.sparse if hit.words]
        self.words = np.zeros((len(hits), len(worded[0].words) if worded else 0))
        if worded:
            self.words[[row_of[hit.id] for hit in worded]] = [hit.words for hit in worded]
        self.rarity = _rarity(worded, self.words.shape[1])

    def columns(self, weights: Ranking, uses: Mapping[str, int], now: int) -> _Columns:
        """Parts of the scores, in the order of `hits`."""
        import numpy as np

        own = self.words @ self.rarity
        lent = self._spread(weights.neighbour_decay) @ self.rarity - own
        facts = np.array([float(hit.fact) for hit in self.hits])
        columns = {
            "dense": (self.cosine, weights.dense_weight * self.cosine),
            "sparse": (own, weights.sparse_weight * own),
            "neighbours": (lent, weights.sparse_weight * lent),
            "fact": (facts, weights.fact_weight * facts),
        }
        if weights.session_weight:
            fits = self._sessions(sum(added for _, added in columns.values()), columns["dense"][1])
            columns["session"] = (fits, weights.session_weight * fits)
        if weights.usage_weight:
            used = np.array([float(uses.get(hit.uri, 0)) if hit.kind is PointKind.MEMORY else 0.0 for hit in self.hits])
            columns["usage"] = (used, weights.usage_weight * np.log1p(used))
        if weights.recency_weight:
            days = np.array([max(now - (hit.time or 0), 0) / 86_400 for hit in self.hits])
            columns["recency"] = (days, weights.recency_weight * 0.5 ** (days / weights.recency_days))
        return columns

    def _spread(self, decay: float) -> Any:
        """For every word of the query the best weight that it has here or, faded, in a message close by: the subject
        may be named in the question, and the answer said in the reply."""
        import numpy as np

        spread = self.words.copy()
        if not decay or not spread.size:
            return spread
        for step in range(1, min(REACH, len(self.hits) - 1) + 1):
            # Of messages no more than REACH apart, so many at most stand between two.
            apart = self.sequence[step:] - self.sequence[:-step]
            near = (self.session[step:] == self.session[:-step]) & (apart <= REACH)
            faded = np.where(near, decay ** np.minimum(apart, REACH), 0.0)[:, None]
            np.maximum(spread[step:], self.words[:-step] * faded, out=spread[step:])
            np.maximum(spread[:-step], self.words[step:] * faded, out=spread[:-step])
        return spread

    def _sessions(self, score: Any, meaning: Any) -> Any:
        """How well the session of each candidate fits, see `Ranking`. A memory has that of the best session that it
        came from; without one it stands for itself."""
        import numpy as np

        said = np.flatnonzero(self.session >= 0)
        of, count = self.session[said], len(self.sessions)
        top = score.max()
        fit = top + np.log(np.maximum(np.bincount(of, np.exp(score[said] - top), minlength=count), _LEAST))
        fit += _mean_of_nearest(of, meaning[said], count, meaning.min())
        fits = score + meaning
        fits[said] = fit[of]
        for row in np.flatnonzero(self.session < 0).tolist():
            known = [fit[self.sessions[name]] for name in self.hits[row].sources if name in self.sessions]
            fits[row] = max([fits[row], *known])
        return fits


def _mean_of_nearest(session: Any, meaning: Any, sessions: int, least: float) -> Any:
    """By session the mean of what its NEAREST best have; the missing ones of a session with fewer have the `least`."""
    import numpy as np

    order = np.lexsort((-meaning, session))
    sorted_sessions = session[order]
    # How many of the same session stand before each.
    place = np.arange(len(order)) - np.searchsorted(sorted_sessions, sorted_sessions)
    best = order[place < NEAREST]
    return least + np.bincount(session[best], meaning[best] - least, minlength=sessions) / NEAREST


def _rarity(scored: Sequence[Hit], terms: int) -> Any:
    """IDF of the query's words in the caller's space, which the index knows and does not say: what makes its scores of
    the words that it found. What is laid over the index is not scored by it, and says nothing of this.

    Words that the scores do not tell apart are as rare as they come out with a _PULL, too weak to move the others,
    towards the one rarity for all that fits best. None is below 0. A word that the index found nowhere is as rare as
    the rarest.
    """
    import numpy as np

    # Always in the same order: sums of floats are not the same in another.
    known = sorted((hit for hit in scored if not hit.laid), key=lambda hit: hit.id)
    matrix = np.array([hit.words for hit in known]).reshape(len(known), terms)
    # The square of such a weight would be no number any more.
    matrix[np.abs(matrix) < _WEIGHTLESS] = 0.0
    held = matrix.any(axis=0)
    if not held.any():
        return np.ones(terms)
    score, sums = np.array([hit.score for hit in known]), matrix.sum(axis=1)
    alike = score @ sums / (sums @ sums)
    products = matrix.T @ matrix + _PULL * np.eye(terms)
    target = matrix.T @ score + _PULL * alike
    rarity, free = np.zeros(terms), held
    while free.any():
        rarity = np.zeros(terms)
        rarity[free] = np.linalg.solve(products[np.ix_(free, free)], target[free])
        if rarity.min() >= 0:
            break
        # One that came out below 0 has the share of another: without it the others are looked for once more.
        free = free & (rarity > 0)
    rarity[~held] = rarity.max()
    return rarity
