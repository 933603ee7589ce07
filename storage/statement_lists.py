"""Lists in statements: of a few lengths only, so that a statement is prepared once for whatever number of values."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

Value = TypeVar("Value", bound=Hashable)
Row = TypeVar("Row")

SIZE: Final = 32
"""Values that one statement takes."""
ROWS: Final = 16
"""Rows that one statement takes. A statement is prepared for each number up to that."""


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


def rows(row: str, count: int, first: int) -> str:
    """A row such as `($1, ?, ?)` so many times, as VALUES has it: each `?` is a parameter of its own, from `$first`
    on."""
    numbers = iter(range(first, first + count * row.count("?")))
    return ", ".join("".join(f"${next(numbers)}" if char == "?" else char for char in row) for _ in range(count))


def in_rows(values: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """The values, at most ROWS at a time."""
    for start in range(0, len(values), ROWS):
        yield values[start : start + ROWS]


def by_keys(select: str, key: Sequence[str], count: int, first: int, behind: str = "") -> str:
    """A statement that reads so many rows, each by all columns of its key, whose values come row by row from `$first`
    on. `select` has a condition already; `behind`: more of them.

    With a list for each column either engine would look for each value with each of the others; and of a list of keys
    PostgreSQL, while it has not counted a table that grows, may read all that the condition before it leaves.
    """
    numbers = range(first, first + count * len(key), len(key))
    return " UNION ALL ".join(
        select + "".join(f" AND {name} = ${number + place}" for place, name in enumerate(key)) + behind
        for number in numbers
    )
