"""Counts the tokens of a recalled text about as a model's tokenizer does, by the kinds of its characters.

The weights were fitted to the vocabulary that Anthropic published, on English, German and Chinese conversations, JSON,
code and recalled texts. docs/guides/recall.md has the figures. Line breaks weigh nothing: a recalled text has no runs
of them.
"""

import re
from functools import lru_cache
from typing import Final

UNITS: Final = 100
"""Units of weight in a token. Packing adds up weights, because rounding every line to whole tokens would waste room."""
MAX_CHARACTERS_A_TOKEN: Final = 8
"""A token has at most this many characters that are no white space."""
MAX_SPACES_A_TOKEN: Final = 16
"""A run of spaces has at most this many in a token. Otherwise a text of spaces would take no tokens."""

_WORD, _LETTER, _CAPITAL, _DIGIT, _SIGN, _CONTROL, _SPACES = 48, 14, 165, 70, 50, 100, 150
_ACCENTED, _OTHER_LETTER, _SYMBOL, _WIDE, _ASTRAL = 250, 90, 200, 125, 300
_SPACE_RUNS = re.compile(r"\A +|  +| +\Z")
"""Spaces at both ends count, so that joining texts adds no weight."""
_LONG_SPACES = " " * MAX_SPACES_A_TOKEN
_NOT_ASCII = re.compile("[^\x00-\x7f]+")


def _of_bytes(values: dict[str, int], otherwise: int = 0) -> bytes:
    """Returns a table for the bytes of UTF-8, with the values of the ASCII characters that match the patterns."""

    def value_of(character: str) -> int:
        return next((value for pattern, value in values.items() if re.match(pattern, character)), otherwise)

    return bytes(value_of(chr(byte)) for byte in range(128)) + bytes([otherwise]) * 128


_WEIGHTS = _of_bytes({"[A-Za-z]": _LETTER, "[0-9]": _DIGIT, r"[\t!-/:-@\[-`{-~]": _SIGN, r"[^\n -~]": _CONTROL})
_LETTERS = _of_bytes({"[a-z]": ord("a"), "[A-Z]": ord("A")}, ord(" "))


def count(text: str) -> int:
    """Returns the approximate number of tokens of a text, rather too many than too few."""
    return -(-weigh(text) // UNITS)


def weigh(text: str) -> int:
    """Returns the weight of a text in UNITS. Joining texts never adds weight."""
    data = text.encode("utf-8", "surrogatepass")
    letters = data.translate(_LETTERS)
    weight = (
        sum(data.translate(_WEIGHTS))
        + _WORD * len(letters.split())
        + _CAPITAL * (b" " + letters).count(b" A")
        + _SPACES * len(_SPACE_RUNS.findall(text))
        + UNITS * text.count(_LONG_SPACES)
    )
    return weight if text.isascii() else weight + sum(map(_weight, "".join(_NOT_ASCII.findall(text))))


@lru_cache(maxsize=8192)
def _weight(character: str) -> int:
    """Returns the weight of a character outside of ASCII."""
    code = ord(character)
    if code >= 0x10000:
        return _ASTRAL
    if code >= 0x2E80:
        return _WIDE
    if not character.isalpha():
        return _SYMBOL
    return _ACCENTED if code < 0x250 else _OTHER_LETTER
