"""What was said, sentence by sentence: speech only, no code, no quotations, no bare links."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from runekeep.v1 import common_pb2

# A longer sentence is a paste or a list, not speech.
SENTENCE_LIMIT: Final = 600

_CODE_BLOCK = re.compile(r"(```|~~~).*?(?:\1|\Z)", re.DOTALL)
_LINK = re.compile(r"(?:https?|ftp|viking)://\S+|www\.\S+")
_MARKER = re.compile(r"^\s*(?:[-*•+]\s+|\d{1,3}[.)]\s+|#{1,6}\s+)")
_QUOTED = re.compile(r"^\s*>")
_TABLE = re.compile(r"^\s*\|.*\|\s*$")
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
# An ender, what may close behind it, then space and the beginning of another sentence; CJK enders need no space.
_BREAK = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+(?=[\"'“‘(\[]?[^\s\W])|(?<=[。！？])[」』”]*\s*(?=\S)")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|Sr|Jr|St|No|vs|etc|approx|dept|e\.g|i\.e|a\.m|p\.m|[A-Za-z]\.[A-Za-z])\.$"
)


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


def sentences_of(messages: Sequence[tuple[common_pb2.Message, str | None]]) -> list[Sentence]:
    """The sentences of messages, each given with its owner, in order."""
    found: list[Sentence] = []
    for message, owner in messages:
        for part in message.parts:
            if part.WhichOneof("part") != "text":
                continue
            for text in split(part.text.text):
                found.append(
                    Sentence(
                        text=text,
                        sequence=message.sequence,
                        position=len(found),
                        speaker=speaker_of(message),
                        owner=owner,
                        assistant=message.role == common_pb2.ROLE_ASSISTANT,
                        day=day_of(message),
                    )
                )
    return found


def split(text: str) -> Iterator[str]:
    """The sentences of a text that are worth reading, each on one line, none longer than SENTENCE_LIMIT."""
    for line in _CODE_BLOCK.sub("\n", text).splitlines():
        if _QUOTED.match(line) or _TABLE.match(line):
            continue
        for piece in _split_line(_MARKER.sub("", line)):
            sentence = " ".join(piece.split())
            if len(sentence) <= SENTENCE_LIMIT and _says_something(sentence):
                yield sentence


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
    start = 0
    for gap in _BREAK.finditer(line):
        before, after = line[start : gap.end()].rstrip(), line[gap.end() :]
        # "at 5 p.m. today" and "Dr. Silva" go on; so does a stop before a small letter.
        if line[gap.start() - 1] == "." and (_ABBREVIATION.search(line[start : gap.start()]) or after[:1].islower()):
            continue
        yield before
        start = gap.end()
    yield line[start:]


def _says_something(sentence: str) -> bool:
    if _CJK.search(sentence):
        return len(_CJK.findall(sentence)) >= 4
    return len(words_of(sentence)) >= 2
