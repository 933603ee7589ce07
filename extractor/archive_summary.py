"""The views of an archive, L0 and L1, in the form that they have whichever engine makes them.

Whatever stands in a part, a reader that looks for the headings finds each once, in order, and finds nothing else that
looks like one: the parts are lines of text, and no sign at the beginning of a line counts as Markdown.
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
# A summary is read with every context of its session: long parts are cut, long lists end. In characters and items.
_PART: Final = 400
_ITEM: Final = 1000
_ITEMS: Final = 40
_BEGINS_MARKUP: Final = frozenset("#`~<>-=*+_|[!\\:")


@dataclass(frozen=True, slots=True)
class ArchiveSummary:
    """What an engine has to say. Any part may be empty, and says so then.

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
        """L0 is the line `Topic: Intent | Result | Status`, L1 the document with that line and the sections."""
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
    """The signs that part it occur nowhere else in it."""
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
    """One line that begins no heading, list, quotation, fence or comment."""
    flat = _flat(text, most)
    return f"\\{flat}" if flat[:1] in _BEGINS_MARKUP else flat


def _flat(text: str, most: int) -> str:
    """One line, without control characters. Joiners and marks of scripts stay: words and signs are made with them."""
    line = " ".join("".join(sign for sign in text if sign.isspace() or unicodedata.category(sign) != "Cc").split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"
