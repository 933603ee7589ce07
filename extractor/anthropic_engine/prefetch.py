"""What the model is shown before it is asked anything: the memories that the conversation may change.

Found by the system rather than by the model, so that one call is enough in the usual case.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import structlog

from extractor.anthropic_engine.at_hand import NODES, AtHand, list_spaces
from extractor.anthropic_engine.records import Known, entry_line, memory_line
from extractor.calls import SearchAway, TooMuch
from extractor.engine import Job
from extractor.searches import find_fitting, memories_of
from extractor.side_by_side import side_by_side
from runekeep.v1 import common_pb2, memory_service_pb2

_log = structlog.get_logger(__name__)

Report = Callable[[int, int], Awaitable[None]]
_ByKind = dict[str, list[memory_service_pb2.Memory]]
"""What one search finds of each type, likeliest first."""

_QUERIES: Final = 3
_QUERY_LENGTH: Final = 600
_FOUND_PER_QUERY: Final = 4
"""Of each type."""
_FEW: Final = _QUERIES * _FOUND_PER_QUERY
"""Memories of a type that need no search: it could show as many of them."""
_SPARE_KINDS: Final = 2
"""So many types more are searched for at once than there are, for the likeliest memories are seldom spread evenly."""
_MOST_FOUND: Final = 100
"""By one search, as the contract says."""
_PEERS: Final = 16
_SHOWN: Final = 80
MAX_LISTED: Final = 100
"""Memories of one type that are listed instead of searched while the index is away; the most that one call returns."""
_DIRECTORIES: Final = 40
_MEMORY_LENGTH: Final = 4000


@dataclass(slots=True)
class Existing:
    """What is there already.

    `memories`: records with fields, type after type, of a type that was searched for the likeliest first, of another
    what changed last; `others`: the rest of the listing in short;
    `known`: URI to type of all of them; `truncated`: whether a listing was longer than what is shown; `at_hand`: what
    else was learnt, for those who look for doubles.
    """

    memories: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    known: Known = field(default_factory=dict)
    truncated: bool = False
    at_hand: AtHand = field(default_factory=AtHand)


async def prefetch(job: Job, messages: Sequence[common_pb2.Message], room: int, report: Report) -> Existing:
    """Lists the writable spaces, reads the documents at their top, and finds the memories that these messages may
    change.

    If there are few memories, that is all of them, of each type the latest change first. If a type has many, it
    is the likeliest of that type for each passage of the messages. While the index is away it is all of them, the
    latest change first; raises SearchAway if a type has more than MAX_LISTED. `room`: characters for what is shown in
    full; the listing gets a third of that on top. `report` is called with the number of finished searches and their
    total.
    """
    roots = _roots(job)
    at_hand = await list_spaces(job, roots, _SHOWN, _FEW)
    existing = Existing(truncated=at_hand.truncated, at_hand=at_hand)
    listed = {entry.uri: entry for space in at_hand.spaces for entry in space.entries}
    top = await _top(job, at_hand)
    kinds = at_hand.kinds([kind.name for kind in job.memory_types])
    records = _Records()
    few = _few(at_hand, kinds, records, room)
    try:
        found = await _search(job, messages, [kind for kind in kinds if kind not in few], report)
        shown = top | _ordered(kinds, few, found, roots)
        if few and not records.fit(shown.values(), room):
            # Something must be left out: of each type, what is least like the messages.
            found += await _search(job, messages, list(few), report)
            shown = top | _ordered(kinds, {}, found, roots)
    except SearchAway:
        existing.at_hand = at_hand = await list_spaces(job, roots, MAX_LISTED, MAX_LISTED)
        every = {kind: memories for kind in kinds if (memories := at_hand.all_of(kind)) is not None}
        if len(every) < len(kinds):
            # Too many to list: the job waits for the index.
            raise
        _log.warning("listed_without_search", memories=sum(map(len, every.values())))
        shown = top | _ordered(kinds, every, [], roots)
    listing = room // 3
    for uri, memory in list(shown.items())[:_SHOWN]:
        existing.known[uri] = memory.memory_type
        record = records.of(memory)
        if len(record) > room:
            existing.truncated = True
            break
        room -= len(record)
        existing.memories.append(record)
        listed.pop(uri, None)
    for entry in listed.values():
        if entry.memory_type:
            record = entry_line(entry, existing.known)
            if len(record) > listing or len(existing.others) == NODES:
                existing.truncated = True
                break
            listing -= len(record)
            existing.others.append(record)
    if existing.truncated:
        # What is not listed is at least counted and named by its directory.
        whole = [entry for entry in listed.values() if entry.directory and entry.abstract]
        existing.others[:0] = [entry_line(entry, existing.known) for entry in whole[:_DIRECTORIES]]
    return existing


def queries(messages: Sequence[common_pb2.Message]) -> list[str]:
    """At most a few passages of the conversation: its users' words in equal parts, and the names of what it called."""
    spoken = [text for message in messages if message.role == common_pb2.ROLE_USER for text in _texts(message)]
    called = sorted({name for message in messages for name in _called(message)})
    found = [" ".join(called)[:_QUERY_LENGTH]] if called else []
    parts = min(_QUERIES - len(found), len(spoken))
    for part in range(parts):
        share = spoken[len(spoken) * part // parts : len(spoken) * (part + 1) // parts]
        # The longest passages say most; a window of small talk around them would only blur the query.
        chosen = sorted(share, key=len, reverse=True)[:4]
        query = " ".join(" ".join(text for text in share if text in chosen).split())[:_QUERY_LENGTH]
        if query:
            found.append(query)
    return found


async def _top(job: Job, at_hand: AtHand) -> dict[str, memory_service_pb2.Memory]:
    """The profile and its like: one document a space, whatever the conversation is about."""
    uris = [one.uri for space in at_hand.spaces for one in space.entries if one.memory_type and one.depth == 1]
    there = {uri: memory for space in at_hand.spaces for uri, memory in space.memories.items()}
    missing = [uri for uri in uris if uri not in there]
    read = await side_by_side(_read(job, uri) for uri in missing)
    there |= {uri: memory for uri, memory in zip(missing, read, strict=True) if memory is not None}
    return {uri: there[uri] for uri in uris if uri in there}


async def _read(job: Job, uri: str) -> memory_service_pb2.Memory | None:
    try:
        document = await job.read(uri)
    except TooMuch:
        # It is listed, at least.
        return None
    return document.memory if document.HasField("memory") else None


class _Records:
    """Memories as they are shown in full. What is measured for its size is mostly shown as well: it is made once."""

    def __init__(self) -> None:
        self._lines: dict[str, str] = {}

    def of(self, memory: memory_service_pb2.Memory) -> str:
        if memory.uri not in self._lines:
            self._lines[memory.uri] = memory_line(memory, {}, _MEMORY_LENGTH)
        return self._lines[memory.uri]

    def fit(self, memories: Iterable[memory_service_pb2.Memory], room: int) -> bool:
        """Whether all of them can be shown in full."""
        sizes = [len(self.of(memory)) for memory in memories]
        return len(sizes) <= _SHOWN and sum(sizes) <= room


def _few(
    at_hand: AtHand, kinds: Sequence[str], records: _Records, room: int
) -> dict[str, list[memory_service_pb2.Memory]]:
    """Memories of the types that need no search, by type: of all types, where everything together takes no more than
    the listing of what is not shown may; else of those of which a search could show as many."""
    every = {kind: memories for kind in kinds if (memories := at_hand.all_of(kind)) is not None}
    if len(every) == len(kinds) and records.fit(chain.from_iterable(every.values()), room // 3):
        return every
    return {kind: memories for kind, memories in every.items() if len(memories) <= _FEW}


async def _search(
    job: Job, messages: Sequence[common_pb2.Message], kinds: Sequence[str], report: Report
) -> list[_ByKind]:
    """Memories of these types for each passage of the messages."""
    asked = queries(messages) if kinds else []
    found = await side_by_side(_found(job, query, kinds) for query in asked)
    await report(len(asked), len(asked))
    return found


def _ordered(
    kinds: Sequence[str],
    few: Mapping[str, Sequence[memory_service_pb2.Memory]],
    found: Sequence[_ByKind],
    roots: Sequence[str],
) -> dict[str, memory_service_pb2.Memory]:
    """Memories of all types by URI, type after type; `few`: of types that need no search."""
    shown: dict[str, memory_service_pb2.Memory] = {}
    for kind in kinds:
        for memories in [few[kind]] if kind in few else [by_kind.get(kind, ()) for by_kind in found]:
            for memory in memories:
                if any(memory.uri.startswith(f"{root}/") for root in roots):
                    shown.setdefault(memory.uri, memory)
    return shown


async def _found(job: Job, query: str, kinds: Sequence[str]) -> _ByKind:
    """The likeliest memories of each type. One search for all of them; where it was full, others for those types that
    were crowded out, and for each type where it would be too much for one answer."""
    limit = min(_FOUND_PER_QUERY * (len(kinds) + _SPARE_KINDS), _MOST_FOUND)
    found: _ByKind = {}
    try:
        together = memories_of((await job.find(_search_for(query, kinds, limit))).results)
    except TooMuch:
        few = list(kinds)
    else:
        for memory in together:
            found.setdefault(memory.memory_type, []).append(memory)
        full = len(together) == limit
        few = [kind for kind in kinds if len(found.get(kind, ())) < _FOUND_PER_QUERY] if full else []
    apart = await side_by_side(find_fitting(job, _search_for(query, [kind], _FOUND_PER_QUERY)) for kind in few)
    found |= {kind: memories_of(results) for kind, results in zip(few, apart, strict=True)}
    return {kind: memories[:_FOUND_PER_QUERY] for kind, memories in found.items()}


def _search_for(query: str, kinds: Sequence[str], limit: int) -> memory_service_pb2.FindMemoriesRequest:
    return memory_service_pb2.FindMemoriesRequest(
        query=query,
        memory_types=kinds,
        kinds=[memory_service_pb2.FOUND_KIND_MEMORY],
        limit=limit,
        view=memory_service_pb2.MEMORY_VIEW_FULL,
    )


def _roots(job: Job) -> list[str]:
    space = job.assignment.user_space.rstrip("/")
    plan = job.assignment.plan
    own = [f"{space}/memories", f"{space}/skills"] if plan.session_skills else [f"{space}/memories"]
    peers = [f"{space}/peers/{peer}/memories" for peer in plan.allowed_peer_ids[:_PEERS]]
    return [*(own if plan.allow_self else []), *peers]


def _texts(message: common_pb2.Message) -> list[str]:
    texts = [part.text.text for part in message.parts if part.HasField("text")]
    return [text for text in texts if re.search(r"\w", text)]


def _called(message: common_pb2.Message) -> set[str]:
    names = set()
    for part in message.parts:
        if part.HasField("tool"):
            names.update({part.tool.tool_name, part.tool.skill_name} - {""})
    return names
