"""What the model is shown before it is asked anything: the memories that the conversation may change.

Found by the system rather than by the model, so that one call is enough in the usual case.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from extractor.anthropic_engine.records import Known, entry_line, memory_line
from extractor.calls import NotThere
from extractor.engine import Job
from runekeep.v1 import common_pb2, memory_service_pb2

Report = Callable[[int, int], Awaitable[None]]

_QUERIES: Final = 3
_QUERY_LENGTH: Final = 600
_FOUND_PER_QUERY: Final = 4
"""Of each type."""
_SPARE_KINDS: Final = 2
"""So many types more are searched for at once than there are, for the likeliest memories are seldom spread evenly."""
_MOST_FOUND: Final = 100
"""By one search, as the contract says."""
_PEERS: Final = 16
_TREE_DEPTH: Final = 2
_TREE_NODES: Final = 400
_TREE_ABSTRACT: Final = 120
_SHOWN: Final = 80
_DIRECTORIES: Final = 40
_MEMORY_LENGTH: Final = 4000


@dataclass(slots=True)
class Existing:
    """What is there already.

    `memories`: records with fields, likeliest first; `others`: the rest of the listing in short; `known`: URI to type
    of all of them; `truncated`: whether a listing was longer than what is shown.
    """

    memories: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    known: Known = field(default_factory=dict)
    truncated: bool = False


async def prefetch(job: Job, messages: Sequence[common_pb2.Message], room: int, report: Report) -> Existing:
    """List the spaces that may be written, read what stands at their top, and search for each passage of these messages
    among the types that there are memories of. `room`: characters for what is shown in full; the listing gets a third
    of that on top. `report` is told how many of how many searches are done.
    """
    existing = Existing()
    shown: dict[str, memory_service_pb2.Memory] = {}
    listed: dict[str, memory_service_pb2.DirectoryEntry] = {}
    roots = _roots(job)
    for root in roots:
        for entry in await _list(job, root, existing):
            listed[entry.uri] = entry
            # The profile and its like: one document a space, whatever the conversation is about.
            if entry.memory_type and entry.depth == 1:
                document = await job.read(entry.uri)
                if document.HasField("memory"):
                    shown[entry.uri] = document.memory
    await _search(job, messages, _kinds(job, listed.values(), existing), roots, shown, report)
    listing = room // 3
    for uri, memory in list(shown.items())[:_SHOWN]:
        record = memory_line(memory, existing.known, _MEMORY_LENGTH)
        if len(record) > room:
            existing.truncated = True
            break
        room -= len(record)
        existing.memories.append(record)
        listed.pop(uri, None)
    for entry in listed.values():
        if entry.memory_type:
            record = entry_line(entry, existing.known)
            if len(record) > listing or len(existing.others) == _TREE_NODES:
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


async def _list(job: Job, root: str, existing: Existing) -> Sequence[memory_service_pb2.DirectoryEntry]:
    try:
        listing = await job.list(root, depth=_TREE_DEPTH, abstract_limit=_TREE_ABSTRACT, node_limit=_TREE_NODES)
    except NotThere:
        # Nobody has remembered anything there yet.
        return ()
    existing.truncated = existing.truncated or listing.truncated
    return listing.entries


async def _search(
    job: Job,
    messages: Sequence[common_pb2.Message],
    kinds: Sequence[str],
    roots: Sequence[str],
    shown: dict[str, memory_service_pb2.Memory],
    report: Report,
) -> None:
    asked = queries(messages) if kinds else []
    found = await asyncio.gather(*(_found(job, query, kinds) for query in asked))
    for kind in kinds:
        for by_kind in found:
            for memory in by_kind.get(kind, ()):
                if any(memory.uri.startswith(f"{root}/") for root in roots):
                    shown.setdefault(memory.uri, memory)
    await report(len(asked), len(asked))


async def _found(job: Job, query: str, kinds: Sequence[str]) -> dict[str, list[memory_service_pb2.Memory]]:
    """The likeliest memories of each type. One search for all of them; where it was full, others for those types that
    were crowded out."""
    limit = min(_FOUND_PER_QUERY * (len(kinds) + _SPARE_KINDS), _MOST_FOUND)
    together = await _find(job, query, kinds, limit)
    found: dict[str, list[memory_service_pb2.Memory]] = {}
    for memory in together:
        found.setdefault(memory.memory_type, []).append(memory)
    few = [kind for kind in kinds if len(found.get(kind, ())) < _FOUND_PER_QUERY] if len(together) == limit else []
    apart = await asyncio.gather(*(_find(job, query, [kind], _FOUND_PER_QUERY) for kind in few))
    found |= zip(few, apart, strict=True)
    return {kind: memories[:_FOUND_PER_QUERY] for kind, memories in found.items()}


async def _find(job: Job, query: str, kinds: Sequence[str], limit: int) -> list[memory_service_pb2.Memory]:
    request = memory_service_pb2.FindMemoriesRequest(
        query=query,
        memory_types=kinds,
        kinds=[memory_service_pb2.FOUND_KIND_MEMORY],
        limit=limit,
        view=memory_service_pb2.MEMORY_VIEW_FULL,
    )
    return [item.memory for item in (await job.find(request)).results if item.memory.uri]


def _kinds(job: Job, listed: Iterable[memory_service_pb2.DirectoryEntry], existing: Existing) -> list[str]:
    """The types of which there may be memories: all of them, unless the listing tells everything that there is."""
    names = [kind.name for kind in job.memory_types]
    if existing.truncated:
        return names
    entries = list(listed)
    if any(entry.directory and entry.depth >= _TREE_DEPTH for entry in entries):
        return names
    there = {entry.memory_type for entry in entries}
    return [name for name in names if name in there]


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
