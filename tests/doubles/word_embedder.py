"""A test double of an embedder, for speed: eight numbers from hashed words, so texts that share words are near."""

import asyncio
import math
import zlib
from collections.abc import Sequence

from runekeep_storage.database import Space
from runekeep_storage.embedders import EmbedderUnavailable
from runekeep_storage.embedders.vectors import to_bytes

DIMENSION = 8


def vector(text: str) -> bytes:
    numbers = [0.0] * DIMENSION
    for word in text.lower().split():
        numbers[zlib.crc32(word.strip(".,:;()").encode()) % DIMENSION] += 1.0
    length = math.sqrt(sum(number * number for number in numbers)) or 1.0
    return to_bytes(number / length for number in numbers)


class WordEmbedder:
    """Implements `runekeep_storage.embedders.Embedder`. It can be taken down, and it can be held while it works."""

    model = "hashed-words-8"
    dimension = DIMENSION
    bulk_texts = 32

    def __init__(self) -> None:
        self.down = False
        self.texts: list[str] = []
        self.working = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()

    async def embed(
        self, texts: Sequence[str], *, query: bool = False, bulk: bool = False, space: Space | None = None
    ) -> list[bytes]:
        if self.down:
            raise EmbedderUnavailable("taken down by the test")
        self.texts += texts
        self.working.set()
        await self.go.wait()
        return [vector(text) for text in texts]

    async def warm(self) -> None:
        if self.down:
            raise EmbedderUnavailable("taken down by the test")

    async def close(self) -> None:
        self.down = True
