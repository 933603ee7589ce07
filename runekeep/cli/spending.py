"""What models cost, as a table for people. The JSON has each counter by itself."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from runekeep.cli.output import Output

if TYPE_CHECKING:
    from runekeep.client.results import TokenUsage

_COLUMNS = ("calls", "input", "cached", "output")


def tokens(entry: "TokenUsage") -> int:
    """All of them, input and output together."""
    return entry["input_tokens"] + _cached(entry) + entry["output_tokens"]


def show_spending(output: Output, phase: str, entries: "Sequence[TokenUsage]", empty: str = "") -> None:
    """One line a phase and model; `phase`: what heads the first column. `cached`: written to the cache of a provider
    and read from it."""
    rows = [(entry["phase"], entry["model"], *_numbers(entry)) for entry in entries]
    output.rows((phase, "model", *_COLUMNS), rows, empty, numbers=_COLUMNS)


def _numbers(entry: "TokenUsage") -> tuple[str, ...]:
    numbers = (entry["calls"], entry["input_tokens"], _cached(entry), entry["output_tokens"])
    return tuple(f"{number:,}" for number in numbers)


def _cached(entry: "TokenUsage") -> int:
    return entry["cache_write_tokens"] + entry["cache_read_tokens"]
