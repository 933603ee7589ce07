"""Renders an archive's summary views, L0 and L1, in the same form for every engine.

A reader that looks for the headings finds each exactly once and in order, whatever the parts contain: parts are plain
lines, and no character at the beginning of a line counts as Markdown.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from runekeep.v1 import common_pb2

TITLE: Final = "# Session Summary"
ONE_LINE: Final = "**One-line overview**: "
ANALYSIS: Final = "## Analysis"
REQUEST: Final = "## Primary Request and Intent"
CONCEPTS: Final = "## Key Concepts"
PENDING: Final = "## Pending Tasks"
HEADINGS: Final = (TITLE, ANALYSIS, REQUEST, CONCEPTS, PENDING)

_NONE: Final = "none"
# Every context of a session includes the summary, so long parts are cut and long lists end. In characters and items.
_PART: Final = 400
_ITEM: Final = 1000
_ITEMS: Final = 40
_BEGINS_MARKUP: Final = frozenset("#`~<>-=*+_|[!\\:")


@dataclass(frozen=True, slots=True)
class ArchiveSummary:
    """The parts of a summary. An empty part renders as `none`.

    `analysis`: the key steps, in order; `note`: a line below everything else.
    """

    topic: str = ""
    intent: str = ""
    result: str = ""
    status: str = ""
    analysis: Sequence[str] = ()
    primary_request: str = ""
    key_concepts: Sequence[str] = ()
    pending_tasks: Sequence[str] = ()
    note: str = ""

    def rendered(self) -> common_pb2.Summary:
        """Returns both views. L0 is the line `Topic: Intent | Result | Status`; L1 is the document with that line and
        the sections.
        """
        line = _one_line(self)
        blocks = [
            TITLE,
            f"{ONE_LINE}{line}",
            ANALYSIS,
            "\n".join(f"{number}. {text}" for number, text in enumerate(_items(self.analysis), 1)) or _NONE,
            REQUEST,
            _plain(self.primary_request, _ITEM) or _plain(self.intent, _ITEM) or _NONE,
            CONCEPTS,
            _bullets(self.key_concepts),
            PENDING,
            _bullets(self.pending_tasks),
            *([f"_{_plain(self.note, _ITEM)}_"] if self.note else []),
        ]
        return common_pb2.Summary(abstract=line, overview="\n\n".join(blocks) + "\n")


def _one_line(summary: ArchiveSummary) -> str:
    """Returns the L0 line. Its separators occur nowhere else in it."""
    topic, *rest = (
        _flat(text, _PART).replace("|", "/") for text in (summary.topic, summary.intent, summary.result, summary.status)
    )
    topic = topic.replace(": ", " - ").rstrip(":")
    return f"{topic or _NONE}: {' | '.join(text or _NONE for text in rest)}"


def _bullets(texts: Iterable[str]) -> str:
    return "\n".join(f"- {text}" for text in _items(texts)) or _NONE


def _items(texts: Iterable[str]) -> list[str]:
    return [text for text in (_plain(text, _ITEM) for text in texts) if text][:_ITEMS]


def _plain(text: str, most: int) -> str:
    """Returns one line that does not begin a heading, list, quotation, fence or comment."""
    flat = _flat(text, most)
    return f"\\{flat}" if flat[:1] in _BEGINS_MARKUP else flat


def _flat(text: str, most: int) -> str:
    """Returns one line without control characters. Joiners and combining marks stay, because words and
    emoji need them.
    """
    line = " ".join("".join(sign for sign in text if sign.isspace() or unicodedata.category(sign) != "Cc").split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"
