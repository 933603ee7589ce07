"""Lines that hold a text or fit an expression."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, cast

import re2

SHOWN = 1000
"""Characters of a long line that are shown."""
MAX_PROGRAM = 2000
"""Instructions of an expression, as RE2 counts them. Where it has too many states to remember, RE2 goes through all of
its instructions for each byte, so they bound how long a search takes."""
PIECE = 32 * 1024
"""Characters that one search, which nothing can stop, goes through."""
OVERLAP = 8 * 1024
"""Characters that two pieces of one long line share: what an expression fits, when it is no longer, lies in one."""
_DOTS = "..."
_EXPRESSIONS = 64
_PROGRAM_MEMORY = 256 * 1024
"""For measuring an expression: RE2 gives up before it makes many more instructions than are allowed."""


class PatternError(ValueError):
    """The pattern cannot be looked for."""


@dataclass(frozen=True, slots=True)
class Found:
    """A line that was found, by its number from 0, and those around it, all cut as they are shown."""

    number: int
    text: str
    before: tuple[str, ...]
    after: tuple[str, ...]


class Pattern(Protocol):
    """What is looked for within one line."""

    def anywhere(self, text: str) -> bool:
        """False only for a text of which no line holds it."""
        ...

    def place(self, line: str, check: Callable[[], None]) -> int:
        """Where in the line it begins for the first time; -1 for nowhere. `check` is called every so often, and may
        raise."""
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
    """`of_text` fits any text of which a line fits; None: there may be none that does."""

    of_line: "re2._Regexp"
    of_text: "re2._Regexp | None"

    def anywhere(self, text: str) -> bool:
        return self.of_text is None or self.of_text.search(text) is not None

    def place(self, line: str, check: Callable[[], None]) -> int:
        for start in range(0, max(len(line) - OVERLAP, 1), PIECE - OVERLAP):
            check()
            # With the characters beside the piece, which an expression may ask for, such as `$` and `\b`.
            left = max(start - 1, 0)
            end = min(start + PIECE, len(line))
            found = self.of_line.search(line[left : end + 1], start - left, end - left)
            if found is not None:
                return left + cast(int, found.start())
        return -1


def pattern_of(text: str, *, regex: bool, ignore_case: bool) -> Pattern:
    """Plain text, or an expression in RE2's syntax, which takes time in proportion to what it is matched with and to
    its own size, which is bounded. Capital and small letters are one by Unicode's simple folding. Takes milliseconds.
    Raises PatternError.
    """
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
        # The ends of a text, and a flag that is switched off, would ask more of a text than of its lines.
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
    """Hands those of the lines `first` to before `stop` that hold the pattern to `take`, until that says that it did
    not take one, or, after some lines, `worn` that it is enough. Gives the line to go on with, `stop` at the end.
    `number`: of the first of all lines in its document. What `check` raises ends the search, within a line too.
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
    """Of a long line what is around a place of it."""
    if len(line) <= SHOWN:
        return line
    start = max(min(place - SHOWN // 4, len(line) - SHOWN), 0)
    end = start + SHOWN
    return (_DOTS if start else "") + line[start:end] + (_DOTS if end < len(line) else "")
