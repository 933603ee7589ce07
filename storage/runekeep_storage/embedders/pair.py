"""Two embedders as one: the vector of a text is the vectors of both, one behind the other.

The cosine of two such vectors is the mean of the cosines of the parts, so the index, its filters and its scores need
nothing special. A pair finds what either of its models understands, such as an English model and one of many languages.
"""

import asyncio
import math
from collections.abc import Sequence

from runekeep_storage.database import Space
from runekeep_storage.embedders.base import Embedder
from runekeep_storage.embedders.vectors import scaled


class PairEmbedder:
    """See `Embedder`. A text has a vector only if both embedders have one."""

    def __init__(self, first: Embedder, second: Embedder) -> None:
        self.model = f"{first.model}+{second.model}"
        self.dimension = first.dimension + second.dimension
        self.bulk_texts = max(first.bulk_texts, second.bulk_texts)
        self._both = (first, second)

    async def embed(
        self, texts: Sequence[str], *, query: bool = False, bulk: bool = False, space: Space | None = None
    ) -> list[bytes]:
        """See `Embedder.embed`."""
        calls = (one.embed(texts, query=query, bulk=bulk, space=space) for one in self._both)
        first, second = await asyncio.gather(*calls)
        share = math.sqrt(0.5)
        return [scaled(a, share) + scaled(b, share) for a, b in zip(first, second, strict=True)]

    async def warm(self) -> None:
        """See `Embedder.warm`."""
        for one in self._both:
            await one.warm()

    async def close(self) -> None:
        """See `Embedder.close`."""
        for one in self._both:
            await one.close()
