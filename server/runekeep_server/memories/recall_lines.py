"""Splits memories and passages into lines, and scores how well each line answers a query.

Only a few lines of a long memory answer a query. In the benchmark `make bench-quality`, lines scored by their item's
score and by words answer as many questions as lines with vectors of their own, and need no stored vectors.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from runekeep_storage.index import sparse

MAX_LINE_CHARACTERS: Final = 200
MAX_LINES: Final = 64
"""Maximum lines of one memory or passage that are ranked. Later lines are ignored."""
MAX_RANKED_LINES: Final = 1000
"""Maximum lines of one Recall that are ranked, some 50 ms of work."""
_WORDS_WEIGHT: Final = 0.5
_FIRST_WEIGHT: Final = 0.1
"""Makes the first line win if no word of the query occurs: the first line of a memory is its abstract."""
CONTAINED_SHARE: Final = 0.65
"""A passage's line repeats a memory's line, with its subject, that has this share of its words, weighted by rarity."""
_NUMBERS = re.compile(r"[A-Za-z]*\d[A-Za-z\d]*")
"""Words with a digit, such as the parts of a date."""
_MARKUP = re.compile(r"(?:[>#*+-]{1,6}\s{1,8})*")
"""Signs of headings, quotes and lists with the spaces behind them; the minus of a number stays. Bounded repeats keep
the time linear."""
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？；])")


def split_lines(texts: Iterable[str]) -> list[str]:
    """Returns the lines of the texts, each once and without Markdown at its beginning. Long lines are split between
    sentences."""
    found: dict[str, None] = {}
    for text in texts:
        # A text may have megabytes, and only the first lines count.
        for line in text[: MAX_LINES * MAX_LINE_CHARACTERS].splitlines():
            found.update(dict.fromkeys(_pieces(without_markup(line.strip()))))
    return [line for line in found if any(map(str.isalnum, line))][:MAX_LINES]


def without_markup(line: str) -> str:
    """Returns a line without Markdown at its beginning."""
    signs = _MARKUP.match(f"{line} ")
    return line[signs.end() :].strip() if signs else line


def _pieces(line: str) -> list[str]:
    if len(line) <= MAX_LINE_CHARACTERS:
        return [line] if line else []
    pieces = [""]
    for sentence in _SENTENCE_END.split(line):
        joined = f"{pieces[-1]} {sentence}".strip()
        if len(joined) <= MAX_LINE_CHARACTERS:
            pieces[-1] = joined
            continue
        rest = sentence
        while len(rest) > MAX_LINE_CHARACTERS:
            space = rest.rfind(" ", MAX_LINE_CHARACTERS // 2, MAX_LINE_CHARACTERS)
            end = space if space > 0 else MAX_LINE_CHARACTERS
            pieces.append(rest[:end].strip())
            rest = rest[end:].strip()
        pieces.append(rest)
    return [piece for piece in pieces if piece]


@dataclass(frozen=True, slots=True)
class Item:
    """A search result. `subject`: counts as part of every line. `score`: relative to the best result, about 0 to 1."""

    subject: str
    lines: Sequence[str]
    score: float


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
        the query. Words that few lines have weigh most, as in BM25."""
        wanted = sparse.encode_query(query).indices
        shared = [[self._weight(line.intersection(wanted)) for line in lines] for lines in self._terms]
        best = max((value for values in shared for value in values), default=0.0) or 1.0
        return [
            [
                item.score + _WORDS_WEIGHT * value / best + _FIRST_WEIGHT * (not place)
                for place, value in enumerate([*values, *[0.0] * (len(item.lines) - len(values))])
            ]
            for item, values in zip(self._items, shared, strict=True)
        ]

    def repeats(self, others: Collection[int]) -> list[list[bool]]:
        """Returns for each line of each result whether a line of one of the `others`, by their places, has most of its
        words, see CONTAINED_SHARE, and all of its numbers: another date contradicts. Lines of the others themselves
        repeat nothing."""
        having: defaultdict[int, list[frozenset[int]]] = defaultdict(list)
        for line in {line for other in others for line in self._terms[other]}:
            for term in line:
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
        numbers = sparse.terms(" ".join(_NUMBERS.findall(text)))
        shared: defaultdict[frozenset[int], float] = defaultdict(float)
        for term in line:
            rarity = self._rarity[term]
            for other in having.get(term, ()):
                shared[other] += rarity
        return any(weight >= enough and numbers <= other for other, weight in shared.items())

    def _weight(self, terms: Iterable[int]) -> float:
        return sum(self._rarity[term] for term in terms)
