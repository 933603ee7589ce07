"""Existing memories that concern the statements of the batch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from runekeep.v1 import extractor_service_pb2, memory_service_pb2
from runekeep_extractor.engine.concurrency import side_by_side
from runekeep_extractor.engine.interface import Job
from runekeep_extractor.offline.operation_builders import Permit
from runekeep_extractor.offline.statements import Statement
from runekeep_extractor.rpc.calls import NotAllowed, NotThere, SearchAway, TooMuch, as_many_as_fit
from runekeep_extractor.rpc.searches import find_fitting, memories_of

MAX_FOUND: Final = 5
"""Maximum number of memories examined per statement."""
MAX_SEARCHES_AT_ONCE: Final = 8
MAX_QUERY_CHARS: Final = 1000
MAX_LINE_CHARS: Final = 2_500
"""Maximum length of a line that is compared. Lines written by others may have any length."""
# Limits of listing while search is away: memories of a type, entries, and levels of directories.
MAX_LISTED: Final = 100
MAX_LISTED_NODES: Final = 10_000
MAX_LISTED_DEPTH: Final = 16

# `- Ana (2023-05-08): what she said`, as `Statement.line` writes it.
_SAID: Final = re.compile(r"(?:[-*]\s+)?(?:(?P<speaker>[^:()\n]{1,128})(?P<day> \(\d{4}-\d{2}-\d{2}\))?: )?")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class KnownLine:
    """One line of a memory: `line` as stored, `text` without its speaker and date.

    `when` is the time of an event. `alone`: it is the memory's only line. `speaker` is empty if the line does not name
    one for certain.
    """

    uri: str
    memory_type: str
    owner: str
    line: str
    text: str
    when: str
    alone: bool
    speaker: str


class Known:
    """Memories that were found or read, at the job's base revision. Only their field `content` is used."""

    def __init__(self, job: Job, permit: Permit) -> None:
        self._job = job
        self._permit = permit
        self._contents: dict[str, str | None] = {}
        self._lines: dict[str, list[KnownLine]] = {}
        self._too_large: set[str] = set()

    async def look_up(self, statements: Sequence[Statement], types: Sequence[str]) -> None:
        """Searches memories of these types that are similar to the statements; lists them while the index is away."""
        try:
            for start in range(0, len(statements), MAX_SEARCHES_AT_ONCE):
                batch = statements[start : start + MAX_SEARCHES_AT_ONCE]
                await side_by_side(self._search(statement, types) for statement in batch)
        except SearchAway as error:
            _log.warning("listed_without_search", reason=error.message)
            for owner in sorted({statement.sentence.owner or "" for statement in statements}):
                await self._list(owner, types)

    async def content(self, type: memory_service_pb2.MemoryType, owner: str, uri: str) -> str | None:
        """Returns the content of a memory, or None if there is no memory at the URI or it `is_too_large`."""
        if uri not in self._contents:
            try:
                response = await self._job.read(uri)
            except (NotThere, NotAllowed):
                self._contents[uri] = None
            except TooMuch as error:
                _log.warning("memory_too_large", memory_type=type.name, reason=error.message)
                self._contents[uri] = None
                self._too_large.add(uri)
            else:
                memory = response.memory
                text = memory.fields["content"].string_value if "content" in memory.fields else response.document.text
                self._take(uri, type.name, owner, text, "")
        return self._contents[uri]

    def is_too_large(self, uri: str) -> bool:
        """Returns whether a memory exceeds the size of one answer. Such a memory is neither compared nor written."""
        return uri in self._too_large

    def lines(self, owner: str) -> list[KnownLine]:
        """Returns everything known of an owner so far, in a stable order."""
        return self._lines.get(owner, [])

    async def _search(self, statement: Statement, types: Sequence[str]) -> None:
        owner = statement.sentence.owner or ""
        request = memory_service_pb2.FindMemoriesRequest(
            query=statement.text[:MAX_QUERY_CHARS],
            target_uri=f"{self._permit.root(owner)}/memories",
            memory_types=types,
            kinds=[memory_service_pb2.FOUND_KIND_MEMORY],
            limit=MAX_FOUND,
            view=memory_service_pb2.MEMORY_VIEW_FULL,
        )
        self._take_all(owner, memories_of(await find_fitting(self._job, request)))

    async def _list(self, owner: str, types: Sequence[str]) -> None:
        """Loads all memories of each of these types that has at most MAX_LISTED of them. Statements are not compared
        with memories of a larger type, so a repeated statement is written again.
        """

        async def ask(limit: int) -> extractor_service_pb2.ListForJobResponse:
            return await self._job.list(
                f"{self._permit.root(owner)}/memories",
                depth=MAX_LISTED_DEPTH,
                abstract_limit=1,
                node_limit=MAX_LISTED_NODES,
                memory_limit=limit,
                type_limit=limit,
            )

        try:
            answer = await as_many_as_fit(MAX_LISTED, ask)
        except NotThere:
            # The space has no memories yet.
            return
        if answer is not None:
            self._take_all(owner, [memory for memory in answer.memories if memory.memory_type in types])

    def _take_all(self, owner: str, memories: Sequence[memory_service_pb2.Memory]) -> None:
        for memory in memories:
            if memory.uri not in self._contents:
                text = memory.fields["content"].string_value if "content" in memory.fields else memory.content
                when = memory.fields["event_time"].string_value if "event_time" in memory.fields else ""
                self._take(memory.uri, memory.memory_type, owner, text, when)

    def _take(self, uri: str, memory_type: str, owner: str, text: str, when: str) -> None:
        self._contents[uri] = text
        said = [(line, bare) for line in text.split("\n") if (bare := line.strip())]
        lines = []
        for line, bare in said:
            match = _SAID.match(bare)
            if line.startswith("#") or len(line) > MAX_LINE_CHARS or match is None:
                continue
            # Without a day, `Note: ...` looks the same.
            speaker = match["speaker"].strip() if match["day"] else ""
            lines.append(KnownLine(uri, memory_type, owner, line, bare[match.end() :], when, len(said) == 1, speaker))
        # Searches end in any order; the result must not depend on it.
        self._lines[owner] = sorted([*self.lines(owner), *lines], key=lambda known: (known.uri, known.line))
