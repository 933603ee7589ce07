"""Mends what models commonly get wrong in JSON, in one walk over it, so that a long answer takes no longer than it is.

Texts in other quotes, with quotes or backslashes that should be escaped; names without quotes, literals of Python,
comments, commas too many or too few. What it does not know it leaves alone.
"""

import json
import re
from typing import Final

from extractor.anthropic_engine.scan import BEFORE_TEXT, QUOTES, end_of_text

_SKIPPED = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)+", re.DOTALL)
_WORD = re.compile(r"[\w.+-]+")
_NAMES = re.compile(r"\s*:")
_SPECIAL = re.compile(r'\\.|"', re.DOTALL)
_ESCAPED: Final = frozenset('"\\/bfnrtu')
_LITERALS: Final = {"None": "null", "True": "true", "False": "false"}
_ENDS_VALUE: Final = frozenset('"}]')


def mended(text: str) -> str:
    """The same as JSON, as far as that could be done: whether it is any, the caller finds out by reading it.

    Raises ValueError where something stands that is no part of any JSON.
    """
    parts: list[str] = []
    before = ""
    at = 0
    while at < len(text):
        skipped = _SKIPPED.match(text, at)
        if skipped is not None:
            at = skipped.end()
            continue
        sign = text[at]
        if sign in ",:}]":
            if sign in "}]" and before == ",":
                parts.pop()
            parts.append(sign)
            before = sign
            at += 1
            continue
        if before in _ENDS_VALUE:
            parts.append(",")
            before = ","
        if sign in "{[":
            parts.append(sign)
            before = sign
            at += 1
            continue
        value, at = _value(text, at, before)
        parts.append(value)
        before = '"'
    return "".join(parts)


def _value(text: str, at: int, before: str) -> tuple[str, int]:
    """A text, number, literal or name, and where it ends."""
    if text[at] in QUOTES and before in BEFORE_TEXT:
        end = end_of_text(text, at)
        if end is None:
            raise ValueError("a text without an end")
        return f'"{_SPECIAL.sub(_special, text[at + 1 : end - 1])}"', end
    word = _WORD.match(text, at)
    if word is None:
        raise ValueError("a sign that is no part of JSON")
    if _NAMES.match(text, word.end()):
        return json.dumps(word[0]), word.end()
    return _LITERALS.get(word[0], word[0]), word.end()


def _special(match: re.Match[str]) -> str:
    """A quote or an escape, as JSON has it."""
    found = match[0]
    if found == '"':
        return '\\"'
    if found[1] in _ESCAPED:
        return found
    # Python escapes the single quote; of all others the backslash was meant as one.
    return "'" if found[1] == "'" else "\\" + found
