"""Counts what an attempt spends, by phase and model."""

from typing import TYPE_CHECKING

from runekeep.v1 import common_pb2

if TYPE_CHECKING:
    from anthropic.types import Usage

REASONING = "reasoning"
"""Calls in which the model asked for further reads, or ran out of room."""
OPERATIONS = "operations"
"""The calls that answered: long-term and execution memories and the summary come in one answer."""
DEDUP = "dedup"
"""The calls that compared new memories with those that are there."""
REPAIR = "repair"
"""The calls that mended operations."""
IMAGES = "images"
"""The calls that said in words what images show."""
FINGERPRINT = "fingerprint"
"""The calls that noted what a turn said."""
BUCKETS = "buckets"
"""The calls that folded turns into buckets."""
PROBE = "probe"
"""The tiny calls that find out what a server can do."""


def at_most(input_tokens: int, output_tokens: int) -> "Usage":
    """What a call cost that nobody told the cost of."""
    from anthropic.types import Usage

    return Usage(
        input_tokens=input_tokens,
        cache_creation_input_tokens=0,
        cache_read_input_tokens=0,
        output_tokens=output_tokens,
    )


class Ledger:
    """Writes down what calls cost in a job's own list, in the order in which phases began."""

    def __init__(self, spent: list[common_pb2.TokenUsage]) -> None:
        self._spent = spent

    def add(self, phase: str, model: str, usage: "Usage") -> None:
        """One model call."""
        entry = self._entry(phase, model)
        entry.calls += 1
        entry.input_tokens += usage.input_tokens
        entry.cache_write_tokens += usage.cache_creation_input_tokens or 0
        entry.cache_read_tokens += usage.cache_read_input_tokens or 0
        entry.output_tokens += usage.output_tokens

    def _entry(self, phase: str, model: str) -> common_pb2.TokenUsage:
        for entry in self._spent:
            if (entry.phase, entry.model) == (phase, model):
                return entry
        self._spent.append(common_pb2.TokenUsage(model=model, phase=phase))
        return self._spent[-1]
