"""Compares the query of a search with the lines of the memories that it found, by the stored vectors of the lines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from runekeep_storage.database import Space, SpaceDatabase, Tx
from runekeep_storage.indexing import line_vectors
from runekeep_storage.memories import memories
from runekeep_storage.memories.memories import Key
from runekeep_storage.records import Memory
from runekeep_storage.search.requests import FindAnswer

MAX_MEMORIES: Final = 64
"""Maximum number of memories whose lines are compared, the best ones first. Each may have a quarter of a megabyte."""


@dataclass(frozen=True, slots=True)
class LineCosines:
    """The vector of a query, and the packed vectors of the lines of memories, by URI and version."""

    query: bytes
    packed: Mapping[Key, bytes]

    def of(self, memory: Memory, texts: Sequence[str], otherwise: float) -> list[float]:
        """Returns the cosine of the query and each text of a memory, `otherwise` for texts without a vector."""
        packed = self.packed.get((memory.uri, memory.version))
        if packed is None:
            return [otherwise] * len(texts)
        return line_vectors.cosines(packed, self.query, texts, otherwise)


async def of_answer(database: SpaceDatabase, space: Space, answer: FindAnswer) -> LineCosines | None:
    """Returns what is known of the results of a search. Returns None if its query has no vector, and if it found
    memories and no line of them has one: by the vectors of whole memories alone, lines are ranked worse than by
    words."""
    if answer.vector is None:
        return None
    packed = await database.read(_packed, space, answer)
    if not packed and any(isinstance(one.item, Memory) for one in answer.results):
        return None
    return LineCosines(answer.vector, packed)


async def _packed(tx: Tx, space: Space, answer: FindAnswer) -> dict[Key, bytes]:
    keys = [(one.item.uri, one.item.version) for one in answer.results if isinstance(one.item, Memory)][:MAX_MEMORIES]
    rows = await memories.line_vectors(tx, space, keys, answer.revision)
    # Not those of another embedder. The empty model of a memory that has none fits no answer with a vector.
    return {key: bytes(row["line_vectors"]) for key, row in rows.items() if row["line_vectors_model"] == answer.model}
