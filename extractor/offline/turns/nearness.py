"""How near two texts are by the words that they share."""

from collections.abc import Iterable, Set
from typing import Final

from extractor.offline.keywords import content_words, stem

# Words in common from which two texts are about the same; one word alone must be half of the smaller side.
_LEAST_SHARED: Final = 2
_LEAST_SHARE: Final = 0.5
FAR: Final = (0, 0.0)


def stems(texts: Iterable[str]) -> set[str]:
    return {stem(word) for text in texts for word in content_words(text)}


def nearness(mine: Set[str], theirs: Set[str]) -> tuple[int, float]:
    """Words in common and their share of the smaller side; FAR where that is too little. The larger, the nearer."""
    shared = len(mine & theirs)
    share = shared / min(len(mine), len(theirs)) if shared else 0.0
    return (shared, share) if shared >= _LEAST_SHARED or share >= _LEAST_SHARE else FAR
