"""Which operations of a first output a second one has again: mended, or as they were.

Operations carry no names of their own, and an extractor that mends one may change anything of it, and word the others
anew as well. So each operation of the first output is looked for among those of the second by what both have in common,
the most telling first:

1. the whole operation, its reason aside;
2. the memory that it is about;
3. what it says, fields and patches under whatever address: first most of it, then something of it;
4. the type, or the directory of the URI: of those that were refused only.

Each operation of the second output stands for one of the first: where both are whole, for one that was right, and else
for one that was refused rather than for one that was right. What is not found at all was left out. Where an extractor
changes so much of an operation that nothing of it is left, or makes one of two that it was not asked to make one, it
counts as left out: to name too much is a nuisance, to name too little is a loss that nobody sees.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from google.protobuf.message import Message

from runekeep.v1 import common_pb2
from runekeep.v1 import extractor_service_pb2 as pb

MOST_PARTS = 16
"""Of an operation, that are kept."""
PUT_TOGETHER = "given_twice"
"""Reason of refusals that ask to have two operations made one: of these, one may stand for several."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Trait:
    """What an operation is known by again. Empty: it has no such thing, or none was found out before it was refused.

    `whole` and `parts` are digests: of all of it, and of each field or patch.
    """

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
        return cls(_digest(bare), frozenset(map(_digest, said[:MOST_PARTS])), uri, memory_type)

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
    """A day or a number alone may be said of many things."""
    return _something(one, other) and 2 * len(one.parts & other.parts) > max(len(one.parts), len(other.parts))


def _something(one: Trait, other: Trait) -> bool:
    return not one.parts.isdisjoint(other.parts)


def _kind(one: Trait, other: Trait) -> bool:
    return (one.memory_type != "" and one.memory_type == other.memory_type) or (
        one.directory != "" and one.directory == other.directory
    )


def left_out(first: Sequence[Trait], refused: Mapping[int, str], second: Sequence[Trait]) -> list[int]:
    """Places in `first`, in order, of what the second output has no more.

    `refused`: places in `first` with the reason; the others were right.
    """
    free = dict(enumerate(second))
    right = _not_found(first, (place for place in range(len(first)) if place not in refused), free, _whole)
    wrong = _not_found(first, refused, free, _whole)
    # One operation stands for all of a memory that were to be made one: for the right one among them as well.
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
    """Those of the places for which none of the second output stands. What stands for one is taken out of `free`."""
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
