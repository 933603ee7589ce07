"""Finds the memories that new ones are near to: by vectors, so that where nothing is near no model is asked."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import mul
from statistics import median
from typing import Final

import structlog

from extractor.anthropic_engine.at_hand import AtHand
from extractor.anthropic_engine.operations import plain_value
from extractor.anthropic_engine.prefetch import MAX_LISTED
from extractor.anthropic_engine.records import Known
from extractor.anthropic_engine.targets import Target, Targets
from extractor.calls import EmbedderDown, NotAllowed, NotThere, SearchAway, TooMuch
from extractor.engine import Job
from extractor.searches import find_fitting, memories_of
from extractor.side_by_side import side_by_side
from runekeep.v1 import common_pb2, extractor_service_pb2, memory_service_pb2
from schemas.templates import placeholders

NEAR: Final = 0.6
"""Cosine. Measured with the server's own embedder on pairs that were labelled beforehand: of 29 that need a decision 28
are at or above it, of 32 that need none none is. tests/unit/extractor/test_near.py holds it to that."""
SURE: Final = 0.85
"""Cosine from which nothing more is asked."""
MARGIN: Final = 0.15
"""Below SURE, what is near must stand out by so much from what else is there: many facts about one person are all like
one another. Of 339 observations of the development half of LoCoMo (2 conversations), each taken for a new memory beside
the earlier ones about the same person, 88 % have one at or above NEAR, and 23 % one that stands out."""

_MOST_ITEMS: Final = 3
_FOUND: Final = 6
_AT_ONCE: Final = 8
_TEXT_LENGTH: Final = 4000
"""As long as a query may be. MiniLM reads less of it, but knows a text again by all of it."""

_CONTENT: Final = "content"
_DATE: Final = re.compile(r"\d{4}(-\d\d){0,2}(?!\d)")

_log = structlog.get_logger(__name__)

Fields = Mapping[str, common_pb2.FieldValue]


@dataclass(slots=True)
class Candidate:
    """A memory that a write of the output would make. `place`: of the write; `near`: ids of what it is near to."""

    id: str
    place: int
    target: Target
    kind: memory_service_pb2.MemoryType
    text: str
    near: list[str] = field(default_factory=list)

    @property
    def only_added(self) -> bool:
        """Whether memories of its type never change."""
        return self.kind.operation_mode == memory_service_pb2.OPERATION_MODE_ADD_ONLY

    @property
    def directory(self) -> str:
        """Where memories of its type and owner are."""
        return self.target.uri.rpartition("/")[0]

    @property
    def fields(self) -> Fields:
        """Its fields."""
        return self.target.operation.write.fields


@dataclass(slots=True)
class Nearness:
    """All candidates in order, and by id the memories that some of them are near to. An id of `near` is of either."""

    candidates: list[Candidate] = field(default_factory=list)
    memories: dict[str, memory_service_pb2.Memory] = field(default_factory=dict)

    @property
    def asked(self) -> list[Candidate]:
        """Those that are near something."""
        return [candidate for candidate in self.candidates if candidate.near]


def said_by(kind: memory_service_pb2.MemoryType, fields: Fields, abstract: str) -> str:
    """The text that stands for a memory when it is compared: its texts, the name first; without any its abstract.

    Where the type has a content, the text is the name and the content, to the byte as the server puts them together to
    index a memory without an abstract: it need not embed that for each of its uses.
    """
    if _CONTENT in fields and not kind.content_template:
        name = " ".join(" ".join(_texts(placeholders(kind.filename_template), fields)).split())
        texts, between = [name, *_texts([_CONTENT], fields)], "\n"
    else:
        names = [one.name for one in kind.fields if one.type == memory_service_pb2.FIELD_TYPE_STRING]
        texts, between = _texts(names, fields), ". "
    return (between.join(filter(None, texts)) or abstract)[:_TEXT_LENGTH]


def _texts(names: Iterable[str], fields: Fields) -> list[str]:
    return [text for name in names if name in fields and (text := str(plain_value(fields[name])))]


async def find_near(
    job: Job,
    targets: Targets,
    operations: Sequence[extractor_service_pb2.MemoryOperation],
    known: Known,
    at_hand: AtHand,
) -> Nearness:
    """Compares each new memory of the operations with those of its type and owner that are there, and with the new
    ones before it. Left alone are writes of a memory that exists, which the server merges, and memories that another
    operation is about. Nothing is compared while the server has no embedder. `at_hand`: what need not be searched for.
    """
    candidates = _candidates(targets, operations)
    touched = _touched(operations) | {one.target.uri for one in candidates if not one.only_added}
    found: list[list[memory_service_pb2.Memory]] = []
    for start in range(0, len(candidates), _AT_ONCE):
        batch = candidates[start : start + _AT_ONCE]
        found += await side_by_side(_found(job, candidate, at_hand) for candidate in batch)
    said = [
        [said_by(candidate.kind, memory.fields, memory.abstract) for memory in memories]
        for candidate, memories in zip(candidates, found, strict=True)
    ]
    vectors = await _vectors(job, candidates, said)
    nearness = Nearness(candidates)
    if vectors is None:
        return nearness
    ids: dict[str, str] = {}
    for place, (candidate, memories, texts) in enumerate(zip(candidates, found, said, strict=True)):
        earlier = _comparable_before(candidates, place)
        if not memories and not earlier:
            continue
        mine = vectors[candidate.text]
        there = [(_cosine(mine, vectors[text]), memory) for text, memory in zip(texts, memories, strict=True)]
        before = [(_cosine(mine, vectors[other.text]), other) for other in earlier]
        crowd = [likeness for likeness, _ in [*there, *before]]
        stored = [
            (likeness, memory)
            for likeness, memory in there
            if memory.uri not in touched
            and _is_near(likeness, crowd)
            and not _other_times(candidate.kind, candidate.fields, memory.fields)
        ]
        stored.sort(key=lambda pair: (-pair[0], pair[1].uri))
        for _, memory in stored[:_MOST_ITEMS]:
            name = ids.setdefault(memory.uri, f"m{len(ids) + 1}")
            nearness.memories[name] = memory
            candidate.near.append(name)
        others = [
            (likeness, other.id)
            for likeness, other in before
            if _is_near(likeness, crowd) and not _other_times(candidate.kind, candidate.fields, other.fields)
        ]
        candidate.near += [name for _, name in sorted(others, reverse=True)[:_MOST_ITEMS]]
        if candidate.near and await _exists(job, candidate, memories, known, at_hand):
            candidate.near.clear()
    return nearness


def _candidates(targets: Targets, operations: Sequence[extractor_service_pb2.MemoryOperation]) -> list[Candidate]:
    made: list[Candidate] = []
    for place, operation in enumerate(operations):
        if operation.WhichOneof("operation") != "write":
            continue
        kind = targets.types.get(operation.write.memory_type)
        for target in targets.of(operation):
            assert kind is not None
            text = said_by(kind, operation.write.fields, operation.write.abstract)
            if text.strip():
                made.append(Candidate(f"c{len(made) + 1}", place, target, kind, text))
    return made


def _touched(operations: Sequence[extractor_service_pb2.MemoryOperation]) -> set[str]:
    edited = {one.edit.uri for one in operations if one.HasField("edit")}
    return edited | {one.delete.uri for one in operations if one.HasField("delete")}


async def _found(job: Job, candidate: Candidate, at_hand: AtHand) -> list[memory_service_pb2.Memory]:
    """The likeliest of its type and owner; all of them, where a search could leave none out."""
    there = _all(candidate, at_hand)
    if there is not None:
        return there
    request = memory_service_pb2.FindMemoriesRequest(
        query=candidate.text,
        target_uri=candidate.directory,
        memory_types=[candidate.kind.name],
        kinds=[memory_service_pb2.FOUND_KIND_MEMORY],
        limit=_FOUND,
        view=memory_service_pb2.MEMORY_VIEW_FULL,
    )
    try:
        return memories_of(await find_fitting(job, request))
    except (NotThere, NotAllowed):
        # A directory that nobody has written to yet.
        return []
    except SearchAway:
        there = at_hand.within(candidate.kind.name, candidate.directory, MAX_LISTED)
        if there is None:
            raise
        return there


def _all(candidate: Candidate, at_hand: AtHand) -> list[memory_service_pb2.Memory] | None:
    return at_hand.within(candidate.kind.name, candidate.directory, _FOUND)


async def _vectors(
    job: Job, candidates: Sequence[Candidate], said: Sequence[Sequence[str]]
) -> Mapping[str, Sequence[float]] | None:
    """By text, of all that is to be compared; None while nothing can be. `said`: of each candidate the texts of the
    memories that it is compared with."""
    texts: dict[str, None] = {}
    for place, (candidate, there) in enumerate(zip(candidates, said, strict=True)):
        beside = [*there, *(other.text for other in _comparable_before(candidates, place))]
        if beside:
            texts |= dict.fromkeys((candidate.text, *beside))
    if not texts:
        return {}
    try:
        _, vectors = await job.embed(list(texts))
    except EmbedderDown:
        _log.warning("new_memories_not_compared", candidates=len(candidates))
        return None
    # One that came over the wire makes its numbers anew each time that they are read.
    return dict(zip(texts, map(tuple, vectors), strict=True))


async def _exists(
    job: Job, candidate: Candidate, memories: Sequence[memory_service_pb2.Memory], known: Known, at_hand: AtHand
) -> bool:
    """Whether the memory itself is there, so that the server merges by the rules of its fields."""
    uri = candidate.target.uri
    there = next((memory for memory in memories if memory.uri == uri), None)
    if candidate.only_added:
        # Another one of that name is another memory, or the same told again: that is to be decided.
        return there is not None and all(there.fields.get(name) == value for name, value in candidate.fields.items())
    if there is not None or uri in known:
        return True
    if _all(candidate, at_hand) is not None:
        return False
    try:
        await job.read(uri)
    except (NotThere, NotAllowed):
        return False
    except TooMuch:
        # Too much to be read, but there.
        return True
    return True


def _comparable_before(candidates: Sequence[Candidate], place: int) -> list[Candidate]:
    """Those before the one at that place that it is compared with."""
    return [other for other in candidates[:place] if _comparable(candidates[place], other)]


def _comparable(candidate: Candidate, other: Candidate) -> bool:
    """Two writes of one memory the server merges, and equal ones of a type that is only added it takes for one."""
    same_place = candidate.target.uri == other.target.uri
    settled = same_place and (not candidate.only_added or candidate.fields == other.fields)
    return (
        candidate.kind.name == other.kind.name
        and candidate.target.owner == other.target.owner
        and candidate.place != other.place
        and not settled
    )


def _is_near(likeness: float, crowd: Sequence[float]) -> bool:
    """Whether it is near, and stands out from what else was compared."""
    rest = sorted(crowd)
    rest.remove(likeness)
    stands_out = len(rest) < 2 or likeness - median(rest) >= MARGIN
    return likeness >= NEAR and (likeness >= SURE or stands_out)


def _other_times(kind: memory_service_pb2.MemoryType, fields: Fields, others: Fields) -> bool:
    """Whether both are named by dates of which neither is within the other: the same on two days is two happenings."""
    names = [one.name for one in kind.fields if one.merge_op == memory_service_pb2.MERGE_OP_IMMUTABLE]
    for name in (name for name in names if name in fields and name in others):
        mine, theirs = fields[name].string_value, others[name].string_value
        dated = _DATE.match(mine) and _DATE.match(theirs)
        if dated and not mine.startswith(theirs) and not theirs.startswith(mine):
            return True
    return False


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Of vectors of length 1."""
    if len(one) != len(other):
        raise ValueError("vectors of different lengths")
    likeness: float = sum(map(mul, one, other))
    return likeness
