"""What the memories already say, as far as it touches what was said now."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from extractor.calls import NotAllowed, NotThere, SearchAway, TooMuch, as_many_as_fit
from extractor.engine import Job
from extractor.offline.classify import Statement
from extractor.offline.followers import with_followers
from extractor.offline.plan import SELF, Permit
from extractor.searches import find_fitting, memories_of
from extractor.side_by_side import side_by_side
from runekeep.v1 import extractor_service_pb2, memory_service_pb2

# Memories looked at for each statement, and searches that run side by side.
_FOUND: Final = 5
_AT_ONCE: Final = 8
_QUERY_LIMIT: Final = 1000
# Limits of listing while search is away: memories of a type, entries, and levels of directories.
_LISTED: Final = 100
_LISTED_NODES: Final = 10_000
_LISTED_DEPTH: Final = 16

_SPACE_ROOT = re.compile(r"viking://(?:user/\{user_space\}|agent/\{agent_space\})")
# `- Ana (2023-05-08): what she said`, as `Statement.line` writes it.
# It meets stripped lines only: what may be any number of spaces is not looked for at both ends.
_SAID = re.compile(r"(?:[-*]\s+)?(?:(?P<speaker>[^:()\n]{1,128})(?P<day> \(\d{4}-\d{2}-\d{2}\))?: )?")
# Characters of a line that is compared. This engine writes a sentence and what leans on it; what others wrote may be
# of any length, and comparing takes more than linear time.
_LINE_LIMIT: Final = 2_500

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class KnownLine:
    """One line of a memory: `line` as it stands there, `text` without who said it and when."""

    uri: str
    memory_type: str
    owner: str
    line: str
    text: str
    when: str
    """The time of the event, of an event."""
    alone: bool
    """It is all that the memory says."""
    speaker: str
    """Who said it, where the line surely tells; else empty."""
    more: str = ""
    """Sentences that lean on `text`."""


class Known:
    """Memories that were found or read, at the job's base revision. Their field `content` is what counts."""

    def __init__(self, job: Job, permit: Permit) -> None:
        self._job = job
        self._permit = permit
        self._contents: dict[str, str | None] = {}
        self._lines: dict[str, list[KnownLine]] = {}
        self._too_large: set[str] = set()

    def uri(self, type: memory_service_pb2.MemoryType, owner: str, key: str = "") -> str:
        """URI of a memory; `key` is the value of the one field that names it, safe for a file name as it is."""
        directory = _SPACE_ROOT.sub(lambda _: self._space(owner), type.directory, count=1)
        return f"{directory}/{re.sub(r'{[^{}]*}', lambda _: key, type.filename_template)}"

    async def look_up(self, statements: Sequence[Statement], types: Sequence[str]) -> None:
        """Searches memories of these types that are near the statements; lists them while the index is away."""
        try:
            for start in range(0, len(statements), _AT_ONCE):
                batch = statements[start : start + _AT_ONCE]
                await side_by_side(self._search(statement, types) for statement in batch)
        except SearchAway as error:
            _log.warning("listed_without_search", reason=error.message)
            for owner in sorted({statement.sentence.owner or SELF for statement in statements}):
                await self._list(owner, types)

    async def content(self, type: memory_service_pb2.MemoryType, owner: str, uri: str) -> str | None:
        """Content of a memory; None when there is none of that URI, and of one that `is_too_large`."""
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
        """Whether a memory was asked for that is there, but takes more than one answer may: it is compared with
        nothing, and as of any that is full nothing is written to it."""
        return uri in self._too_large

    def lines(self, owner: str) -> list[KnownLine]:
        """Everything known of an owner so far, in a stable order."""
        return self._lines.get(owner, [])

    async def _search(self, statement: Statement, types: Sequence[str]) -> None:
        owner = statement.sentence.owner or SELF
        request = memory_service_pb2.FindMemoriesRequest(
            query=statement.dated.text[:_QUERY_LIMIT],
            target_uri=f"{self._space(owner)}/memories",
            memory_types=types,
            kinds=[memory_service_pb2.FOUND_KIND_MEMORY],
            limit=_FOUND,
            view=memory_service_pb2.MEMORY_VIEW_FULL,
        )
        self._take_all(owner, memories_of(await find_fitting(self._job, request)))

    async def _list(self, owner: str, types: Sequence[str]) -> None:
        """Takes all memories of each of these types that has at most _LISTED of them. Statements are not compared with
        memories of a larger type, so a repeated one is written again."""

        async def ask(limit: int) -> extractor_service_pb2.ListForJobResponse:
            return await self._job.list(
                f"{self._space(owner)}/memories",
                depth=_LISTED_DEPTH,
                abstract_limit=1,
                node_limit=_LISTED_NODES,
                memory_limit=limit,
                type_limit=limit,
            )

        try:
            answer = await as_many_as_fit(_LISTED, ask)
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
            if line.startswith("#") or len(line) > _LINE_LIMIT or match is None:
                continue
            first, more = with_followers(bare[match.end() :])
            # Without a day, `Note: ...` looks the same.
            speaker = match["speaker"].strip() if match["day"] else ""
            alone = len(said) == 1
            lines.append(KnownLine(uri, memory_type, owner, line, first, when, alone, speaker, more))
        # Searches end in any order; what they find must not depend on it.
        self._lines[owner] = sorted([*self.lines(owner), *lines], key=lambda known: (known.uri, known.line))

    def _space(self, owner: str) -> str:
        space = self._job.assignment.user_space
        return space if owner == SELF else f"{space}/peers/{owner}"
