"""How much two sentences say the same: by the server's embedder, or by their words where it has none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from extractor.engine import Job
from extractor.offline.keywords import content_words, stem
from extractor.offline.prototypes import PROTOTYPES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector = NDArray[np.float32]

RULES: Final = "rules"
# Of the prototypes of a kind, so many of the nearest count.
_NEAREST: Final = 2


class Likeness(Protocol):
    """Compares texts that it was given to learn."""

    name: str
    """Embedder that compares, or RULES."""
    same: float
    """At or above it two texts say the same in other words."""
    related: float
    """At or above it they speak of the same thing."""

    async def learn(self, texts: Sequence[str]) -> None:
        """Prepare to compare these texts too. Raises EmbedderDown."""
        ...

    def between(self, one: str, other: str) -> float:
        """From 0 to 1, or somewhat below 0."""
        ...

    def kinds(self, text: str) -> Mapping[str, float]:
        """Likeness to each kind of statement; empty when only cues can tell."""
        ...


class ByMeaning:
    """Cosine of sentence vectors."""

    same = 0.9
    related = 0.5

    def __init__(self, job: Job, prototypes: dict[str, dict[str, Vector]]) -> None:
        """`prototypes` is a cache that outlives the job: vectors of the prototypes by embedder and kind."""
        self.name = ""
        self._job = job
        self._prototypes = prototypes
        self._vectors: dict[str, Vector] = {}
        self._by_words = ByWords()

    async def learn(self, texts: Sequence[str]) -> None:
        """See `Likeness`."""
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        if not new:
            return
        self.name, vectors = await self._embed(new)
        self._vectors.update(zip(new, vectors, strict=True))
        if self.name not in self._prototypes:
            self._prototypes[self.name] = {
                kind: (await self._embed(examples))[1] for kind, examples in PROTOTYPES.items()
            }

    def between(self, one: str, other: str) -> float:
        """See `Likeness`. Texts that were not learned are compared by their words."""
        if one not in self._vectors or other not in self._vectors:
            return self._by_words.between(one, other)
        return float(self._vectors[one] @ self._vectors[other])

    def kinds(self, text: str) -> Mapping[str, float]:
        """See `Likeness`."""
        vector = self._vectors[text]
        scores = {}
        for kind, examples in self._prototypes[self.name].items():
            nearest = sorted((float(score) for score in examples @ vector), reverse=True)[:_NEAREST]
            scores[kind] = sum(nearest) / len(nearest)
        return scores

    async def _embed(self, texts: Sequence[str]) -> tuple[str, Vector]:
        import numpy as np

        name, vectors = await self._job.embed(texts)
        return name, np.asarray(vectors, dtype=np.float32)


class ByWords:
    """Share of the content words that two texts have in common."""

    name = RULES
    same = 0.8
    related = 0.34

    def __init__(self) -> None:
        self._known: dict[str, frozenset[str]] = {}

    async def learn(self, texts: Sequence[str]) -> None:
        """Nothing to prepare."""

    def between(self, one: str, other: str) -> float:
        """See `Likeness`."""
        mine, yours = self._stems(one), self._stems(other)
        return len(mine & yours) / len(mine | yours) if mine and yours else 0.0

    def kinds(self, text: str) -> Mapping[str, float]:
        """See `Likeness`."""
        return {}

    def _stems(self, text: str) -> frozenset[str]:
        if text not in self._known:
            self._known[text] = frozenset(stem(word) for word in content_words(text))
        return self._known[text]
