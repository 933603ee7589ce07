"""Repairs common mistakes of models in JSON in a single pass, so that the time stays linear in the answer's length.

It fixes other quotes, unescaped quotes and backslashes within texts, unquoted names, Python literals, comments, and
missing or extra commas. It leaves everything else unchanged.
"""

import json
import re
from typing import Final

from runekeep_extractor.answers.json_scan import BEFORE_TEXT, QUOTES, end_of_text

_SKIPPED = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)+", re.DOTALL)
_WORD = re.compile(r"[\w.+-]+")
_NAMES = re.compile(r"\s*:")
_SPECIAL = re.compile(r'\\.|"', re.DOTALL)
_ESCAPED: Final = frozenset('"\\/bfnrtu')
_LITERALS: Final = {"None": "null", "True": "true", "False": "false"}
_ENDS_VALUE: Final = frozenset('"}]')


def mended(text: str) -> str:
    """Returns the text with known mistakes repaired. The result may still be invalid JSON; the caller finds out by
    parsing it.

    Raises ValueError at a character that cannot be part of JSON.
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
    """Returns a text, number, literal or name as JSON, and the position behind it."""
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
    """Returns a quote or an escape sequence as JSON writes it."""
    found = match[0]
    if found == '"':
        return '\\"'
    if found[1] in _ESCAPED:
        return found
    # Python escapes the single quote. In all other unknown escapes the backslash is literal.
    return "'" if found[1] == "'" else "\\" + found
