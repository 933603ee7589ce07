"""Renders recalled memories and passages as Markdown for a prompt.

At the beginning of a line, `## ` starts a heading, `- [3] ` starts a memory with its mark, and `- ` with a letter, a
digit or a backslash starts a passage. The answer lists memories by their marks. Content of several lines is quoted,
each line after `  > `, and other content is on the line of its entry. So no content can look like a heading or another
entry.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from runekeep_schemas.documents.uris import archive_uri
from runekeep_schemas.recall_budget import Level, Shown
from runekeep_schemas.recall_lines import split_lines, subject, without_markup
from runekeep_schemas.recall_tokens import MAX_CHARACTERS_A_TOKEN
from runekeep_storage.records import Memory, Passage

MEMORIES: Final = "memories"
SAID: Final = "said"
HEADINGS: Final = {MEMORIES: "\n## Memories\n", SAID: "\n## Earlier conversation\n"}
"""In the order of the text, each with the blank line before it."""

_FILLERS: Final = frozenset("\u115f\u1160\u3164\uffa0")
"""Letters that are invisible."""
MAX_SPEAKER_CHARACTERS: Final = 200
MAX_WHOLE_CHARACTERS: Final = 400
"""A passage of at most this length is one line: parts of short messages lose evidence (`make bench-recall`)."""
QUOTE: Final = "  >"
GAP: Final = "\u2026"
"""Stands between two parts of a passage, for what may be left out."""


def lines_of_passage(passage: Passage) -> list[str]:
    """Returns the lines that may stand for a passage, without its speaker and day. A short passage is one line."""
    if len(passage.content) <= MAX_WHOLE_CHARACTERS:
        words = " ".join(passage.words.split())
        return [words] if words else []
    return split_lines([passage.words])


@dataclass(frozen=True, slots=True)
class EntryText:
    """The texts of an entry, each of whole lines. `head`: its beginning, which names it. `lines`: those that may stand
    for it, in the order of the text. `whole`: the entry with the whole text; empty if there is none, or if it certainly
    takes too many tokens. `mark`: the number of a memory in the text; 0 for a passage."""

    mark: int
    head: str
    lines: Sequence[str]
    whole: str

    def shown(self, how: Shown) -> str:
        """Returns the entry as it is shown."""
        if how.level is Level.FULL:
            return self.whole
        lines = [self.lines[line] for line in how.lines]
        if not lines:
            return f"{self.head}\n"
        if self.mark:
            return entry(self.head, lines)
        return f"{self.head}: {f' {GAP} '.join(lines)}\n"


def of_memory(mark: int, memory: Memory, lines: Sequence[str], max_tokens: int) -> EntryText:
    """Returns the texts of a memory. `mark`: its number in the text. `lines`: see `lines_of_memory`. `max_tokens`: of
    the whole text."""
    when = "" if memory.happened_at is None else f" ({_day(memory.happened_at)})"
    head = f"- [{mark}] {subject(memory.uri, memory.peer_id)}{when}"
    content = [] if _is_longer(memory.content, max_tokens) else _lines(memory.content)
    return EntryText(mark, head, lines, entry(head, content) if content else "")


def of_passage(passage: Passage, lines: Sequence[str], max_tokens: int) -> EntryText:
    """Returns the texts of a passage, as `of_memory` does. `lines`: see `lines_of_passage`. It has no mark, which a
    short message would pay for: its speaker and day name it."""
    speaker, end, _ = passage.content.partition("): ")
    head = f"- {_not_a_mark(speaker[:MAX_SPEAKER_CHARACTERS])}{end[:1]}"
    content = [] if _is_longer(passage.content, max_tokens) else _lines(passage.content)
    whole = f"- {_not_a_mark(content[0])}\n{_quoted(content[1:])}" if content else ""
    return EntryText(0, head, lines, whole)


def _not_a_mark(line: str) -> str:
    """Returns the beginning of a passage such that it begins with a letter, a digit or a backslash. Otherwise a
    speaker's name could look like the mark of a memory."""
    start = 0
    while start < len(line) and (line[start] in _FILLERS or unicodedata.category(line[start])[0] in "CZ"):
        start += 1
    seen = " ".join(line[start:].splitlines()).strip()
    return seen if seen and unicodedata.category(seen[0])[0] in "LN" else "\\" + seen


def entry(head: str, lines: Sequence[str]) -> str:
    """Returns an entry with these lines, one behind its head, or several quoted below it."""
    return f"{head}: {without_markup(lines[0].strip())}\n" if len(lines) == 1 else f"{head}:\n{_quoted(lines)}"


def passage_uri(user: str, passage: Passage) -> str:
    """Returns the URI of the message log that contains the passage."""
    return archive_uri(user, passage.session_id, passage.archive_index) + "/messages.jsonl"


def whole(entries: Iterable[tuple[str, str]]) -> str:
    """Returns the text of entries, each with its section, grouped by section."""
    told = list(entries)
    sections = []
    for section, heading in HEADINGS.items():
        if texts := [text for of, text in told if of == section]:
            sections.append(heading + "".join(texts))
    return "".join(sections).strip("\n")


def _day(at: int) -> str:
    return datetime.fromtimestamp(at // 1_000_000, UTC).date().isoformat()


def _is_longer(text: str, most: int) -> bool:
    """Returns whether a text has too many characters for `most` tokens, without the whitespace that an entry may leave
    out."""
    room = MAX_CHARACTERS_A_TOKEN * most
    return len(text) > room and len(text) - sum(map(text.count, " \t\r\n")) > room


def _lines(text: str) -> list[str]:
    """Splits a text at all kinds of line breaks, and drops empty lines at both ends."""
    lines = [line.rstrip() for line in text.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    while lines and not lines[0]:
        del lines[0]
    return lines


def _quoted(lines: Iterable[str]) -> str:
    return "".join(f"{QUOTE} {line}".rstrip() + "\n" for line in lines)
