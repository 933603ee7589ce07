"""Lists in statements: of a few lengths only, so that a statement is prepared once for whatever number of values."""

from collections.abc import Hashable, Iterable, Iterator
from typing import Final, TypeVar

Value = TypeVar("Value", bound=Hashable)

SIZE: Final = 32
"""Values that one statement takes."""


def places(first: int, count: int = SIZE) -> str:
    """`$first, ...`, as many as `count`."""
    return ", ".join(f"${number}" for number in range(first, first + count))


def filled(values: Iterable[Value], size: int = SIZE) -> Iterator[list[Value]]:
    """The values, each once, in lists of `size`; the last list is filled up with its last value, which finds no
    more."""
    wanted = list(dict.fromkeys(values))
    for start in range(0, len(wanted), size):
        some = wanted[start : start + size]
        yield some + some[-1:] * (size - len(some))
