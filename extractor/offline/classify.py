"""Which sentences are worth keeping, and as what."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from extractor.offline.cues import (
    DANGLING,
    DEED,
    FIRST_PERSON,
    KIND_CUES,
    PAST,
    PROBLEM,
    SECOND_PERSON,
    is_order,
    is_question,
    is_small_talk,
    without_connective,
)
from extractor.offline.dates import Dated, make_absolute
from extractor.offline.likeness import RULES, Likeness
from extractor.offline.prototypes import CASES, ENTITIES, EVENTS, NONE, PREFERENCES, PROFILE
from extractor.offline.sentences import Sentence, words_of

# Salience from which a statement is stored. Measured on five conversations of LoCoMo with MiniLM: 38 % of the turns
# are kept, of those the annotators drew a fact from 71 %, and of all that they drew one from 66 % are among them.
STORED: Final = 0.2
# Without an embedder every margin is the same, and fewer sentences reach this (19 % of those turns, 75 % rightly).
STORED_BY_RULES: Final = 0.15

_CUE_WEIGHT: Final = 0.12
_LONG: Final = 25
_SHORT: Final = 5
# An event told in fewer words, without a name or a number. Of 27 that were stored of the same five conversations the
# annotators drew a fact from one in three.
_BARE: Final = 7
_BARE_COSTS: Final = 0.15
_NAME = re.compile(r"(?<=[a-z0-9,] )[A-Z][\w]+")
_DIGIT = re.compile(r"\d")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence with its kind (one of `prototypes`, NONE for talk) and how much it is worth keeping."""

    sentence: Sentence
    dated: Dated
    kind: str
    salience: float

    @property
    def line(self) -> str:
        """The sentence as it is kept: who said it, when, and word for word what, with dates made absolute."""
        said = f" ({self.sentence.day})" if self.sentence.day else ""
        return f"{self.sentence.speaker}{said}: {self.dated.text}"


def classify(sentences: Sequence[Sentence], likeness: Likeness) -> list[Statement]:
    """One statement a sentence, in order. The likeness has learned their texts."""
    return [_statement(sentence, likeness) for sentence in sentences]


def stored_from(likeness: Likeness) -> float:
    """The salience from which statements are stored."""
    return STORED_BY_RULES if likeness.name == RULES else STORED


def _statement(sentence: Sentence, likeness: Likeness) -> Statement:
    text = sentence.text
    dated = make_absolute(without_connective(text), sentence.day)
    cued = {kind for kind, cue in KIND_CUES.items() if cue.search(text)}
    if is_question(text) or is_small_talk(text) or (is_order(text) and not cued):
        return Statement(sentence, dated, NONE, _salience(sentence, dated, margin=-0.3, cued=False))
    likes = dict(likeness.kinds(text)) or {NONE: 0.0, **dict.fromkeys(KIND_CUES, -0.2)}
    if PROBLEM.search(text) is None:
        # Any trouble resembles a technical problem; only its words make it one.
        likes.pop(CASES, None)
    if not dated.when and EVENTS not in cued and PAST.search(text) is None:
        # What always holds, or may hold one day, has not happened.
        likes.pop(EVENTS)
    margin = max(score for kind, score in likes.items() if kind != NONE) - likes[NONE]
    for kind in cued:
        likes[kind] += _CUE_WEIGHT
    if dated.when:
        likes[EVENTS] += _CUE_WEIGHT / 2
    kind = max((kind for kind in likes if kind != NONE), key=lambda kind: (likes[kind], kind))
    salience = _salience(sentence, dated, margin, cued=kind in cued)
    if kind not in cued and not dated.when and margin < 0:
        kind = NONE
    if kind == EVENTS and len(words_of(text)) < _BARE and not _has_detail(text):
        # `I found the key`: something happened, and nobody will ask for it.
        salience -= _BARE_COSTS
    if kind in (PROFILE, PREFERENCES) and kind not in cued and FIRST_PERSON.search(text) is None:
        # Advice to everybody, or a word about somebody else's things.
        kind = NONE
    if kind == ENTITIES and _DAY.match(dated.when):
        # What is known of a thing holds on any day; what has a day of its own happens.
        kind = EVENTS
    if sentence.assistant:
        # What an agent says about the world is mostly not the user's world.
        kind = EVENTS if DEED.search(text) and (dated.when or _has_detail(text)) and not is_question(text) else NONE
    return Statement(sentence, dated, kind, salience)


def _salience(sentence: Sentence, dated: Dated, margin: float, *, cued: bool) -> float:
    text = sentence.text
    length = len(words_of(text)) if " " in text else len(text) / 2
    salience = 0.5 * margin + 0.25 * min(length / _LONG, 1.0)
    salience += 0.08 * (_DIGIT.search(text) is not None)
    salience += 0.05 * (_NAME.search(text) is not None)
    salience += 0.08 * bool(dated.when)
    salience += 0.10 * (FIRST_PERSON.search(text) is not None)
    salience += 0.10 * cued
    salience -= 0.25 * is_question(text)
    salience -= 0.12 * (SECOND_PERSON.search(text) is not None)
    salience -= 0.10 * is_small_talk(text)
    salience -= 0.05 * (DANGLING.search(text) is not None)
    if length < _SHORT and not cued:
        salience -= 0.15
    return salience


def _has_detail(text: str) -> bool:
    return _DIGIT.search(text) is not None or _NAME.search(text) is not None
