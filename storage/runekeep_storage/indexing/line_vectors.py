"""The form of the vectors of the lines of a memory in its row: a digest of each line's text, then the vectors as
float16. By the digests a reader finds the vectors of the lines that it has, whatever the lines of the release before
were."""

from collections.abc import Iterable, Sequence
from typing import Final
from zlib import crc32

_DIGEST_BYTES: Final = 4


def pack(texts: Sequence[str], vectors: Iterable[bytes]) -> bytes:
    """Packs the vectors of lines, given as little-endian float32."""
    import numpy as np

    halves = np.frombuffer(b"".join(vectors), "<f4").astype("<f2")
    return np.array([_digest(text) for text in texts], "<u4").tobytes() + halves.tobytes()


def cosines(packed: bytes, query: bytes, texts: Iterable[str], otherwise: float) -> list[float]:
    """Returns the cosine of the query's vector and of each text that has a vector, `otherwise` for the others."""
    import numpy as np

    wanted = np.frombuffer(query, "<f4")
    count = len(packed) // (_DIGEST_BYTES + 2 * len(wanted))
    vectors = np.frombuffer(packed, "<f2", count * len(wanted), _DIGEST_BYTES * count)
    near = vectors.reshape(count, len(wanted)).astype("<f4") @ wanted
    known = dict(zip(np.frombuffer(packed, "<u4", count).tolist(), near.tolist(), strict=True))
    return [known.get(_digest(text), otherwise) for text in texts]


def _digest(text: str) -> int:
    return crc32(text.encode())
