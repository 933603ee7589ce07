"""Explains what became of one document in a search."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from runekeep_storage import message_rows
from runekeep_storage.database import Space, Tx
from runekeep_storage.index.base import IndexPoint
from runekeep_storage.indexing import passages, rows
from runekeep_storage.indexing.embedder_change import Models
from runekeep_storage.indexing.statements import PASSAGE_COLUMNS
from runekeep_storage.memories import memories
from runekeep_storage.records import Memory, Passage
from runekeep_storage.search import filters, joining, statements
from runekeep_storage.search.found_texts import ROOM_FOR_ABSTRACTS, Depth
from runekeep_storage.search.ranking import Ranked
from runekeep_storage.search.requests import FindAnswer, FindRequest, Found
from runekeep_storage.search.snapshot import SearchStart


class Outcome(StrEnum):
    """What became of a document, see SearchOutcome in the contract."""

    NOT_FOUND = "not found"
    DELETED = "deleted"
    NOT_ARCHIVED = "not archived"
    NOT_SEARCHABLE = "not searchable"
    NOT_INDEXED = "not indexed"
    FILTERED = "filtered"
    RETURNED = "returned"
    NO_MATCH = "no match"
    NOT_A_CANDIDATE = "not a candidate"
    BELOW_MINIMUM = "below minimum"
    OVER_LIMIT = "over limit"


@dataclass(frozen=True, slots=True)
class Target:
    """A memory by its canonical URI, or a message by its session and id."""

    uri: str = ""
    session_id: str = ""
    message_id: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """`excluded_by`: fields of FindRequest; `document`: None if it was not scored; `rank`: among the `candidates` that
    match the filters, from 1, 0 if it has none; `without_vector`: it is found by its words alone."""

    answer: FindAnswer
    outcome: Outcome
    excluded_by: tuple[str, ...] = ()
    document: Found | None = None
    rank: int = 0
    candidates: int = 0
    without_vector: bool = False


@dataclass(frozen=True, slots=True)
class Located:
    """A document that search can find, its point, and the fields of FindRequest that exclude it."""

    item: Memory | Passage
    point: IndexPoint
    excluded_by: tuple[str, ...]


async def locate(
    tx: Tx, space: Space, request: FindRequest, target: Target, revision: int, models: Models
) -> Located | Outcome:
    """Returns the document as it is at the revision, or why search cannot find it there. `models`: the one that the
    space is searched by."""
    if target.message_id:
        return await _locate_passage(tx, space, request, target, models)
    memory, newest = await memories.with_newest_version(tx, space, target.uri, revision)
    if memory is None and newest and request.at_revision is not None:
        # It is explained as it is today, but the search is of another time.
        memory, _ = await memories.with_newest_version(tx, space, target.uri)
    if memory is None:
        if not newest:
            return Outcome.NOT_FOUND
        today, _ = await memories.with_newest_version(tx, space, target.uri)
        return Outcome.DELETED if today is None else Outcome.NOT_INDEXED
    (point,) = await rows.memory_points(tx, space, [(memory.uri, memory.version)], models)
    excluded = list(filters.excluding(memory, memory.uri, request))
    if not filters.fields_match(memory, request.fields):
        excluded.append("fields")
    if request.at_revision is not None and not memory.rev_from <= revision < (memory.rev_to or memories.LATEST):
        excluded.append("at_revision")
    return Located(memory, point, tuple(excluded))


async def _locate_passage(
    tx: Tx, space: Space, request: FindRequest, target: Target, models: Models
) -> Located | Outcome:
    row = await tx.fetchrow(
        statements.MESSAGE_AND_ARCHIVED, space.account, space.user, target.session_id, target.message_id
    )
    if row is None:
        return Outcome.NOT_FOUND
    if row["erased"]:
        return Outcome.NOT_SEARCHABLE
    key = (target.session_id, row["sequence"])
    stored = (await rows.by_keys(tx, space, "passages", PASSAGE_COLUMNS, [key])).get(key)
    if stored is None:
        if not passages.text_of(message_rows.message(row)):
            return Outcome.NOT_SEARCHABLE
        return Outcome.NOT_INDEXED if row["sequence"] <= row["archived_sequence"] else Outcome.NOT_ARCHIVED
    passage, point = rows.passage_of(stored), rows.passage_index_point(stored, models)
    excluded = list(filters.excluding(passage, point.uri, request))
    if request.fields:
        excluded.append("fields")
    if request.archived_by is not None and not await passages.of_points(
        tx, space, [(key, point.id)], request.archived_by
    ):
        excluded.append("archived_by")
    return Located(passage, point, tuple(excluded))


async def compare(
    tx: Tx,
    space: Space,
    request: FindRequest,
    start: SearchStart,
    answer: FindAnswer,
    located: Located,
    order: Sequence[Ranked],
    *,
    was_candidate: bool,
) -> Explanation:
    """Returns what became of a document that search can find. `order`: the candidates of the search and, whether it was
    one of them or not, the document."""
    everything = replace(request, limit=max(len(order), 1), score_threshold=None, room=ROOM_FOR_ABSTRACTS)
    matching, _ = await joining.join(tx, space, everything, order, answer.revision, start)
    places = {one.id: place for place, one in enumerate(order)}
    place = places.get(located.point.id)
    others = [places[one.ranked.id] for one in matching if one.ranked.id != located.point.id]
    outcome, excluded_by = _outcome(request, start, answer, located, place, order, was_candidate=was_candidate)
    counts = was_candidate and outcome is not Outcome.FILTERED
    return Explanation(
        answer,
        outcome,
        excluded_by,
        document=None if place is None else Found(located.item, order[place], Depth.ABSTRACT),
        rank=0 if place is None or outcome is Outcome.NOT_A_CANDIDATE else 1 + sum(other < place for other in others),
        candidates=len(others) + counts,
        without_vector=located.point.dense is None,
    )


def _outcome(
    request: FindRequest,
    start: SearchStart,
    answer: FindAnswer,
    located: Located,
    place: int | None,
    order: Sequence[Ranked],
    *,
    was_candidate: bool,
) -> tuple[Outcome, tuple[str, ...]]:
    if located.excluded_by:
        return Outcome.FILTERED, located.excluded_by
    if any(one.ranked.id == located.point.id for one in answer.results):
        return Outcome.RETURNED, ()
    if not was_candidate and start.standing.indexed < 0:
        return Outcome.NOT_INDEXED, ()
    if place is None:
        return Outcome.NO_MATCH, ()
    if not was_candidate:
        return Outcome.NOT_A_CANDIDATE, ()
    if request.score_threshold is not None and order[place].score < request.score_threshold:
        return Outcome.BELOW_MINIMUM, ("score_threshold",)
    return Outcome.OVER_LIMIT, ("limit",)
