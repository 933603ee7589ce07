"""Dense vectors as they lie in rows and points: little-endian float32 without a header."""

import math
import operator
import sys
from array import array
from collections.abc import Iterable


def to_bytes(values: Iterable[float]) -> bytes:
    """Pack numbers into four bytes each."""
    numbers = array("f", values)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def from_bytes(data: bytes) -> list[float]:
    """The numbers of a packed vector. Raises ValueError when the length is no multiple of four."""
    numbers = array("f")
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()


def cosine(left: bytes, right: bytes) -> float:
    """Cosine similarity of two packed vectors, from -1 to 1; 0 when one of them is all zeros.

    Raises ValueError when their dimensions differ.
    """
    if len(left) != len(right):
        raise ValueError(f"vectors of {len(left) // 4} and {len(right) // 4} numbers cannot be compared")
    a, b = from_bytes(left), from_bytes(right)
    norm = math.sqrt(_dot(a, a) * _dot(b, b))
    return _dot(a, b) / norm if norm else 0.0


def _dot(a: list[float], b: list[float]) -> float:
    return math.fsum(map(operator.mul, a, b))
