"""Walks over JSON as models write it, to find where an object ends, or where it last was whole.

It need not be valid: quotes may be single, and those inside of a text unescaped.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

_PAIRS: Final = {"{": "}", "[": "]"}
QUOTES: Final = {'"': '"', "'": "'", "“": "”"}
# What follows the quote that ends a text: the next part of the structure, or the end.
_AFTER_TEXT = re.compile(r"\s*(?:[,:\]}]|$)")
BEFORE_TEXT: Final = frozenset("{[,:")


@dataclass(frozen=True, slots=True)
class Extent:
    """How far an object goes. `whole`: the object as text, closed where the text ended inside of it and without what
    it ended in the middle of; `end`: position after its last bracket, None when the text ends before.
    """

    whole: str
    end: int | None


def extent(text: str, start: int, open_ended: Collection[str] = ()) -> Extent:
    """The object that begins at `start`.

    What is cut off where the text ends too early: the last item of a list that is a value of the object, or else the
    whole value, but of the objects under the keys `open_ended` only their own last value. It may have been whole all
    the same, which cannot be told from its looks; and the beginning of a sentence may say the opposite of the whole.
    """
    walk = _Walk(open_ended)
    at = start
    while at < len(text):
        sign = text[at]
        if sign in QUOTES and walk.before in BEFORE_TEXT:
            ended = end_of_text(text, at)
            if ended is None:
                break
            walk.text(text[at + 1 : ended - 1])
            at = ended
            continue
        if sign in _PAIRS:
            walk.opens(sign, at + 1)
        elif sign in "}]":
            if walk.closes(at + 1):
                return Extent(text[start : at + 1], at + 1)
        elif sign == ",":
            walk.item_ended(at)
        if not sign.isspace():
            walk.before = sign
        at += 1
    return Extent(text[start : walk.safe] + walk.closers, None)


class _Walk:
    """Where a walk stands: the open brackets, and the last place at which nothing was left half said."""

    def __init__(self, open_ended: Collection[str]) -> None:
        self.before = ""
        self.safe = 0
        self.closers = "}"
        self._open_ended = open_ended
        self._open = ""
        self._text = ""
        self._key = ""

    def text(self, text: str) -> None:
        self._text = text
        self.before = '"'

    def opens(self, sign: str, end: int) -> None:
        if self._open == "{":
            self._key = self._text
        self._open += sign
        self.item_ended(end)

    def closes(self, end: int) -> bool:
        """Whether the object is closed by a bracket that ends at `end`."""
        self._open = self._open[:-1]
        self.item_ended(end)
        return not self._open

    def item_ended(self, at: int) -> None:
        if self._open in ("{", "{[") or (self._key in self._open_ended and self._open == "{{"):
            self.safe = at
            self.closers = "".join(_PAIRS[sign] for sign in reversed(self._open))


def end_of_text(text: str, start: int) -> int | None:
    """Position after the quote that ends the text which begins at `start`; None when the text goes on to the end."""
    ends = QUOTES[text[start]]
    at = start + 1
    while at < len(text):
        if text[at] == "\\":
            at += 2
        elif text[at] == ends and _AFTER_TEXT.match(text, at + 1):
            return at + 1
        else:
            at += 1
    return None
