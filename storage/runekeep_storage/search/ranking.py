"""Ranks the candidates of both legs by nearness in meaning, by the query's words in the message and its neighbours, by
how much a passage reads like a fact, and by how well its session fits.

Done here and not by the engine, so that every engine gives the same order. Chosen on the development half of LoCoMo,
each part by leaving one conversation out; `docs/bench/recall.md` has the figures and what each part contributes.
"""

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, overload

from runekeep_storage.index.base import Hit, IndexHits, PointKind

REACH = 4
"""Number of messages before and after a message that lend it their words."""
NEAREST = 5
"""Number of candidates of a session, nearest in meaning first, whose mean measures how near the session is."""
_LEAST = 1e-300
"""Lower bound for a sum of exponentials, which may underflow."""
_DISTINCT = 1e-6
"""Share of the largest singular value below which scores do not separate two words: above the error of 32-bit
scores."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Weights of the parts of a score, and the number of candidates from each leg.

    `dense_weight`: weight of the cosine. `sparse_weight`: weight of BM25; a word counts with its best weight in the
    message or, times `neighbour_decay` for every step, in one up to REACH away in its session. `fact_weight`: weight of
    `runekeep_storage.indexing.facts`. `session_weight`: weight of how well the session fits, which is the logarithm of
    the sum of the exponentials of its candidates' scores, plus the mean cosine part of its NEAREST candidates.
    `usage_weight`: weight of log(1 + uses) of a memory. `recency_weight`: weight of recency, which halves every
    `recency_days`.
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
    """A part of a score: the measured value, and what it added to the score."""

    name: str
    value: float
    added: float


_Columns = dict[str, tuple[Any, Any]]
"""Parts by name: the measured value of each candidate (NaN: it has no such part) and what it added, as vectors of
floats."""


class Ranked(NamedTuple):
    """A candidate and its score, which is comparable within one search only. Ranks count from 1. The rank and the score
    of a leg are None if that leg did not find the point.

    Holds only a row number, because most candidates are never looked at.
    """

    among: "_Candidates"
    row: int

    @property
    def hit(self) -> Hit:
        return self.among.hit(self.row)

    @property
    def id(self) -> str:
        return self.hit.id

    @property
    def score(self) -> float:
        return float(self.among.scores[self.row])

    @property
    def cosine(self) -> float:
        """The cosine of the query, that of the last point of the dense leg if this leg did not find the point."""
        return float(self.among.cosine[self.row])

    @property
    def dense_rank(self) -> int | None:
        return self.among.dense.rank(self.row)

    @property
    def dense_score(self) -> float | None:
        return self.among.dense.score(self.row)

    @property
    def sparse_rank(self) -> int | None:
        return self.among.sparse.rank(self.row)

    @property
    def sparse_score(self) -> float | None:
        return self.among.sparse.score(self.row)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts, which add up to the score."""
        return tuple(
            Part(name, float(values[self.row]), float(added[self.row]))
            for name, (values, added) in self.among.columns.items()
            if not math.isnan(values[self.row])
        )

    @property
    def neighbours(self) -> float:
        """The share of the score that comes from words of neighbouring messages."""
        return float(self.among.columns["neighbours"][1][self.row])


class Order(Sequence[Ranked]):
    """Candidates, best first. Each is created when it is accessed."""

    def __init__(self, among: "_Candidates | None", rows: Sequence[int]) -> None:
        self._among = among
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> Ranked: ...

    @overload
    def __getitem__(self, place: slice) -> "Order": ...

    def __getitem__(self, place: int | slice) -> "Ranked | Order":
        rows = self._rows[place]
        if isinstance(rows, int):
            assert self._among is not None
            return Ranked(self._among, rows)
        return Order(self._among, rows)

    def reranked(self, values: Mapping[str, float]) -> "Order":
        """Returns the candidates with those that have a value, by point id, exchanged among their places: the highest
        value takes the first of these places, and equal values stay in order.

        A candidate takes the score of its new place too. So scores fall from place to place as before, and a score
        keeps its meaning for thresholds and for relevance. The part `rerank` is the value and what it added.
        """
        import numpy as np

        if self._among is None or not values:
            return self
        of_row = {row: values[id] for row in self._rows if (id := self._among.hit(row).id) in values}
        places = [place for place, row in enumerate(self._rows) if row in of_row]
        chosen = sorted(of_row, key=lambda row: -of_row[row])
        rows, among = list(self._rows), copy(self._among)
        among.scores = self._among.scores.copy()
        measured = np.full(len(among.scores), np.nan)
        for place, row in zip(places, chosen, strict=True):
            rows[place] = row
            measured[row] = of_row[row]
            among.scores[row] = self._among.scores[self._rows[place]]
        among.columns = {**self._among.columns, "rerank": (measured, among.scores - self._among.scores)}
        return Order(among, rows)


