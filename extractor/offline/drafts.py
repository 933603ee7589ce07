"""Changes of memories, gathered so that each memory is changed by one operation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from extractor.offline.classify import Statement
from extractor.offline.known import KnownLine
from extractor.offline.operations import FIELD_LIMIT, replace_lines, set_text, write
from runekeep.v1 import extractor_service_pb2, memory_service_pb2

# A memory of this many characters is full: more lines would bury it.
_FULL: Final = 40_000
_CONTENT: Final = "content"


@dataclass(slots=True)
class Draft:
    """What becomes of one memory."""

    type: memory_service_pb2.MemoryType
    owner: str
    uri: str
    fields: dict[str, str]
    """Fields of a new memory besides its content."""
    heading: str = ""
    """First line of a new memory's content."""
    added: list[Statement] = field(default_factory=list)
    replaced: list[tuple[KnownLine, Statement]] = field(default_factory=list)

    def operation(self, content: str | None) -> extractor_service_pb2.MemoryOperation | None:
        """The operation on a memory with that content, None when there is no such memory yet.

        None when nothing is left to do.
        """
        sequences = sorted({number for statement in self._statements() for number in statement.sequences})
        if not sequences:
            return None
        if content is None:
            text = "\n".join([*([self.heading, ""] if self.heading else []), *_lines(self._statements())])
            return write(
                self.type,
                {**self.fields, _CONTENT: text},
                peer_id=self.owner,
                sequences=sequences,
                reason="said in the conversation",
            )
        blocks = self._blocks(content)
        reason = "corrected in the conversation" if self.replaced else "said in the conversation"
        if blocks:
            return replace_lines(self.uri, _CONTENT, blocks, peer_id=self.owner, sequences=sequences, reason=reason)
        if not content.strip():
            text = "\n".join(_lines(self._statements()))
            return set_text(self.uri, _CONTENT, text, peer_id=self.owner, sequences=sequences, reason=reason)
        return None

    def _statements(self) -> list[Statement]:
        ordered = {id(statement): statement for _, statement in self.replaced}
        ordered.update({id(statement): statement for statement in self.added})
        return sorted(ordered.values(), key=lambda statement: statement.sentence.position)

    def _blocks(self, content: str) -> list[tuple[str, str, int]]:
        """SEARCH/REPLACE blocks that change the named lines and put new ones behind the last one."""
        lines = content.split("\n")
        new = dict[int, list[str]]()
        for known, statement in self.replaced:
            place = next((n for n, line in enumerate(lines) if line == known.line and n not in new), None)
            if place is not None:
                # Two lines that one statement takes back become one line.
                line = _like(known.line, statement)
                new[place] = [] if any(line in others for others in new.values()) else [line]
        written = [n for n, line in enumerate(lines) if line.strip()]
        if self.added and written and len(content) < _FULL:
            last = written[-1]
            room = FIELD_LIMIT
            added = new.setdefault(last, [lines[last]])
            for line in _lines(self.added):
                room -= len(line) + 1
                if room >= 0:
                    # Markdown wants a blank line between a heading and a list.
                    added += ["", line] if len(added) == 1 and added[0].startswith("#") else [line]
        return [_block(content, lines, place, replacement) for place, replacement in sorted(new.items())]


class Drafts:
    """The drafts of a job, by URI, in the order in which they were begun."""

    def __init__(self) -> None:
        self._drafts: dict[str, Draft] = {}

    def of(self, draft: Draft) -> Draft:
        """The draft for that memory: the one begun earlier, else this one."""
        return self._drafts.setdefault(draft.uri, draft)

    def all(self) -> list[Draft]:
        """Every draft."""
        return list(self._drafts.values())


def _block(content: str, lines: Sequence[str], place: int, replacement: Sequence[str]) -> tuple[str, str, int]:
    search = lines[place]
    if not replacement and place + 1 < len(lines):
        # Take the line break along, or an empty line stays.
        search += "\n"
    hint = place + 1 if content.count(search) > 1 else 0
    return search, "\n".join(replacement), hint


def _lines(statements: Sequence[Statement]) -> list[str]:
    return [f"- {statement.line}" for statement in statements]


def _like(line: str, statement: Statement) -> str:
    """The statement in the shape of the line that it replaces."""
    return f"- {statement.line}" if line.lstrip().startswith(("- ", "* ")) else statement.line
