"""Finds lines that contain a text or match an expression."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, cast

import re2

SHOWN = 1000
"""Characters of a long line that are shown."""
MAX_PROGRAM = 2000
"""Maximum of instructions of an expression, as RE2 counts them. If it has too many states to cache, RE2 runs all
instructions for each byte, so this bounds the duration of a search."""
PIECE = 32 * 1024
"""Characters of one search, which nothing can interrupt."""
OVERLAP = 8 * 1024
"""Characters that two pieces of one long line share. A match that is no longer than this lies within one piece."""
_DOTS = "..."
_EXPRESSIONS = 64
_PROGRAM_MEMORY = 256 * 1024
"""Memory for measuring an expression: RE2 gives up before it creates many more instructions than are allowed."""


class PatternError(ValueError):
    """The pattern cannot be searched for."""


@dataclass(frozen=True, slots=True)
class Found:
    """A matching line, by its number from 0, and the lines around it, all cut for display."""

    number: int
    text: str
    before: tuple[str, ...]
    after: tuple[str, ...]


class Pattern(Protocol):
    """A pattern that is searched within one line."""

    def anywhere(self, text: str) -> bool:
        """Returns False only if no line of the text contains the pattern."""
        ...

    def place(self, line: str, check: Callable[[], None]) -> int:
        """Returns where the first match in the line begins, or -1. Calls `check` regularly, which may raise."""
        ...


@dataclass(frozen=True, slots=True)
class _Plain:
    text: str

    def anywhere(self, text: str) -> bool:
        return self.text in text

    def place(self, line: str, check: Callable[[], None]) -> int:
        return line.find(self.text)


@dataclass(frozen=True, slots=True)
class _Expression:
    """`of_text` matches any text of which a line matches. None: no such expression may exist."""

    of_line: "re2._Regexp"
    of_text: "re2._Regexp | None"

    def anywhere(self, text: str) -> bool:
        return self.of_text is None or self.of_text.search(text) is not None

    def place(self, line: str, check: Callable[[], None]) -> int:
        for start in range(0, max(len(line) - OVERLAP, 1), PIECE - OVERLAP):
            check()
            # Includes the characters next to the piece, which `$` and `\b`, for example, inspect.
            left = max(start - 1, 0)
            end = min(start + PIECE, len(line))
            found = self.of_line.search(line[left : end + 1], start - left, end - left)
            if found is not None:
                return left + cast(int, found.start())
        return -1


def pattern_of(text: str, *, regex: bool, ignore_case: bool) -> Pattern:
    """Returns the pattern for plain text or an expression in RE2's syntax. Its search time is linear in the searched
    text and in its own size, which is bounded. `ignore_case` uses Unicode's simple folding. Takes milliseconds. Raises
    PatternError."""
    if "\n" in text:
        raise PatternError("it is looked for within one line, and holds the end of one")
    if not regex and not ignore_case:
        return _Plain(text)
    return _expression(text if regex else re2.escape(text), ignore_case, regex)


@lru_cache(maxsize=_EXPRESSIONS)
def _expression(text: str, ignore_case: bool, regex: bool) -> _Expression:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.case_sensitive = not ignore_case
    try:
        if regex:
            _measure(text, options)
        of_line = re2.compile(text, options)
        # Anchors of a text, and flags in the expression, could make it match a line but not the text around it.
        if regex and any(sign in text for sign in ("\\A", "\\z", "(?")):
            return _Expression(of_line, None)
        options.never_nl = True
        return _Expression(of_line, re2.compile(f"(?m){text}", options))
    except re2.error as error:
        said = error.args[0]
        raise PatternError(said.decode(errors="replace") if isinstance(said, bytes) else str(said)) from error


def _measure(text: str, options: "re2.Options") -> None:
    """Raises PatternError for an expression that is too large."""
    usual, options.max_mem = options.max_mem, _PROGRAM_MEMORY
    try:
        size = re2.compile(text, options).programsize
    except re2.error as error:
        if b"pattern too large" not in error.args[0]:
            raise
        size = MAX_PROGRAM + 1
    finally:
        options.max_mem = usual
    if size > MAX_PROGRAM:
        raise PatternError(
            f"it comes to more than {MAX_PROGRAM} instructions; repeat less, as in a{{0,50}} for a{{0,1000}},"
            " or look for a part of it"
        )


def _go_on() -> None:
    """Checks nothing."""


def search(
    pattern: Pattern,
    lines: Sequence[str],
    first: int,
    stop: int,
    *,
    context: int,
    take: Callable[[Found], bool],
    number: int = 0,
    worn: Callable[[], bool] = lambda: False,
    check: Callable[[], None] = _go_on,
) -> int:
    """Passes matching lines from `first` to before `stop` to `take`, until `take` returns False or, after some lines,
    `worn` returns True. Returns the line to continue with, or `stop` at the end.

    `number`: number of the first of all lines in its document. An exception from `check` ends the search, even within a
    line.
    """
    begin = first
    while begin < stop:
        if begin > first and worn():
            return begin
        check()
        end, size = begin + 1, len(lines[begin])
        while end < stop and size + len(lines[end]) < PIECE:
            size += len(lines[end]) + 1
            end += 1
        if end == begin + 1 or pattern.anywhere("\n".join(lines[begin:end])):
            for here in range(begin, end):
                place = pattern.place(lines[here], check)
                if place < 0:
                    continue
                found = Found(
                    number + here,
                    shown(lines[here], place),
                    tuple(shown(line) for line in lines[max(here - context, 0) : here]),
                    tuple(shown(line) for line in lines[here + 1 : here + 1 + context]),
                )
                if not take(found):
                    return here
        begin = end
    return stop


def shown(line: str, place: int = 0) -> str:
    """Returns the line, or the part of a long line around `place`."""
    if len(line) <= SHOWN:
        return line
    start = max(min(place - SHOWN // 4, len(line) - SHOWN), 0)
    end = start + SHOWN
    return (_DOTS if start else "") + line[start:end] + (_DOTS if end < len(line) else "")