class Words:
    """The sparse hits and the IDF of each query word. It can be computed before the dense hits arrive, see `rank`."""

    def __init__(self, hits: Sequence[Hit]) -> None:
        import numpy as np  # a server without an embedder may never search

        # Dense hits may contain words for which the sparse leg did not return the point. They lend no words; otherwise
        # lending would depend on the meaning.
        self.worded = [place for place, hit in enumerate(hits) if hit.words]
        if not self.worded:
            self.held, self.idf = np.zeros((0, 0)), np.zeros(0)
            return
        terms = len(hits[self.worded[0]].words)
        flat = chain.from_iterable([hits[place].words for place in self.worded])
        self.held = np.fromiter(flat, np.float64, len(self.worded) * terms).reshape(-1, terms)
        # Sorted, because float sums depend on the order. Hits of unindexed versions are left out, because the index did
        # not score them.
        scored = [number for number, place in enumerate(self.worded) if not hits[place].laid]
        scored.sort(key=lambda number: hits[self.worded[number]].id)
        scores = np.array([hits[self.worded[number]].score for number in scored])
        self.idf = _idf(self.held[scored], scores)


def rank(
    hits: IndexHits,
    weights: Ranking,
    *,
    uses: Mapping[str, int] | None = None,
    now: int = 0,
    words: Words | None = None,
) -> Order:
    """Returns all candidates, best first, equal scores by id. `uses`: how often memories were used, by URI; `now`:
    seconds since 1970, for recency; `words`: of the same sparse hits, if computed before. Takes under a millisecond for
    400 candidates, and a hundredth of a second for thousands."""
    if not hits.dense and not hits.sparse:
        return Order(None, ())
    candidates = _Candidates(hits, words or Words(hits.sparse), weights, uses or {}, now)
    return Order(candidates, candidates.best_first())


class _Leg:
    """The hits of one leg, best first, and their rows among the candidates."""

    def __init__(self, hits: Sequence[Hit], rows: Any, scores: Any, candidates: int) -> None:
        import numpy as np

        self._hits = hits
        self.rows = rows
        self.scores = scores
        self._ranks = np.zeros(candidates, dtype=np.intp)
        self._ranks[rows] = np.arange(1, len(hits) + 1)

    def rank(self, row: int) -> int | None:
        return int(self._ranks[row]) or None

    def score(self, row: int) -> float | None:
        rank = self.rank(row)
        return None if rank is None else self._hits[rank - 1].score


