"""What model calls cost, as plain entries: how the spending of several attempts adds up."""

from collections.abc import Iterable
from typing import Any

COUNTERS = ("calls", "input_tokens", "cache_write_tokens", "cache_read_tokens", "output_tokens")
"""The numbers of an entry, named as in TokenUsage of the contract; `model` and `phase` stand beside them."""
TOKENS = COUNTERS[1:]
"""Those of the numbers that count tokens; together they are what a budget is about."""

_MOST = 2**63 - 1


def added(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One entry a model and phase, in the order in which they first come. Sums stay within 64 bits."""
    sums: dict[tuple[str, str], dict[str, Any]] = {}
    for entry in entries:
        model, phase = entry["model"], entry["phase"]
        total = sums.setdefault((model, phase), {"model": model, "phase": phase, **dict.fromkeys(COUNTERS, 0)})
        for name in COUNTERS:
            total[name] = min(total[name] + entry[name], _MOST)
    return list(sums.values())
