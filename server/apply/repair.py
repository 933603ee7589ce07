"""The one repair that a lease may have: what was refused, and what the second output leaves out of it."""

from dataclasses import dataclass
from typing import Any, Self

from server.apply.operations import Outcome

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class NeedsRepair:
    """Operations of an output that are wrong, as LeftOut entries. `operations`: how many the output had."""

    output_id: str
    operations: int
    refused: list[Json]

    @classmethod
    def from_json(cls, kept: Json) -> Self:
        return cls(kept["output_id"], kept["operations"], kept["refused"])

    def as_json(self) -> Json:
        return {"output_id": self.output_id, "operations": self.operations, "refused": self.refused}

    def given_up(self, mended: Outcome) -> list[Json]:
        """Those of the refused operations that the second output does not have any more, mended or not.

        They are told by their URIs; one that had none counts as gone only as far as the output has grown shorter.
        """
        missing = self.operations - mended.operations
        gone = [entry for entry in self.refused if entry["uri"] not in mended.uris]
        return [{**entry, "message": f"not mended: {entry['message']}"[:500]} for entry in gone[: max(missing, 0)]]
