"""Each lease may be repaired once: what was refused, and what the second output leaves out of it."""

from dataclasses import dataclass
from typing import Any, Self

from runekeep_server.apply.result import NO_PLACE
from runekeep_server.merging.outcome import Outcome
from runekeep_server.merging.recognition import Trait, left_out

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class NeedsRepair:
    """The invalid operations of an output, as LeftOut entries. `traits`: of all its operations, in order; `skipped`:
    positions of valid operations without a target."""

    output_id: str
    traits: list[Trait]
    refused: list[Json]
    skipped: list[int]

    @classmethod
    def of(cls, output_id: str, outcome: Outcome) -> Self:
        skipped = [entry["operation_index"] for entry in outcome.skipped]
        return cls(output_id, outcome.traits, outcome.rejected, skipped)

    @classmethod
    def from_json(cls, kept: Json) -> Self:
        traits = [Trait.from_json(one) for one in kept["traits"]]
        return cls(kept["output_id"], traits, kept["refused"], kept["skipped"])

    def as_json(self) -> Json:
        return {
            "output_id": self.output_id,
            "traits": [one.as_json() for one in self.traits],
            "refused": self.refused,
            "skipped": self.skipped,
        }

    def given_up(self, mended: Outcome) -> list[Json]:
        """Returns LeftOut entries of the operations that the second output no longer has, each once: refused ones, and
        valid ones, which it should have repeated. Skipped operations are not included, because nothing is lost."""
        wrong = {entry["operation_index"]: entry for entry in self.refused}
        gone = left_out(self.traits, {place: entry["reason"] for place, entry in wrong.items()}, mended.traits)
        return [
            _not_mended(wrong[place]) if place in wrong else _lost(place, self.traits[place])
            for place in gone
            if place not in self.skipped
        ]


def _not_mended(refused: Json) -> Json:
    which = f"operation {refused['operation_index']} of the first output, not mended"
    return {**refused, "message": f"{which}: {refused['message']}"[:500], "operation_index": NO_PLACE}


def _lost(place: int, trait: Trait) -> Json:
    return {
        "reason": "left_out_by_repair",
        "memory_type": trait.memory_type,
        "uri": trait.uri,
        "message": f"operation {place} of the first output was right; the second, which was to have it too, has it not",
        "operation_index": NO_PLACE,
    }
