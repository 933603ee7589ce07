"""Scans JSON as models write it, to find where an object ends or, if it is cut off, the last position where it was
complete.

The JSON need not be valid: quotes may be single, and quotes within a text unescaped.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

_PAIRS: Final = {"{": "}", "[": "]"}
QUOTES: Final = {'"': '"', "'": "'", "“": "”"}
# What follows the closing quote of a text: the next part of the structure, or the end.
_AFTER_TEXT = re.compile(r"\s*(?:[,:\]}]|$)")
BEFORE_TEXT: Final = frozenset("{[,:")


@dataclass(frozen=True, slots=True)
class Extent:
    """Extent of an object. `whole`: its text; if the input ends too early, without the incomplete item and with its
    brackets closed. `end`: position after its last bracket, None if the input ends before.
    """

    whole: str
    end: int | None


def extent(text: str, start: int, open_ended: Collection[str] = ()) -> Extent:
    """Returns the extent of the object that begins at `start`.

    If the text ends too early, the last item of a list that is a value of the object is cut off, or else the whole last
    value. Of objects under the keys in `open_ended` only their own last value is cut off. The last item may have been
    complete, but that cannot be known, and the beginning of a sentence may say the opposite of the whole.
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
    """State of a scan: the open brackets, and the last position at which every item was complete."""

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
        """Returns whether the bracket that ends at `end` closes the object."""
        self._open = self._open[:-1]
        self.item_ended(end)
        return not self._open

    def item_ended(self, at: int) -> None:
        if self._open in ("{", "{[") or (self._key in self._open_ended and self._open == "{{"):
            self.safe = at
            self.closers = "".join(_PAIRS[sign] for sign in reversed(self._open))


def end_of_text(text: str, start: int) -> int | None:
    """Returns the position after the closing quote of the text that begins at `start`, or None if it is not closed."""
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
