"""Costs of model calls as plain entries, and how the costs of several attempts add up."""

from collections.abc import Iterable
from typing import Any

COUNTERS = ("calls", "input_tokens", "cache_write_tokens", "cache_read_tokens", "output_tokens")
"""The counters of an entry, named as in TokenUsage of the contract; an entry also has `model` and `phase`."""
TOKENS = COUNTERS[1:]
"""The counters that count tokens; a budget limits their sum."""

_MOST = 2**63 - 1


def added(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns one entry per model and phase, in order of first appearance. Sums stay within 64 bits."""
    sums: dict[tuple[str, str], dict[str, Any]] = {}
    for entry in entries:
        model, phase = entry["model"], entry["phase"]
        total = sums.setdefault((model, phase), {"model": model, "phase": phase, **dict.fromkeys(COUNTERS, 0)})
        for name in COUNTERS:
            total[name] = min(total[name] + entry[name], _MOST)
    return list(sums.values())
