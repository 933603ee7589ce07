"""Finds memories similar to new ones, by vectors, so that no model is called if there are none."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import mul
from statistics import median
from typing import Final

import structlog

from runekeep.v1 import common_pb2, extractor_service_pb2, memory_service_pb2
from runekeep_extractor.answers.operations import plain_value
from runekeep_extractor.engine.concurrency import side_by_side
from runekeep_extractor.engine.interface import Job
from runekeep_extractor.engine.merge_rules import rule_of
from runekeep_extractor.engine.tool_counts import counted_by_system
from runekeep_extractor.pipeline.existing_memories import ListedMemories
from runekeep_extractor.pipeline.memory_names import name_words
from runekeep_extractor.pipeline.prefetch import MAX_LISTED
from runekeep_extractor.pipeline.targets import Target, Targets
from runekeep_extractor.prompts.records import Known
from runekeep_extractor.rpc.calls import EmbedderDown, NotAllowed, NotThere, SearchAway, TooMuch
from runekeep_extractor.rpc.searches import find_fitting, memories_of
from runekeep_schemas.memory_types.templates import placeholders

NEAR: Final = 0.6
"""Cosine. Measured with the server's own embedder on pairs labelled beforehand: of 29 pairs that need a decision, 28
are at or above it; of 32 pairs that need none, none is. tests/unit/extractor/pipeline/test_near.py checks this.
"""
NEAR_ADDED: Final = 0.7
"""The same for an add-only type. Labelled pairs of cases that are the same begin at 0.70."""
NEAR_DATED: Final = 0.89
"""The same if dates name both memories: one matter often has several events, such as an order and its delivery.
Labelled pairs of one event begin at 0.90.
"""
NEAR_OTHER_NAMES: Final = 0.79
"""The same for two entities whose names share no word, apart from words in brackets: like things are described alike.
The labelled pair of one entity under two names is at 0.80.
"""
# In 41 recorded prompts about the eight lives of `tests/bench/quality`, all 55 decisions were `create`. NEAR alone
# asks about 85 pairs of their memories, the four bounds about 13. Tools and skills are not compared.
SURE: Final = 0.85
"""Cosine from which a memory counts as similar without the MARGIN."""
MARGIN: Final = 0.15
"""Below SURE, a similar memory must exceed the median of the others by this much, because many facts about one person
resemble one another. Of 339 observations of the development half of LoCoMo (2 conversations), each treated as a new
memory beside the earlier ones about the same person, 88 % have one at or above NEAR, and 23 % one that stands out.
"""

_MAX_ITEMS: Final = 3
_FOUND: Final = 6
_AT_ONCE: Final = 8
_TEXT_LENGTH: Final = 4000
"""Maximum length of a query. MiniLM reads less, but recognizes an identical text by all of it."""

_CONTENT: Final = "content"
_ENTITIES: Final = "entities"
_DATE: Final = re.compile(r"\d{4}(-\d\d){0,2}(?!\d)")

_log = structlog.get_logger(__name__)

Fields = Mapping[str, common_pb2.FieldValue]


@dataclass(slots=True)
class Candidate:
    """A memory that a write of the output would create. `place`: index of the write; `near`: ids of similar memories
    and candidates.
    """

    id: str
    place: int
    target: Target
    kind: memory_service_pb2.MemoryType
    text: str
    near: list[str] = field(default_factory=list)

    @property
    def only_added(self) -> bool:
        """Whether the type is add-only: its memories never change."""
        return self.kind.operation_mode == memory_service_pb2.OPERATION_MODE_ADD_ONLY

    @property
    def directory(self) -> str:
        """Directory of memories of its type and owner."""
        return self.target.uri.rpartition("/")[0]

    @property
    def fields(self) -> Fields:
        """The fields of its write."""
        return self.target.operation.write.fields


@dataclass(slots=True)
class Nearness:
    """All candidates in order, and similar stored memories by id. An id in a candidate's `near` names either."""

    candidates: list[Candidate] = field(default_factory=list)
    memories: dict[str, memory_service_pb2.Memory] = field(default_factory=dict)

    @property
    def asked(self) -> list[Candidate]:
        """The candidates that have something similar."""
        return [candidate for candidate in self.candidates if candidate.near]


