"""Parts of a document: so many lines, or so many characters, as far as an answer holds them."""

from dataclasses import dataclass

MAX_BYTES = 1024 * 1024
"""Of the text of one answer, in UTF-8."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """`following`: the line or character that comes after it, 0 at the end of the document. `cut_at`: the character of
    the document at which its one line was cut, 0 when it was not."""

    text: str
    following: int
    total_lines: int
    total_characters: int
    cut_at: int = 0


def of_lines(text: str, offset: int, limit: int) -> Excerpt:
    """Lines from `offset` on, `limit` of them or all for -1 and 0. Only a line feed ends a line: other separators may
    stand inside one.

    As many whole lines as an answer holds. A first line that is too long for one is cut.
    """
    lines = text.split("\n") if text else []
    stop = len(lines) if limit in (0, -1) else min(len(lines), offset + limit)
    shown: list[str] = []
    size = 0
    for line in lines[offset:stop]:
        size += len(line.encode()) + 1
        if size > MAX_BYTES + 1:
            break
        shown.append(line)
    cut_at = 0
    if not shown and offset < stop:
        shown.append(_within(lines[offset], MAX_BYTES))
        cut_at = sum(len(line) + 1 for line in lines[:offset]) + len(shown[0])
    reached = offset + len(shown)
    return Excerpt("\n".join(shown), reached if reached < len(lines) else 0, len(lines), len(text), cut_at)


def of_characters(text: str, start: int, length: int) -> Excerpt:
    """Characters from `start` on, at most `length` of them, 0 for as many as an answer holds."""
    wanted = min(length or MAX_BYTES, MAX_BYTES)
    shown = _within(text[start : start + wanted], MAX_BYTES)
    reached = start + len(shown)
    lines = text.count("\n") + 1 if text else 0
    return Excerpt(shown, reached if reached < len(text) else 0, lines, len(text))


def _within(text: str, most: int) -> str:
    """The first characters that take at most so many bytes."""
    encoded = text[:most].encode()
    return text[:most] if len(encoded) <= most else encoded[:most].decode(errors="ignore")