class _Candidates:
    """The candidates of both legs with the parts of their scores, ordered by session and message, so that neighbours
    are adjacent. Candidates without a session come first."""

    def __init__(self, hits: IndexHits, words: Words, weights: Ranking, uses: Mapping[str, int], now: int) -> None:
        import numpy as np

        legs = {hit.id: hit for hit in (*hits.dense, *hits.sparse)}
        ids = sorted(legs)
        self._by_id = [legs[id] for id in ids]
        # Column by column, which is faster than reading hundreds of fields one after another.
        self._fields = fields = dict(zip(Hit._fields, zip(*self._by_id, strict=True), strict=True))
        passage = PointKind.PASSAGE
        said_in = [
            session if kind is passage else None
            for session, kind in zip(fields["session"], fields["kind"], strict=True)
        ]
        self.sessions = {name: number for number, name in enumerate(sorted({name for name in said_in if name}))}
        session = np.array([self.sessions[name] if name else -1 for name in said_in])
        sequence = np.array([number or 0 for number in fields["sequence"]])
        # Stable: candidates with equal keys stay in the order of their ids.
        self._id_order = np.lexsort((sequence, session))
        self.sequence = sequence[self._id_order]
        session = session[self._id_order]
        # Each memory gets a number of its own, because it has no neighbours.
        self.session = np.where(session >= 0, session, -1 - np.arange(len(ids)))
        rows = np.empty(len(ids), dtype=np.intp)
        rows[self._id_order] = np.arange(len(ids))
        row_of = dict(zip(ids, rows.tolist(), strict=True))
        self.dense, self.sparse = (
            _Leg(
                leg,
                np.array([row_of[hit.id] for hit in leg], dtype=np.intp),
                np.array([hit.score for hit in leg]),
                len(ids),
            )
            for leg in (hits.dense, hits.sparse)
        )
        # A candidate that the dense leg did not find counts as near as the last one that it found.
        self.cosine = np.full(len(ids), self.dense.scores.min() if hits.dense else 0.0)
        self.cosine[self.dense.rows] = self.dense.scores
        self.idf = words.idf
        self.words = np.zeros((len(ids), len(words.idf)))
        self.words[self.sparse.rows[words.worded]] = words.held
        self.columns = self._columns(weights, uses, now)
        self.scores = sum(added for _, added in self.columns.values())

    def hit(self, row: int) -> Hit:
        return self._by_id[int(self._id_order[row])]

    def best_first(self) -> list[int]:
        """Returns the rows, best score first."""
        import numpy as np

        rows: list[int] = np.lexsort((self._id_order, -self.scores)).tolist()
        return rows

    def _columns(self, weights: Ranking, uses: Mapping[str, int], now: int) -> _Columns:
        """Returns the parts of the scores, in the order of the rows."""
        import numpy as np

        own = self.words @ self.idf
        lent = self._spread(weights.neighbour_decay) @ self.idf - own
        facts = np.array(self._fields["fact"], dtype=np.float64)[self._id_order]
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
            remembered = ((hit.uri if hit.kind is PointKind.MEMORY else "") for hit in self._by_id)
            used = np.array([float(uses.get(uri, 0)) for uri in remembered])[self._id_order]
            columns["usage"] = (used, weights.usage_weight * np.log1p(used))
        if weights.recency_weight:
            days = np.array([max(now - (time or 0), 0) / 86_400 for time in self._fields["time"]])[self._id_order]
            columns["recency"] = (days, weights.recency_weight * 0.5 ** (days / weights.recency_days))
        return columns

    def _spread(self, decay: float) -> Any:
        """Returns the best weight of every query word here or, decayed, in a neighbouring message: the question may
        name the subject, and the reply the answer."""
        import numpy as np

        spread = self.words.copy()
        if not decay or not spread.size:
            return spread
        fades = np.append(decay ** np.arange(REACH + 1), 0.0)
        for step in range(1, min(REACH, len(self.words) - 1) + 1):
            # Sequences differ, so at most REACH - 1 messages lie between two that are REACH apart.
            apart = self.sequence[step:] - self.sequence[:-step]
            near = (self.session[step:] == self.session[:-step]) & (apart <= REACH)
            faded = fades[np.where(near, apart, REACH + 1)][:, None]
            np.maximum(spread[step:], self.words[:-step] * faded, out=spread[step:])
            np.maximum(spread[:-step], self.words[step:] * faded, out=spread[:-step])
        return spread

    def _sessions(self, score: Any, meaning: Any) -> Any:
        """Returns how well the session of each candidate fits, see `Ranking`. A memory takes the value of the best
        session that it came from, or its own if that is higher."""
        import numpy as np

        said = np.flatnonzero(self.session >= 0)
        of, count = self.session[said], len(self.sessions)
        top = score.max()
        fit = top + np.log(np.maximum(np.bincount(of, np.exp(score[said] - top), minlength=count), _LEAST))
        fit += _mean_of_nearest(of, meaning[said], count, meaning.min())
        fits = score + meaning
        fits[said] = fit[of]
        for row in np.flatnonzero(self.session < 0).tolist():
            known = [fit[self.sessions[name]] for name in self.hit(row).sources if name in self.sessions]
            fits[row] = max([fits[row], *known])
        return fits


def _mean_of_nearest(session: Any, meaning: Any, sessions: int, least: float) -> Any:
    """Returns the mean of the NEAREST best values of each session. Missing values of a session with fewer count as
    `least`."""
    import numpy as np

    order = np.lexsort((-meaning, session))
    sorted_sessions = session[order]
    # The number of candidates of the same session before each.
    place = np.arange(len(order)) - np.searchsorted(sorted_sessions, sorted_sessions)
    best = order[place < NEAREST]
    return least + np.bincount(session[best], meaning[best] - least, minlength=sessions) / NEAREST


def _idf(held: Any, scores: Any) -> Any:
    """Returns the IDF of each query word as the index counts it in the caller's space. `held`: the weights of the words
    in each point that the index found; `scores`: the scores that it gave them.

    A score is the sum of weight times IDF over the words, and the index returns scores only. So this solves for the
    IDF, see docs/decisions/0016-idf-of-the-index.md. Words that the scores do not separate stay as close as possible to
    the mean IDF. No value is below 0, so that no word counts against a point. A word that the index found nowhere is as
    rare as the rarest.
    """
    import numpy as np

    found = held.any(axis=0)
    if not found.any():
        return np.ones(len(found))
    weights = held.sum(axis=1)
    mean = scores.sum() / weights.sum()
    idf = np.maximum(mean + np.linalg.lstsq(held, scores - mean * weights, rcond=_DISTINCT)[0], 0.0)
    idf[~found] = idf.max()
    return idf
