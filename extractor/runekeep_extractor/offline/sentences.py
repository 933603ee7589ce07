"""Splits messages into sentences: only speech, without code, quotations, tables and bare links."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Final

from runekeep.v1 import common_pb2
from runekeep_extractor.offline.guard import UNGUARDED, RuleGuard
from runekeep_extractor.offline.language import Language, language_of

MAX_SENTENCE_CHARS: Final = 600
"""A longer sentence is a paste or a list, not speech."""
MAX_MESSAGE_SENTENCES: Final = 1_000
MAX_JOB_SENTENCES: Final = 5_000
"""A pasted book must neither delay the job nor crowd out the sentences behind it."""

_CODE_BLOCK: Final = re.compile(r"(```|~~~).*?(?:\1|\Z)", re.DOTALL)
_LINK: Final = re.compile(r"(?:https?|ftp|viking)://\S+|www\.\S+")
_MARKER: Final = re.compile(r"^\s*(?:[-*•+]\s+|\d{1,3}[.)]\s+|#{1,6}\s+)")
_NOT_SPEECH: Final = re.compile(r"^\s*(?:>|\|.*\|\s*$)")
_WORD: Final = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_IDEOGRAPHS: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_MIN_IDEOGRAPHS: Final = 4
_MIN_WORDS: Final = 2
# A sentence end, optional closing marks, then space and the start of another sentence; CJK ends need no space.
_BREAK: Final = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+(?=[\"'“‘(\[]?[^\s\W])|(?<=[。！？])[」』”]*\s*(?=\S)")
_ABBREVIATION: Final = re.compile(
    r"(?:^|[\s(])(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|Sr|Jr|St|No|vs|etc|approx|dept|e\.g|i\.e|a\.m|p\.m|[A-Za-z]\.[A-Za-z])\.$"
)
_MAX_ABBREVIATION_CHARS: Final = 16


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence as it was said.

    `owner` is the owner whose memory it feeds, None for no owner; `day` is the day it was said (UTC), None if unknown;
    `language` is None if no known language matches; `position` is its place in the batch, from 0.
    """

    text: str
    sequence: int
    position: int
    speaker: str
    owner: str | None
    assistant: bool
    day: date | None
    language: Language | None

    @property
    def plain(self) -> str:
        """The text as patterns expect it."""
        return self.language.write_out(self.text) if self.language else self.text

    def has(self, *cues: str) -> bool:
        """Returns whether one of these cues of its language occurs in it."""
        plain = self.plain
        return self.language is not None and any(self.language.has(cue, plain) for cue in cues)


def sentences_of(
    messages: Sequence[tuple[common_pb2.Message, str | None]], guard: RuleGuard = UNGUARDED
) -> tuple[list[Sentence], int]:
    """Returns the sentences of messages, each given with its owner, in order, and the number left out.

    Sentences beyond MAX_MESSAGE_SENTENCES of a message, or beyond MAX_JOB_SENTENCES in all, are left out.
    """
    found: list[Sentence] = []
    left_out = 0
    for message, owner in messages:
        room = min(MAX_MESSAGE_SENTENCES, MAX_JOB_SENTENCES - len(found))
        speaker, day = _speaker_of(message), _day_of(message)
        assistant = message.role == common_pb2.ROLE_ASSISTANT
        texts = guard.run("sentences", partial(_texts_of, message), [])
        left_out += max(0, len(texts) - room)
        for text in texts[:room]:
            language = language_of([word.lower().replace("’", "'") for word in words_of(text)])
            sentence = Sentence(text, message.sequence, len(found), speaker, owner, assistant, day, language)
            found.append(sentence)
    return found, left_out


def split_text(text: str) -> Iterator[str]:
    """Yields the sentences of a text that say something, each on one line, none longer than MAX_SENTENCE_CHARS."""
    for line in _CODE_BLOCK.sub("\n", text).splitlines():
        if _NOT_SPEECH.match(line):
            continue
        for piece in _split_line(_MARKER.sub("", line)):
            sentence = " ".join(piece.split())
            if len(sentence) <= MAX_SENTENCE_CHARS and _says_something(sentence):
                yield sentence


def words_of(text: str) -> list[str]:
    """Returns whether one of these cues of its language occurs in it."""
    return _WORD.findall(_LINK.sub(" ", text))


def _texts_of(message: common_pb2.Message) -> list[str]:
    return [text for part in message.parts if part.WhichOneof("part") == "text" for text in split_text(part.text.text)]


def _speaker_of(message: common_pb2.Message) -> str:
    role = "Assistant" if message.role == common_pb2.ROLE_ASSISTANT else "User"
    return " ".join((message.speaker or message.peer_id or role).split())


def _day_of(message: common_pb2.Message) -> date | None:
    if not message.HasField("create_time") or not message.create_time.seconds:
        return None
    return message.create_time.ToDatetime().date()


def _split_line(line: str) -> Iterator[str]:
    """Yields the sentences of a line in linear time: a line may be as long as a message."""
    start = 0
    for gap in _BREAK.finditer(line):
        # "at 5 p.m. today" and "Dr. Silva" continue, and so does a full stop before a lower-case letter.
        if line[gap.start() - 1] == "." and (
            _ABBREVIATION.search(line[max(start, gap.start() - _MAX_ABBREVIATION_CHARS) : gap.start()])
            or line[gap.end() : gap.end() + 1].islower()
        ):
            continue
        yield line[start : gap.end()].rstrip()
        start = gap.end()
    yield line[start:]


def _says_something(sentence: str) -> bool:
    if _IDEOGRAPHS.search(sentence):
        return len(_IDEOGRAPHS.findall(sentence)) >= _MIN_IDEOGRAPHS
    return len(words_of(sentence)) >= _MIN_WORDS
