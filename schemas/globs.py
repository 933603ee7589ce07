"""Patterns of paths: `*`, `?` and `[...]` within one name, `**` across directories.

A path is taken name by name, and a name costs no more than its length times that of its part of the pattern, whatever
the pattern: what `fnmatch` makes of one name takes the first place where a piece fits and never goes back before it.
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
    """The text is no pattern."""


class Glob:
    """A pattern in the form of a path: names with slashes between.

    `*` is any text within one name and `?` one character of it, `[a-z]` one of these and `[!a-z]` one that is none of
    them; `[*]` is a star. A name that is `**` alone stands for any number of names, none included. Capital and small
    letters differ. There are no other signs, and no name is left out for its first character.

    Raises GlobError for a pattern with an empty name, as `a//b` and `/a` have.
    """

    def __init__(self, pattern: str) -> None:
        names = unicodedata.normalize("NFC", pattern).split("/")
        if "" in names:
            raise GlobError("the pattern holds an empty name: it is a path below the directory, without a slash around")
        # Two in a row say no more than one.
        kept = [name for place, name in enumerate(names) if name != _ANY or names[place - 1 : place] != [_ANY]]
        self._names = [None if name == _ANY else re.compile(fnmatch.translate(name)) for name in kept]
        self._known: dict[tuple[str, ...], frozenset[int]] = {}

    def matches(self, path: tuple[str, ...]) -> bool:
        """Whether the whole path fits; the directory itself, an empty path, never does."""
        return bool(path) and len(self._names) in self._step(self._after(path[:-1]), path[-1])

    def may_hold(self, directory: tuple[str, ...]) -> bool:
        """Whether any path below the directory can fit."""
        return any(place < len(self._names) for place in self._after(directory))

    def _after(self, directory: tuple[str, ...]) -> frozenset[int]:
        """Names of the pattern that the next name of a path may be asked to fit; their number, where it may end."""
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
        """With the places behind each `**`, which may stand for nothing."""
        behind = {place + 1 for place in places if place < len(self._names) and self._names[place] is None}
        return frozenset(places | behind)
