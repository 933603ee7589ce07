"""From what two legs found to one list: how near in meaning, which of the query's words are said here or close by, how
much a passage reads like a fact, and how well its session fits.

Done here and not by the engine, so that every engine gives the same order. Chosen on the development half of LoCoMo,
each part by leaving one conversation out; `docs/bench/recall.md` has the figures and what each part gives.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, overload

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


_Columns = dict[str, tuple[Any, Any]]
"""Parts by name: what was measured of each candidate, and what it added, as vectors of floats."""


class Ranked(NamedTuple):
    """A candidate with its score, which only orders the results of one search. Ranks count from 1 and are None, like
    the score beside them, where that leg did not find the point.

    Only its place among the others: most candidates are looked at by nobody.
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
        """They add up to the score."""
        return tuple(
            Part(name, float(values[self.row]), float(added[self.row]))
            for name, (values, added) in self.among.columns.items()
        )

    @property
    def neighbours(self) -> float:
        """The share of the score that is owed to words of messages beside it."""
        return float(self.among.columns["neighbours"][1][self.row])


class Order(Sequence[Ranked]):
    """Candidates, best first, each made when it is looked at."""

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


class Words:
    """What the leg of words found, and how rare each word of the query is: known before anything else is, see
    `rank`."""

    def __init__(self, hits: Sequence[Hit]) -> None:
        import numpy as np  # a server without an embedder may never search

        # The leg of vectors may have found points with a word that the leg of words left out: they lend nothing, else
        # what lends its words would depend on the meaning.
        self.worded = [place for place, hit in enumerate(hits) if hit.words]
        if not self.worded:
            self.held, self.rarity = np.zeros((0, 0)), np.zeros(0)
            return
        terms = len(hits[self.worded[0]].words)
        flat = chain.from_iterable([hits[place].words for place in self.worded])
        self.held = np.fromiter(flat, np.float64, len(self.worded) * terms).reshape(-1, terms)
        # Always in the same order: sums of floats are not the same in another. What is laid over the index is not
        # scored by it.
        scored = [number for number, place in enumerate(self.worded) if not hits[place].laid]
        scored.sort(key=lambda number: hits[self.worded[number]].id)
        scores = np.array([hits[self.worded[number]].score for number in scored])
        self.rarity = _rarity(self.held[scored], scores)


def rank(
    hits: IndexHits,
    weights: Ranking,
    *,
    uses: Mapping[str, int] | None = None,
    now: int = 0,
    words: Words | None = None,
) -> Order:
    """All candidates, best first, equal scores by id. `uses`: how often memories were used, by URI; `now` in seconds
    since 1970, for recency; `words`: of the same leg of words, where it was there before. Takes under a millisecond for
    400 candidates, and a hundredth of a second for thousands."""
    if not hits.dense and not hits.sparse:
        return Order(None, ())
    candidates = _Candidates(hits, words or Words(hits.sparse), weights, uses or {}, now)
    return Order(candidates, candidates.best_first())


class _Leg:
    """What one leg found, best first, and in which rows of the candidates it stands."""

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
    """What both legs found, with the parts of its scores, in the order of sessions and messages: neighbours stand side
    by side, and first what was not said in a session."""

    def __init__(self, hits: IndexHits, words: Words, weights: Ranking, uses: Mapping[str, int], now: int) -> None:
        import numpy as np

        legs = {hit.id: hit for hit in (*hits.dense, *hits.sparse)}
        ids = sorted(legs)
        self._by_id = [legs[id] for id in ids]
        # By columns: hundreds of fields are read at once so, and not one after the other.
        self._fields = fields = dict(zip(Hit._fields, zip(*self._by_id, strict=True), strict=True))
        passage = PointKind.PASSAGE
        said_in = [
            session if kind is passage else None
            for session, kind in zip(fields["session"], fields["kind"], strict=True)
        ]
        self.sessions = {name: number for number, name in enumerate(sorted({name for name in said_in if name}))}
        session = np.array([self.sessions[name] if name else -1 for name in said_in])
        sequence = np.array([number or 0 for number in fields["sequence"]])
        # What stands in one place stays in the order of ids.
        self._id_order = np.lexsort((sequence, session))
        self.sequence = sequence[self._id_order]
        session = session[self._id_order]
        # Of a memory a number of its own: it stands beside nothing.
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
        # What no vector found is no nearer than the last that one did.
        self.cosine = np.full(len(ids), self.dense.scores.min() if hits.dense else 0.0)
        self.cosine[self.dense.rows] = self.dense.scores
        self.rarity = words.rarity
        self.words = np.zeros((len(ids), len(words.rarity)))
        self.words[self.sparse.rows[words.worded]] = words.held
        self.columns = self._columns(weights, uses, now)
        self.scores = sum(added for _, added in self.columns.values())

    def hit(self, row: int) -> Hit:
        return self._by_id[int(self._id_order[row])]

    def best_first(self) -> list[int]:
        """The rows."""
        import numpy as np

        rows: list[int] = np.lexsort((self._id_order, -self.scores)).tolist()
        return rows

    def _columns(self, weights: Ranking, uses: Mapping[str, int], now: int) -> _Columns:
        """Parts of the scores, in the order of `hits`."""
        import numpy as np

        own = self.words @ self.rarity
        lent = self._spread(weights.neighbour_decay) @ self.rarity - own
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
        """For every word of the query the best weight that it has here or, faded, in a message close by: the subject
        may be named in the question, and the answer said in the reply."""
        import numpy as np

        spread = self.words.copy()
        if not decay or not spread.size:
            return spread
        fades = np.append(decay ** np.arange(REACH + 1), 0.0)
        for step in range(1, min(REACH, len(self.words) - 1) + 1):
            # Of messages no more than REACH apart, so many at most stand between two.
            apart = self.sequence[step:] - self.sequence[:-step]
            near = (self.session[step:] == self.session[:-step]) & (apart <= REACH)
            faded = fades[np.where(near, apart, REACH + 1)][:, None]
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
            known = [fit[self.sessions[name]] for name in self.hit(row).sources if name in self.sessions]
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


def _rarity(held: Any, score: Any) -> Any:
    """IDF of the query's words in the caller's space, which the index knows and does not say: what makes its scores of
    the words that it found. `held`: their weights in each point that it scored, `score`.

    Words that the scores do not tell apart are as rare as they come out with a _PULL, too weak to move the others,
    towards the one rarity for all that fits best. None is below 0. A word that the index found nowhere is as rare as
    the rarest.
    """
    import numpy as np

    terms = held.shape[1]
    # The square of such a weight would be no number any more.
    matrix = np.where(np.abs(held) < _WEIGHTLESS, 0.0, held)
    held_at_all = matrix.any(axis=0)
    if not held_at_all.any():
        return np.ones(terms)
    sums = matrix.sum(axis=1)
    alike = score @ sums / (sums @ sums)
    products = matrix.T @ matrix + _PULL * np.eye(terms)
    target = matrix.T @ score + _PULL * alike
    rarity, free = np.zeros(terms), held_at_all
    while free.any():
        rarity = np.zeros(terms)
        rarity[free] = np.linalg.solve(products[np.ix_(free, free)], target[free])
        if rarity.min() >= 0:
            break
        # One that came out below 0 has the share of another: without it the others are looked for once more.
        free = free & (rarity > 0)
    rarity[~held_at_all] = rarity.max()
    return rarity
