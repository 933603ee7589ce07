"""What was said, sentence by sentence: speech only, no code, no quotations, no bare links."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Final

from extractor.offline.guard import UNGUARDED, RuleGuard
from runekeep.v1 import common_pb2

# A longer sentence is a paste or a list, not speech.
SENTENCE_LIMIT: Final = 600
# Sentences of one message and of one job that are read. Each costs a vector and a comparison with others, and messages
# may have 16 MiB: a pasted book must neither hold up the job nor crowd out what is said behind it.
MESSAGE_MOST: Final = 1_000
JOB_MOST: Final = 5_000

_CODE_BLOCK = re.compile(r"(```|~~~).*?(?:\1|\Z)", re.DOTALL)
_LINK = re.compile(r"(?:https?|ftp|viking)://\S+|www\.\S+")
_MARKER = re.compile(r"^\s*(?:[-*•+]\s+|\d{1,3}[.)]\s+|#{1,6}\s+)")
_QUOTED = re.compile(r"^\s*>")
_TABLE = re.compile(r"^\s*\|.*\|\s*$")
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
# An ender, what may close behind it, then space and the beginning of another sentence; CJK enders need no space.
_BREAK = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+(?=[\"'“‘(\[]?[^\s\W])|(?<=[。！？])[」』”]*\s*(?=\S)")
_CLOSERS: Final = {'"': re.compile('"'), "“": re.compile("”"), "«": re.compile("»"), "„": re.compile("[“”]")}
_OPENER = re.compile("|".join(_CLOSERS))
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|Sr|Jr|St|No|vs|etc|approx|dept|e\.g|i\.e|a\.m|p\.m|[A-Za-z]\.[A-Za-z])\.$"
)
# Longer than the longest abbreviation with what stands before it.
_ABBREVIATED: Final = 16


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence as it was said.

    `owner` is whose memory it feeds, None for nobody's; `day` when it was said (UTC), where known.
    """

    text: str
    sequence: int
    position: int
    """Place in the batch, from 0."""
    speaker: str
    owner: str | None
    assistant: bool
    day: date | None

    @property
    def words(self) -> list[str]:
        """Its words in lower case."""
        return [word.lower() for word in words_of(self.text)]


def sentences_of(
    messages: Sequence[tuple[common_pb2.Message, str | None]], guard: RuleGuard = UNGUARDED
) -> tuple[list[Sentence], int]:
    """The sentences of messages, each given with its owner, in order; and how many were left out.

    Left out are those behind the first MESSAGE_MOST of a message, and behind JOB_MOST in all.
    """
    found: list[Sentence] = []
    left_out = 0
    for message, owner in messages:
        room = min(MESSAGE_MOST, JOB_MOST - len(found))
        speaker, day = speaker_of(message), day_of(message)
        assistant = message.role == common_pb2.ROLE_ASSISTANT
        texts = guard.run("sentences", partial(_texts_of, message), [])
        for count, text in enumerate(texts):
            if count >= room:
                left_out += 1
                continue
            found.append(Sentence(text, message.sequence, len(found), speaker, owner, assistant, day))
    return found, left_out


def _texts_of(message: common_pb2.Message) -> list[str]:
    return [text for part in message.parts if part.WhichOneof("part") == "text" for text in split(part.text.text)]


def split(text: str) -> Iterator[str]:
    """The sentences of a text that are worth reading, each on one line, none longer than SENTENCE_LIMIT."""
    for line in without_code(text).splitlines():
        if _QUOTED.match(line) or _TABLE.match(line):
            continue
        for piece in _split_line(_MARKER.sub("", line)):
            sentence = " ".join(piece.split())
            if len(sentence) <= SENTENCE_LIMIT and _says_something(sentence):
                yield sentence


def without_code(text: str) -> str:
    """The text without its fenced code."""
    return _CODE_BLOCK.sub("\n", text)


def words_of(text: str) -> list[str]:
    """The words of a text, links left out; scripts without spaces give long words."""
    return _WORD.findall(_LINK.sub(" ", text))


def speaker_of(message: common_pb2.Message) -> str:
    """The name shown for the one who wrote it."""
    role = "Assistant" if message.role == common_pb2.ROLE_ASSISTANT else "User"
    return " ".join((message.speaker or message.peer_id or role).split())


def day_of(message: common_pb2.Message) -> date | None:
    """The day on which it was said, in UTC; None when nobody told."""
    if not message.HasField("create_time") or not message.create_time.seconds:
        return None
    return message.create_time.ToDatetime().date()


def _split_line(line: str) -> Iterator[str]:
    """Linear in the line: it may be as long as a message may."""
    start = 0
    quotations = _quotations(line)
    begin, end = next(quotations, (len(line), len(line)))
    for gap in _BREAK.finditer(line):
        while end < gap.end() and begin < len(line):
            begin, end = next(quotations, (len(line), len(line)))
        # Sentences within a quotation belong to the one that quotes them.
        if begin < gap.start() and gap.end() <= end:
            continue
        # "at 5 p.m. today" and "Dr. Silva" go on; so does a stop before a small letter.
        if line[gap.start() - 1] == "." and (
            _ABBREVIATION.search(line[max(start, gap.start() - _ABBREVIATED) : gap.start()])
            or line[gap.end() : gap.end() + 1].islower()
        ):
            continue
        yield line[start : gap.end()].rstrip()
        start = gap.end()
    yield line[start:]


def _quotations(line: str) -> Iterator[tuple[int, int]]:
    """Where quotations begin and end, from left to right."""
    place = 0
    open_ended: set[str] = set()
    while (opener := _OPENER.search(line, place)) is not None:
        place = opener.end()
        if opener[0] in open_ended:
            continue
        closer = _CLOSERS[opener[0]].search(line, place)
        if closer is None:
            # Nothing closes it further on either: looking again for each would be quadratic.
            open_ended.add(opener[0])
            continue
        place = closer.end()
        yield opener.start(), place


def _says_something(sentence: str) -> bool:
    if _CJK.search(sentence):
        return len(_CJK.findall(sentence)) >= 4
    return len(words_of(sentence)) >= 2
