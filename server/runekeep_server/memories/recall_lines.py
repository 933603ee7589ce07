"""Scores how well each line of memories and passages answers a query: only a few lines of a long memory do.

The weights were chosen with `make bench-quality` on four of its eight lives.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Final

from runekeep_storage.index import sparse

MAX_RANKED_LINES: Final = 1000
"""Maximum lines of one Recall that are ranked, some 50 ms of work."""
_WORDS_WEIGHT: Final = 0.5
_COSINE_WEIGHT: Final = 2.0
_FIRST_WEIGHT: Final = 0.1
"""Makes the first line win if no word of the query occurs: the first line of a memory is its abstract."""
CONTAINED_SHARE: Final = 0.65
"""A passage's line repeats a memory's line, with its subject, that has this share of its words, weighted by rarity."""
_NUMBERS = re.compile(r"[A-Za-z]*\d[A-Za-z\d]*")
"""Words with a digit, such as the parts of a date."""


@dataclass(frozen=True, slots=True)
class Item:
    """A search result. `subject`: counts as part of every line. `score`: relative to the best result, about 0 to 1.
    `cosines`: of the query and each line; empty without an embedder."""

    subject: str
    lines: Sequence[str]
    score: float
    cosines: Sequence[float] = ()


class LineScores:
    """The words of the lines of all results, best result first. Lines beyond MAX_RANKED_LINES count as without
    words."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = items
        self._terms: list[list[frozenset[int]]] = []
        room = MAX_RANKED_LINES
        for item in items:
            of_subject = sparse.terms(item.subject)
            self._terms.append([of_subject | sparse.terms(line) for line in item.lines[:room]])
            room -= len(self._terms[-1])
        lines = [line for terms in self._terms for line in terms]
        frequency = Counter(chain.from_iterable(lines))
        self._rarity = {
            term: math.log(1 + (len(lines) - count + 0.5) / (count + 0.5)) for term, count in frequency.items()
        }

    def of(self, query: str) -> list[list[float]]:
        """Returns the scores of each result's lines: the score of the result, and more for lines that share words with
        the query or are near it in meaning. Words that few lines have weigh most, as in BM25."""
        wanted = sparse.encode_query(query).indices
        shared = [[self._weight(line.intersection(wanted)) for line in lines] for lines in self._terms]
        best = max((value for values in shared for value in values), default=0.0) or 1.0
        return [
            [
                item.score + _WORDS_WEIGHT * value / best + _COSINE_WEIGHT * cosine + _FIRST_WEIGHT * (not place)
                # The words of lines beyond MAX_RANKED_LINES are not compared.
                for place, (_, value, cosine) in enumerate(zip_longest(item.lines, values, item.cosines, fillvalue=0.0))
            ]
            for item, values in zip(self._items, shared, strict=True)
        ]

    def repeats(self, others: Collection[int]) -> list[list[bool]]:
        """Returns for each line of each result whether a line of one of the `others`, by their places, has most of its
        words, see CONTAINED_SHARE, and all of its numbers: another date contradicts. Lines of the others themselves
        repeat nothing."""
        compared = [line for place, lines in enumerate(self._terms) if place not in others for line in lines]
        wanted = frozenset(chain.from_iterable(compared))
        having: defaultdict[int, list[frozenset[int]]] = defaultdict(list)
        for line in {line for other in others for line in self._terms[other]}:
            for term in line & wanted:
                having[term].append(line)
        return [
            [
                place not in others and line < len(terms) and self._repeats(text, terms[line], having)
                for line, text in enumerate(item.lines)
            ]
            for place, (terms, item) in enumerate(zip(self._terms, self._items, strict=True))
        ]

    def _repeats(self, text: str, line: frozenset[int], having: Mapping[int, Sequence[frozenset[int]]]) -> bool:
        enough = CONTAINED_SHARE * self._weight(line)
        shared: defaultdict[frozenset[int], float] = defaultdict(float)
        for term in line:
            rarity = self._rarity[term]
            for other in having.get(term, ()):
                shared[other] += rarity
        most = [other for other, weight in shared.items() if weight >= enough]
        return bool(most) and any(map(sparse.terms(" ".join(_NUMBERS.findall(text))).issubset, most))

    def _weight(self, terms: Iterable[int]) -> float:
        return sum(self._rarity[term] for term in terms)
