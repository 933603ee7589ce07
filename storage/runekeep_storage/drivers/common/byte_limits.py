"""Limits how many rows one statement reads by their known size in bytes, because a row may hold megabytes."""

from collections.abc import Sequence


def count_within(sizes: Sequence[int], most_bytes: int) -> int:
    """Returns how many of the first sizes add up to at most `most_bytes`; at least one, unless there are none."""
    for count, size in enumerate(sizes):
        most_bytes -= size
        if most_bytes < 0 and count:
            return count
    return len(sizes)
