"""Recalled memories and passages as Markdown that is put into a prompt as it is.

A heading begins with `## ` and an entry with `- `, at the beginning of a line. Nobody's words stand there: what takes
several lines is quoted, each line behind `  > `, and everything else is on the line of its entry, behind what the
server says itself. So no text can pass for an entry of its own, or for a heading.
"""

import json
import unicodedata
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from schemas import tokens
from schemas.recalling import Level
from schemas.uris import archive_uri
from storage.records import Memory, Passage

MEMORIES: Final = "memories"
SAID: Final = "said"
HEADINGS: Final = {MEMORIES: "\n## Memories\n", SAID: "\n## Earlier conversation\n"}
"""In the order of the text, with the blank line before them."""

_FILLERS: Final = frozenset("\u115f\u1160\u3164\uffa0")
"""Letters that nobody sees."""


def of_memory(memory: Memory, most: int) -> dict[Level, str | None]:
    """The entry of a memory at each level that it has: whole lines; None where it certainly takes more than `most`
    tokens."""
    name = _name(memory.uri)
    when = f"as of {_day(memory.updated_at)}" if memory.happened_at is None else _day(memory.happened_at)
    head = f"{name} ({memory.memory_type}, {when})"
    texts: dict[Level, str | None] = {Level.URI: f"- {name}\n"}
    if abstract := " ".join(memory.abstract.split()):
        texts[Level.ABSTRACT] = f"- {head}: {abstract}\n"
    for level, text in ((Level.OVERVIEW, memory.overview), (Level.FULL, memory.content)):
        if _is_longer(text, most):
            texts[level] = None
        elif lines := _lines(text):
            texts[level] = f"- {head}: {lines[0].strip()}\n" if len(lines) == 1 else f"- {head}:\n{_quoted(lines)}"
    return texts


def of_passage(user: str, passage: Passage, most: int) -> dict[Level, str | None]:
    """The entry of a passage at the levels that it has, as `of_memory` has them."""
    uri = passage_uri(user, passage)
    texts: dict[Level, str | None] = {Level.URI: f"- {_name(uri)}, message {passage.sequence}\n"}
    if _is_longer(passage.content, most):
        texts[Level.FULL] = None
    elif lines := _lines(passage.content):
        texts[Level.FULL] = f"- {_said(lines[0])}\n{_quoted(lines[1:])}"
    return texts


def passage_uri(user: str, passage: Passage) -> str:
    """Of the message log that it stands in."""
    return archive_uri(user, passage.session_id, passage.archive_index) + "/messages.jsonl"


def whole(entries: Iterable[tuple[str, str]]) -> str:
    """The text of entries, each with its section; entries of one section stand together."""
    told = list(entries)
    sections = []
    for section, heading in HEADINGS.items():
        if texts := [text for of, text in told if of == section]:
            sections.append(heading + "".join(texts))
    return "".join(sections).strip("\n")


def _said(line: str) -> str:
    """The line that a passage begins with, so that it begins with nothing but a letter or a digit: else it might look
    like something that it is not, such as a memory."""
    start = 0
    while start < len(line) and (line[start] in _FILLERS or unicodedata.category(line[start])[0] in "CZ"):
        start += 1
    seen = line[start:].strip()
    return seen if seen and unicodedata.category(seen[0])[0] in "LN" else "\\" + seen


def _name(uri: str) -> str:
    """So that where it ends is plain, whatever it is made of."""
    return json.dumps(uri, ensure_ascii=False) if {"<", ">"} & set(uri) else f"<{uri}>"


def _day(at: int) -> str:
    return datetime.fromtimestamp(at // 1_000_000, UTC).date().isoformat()


def _is_longer(text: str, most: int) -> bool:
    """Whether a text has too many characters for `most` tokens, but for the blanks that an entry may leave out."""
    room = tokens.BYTES_A_TOKEN * most
    return len(text) > room and len(text) - sum(map(text.count, " \t\r\n")) > room


def _lines(text: str) -> list[str]:
    """Lines in every sense that a reader may have of them, but for empty ones at both ends."""
    lines = [line.rstrip() for line in text.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    while lines and not lines[0]:
        del lines[0]
    return lines


def _quoted(lines: Iterable[str]) -> str:
    return "".join(f"  > {line}".rstrip() + "\n" for line in lines)
