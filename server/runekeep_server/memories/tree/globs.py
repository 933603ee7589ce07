"""Patterns of paths: `*`, `?` and `[...]` within one name, `**` across directories.

Paths are matched name by name. Matching a name costs at most its length times the length of its part of the pattern:
the expressions of `fnmatch` match each piece at its first possible place and never backtrack before it.
"""

from __future__ import annotations

import fnmatch
import re
import unicodedata
from collections.abc import Iterable
from typing import Final

_ANY: Final = "**"
_KNOWN_DIRECTORIES: Final = 4096


class GlobError(ValueError):
    """The text is not a valid pattern."""


class Glob:
    """A pattern in the form of a path: names separated by slashes.

    `*` matches any text within one name, `?` one character, `[a-z]` one of these characters and `[!a-z]` one other;
    `[*]` matches a star. The name `**` matches any number of names, including none. Matching is case-sensitive. There
    are no other special characters, and names with a leading dot are not excluded. Raises GlobError for a pattern with
    an empty name, such as `a//b` and `/a`.
    """

    def __init__(self, pattern: str) -> None:
        names = unicodedata.normalize("NFC", pattern).split("/")
        if "" in names:
            raise GlobError("the pattern holds an empty name: it is a path below the directory, without a slash around")
        # Two in a row mean the same as one.
        kept = [name for place, name in enumerate(names) if name != _ANY or names[place - 1 : place] != [_ANY]]
        self._names = [None if name == _ANY else re.compile(fnmatch.translate(name)) for name in kept]
        self._known: dict[tuple[str, ...], frozenset[int]] = {}

    def matches(self, path: tuple[str, ...]) -> bool:
        """Returns whether the whole path matches. The directory itself, an empty path, never does."""
        return bool(path) and len(self._names) in self._step(self._after(path[:-1]), path[-1])

    def may_hold(self, directory: tuple[str, ...]) -> bool:
        """Returns whether any path below the directory can match."""
        return any(place < len(self._names) for place in self._after(directory))

    def _after(self, directory: tuple[str, ...]) -> frozenset[int]:
        """Returns the indexes of the pattern's names that the next name of a path may match. The number of names means
        that the path may end here."""
        if not directory:
            return self._open({0})
        found = self._known.get(directory)
        if found is None:
            found = self._step(self._after(directory[:-1]), directory[-1])
            if len(self._known) >= _KNOWN_DIRECTORIES:
                self._known.clear()
            self._known[directory] = found
        return found

    def _step(self, places: Iterable[int], name: str) -> frozenset[int]:
        reached = set()
        for place in places:
            if place == len(self._names):
                continue
            pattern = self._names[place]
            if pattern is None:
                reached.add(place)
            elif pattern.match(name):
                reached.add(place + 1)
        return self._open(reached)

    def _open(self, places: set[int]) -> frozenset[int]:
        """Returns the places, and those after each `**`, which may match nothing."""
        behind = {place + 1 for place in places if place < len(self._names) and self._names[place] is None}
        return frozenset(places | behind)
