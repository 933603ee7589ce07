"""Builds SQL lists of a few fixed lengths, so that the engine prepares few statements for any number of values."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

Value = TypeVar("Value", bound=Hashable)
Row = TypeVar("Row")

SIZE: Final = 32
"""Values that one statement takes."""
ROWS: Final = 16
"""Rows that one statement takes. A statement is prepared for each number up to that."""


def places(first: int, count: int = SIZE) -> str:
    """Returns `$first, ...` with `count` placeholders."""
    return ", ".join(f"${number}" for number in range(first, first + count))


def filled(values: Iterable[Value], size: int = SIZE) -> Iterator[list[Value]]:
    """Yields the distinct values in lists of `size`. Repeats the last value to fill the last list; duplicates match
    nothing more."""
    wanted = list(dict.fromkeys(values))
    for start in range(0, len(wanted), size):
        some = wanted[start : start + size]
        yield some + some[-1:] * (size - len(some))


def rows(row: str, count: int, first: int) -> str:
    """Returns `count` copies of a row such as `($1, ?, ?)` for VALUES. Each `?` becomes its own parameter, numbered
    from `$first`."""
    numbers = iter(range(first, first + count * row.count("?")))
    return ", ".join("".join(f"${next(numbers)}" if char == "?" else char for char in row) for _ in range(count))


def in_rows(values: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Yields the values in slices of at most ROWS."""
    for start in range(0, len(values), ROWS):
        yield values[start : start + ROWS]


def by_keys(select: str, key: Sequence[str], count: int, first: int, behind: str = "") -> str:
    """Returns a statement that reads `count` rows, each by all columns of its key. The key values follow row by row
    from `$first`. `select` must already have a condition; `behind` adds more conditions.

    A list for each column would make either engine look up every combination of values. With a list of keys, PostgreSQL
    may read everything that the condition before it leaves, as long as it has no statistics of a growing table.
    """
    numbers = range(first, first + count * len(key), len(key))
    return " UNION ALL ".join(
        select + "".join(f" AND {name} = ${number + place}" for place, name in enumerate(key)) + behind
        for number in numbers
    )
