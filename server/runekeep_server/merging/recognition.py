"""Matches the operations of a first output with those of a second one that repairs it.

Operations have no ids, and a repairing extractor may change anything of an operation and reword the others. So each
operation of the first output is searched in the second one by what they have in common, the most distinctive first:

1. the whole operation without its reason;
2. the memory that it changes;
3. its content (fields and patches, whatever its URI): first most of it, then some of it;
4. the type, or the directory of the URI: only for refused operations.

Each operation of the second output matches one of the first. An identical one matches a valid operation first;
otherwise refused operations are matched before valid ones. An operation without a match counts as left out. So does one
that the extractor changed completely or merged with another without being asked: reporting too much is a nuisance, but
reporting too little is a loss that nobody sees.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from google.protobuf.message import Message

from runekeep.v1 import common_pb2
from runekeep.v1 import extractor_service_pb2 as pb

MAX_PARTS = 16
"""Maximum of parts that are stored for an operation."""
PUT_TOGETHER = "given_twice"
"""Reason of refusals that ask to merge two operations. One operation may match several of these."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Trait:
    """The features by which an operation is recognized. Empty: it has no such feature, or it was refused before the
    feature was known. `whole` and `parts` are digests: of the whole operation, and of each field or patch."""

    whole: str
    parts: frozenset[str]
    uri: str
    memory_type: str

    @classmethod
    def of(cls, operation: pb.MemoryOperation, uri: str, memory_type: str) -> Self:
        bare = pb.MemoryOperation()
        bare.CopyFrom(operation)
        bare.ClearField("reason")
        fields = operation.write.fields
        said = [
            *(common_pb2.FieldPatch(field=name, value=fields[name]) for name in sorted(fields)),
            *operation.edit.patches,
        ]
        return cls(_digest(bare), frozenset(map(_digest, said[:MAX_PARTS])), uri, memory_type)

    @classmethod
    def from_json(cls, kept: Json) -> Self:
        return cls(kept["whole"], frozenset(kept["parts"]), kept["uri"], kept["memory_type"])

    def as_json(self) -> Json:
        return {"whole": self.whole, "parts": sorted(self.parts), "uri": self.uri, "memory_type": self.memory_type}

    @property
    def directory(self) -> str:
        return self.uri.rpartition("/")[0]


_Common = Callable[[Trait, Trait], bool]


def _whole(one: Trait, other: Trait) -> bool:
    return one.whole == other.whole


def _memory(one: Trait, other: Trait) -> bool:
    return one.uri != "" and one.uri == other.uri


def _most(one: Trait, other: Trait) -> bool:
    """More than half: a single date or number may occur in many operations."""
    return _something(one, other) and 2 * len(one.parts & other.parts) > max(len(one.parts), len(other.parts))


def _something(one: Trait, other: Trait) -> bool:
    return not one.parts.isdisjoint(other.parts)


def _kind(one: Trait, other: Trait) -> bool:
    return (one.memory_type != "" and one.memory_type == other.memory_type) or (
        one.directory != "" and one.directory == other.directory
    )


def left_out(first: Sequence[Trait], refused: Mapping[int, str], second: Sequence[Trait]) -> list[int]:
    """Returns the positions in `first`, in order, of operations that the second output no longer has. `refused`:
    positions in `first` with the reason; the others were valid."""
    free = dict(enumerate(second))
    right = _not_found(first, (place for place in range(len(first)) if place not in refused), free, _whole)
    wrong = _not_found(first, refused, free, _whole)
    # One operation may replace all operations on a memory that were to be merged, including a valid one among them.
    put_together = {trait.uri for trait in free.values() if trait.uri} & {
        first[place].uri for place in wrong if refused[place] == PUT_TOGETHER
    }
    wrong = [place for place in wrong if refused[place] != PUT_TOGETHER or first[place].uri not in put_together]
    right = [place for place in right if first[place].uri not in put_together]
    for common in (_memory, _most, _something):
        wrong = _not_found(first, wrong, free, common)
        right = _not_found(first, right, free, common)
    free = {number: trait for number, trait in free.items() if trait.uri not in put_together}
    return sorted(_not_found(first, wrong, free, _kind) + right)


def _not_found(first: Sequence[Trait], places: Iterable[int], free: dict[int, Trait], common: _Common) -> list[int]:
    """Returns the positions without a match in the second output. Removes matches from `free`."""
    missing = []
    for place in places:
        found = next((number for number, trait in free.items() if common(first[place], trait)), None)
        if found is None:
            missing.append(place)
        else:
            del free[found]
    return missing


def _digest(message: Message) -> str:
    return hashlib.sha256(message.SerializeToString(deterministic=True)).hexdigest()[:24]
