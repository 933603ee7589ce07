"""Estimates how many tokens a text takes, for budgets: one count for all of Runekeep, independent of the model."""

import json
from collections.abc import Sequence
from typing import Any, Final

BYTES_A_TOKEN: Final = 3
"""A token has at least this many bytes of UTF-8 on average, in prose as well as in JSON and code."""
MESSAGE_TOKENS: Final = 4
"""Tokens of a message besides its parts: the speaker and the structure."""


_COMPACT: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def count(text: str) -> int:
    """Returns the approximate number of tokens of a text; rather too many than too few. The count of two joined texts
    never exceeds the sum of their counts.
    """
    return -(-len(text.encode("utf-8", errors="replace")) // BYTES_A_TOKEN)


def stored_parts(parts: Sequence[dict[str, Any]]) -> str:
    """Returns the parts of a message as the store keeps them: compact JSON."""
    # Encoded part by part: the encoder holds the interpreter's lock, for milliseconds if it encodes a megabyte at once.
    return f"[{','.join(map(_COMPACT.encode, parts))}]"


def tokens_of_stored(parts: str) -> int:
    """Returns the tokens of a message from its parts in the form of `stored_parts`."""
    return count(parts) + MESSAGE_TOKENS
