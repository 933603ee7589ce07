"""Measures how similar two texts are by the words that they share."""

from collections.abc import Iterable, Set
from typing import Final

from extractor.offline.keywords import content_words, stem

# Two texts are similar if they share this many words, or if the shared words are this share of the smaller set.
_MIN_SHARED_WORDS: Final = 2
_MIN_SHARE: Final = 0.5
FAR: Final = (0, 0.0)


def stems(texts: Iterable[str]) -> set[str]:
    return {stem(word) for text in texts for word in content_words(text)}


def nearness(mine: Set[str], theirs: Set[str]) -> tuple[int, float]:
    """Returns the number of common words and their share of the smaller set, or FAR if both are too small. Larger is
    more similar."""
    shared = len(mine & theirs)
    share = shared / min(len(mine), len(theirs)) if shared else 0.0
    return (shared, share) if shared >= _MIN_SHARED_WORDS or share >= _MIN_SHARE else FAR
