"""Fits results into a token budget. A token is three bytes of UTF-8, as in sessions: an upper bound for most texts."""

from collections.abc import Iterable

from runekeep.injection.block import wrap_memory

BYTES_PER_TOKEN = 3
_NUMBER_TOKENS = 4
"""Of a number in place of `{}`, however large."""


def count_tokens(text: str) -> int:
    return -(-len(text.encode()) // BYTES_PER_TOKEN)


BLOCK_TOKENS = count_tokens(wrap_memory(""))
"""What the block around recalled text takes."""


def cut_text(text: str, budget: int) -> str:
    """Returns the longest beginning of a text that has at most `budget` tokens."""
    return text.encode()[: max(budget, 0) * BYTES_PER_TOKEN].decode(errors="ignore")


def fit_lines(lines: Iterable[str], budget: int, more: str) -> str:
    """Returns the first lines that have room, joined. If some have none, `more` is the last line, with their number in
    place of `{}`; it counts against the budget too. A line is cut at a quarter of the budget."""
    kept, left = [], budget - count_tokens(more) - _NUMBER_TOKENS
    rest = 0
    for whole in lines:
        line = whole if count_tokens(whole) <= budget // 4 else f"{cut_text(whole, budget // 4 - 1)}…"
        cost = count_tokens(line) + 1
        if rest or cost > left:
            rest += 1
            continue
        kept.append(line)
        left -= cost
    if rest:
        kept.append(more.format(rest))
    return "\n".join(kept)
