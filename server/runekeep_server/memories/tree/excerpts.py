"""Excerpts of a document: a range of lines or characters, limited to the size of an answer."""

from dataclasses import dataclass
from typing import Protocol

MAX_BYTES = 1024 * 1024
"""Maximum bytes of the text of one answer, in UTF-8."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A part of a document. `following`: the next line or character, or 0 at the end of the document. `cut_at`: the
    character of the document at which its only line was cut, or 0."""

    text: str
    following: int
    total_lines: int
    total_characters: int
    cut_at: int = 0


class Range(Protocol):
    """Collects a part of a document. It takes all lines of the document in order, and keeps only those of the part.

    Only a line feed ends a line; other separators may be inside a line.
    """

    def take(self, line: str) -> None:
        """Takes the next line, without its line feed."""
        ...

    def excerpt(self) -> Excerpt:
        """Returns the part, after all lines were taken."""
        ...


class LineRange:
    """Lines from `offset` on, `limit` of them or all for -1 and 0: as many whole lines as an answer holds. If the first
    line is too long, it is cut."""

    def __init__(self, offset: int, limit: int) -> None:
        self._offset = offset
        self._stop = None if limit in (0, -1) else offset + limit
        self._shown: list[str] = []
        self._room = MAX_BYTES + 1
        self._full = False
        self._cut_at = 0
        self._lines = 0
        self._characters = 0

    def take(self, line: str) -> None:
        number, begin = self._lines, self._characters
        self._lines += 1
        # Plus the line feed.
        self._characters += len(line) + 1
        if self._full or number < self._offset or (self._stop is not None and number >= self._stop):
            return
        self._room -= len(line.encode()) + 1
        if self._room >= 0:
            self._shown.append(line)
            return
        self._full = True
        if not self._shown:
            self._shown.append(_within(line, MAX_BYTES))
            self._cut_at = begin + len(self._shown[0])

    def excerpt(self) -> Excerpt:
        reached = self._offset + len(self._shown)
        following = reached if reached < self._lines else 0
        return Excerpt("\n".join(self._shown), following, self._lines, max(self._characters - 1, 0), self._cut_at)


class CharacterRange:
    """Characters from `start` on, at most `length`; 0 means as many as an answer holds."""

    def __init__(self, start: int, length: int) -> None:
        self._start = start
        self._stop = start + min(length or MAX_BYTES, MAX_BYTES)
        self._shown: list[str] = []
        self._lines = 0
        self._characters = 0

    def take(self, line: str) -> None:
        text = f"\n{line}" if self._lines else line
        begin = self._characters
        self._lines += 1
        self._characters += len(text)
        if begin < self._stop and self._characters > self._start:
            self._shown.append(text[max(self._start - begin, 0) : self._stop - begin])

    def excerpt(self) -> Excerpt:
        shown = _within("".join(self._shown), MAX_BYTES)
        reached = self._start + len(shown)
        return Excerpt(shown, reached if reached < self._characters else 0, self._lines, self._characters)


def _within(text: str, most: int) -> str:
    """Returns the first characters that take at most `most` bytes."""
    encoded = text[:most].encode()
    return text[:most] if len(encoded) <= most else encoded[:most].decode(errors="ignore")
