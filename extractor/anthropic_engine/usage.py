"""Counts what an attempt spends, by phase and model."""

from typing import TYPE_CHECKING

from runekeep.v1 import common_pb2

if TYPE_CHECKING:
    from anthropic.types import Usage

REASONING = "reasoning"
"""Calls in which the model asked for further reads, or ran out of room."""
OPERATIONS = "operations"
"""The calls that answered: long-term and execution memories and the summary come in one answer."""
REPAIR = "repair"
"""The calls that mended operations."""


class Ledger:
    """Usage of one attempt, in the order in which phases began. `earlier` is what it spent before."""

    def __init__(self, earlier: list[common_pb2.TokenUsage] | None = None) -> None:
        self._by_key: dict[tuple[str, str], common_pb2.TokenUsage] = {}
        for entry in earlier or ():
            copy = common_pb2.TokenUsage()
            copy.CopyFrom(entry)
            self._by_key[entry.phase, entry.model] = copy

    def add(self, phase: str, model: str, usage: "Usage | None") -> None:
        """One model call. Servers that count nothing give no usage; the call itself is counted all the same."""
        key = (phase, model)
        entry = self._by_key.setdefault(key, common_pb2.TokenUsage(model=model, phase=phase))
        entry.calls += 1
        if usage is not None:
            entry.input_tokens += usage.input_tokens or 0
            entry.cache_write_tokens += usage.cache_creation_input_tokens or 0
            entry.cache_read_tokens += usage.cache_read_input_tokens or 0
            entry.output_tokens += usage.output_tokens or 0

    def entries(self) -> list[common_pb2.TokenUsage]:
        """One entry a phase and model."""
        return list(self._by_key.values())
