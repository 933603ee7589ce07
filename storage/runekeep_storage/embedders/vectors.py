"""Dense vectors as stored in rows and points: little-endian float32 without a header."""

import math
import operator
import sys
from array import array
from collections.abc import Iterable, Sequence
from typing import Any


def to_bytes(values: Iterable[float]) -> bytes:
    """Packs numbers into four bytes each."""
    numbers = array("f", values)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def from_bytes(data: bytes) -> list[float]:
    """Returns the numbers of a packed vector. Raises ValueError if the length is not a multiple of four."""
    numbers = array("f")
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()


def scaled(vector: bytes, factor: float) -> bytes:
    """Returns a packed vector with each number multiplied by a factor."""
    return to_bytes(number * factor for number in from_bytes(vector))


def to_unit_vectors(rows: Sequence[Any], count: int, dimension: int) -> list[bytes]:
    """Packs the vectors that a model returned for `count` texts, scaled to length 1. Raises ValueError, with what is
    wrong, unless these are that many vectors of that many finite numbers, none of them all zeros."""
    import numpy as np

    try:
        vectors = np.array(rows, dtype="<f4")
    except (ValueError, TypeError):
        raise ValueError("vectors that cannot be read") from None
    if vectors.ndim != 2 or len(vectors) != count:
        raise ValueError(f"{len(vectors)} vectors for {count} texts")
    if vectors.shape[1] != dimension:
        raise ValueError(f"vectors of {vectors.shape[1]} numbers, and embedding.dimension is {dimension}")
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    if not np.isfinite(lengths).all() or not lengths.all():
        raise ValueError("a vector that is zero or holds no numbers")
    return [vector.tobytes() for vector in (vectors / lengths).astype("<f4")]


def cosine(left: bytes, right: bytes) -> float:
    """Returns the cosine similarity of two packed vectors, from -1 to 1; 0 if one of them is all zeros.

    Raises ValueError if their dimensions differ.
    """
    if len(left) != len(right):
        raise ValueError(f"vectors of {len(left) // 4} and {len(right) // 4} numbers cannot be compared")
    a, b = from_bytes(left), from_bytes(right)
    norm = math.sqrt(_dot(a, a) * _dot(b, b))
    return _dot(a, b) / norm if norm else 0.0


def _dot(a: list[float], b: list[float]) -> float:
    return math.fsum(map(operator.mul, a, b))
