"""Two texts side by side, line by line."""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest

CONTEXT_LINES = 3
MAX_LINES = 3000
"""Of one text. To compare longer ones takes seconds."""


@dataclass(frozen=True, slots=True)
class Row:
    """`kind`: `same`, `changed`, `added`, `removed`, or `gap` for equal lines left out. Line numbers from 1."""

    kind: str
    before: str = ""
    after: str = ""
    before_number: int = 0
    after_number: int = 0
    skipped: int = 0


def side_by_side(before: str, after: str) -> list[Row]:
    """Returns the rows of a comparison, with CONTEXT_LINES equal lines around each change."""
    left, right = before.splitlines()[:MAX_LINES], after.splitlines()[:MAX_LINES]
    rows: list[Row] = []
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if tag == "equal":
            rows += _equal(left, i1, i2, j1, first=i1 == j1 == 0, last=i2 == len(left) and j2 == len(right))
        else:
            rows += _changed(left[i1:i2], right[j1:j2], i1, j1)
    return rows


def _equal(lines: list[str], i1: int, i2: int, j1: int, *, first: bool, last: bool) -> Iterator[Row]:
    head = 0 if first else CONTEXT_LINES
    tail = 0 if last else CONTEXT_LINES
    skipped = i2 - i1 - head - tail
    for offset in range(i2 - i1):
        if skipped > 1 and head <= offset < head + skipped:
            if offset == head:
                yield Row("gap", skipped=skipped)
            continue
        line = lines[i1 + offset]
        yield Row("same", line, line, i1 + offset + 1, j1 + offset + 1)


def _changed(left: list[str], right: list[str], i1: int, j1: int) -> Iterator[Row]:
    for offset, (before, after) in enumerate(zip_longest(left, right)):
        if before is None:
            yield Row("added", after=after, after_number=j1 + offset + 1)
        elif after is None:
            yield Row("removed", before=before, before_number=i1 + offset + 1)
        else:
            yield Row("changed", before, after, i1 + offset + 1, j1 + offset + 1)
