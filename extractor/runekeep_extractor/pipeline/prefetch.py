"""Loads the memories that the conversation may change, before the first model call.

The system finds them, not the model, so that one call usually suffices.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import structlog

from runekeep.v1 import common_pb2, memory_service_pb2
from runekeep_extractor.engine.concurrency import side_by_side
from runekeep_extractor.engine.interface import Job
from runekeep_extractor.pipeline.existing_memories import NODES, ListedMemories, list_spaces
from runekeep_extractor.pipeline.shown_memories import ShownMemories, called_names
from runekeep_extractor.prompts.records import Known, entry_line
from runekeep_extractor.rpc.calls import SearchAway, TooMuch
from runekeep_extractor.rpc.searches import find_fitting, memories_of

_log = structlog.get_logger(__name__)

Report = Callable[[int, int], Awaitable[None]]
_ByKind = dict[str, list[memory_service_pb2.Memory]]
"""Results of one search by type, likeliest first."""

_QUERIES: Final = 3
_QUERY_LENGTH: Final = 600
_FOUND_PER_QUERY: Final = 4
"""Per type."""
_FEW: Final = _QUERIES * _FOUND_PER_QUERY
"""If a type has at most this many memories, a search could return all of them, so none is made."""
_SPARE_KINDS: Final = 2
"""A combined search asks for this many types' worth of extra results, because the likeliest memories are seldom spread
evenly.
"""
_MAX_FOUND: Final = 100
"""Per search; bound of the contract."""
_PEERS: Final = 16
_SHOWN: Final = 80
MAX_LISTED: Final = 100
"""Maximum memories of one type that are listed instead of searched while the index is away; also the maximum of one
call.
"""
_DIRECTORIES: Final = 40
_NAMED: Final = 8
"""Maximum of memories that are read because the messages name them and no search has found them."""


@dataclass(slots=True)
class Existing:
    """Existing memories.

    `memories`: records in the order of `ShownMemories`; within a rank, searched types are ordered by likelihood, others
    by latest change. `others`: the rest of the listing in short form; `known`: URI to type of all of them; `truncated`:
    whether a listing is longer than what is shown; `listed`: further results of the listings, for the dedup.
    """

    memories: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    known: Known = field(default_factory=dict)
    truncated: bool = False
    listed: ListedMemories = field(default_factory=ListedMemories)


async def prefetch(job: Job, messages: Sequence[common_pb2.Message], room: int, report: Report) -> Existing:
    """Lists the writable spaces, reads their top-level documents, and finds the memories that these messages may
    change.

    If there are few memories, that is all of them, within each type the latest change first. If a type has many, it is
    the likeliest of that type for each passage of the messages, and what the messages name. While the index is away it
    is all of them, the latest change first; raises SearchAway if a type has more than MAX_LISTED. `room`: bytes for
    what is shown in full; the listing gets a third of that on top. `report` is called with the number of finished
    searches and their total.
    """
    roots = _roots(job)
    listed = await list_spaces(job, roots, _SHOWN, _FEW)
    existing = Existing(truncated=listed.truncated, listed=listed)
    entries = {entry.uri: entry for space in listed.spaces for entry in space.entries}
    top = await _top(job, listed)
    kinds = listed.kinds([kind.name for kind in job.memory_types])
    records = ShownMemories(job, messages)
    few = _few(listed, kinds, records, room)
    try:
        found = await _search(job, messages, [kind for kind in kinds if kind not in few], report)
        shown = top | _ordered(kinds, few, found, roots)
        if few and not _fit(records, shown.values(), room):
            # Some must be left out: within each type, those least similar to the messages.
            found += await _search(job, messages, list(few), report)
            shown = top | _ordered(kinds, {}, found, roots)
    except SearchAway:
        existing.listed = listed = await list_spaces(job, roots, MAX_LISTED, MAX_LISTED)
        every = {kind: memories for kind in kinds if (memories := listed.all_of(kind)) is not None}
        if len(every) < len(kinds):
            # Too many to list: the job waits for the index.
            raise
        _log.warning("listed_without_search", memories=sum(map(len, every.values())))
        shown = top | _ordered(kinds, every, [], roots)
    shown |= await _named(job, [entry for uri, entry in entries.items() if uri not in shown], records)
    listing = room // 3
    for memory in records.in_order(shown.values())[:_SHOWN]:
        record = records.record(memory, existing.known)
        if len(record.encode()) > room and records.rank(memory.uri, memory.memory_type) == 0:
            # A part of the profile is better than none.
            record = records.cut_record(memory, room)
        if not record or len(record.encode()) > room:
            existing.truncated = True
            continue
        room -= len(record.encode())
        existing.memories.append(record)
        entries.pop(memory.uri, None)
    others = [one for one in entries.values() if one.memory_type and not records.is_left_out(one.uri, one.memory_type)]
    for entry in sorted(others, key=lambda one: records.rank(one.uri, one.memory_type)):
        record = entry_line(entry, existing.known)
        if len(record.encode()) > listing or len(existing.others) == NODES:
            existing.truncated = True
            break
        listing -= len(record.encode())
        existing.others.append(record)
    if existing.truncated:
        # Unlisted memories are at least counted and named by their directory.
        whole = [entry for entry in entries.values() if entry.directory and entry.abstract]
        existing.others[:0] = [entry_line(entry, existing.known) for entry in whole[:_DIRECTORIES]]
    return existing


def queries(messages: Sequence[common_pb2.Message]) -> list[str]:
    """Returns a few passages of the conversation: the users' words in equal parts, and the names of called tools and
    skills.
    """
    spoken = [text for message in messages if message.role == common_pb2.ROLE_USER for text in _texts(message)]
    called = sorted({name for message in messages for name in called_names(message)})
    found = [" ".join(called)[:_QUERY_LENGTH]] if called else []
    parts = min(_QUERIES - len(found), len(spoken))
    for part in range(parts):
        share = spoken[len(spoken) * part // parts : len(spoken) * (part + 1) // parts]
        # The longest passages say most; small talk around them would only blur the query.
        chosen = sorted(share, key=len, reverse=True)[:4]
        query = " ".join(" ".join(text for text in share if text in chosen).split())[:_QUERY_LENGTH]
        if query:
            found.append(query)
    return found


async def _top(job: Job, listed: ListedMemories) -> dict[str, memory_service_pb2.Memory]:
    """Reads the top-level documents, such as the profile: they are shown whatever the conversation is about."""
    uris = [one.uri for space in listed.spaces for one in space.entries if one.memory_type and one.depth == 1]
    there = {uri: memory for space in listed.spaces for uri, memory in space.memories.items()}
    missing = [uri for uri in uris if uri not in there]
    read = await side_by_side(_read(job, uri) for uri in missing)
    there |= {uri: memory for uri, memory in zip(missing, read, strict=True) if memory is not None}
    return {uri: there[uri] for uri in uris if uri in there}


async def _read(job: Job, uri: str) -> memory_service_pb2.Memory | None:
    try:
        document = await job.read(uri)
    except TooMuch:
        # It is at least listed.
        return None
    return document.memory if document.HasField("memory") else None


async def _named(
    job: Job, entries: Sequence[memory_service_pb2.DirectoryEntry], records: ShownMemories
) -> dict[str, memory_service_pb2.Memory]:
    """Reads the listed memories that the messages name."""
    uris = [one.uri for one in entries if one.memory_type and records.is_named(one.uri, one.memory_type)][:_NAMED]
    read = await side_by_side(_read(job, uri) for uri in uris)
    return {uri: memory for uri, memory in zip(uris, read, strict=True) if memory is not None}


def _fit(records: ShownMemories, memories: Iterable[memory_service_pb2.Memory], room: int) -> bool:
    """Returns whether all of them can be shown."""
    sizes = [records.size(memory) for memory in records.in_order(memories)]
    return len(sizes) <= _SHOWN and sum(sizes) <= room


def _few(
    listed: ListedMemories, kinds: Sequence[str], records: ShownMemories, room: int
) -> dict[str, list[memory_service_pb2.Memory]]:
    """Returns the memories of the types that need no search, by type. These are all types if everything together fits
    into the room of the listing; else the types of which a search could show all memories.
    """
    every = {kind: memories for kind in kinds if (memories := listed.all_of(kind)) is not None}
    if len(every) == len(kinds) and _fit(records, chain.from_iterable(every.values()), room // 3):
        return every
    return {kind: memories for kind, memories in every.items() if len(memories) <= _FEW}


async def _search(
    job: Job, messages: Sequence[common_pb2.Message], kinds: Sequence[str], report: Report
) -> list[_ByKind]:
    """Returns memories of these types for each passage of the messages."""
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
    """Returns memories of all types by URI, grouped by type. `few`: memories of types that need no search."""
    shown: dict[str, memory_service_pb2.Memory] = {}
    for kind in kinds:
        for memories in [few[kind]] if kind in few else [by_kind.get(kind, ()) for by_kind in found]:
            for memory in memories:
                if any(memory.uri.startswith(f"{root}/") for root in roots):
                    shown.setdefault(memory.uri, memory)
    return shown


async def _found(job: Job, query: str, kinds: Sequence[str]) -> _ByKind:
    """Returns the likeliest memories of each type. Makes one search for all types. If that reaches its limit, searches
    again for each type that was crowded out; if it exceeds one answer, for each type.
    """
    limit = min(_FOUND_PER_QUERY * (len(kinds) + _SPARE_KINDS), _MAX_FOUND)
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
