"""Counts what an attempt spends, by phase and model."""

from runekeep.v1 import common_pb2

REASONING = "reasoning"
"""Calls in which the model requested more reads, or ran out of room."""
OPERATIONS = "operations"
"""Calls that answered: long-term and execution memories and the summary come in one answer."""
DEDUP = "dedup"
"""Calls that compared new memories with existing ones."""
REPAIR = "repair"
"""Calls that repaired operations."""
IMAGES = "images"
"""Calls that described images."""
FINGERPRINT = "fingerprint"
"""Calls that noted what a turn said."""
BUCKETS = "buckets"
"""Calls that folded turns into buckets."""
ANSWER = "answer"
"""Calls that looked for an answer to a question, and gave it."""
PROBE = "probe"
"""Tiny calls that probe a server's features."""


class Ledger:
    """Records the cost of calls in a job's own list, in the order in which phases began."""

    def __init__(self, spent: list[common_pb2.TokenUsage]) -> None:
        self._spent = spent

    def add(self, phase: str, model: str, usage: common_pb2.TokenUsage) -> None:
        """Adds one model call."""
        entry = self._entry(phase, model)
        entry.calls += 1
        entry.input_tokens += usage.input_tokens
        entry.cache_write_tokens += usage.cache_write_tokens
        entry.cache_read_tokens += usage.cache_read_tokens
        entry.output_tokens += usage.output_tokens

    def _entry(self, phase: str, model: str) -> common_pb2.TokenUsage:
        for entry in self._spent:
            if (entry.phase, entry.model) == (phase, model):
                return entry
        self._spent.append(common_pb2.TokenUsage(model=model, phase=phase))
        return self._spent[-1]