def said_by(kind: memory_service_pb2.MemoryType, fields: Fields, abstract: str) -> str:
    """Returns the text by which a memory is compared: its texts, name first; its abstract if it has no text.

    If the type has a content, the text is the name and the content, byte for byte as the server joins them to index a
    memory without an abstract. So the server can reuse that embedding.
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
    listed: ListedMemories,
) -> Nearness:
    """Compares each new memory of the operations with the stored ones of its type and owner, and with the new ones
    before it. Skips writes of existing memories, which the server merges, and memories that another operation concerns.
    Compares nothing while the server has no embedder. `listed`: memories that need no search.
    """
    candidates = _candidates(targets, operations)
    touched = _touched(operations) | {one.target.uri for one in candidates if not one.only_added}
    found: list[list[memory_service_pb2.Memory]] = []
    for start in range(0, len(candidates), _AT_ONCE):
        batch = candidates[start : start + _AT_ONCE]
        found += await side_by_side(_found(job, candidate, listed) for candidate in batch)
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
            and _is_near(likeness, crowd, least_likeness(candidate, memory.fields))
            and not _other_times(candidate.kind, candidate.fields, memory.fields)
        ]
        stored.sort(key=lambda pair: (-pair[0], pair[1].uri))
        for _, memory in stored[:_MAX_ITEMS]:
            name = ids.setdefault(memory.uri, f"m{len(ids) + 1}")
            nearness.memories[name] = memory
            candidate.near.append(name)
        others = [
            (likeness, other.id)
            for likeness, other in before
            if _is_near(likeness, crowd, least_likeness(candidate, other.fields))
            and not _other_times(candidate.kind, candidate.fields, other.fields)
        ]
        candidate.near += [name for _, name in sorted(others, reverse=True)[:_MAX_ITEMS]]
        if candidate.near and await _exists(job, candidate, memories, known, listed):
            candidate.near.clear()
    return nearness


def _candidates(targets: Targets, operations: Sequence[extractor_service_pb2.MemoryOperation]) -> list[Candidate]:
    made: list[Candidate] = []
    for place, operation in enumerate(operations):
        if operation.WhichOneof("operation") != "write":
            continue
        kind = targets.types.get(operation.write.memory_type)
        if kind is not None and counted_by_system(kind):
            # The records of the batch name tools and skills: two names are two of them.
            continue
        for target in targets.of(operation):
            assert kind is not None
            text = said_by(kind, operation.write.fields, operation.write.abstract)
            if text.strip():
                made.append(Candidate(f"c{len(made) + 1}", place, target, kind, text))
    return made


def _touched(operations: Sequence[extractor_service_pb2.MemoryOperation]) -> set[str]:
    edited = {one.edit.uri for one in operations if one.HasField("edit")}
    return edited | {one.delete.uri for one in operations if one.HasField("delete")}


async def _found(job: Job, candidate: Candidate, listed: ListedMemories) -> list[memory_service_pb2.Memory]:
    """Returns the likeliest memories of the candidate's type and owner, or all of them if a search could return all."""
    there = _all(candidate, listed)
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
        # Nobody has written to this directory yet.
        return []
    except SearchAway:
        there = listed.within(candidate.kind.name, candidate.directory, MAX_LISTED)
        if there is None:
            raise
        return there


def _all(candidate: Candidate, listed: ListedMemories) -> list[memory_service_pb2.Memory] | None:
    return listed.within(candidate.kind.name, candidate.directory, _FOUND)


async def _vectors(
    job: Job, candidates: Sequence[Candidate], said: Sequence[Sequence[str]]
) -> Mapping[str, Sequence[float]] | None:
    """Returns vectors by text, for all texts to compare; None while the embedder is away. `said`: for each candidate,
    the texts of the memories to compare it with.
    """
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
    # A repeated field of a message converts its numbers on every access.
    return dict(zip(texts, map(tuple, vectors), strict=True))


async def _exists(
    job: Job, candidate: Candidate, memories: Sequence[memory_service_pb2.Memory], known: Known, listed: ListedMemories
) -> bool:
    """Returns whether the memory itself exists, so that the server merges by the merge operations of its fields."""
    uri = candidate.target.uri
    there = next((memory for memory in memories if memory.uri == uri), None)
    if candidate.only_added:
        # Another memory of this name is either a different memory or a repetition, which the model must decide.
        return there is not None and all(there.fields.get(name) == value for name, value in candidate.fields.items())
    if there is not None or uri in known:
        return True
    if _all(candidate, listed) is not None:
        return False
    try:
        await job.read(uri)
    except (NotThere, NotAllowed):
        return False
    except TooMuch:
        # It is too large to read, but it exists.
        return True
    return True


def _comparable_before(candidates: Sequence[Candidate], place: int) -> list[Candidate]:
    """Returns the earlier candidates that the candidate at `place` is compared with."""
    return [other for other in candidates[:place] if _comparable(candidates[place], other)]


def _comparable(candidate: Candidate, other: Candidate) -> bool:
    """Returns whether two candidates are compared. The server itself merges two writes of one memory, and takes equal
    writes of an add-only type for one.
    """
    same_place = candidate.target.uri == other.target.uri
    settled = same_place and (not candidate.only_added or candidate.fields == other.fields)
    return (
        candidate.kind.name == other.kind.name
        and candidate.target.owner == other.target.owner
        and candidate.place != other.place
        and not settled
    )


def least_likeness(candidate: Candidate, others: Fields) -> float:
    """Returns the likeness from which a memory with these fields may be the same as the candidate."""
    names = placeholders(candidate.kind.filename_template)
    mine, theirs = _texts(names, candidate.fields), _texts(names, others)
    if mine == theirs:
        return NEAR
    if any(map(_DATE.match, mine)) and any(map(_DATE.match, theirs)):
        return NEAR_DATED
    if candidate.only_added:
        return NEAR_ADDED
    if candidate.kind.name == _ENTITIES and set(name_words(" ".join(mine))).isdisjoint(name_words(" ".join(theirs))):
        return NEAR_OTHER_NAMES
    return NEAR


def _is_near(likeness: float, crowd: Sequence[float], least: float) -> bool:
    """Returns whether a memory is similar enough and stands out from the others compared."""
    rest = sorted(crowd)
    rest.remove(likeness)
    stands_out = len(rest) < 2 or likeness - median(rest) >= MARGIN
    return likeness >= least and (likeness >= SURE or stands_out)


def _other_times(kind: memory_service_pb2.MemoryType, fields: Fields, others: Fields) -> bool:
    """Returns whether both are named by dates neither of which contains the other: equal texts on two days are two
    events.
    """
    names = [one.name for one in kind.fields if rule_of(one).keeps_first]
    for name in (name for name in names if name in fields and name in others):
        mine, theirs = fields[name].string_value, others[name].string_value
        dated = _DATE.match(mine) and _DATE.match(theirs)
        if dated and not mine.startswith(theirs) and not theirs.startswith(mine):
            return True
    return False


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Returns the cosine of two vectors of length 1."""
    if len(one) != len(other):
        raise ValueError("vectors of different lengths")
    likeness: float = sum(map(mul, one, other))
    return likeness
