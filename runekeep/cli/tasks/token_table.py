"""A table of the tokens that models used."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from runekeep.cli.common.output import Output

if TYPE_CHECKING:
    from runekeep.client.tasks.results import TokenUsage

_COLUMNS = ("calls", "input", "cached", "output")


def total_tokens(entry: "TokenUsage") -> int:
    """Returns the sum of input and output tokens."""
    return entry.input_tokens + _cached(entry) + entry.output_tokens


def show_token_table(output: Output, phase: str, entries: "Sequence[TokenUsage]", empty: str = "") -> None:
    """Prints a row for each phase and model; `phase` is the header of the first column. The column `cached` counts
    tokens written to a provider's cache and read from it. The column `cost` is there if the price of any model is
    known."""
    priced = any(entry.cost_usd is not None for entry in entries)
    columns = (*_COLUMNS, "cost") if priced else _COLUMNS
    rows = [
        (entry.phase, entry.model, *_numbers(entry), *([dollars(entry.cost_usd)] if priced else []))
        for entry in entries
    ]
    output.rows((phase, "model", *columns), rows, empty, numbers=columns)


def dollars(cost: float | None) -> str:
    """Returns an amount of money; a dash if it is unknown."""
    return "-" if cost is None else f"${cost:,.4f}"


def _numbers(entry: "TokenUsage") -> tuple[str, ...]:
    numbers = (entry.calls, entry.input_tokens, _cached(entry), entry.output_tokens)
    return tuple(f"{number:,}" for number in numbers)


def _cached(entry: "TokenUsage") -> int:
    return entry.cache_write_tokens + entry.cache_read_tokens
