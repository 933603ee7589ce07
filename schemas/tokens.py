"""How many tokens a text takes, for budgets: one count for the whole of Runekeep, of no particular model."""

import json
from collections.abc import Sequence
from typing import Any, Final

BYTES_A_TOKEN: Final = 3
"""A token has at least so many bytes of UTF-8 on average, in prose as in JSON and code."""
MESSAGE_TOKENS: Final = 4
"""Of a message beside its parts: who speaks, and what holds it together."""


_COMPACT: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def count(text: str) -> int:
    """About how many tokens a text is; rather too many than too few. Of two texts put together it is never more than
    of both by themselves."""
    return -(-len(text.encode("utf-8", errors="replace")) // BYTES_A_TOKEN)


def stored_parts(parts: Sequence[dict[str, Any]]) -> str:
    """Parts of a message as the store keeps them: compact JSON."""
    return _COMPACT.encode(parts)


def tokens_of_stored(parts: str) -> int:
    """Tokens of a message, by its parts as `stored_parts` gave them."""
    return count(parts) + MESSAGE_TOKENS
