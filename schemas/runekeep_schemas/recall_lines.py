"""The lines of memories and messages that Recall ranks, and the texts of the vectors of lines."""

import re
from collections.abc import Iterable
from typing import Final

MAX_LINE_CHARACTERS: Final = 200
MAX_LINES: Final = 64
"""Maximum lines of one memory or passage that are ranked. Later lines are ignored."""
MAX_READ_CHARACTERS: Final = MAX_LINES * MAX_LINE_CHARACTERS
"""Characters of a text that `split_lines` reads."""
MAX_LINES_WITH_VECTORS: Final = 40
"""Maximum lines of one memory that have vectors of their own."""
_ADDED_TO_NAMES = re.compile(r"^\d{4}(?:-\d\d){0,2}_|~[0-9a-f]{10}$")
"""The date before an event's name, and the suffix that distinguishes names whose file names would be equal."""
_HEADING = re.compile(r"^[ ]{0,3}#{1,6}[ \t].*$", re.MULTILINE)
_MARKUP = re.compile(r"(?:[>#*+-]{1,6}\s{1,8})*")
"""Signs of headings, quotes and lists with the spaces behind them; the minus of a number stays. Bounded repeats keep
the time linear."""
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|(?<=[。！？；])")


def subject(uri: str, peer_id: str) -> str:
    """Returns what a memory is about, as its file name says, with the peer whose memory it is."""
    named = name(uri)
    return " ".join(f"{peer_id}: {named}".split()) if peer_id else named


def name(uri: str) -> str:
    """Returns what a memory is about, as its file name says."""
    return " ".join(_ADDED_TO_NAMES.sub("", uri.rpartition("/")[2].removesuffix(".md")).split())


def lines_of_memory(abstract: str, content: str, overview: str) -> list[str]:
    """Returns the lines that may stand for a memory, its abstract first. Headings are left out if there is anything
    else: alone they say nothing."""
    texts = (" ".join(abstract.split()), content, overview)
    return split_lines(_HEADING.sub("", text) for text in texts) or split_lines(texts)


def embedded_line(subject: str, line: str) -> str:
    """Returns the text whose vector a line of a memory has: most lines do not name their subject."""
    return f"{subject}: {line}"


def split_lines(texts: Iterable[str]) -> list[str]:
    """Returns the lines of the texts, each once and without Markdown at its beginning. Long lines are split between
    sentences."""
    found: dict[str, None] = {}
    for text in texts:
        # A text may have megabytes, and only the first lines count.
        for line in text[:MAX_READ_CHARACTERS].splitlines():
            found.update(dict.fromkeys(_pieces(without_markup(line.strip()))))
    return [line for line in found if any(map(str.isalnum, line))][:MAX_LINES]


def without_markup(line: str) -> str:
    """Returns a line without Markdown at its beginning."""
    signs = _MARKUP.match(f"{line} ")
    return line[signs.end() :].strip() if signs else line


def _pieces(line: str) -> list[str]:
    if len(line) <= MAX_LINE_CHARACTERS:
        return [line] if line else []
    pieces = [""]
    for sentence in _SENTENCE_END.split(line):
        joined = f"{pieces[-1]} {sentence}".strip()
        if len(joined) <= MAX_LINE_CHARACTERS:
            pieces[-1] = joined
            continue
        rest = sentence
        while len(rest) > MAX_LINE_CHARACTERS:
            space = rest.rfind(" ", MAX_LINE_CHARACTERS // 2, MAX_LINE_CHARACTERS)
            end = space if space > 0 else MAX_LINE_CHARACTERS
            pieces.append(rest[:end].strip())
            rest = rest[end:].strip()
        pieces.append(rest)
    return [piece for piece in pieces if piece]
