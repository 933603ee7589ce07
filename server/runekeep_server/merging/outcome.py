"""What became of the operations of an output."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from runekeep_server.merging.effects import Effect
from runekeep_server.merging.recognition import Trait

NO_OPERATION: Final = -1
"""`operation_index` of a change that no operation requested."""


@dataclass(slots=True)
class Outcome:
    """The outcome of the operations. Entries have the fields of LeftOut.

    `taken`: number of merged operations, including those that changed nothing; `unchanged`: number of those, by type;
    `traits`: of all operations, in order; `not_superseded`: memories that stay although a merged operation supersedes
    them; `counting`: number of operations that only counted, which the server does anyway; `effects`: what operations
    do to memories, in order; `held`: the memory type of each operation that waits for review.
    """

    taken: int = 0
    skipped: list[dict[str, Any]] = field(default_factory=list)
    rejected: list[dict[str, Any]] = field(default_factory=list)
    unchanged: Counter[str] = field(default_factory=Counter)
    traits: list[Trait] = field(default_factory=list)
    not_superseded: list[dict[str, Any]] = field(default_factory=list)
    counting: int = 0
    effects: list[Effect] = field(default_factory=list)
    held: list[str] = field(default_factory=list)

    @property
    def operations(self) -> int:
        """Number of operations without those that only counted."""
        return len(self.traits) - self.counting


@dataclass(slots=True)
class OperationRef:
    """Identifies an operation in reports of what was left out. `counting`: whether it only writes counters."""

    index: int
    memory_type: str = ""
    uri: str = ""
    counting: bool = False

    def left_out(self, reason: str, message: str) -> dict[str, Any]:
        return {
            "reason": reason,
            "memory_type": self.memory_type,
            "uri": self.uri,
            "message": message[:500],
            "operation_index": self.index,
        }
