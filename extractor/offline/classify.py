"""Which sentences are worth keeping, and as what."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from extractor.offline.cues import (
    DANGLING,
    FIRST_PERSON,
    PAST,
    PROBLEM,
    SECOND_PERSON,
    STRONG_CORRECTION,
    is_question,
    is_small_talk,
    without_connective,
)
from extractor.offline.dates import Dated, make_absolute
from extractor.offline.doubts import doubt, is_lasting_denial
from extractor.offline.guard import UNGUARDED, RuleGuard
from extractor.offline.kinds import BACKGROUND, KIND_CUES, PATTERN
from extractor.offline.languages import kind_of, language_of
from extractor.offline.likeness import RULES, Likeness
from extractor.offline.made_up import TAKEN_BACK, opens_frame
from extractor.offline.orders import is_standing
from extractor.offline.prototypes import CASES, ENTITIES, EVENTS, NONE, PATTERNS, PREFERENCES, PROFILE
from extractor.offline.sentences import Sentence, words_of
from extractor.offline.speech import own_words, to_remember

# Salience from which a statement is stored, chosen on five conversations of LoCoMo with MiniLM: a lower one keeps more
# turns from which the annotators drew nothing than such from which they drew a fact. docs/bench/offline.md has figures.
STORED: Final = 0.2
# Without an embedder every margin is the same, and fewer sentences reach this.
STORED_BY_RULES: Final = 0.15

_CUE_WEIGHT: Final = 0.12
_LONG: Final = 25
_SHORT: Final = 5
# An event told in fewer words, without a name or a number. Of 27 that were stored of the same five conversations the
# annotators drew a fact from one in three.
_BARE: Final = 7
_BARE_COSTS: Final = 0.12
# Done in passing: found, seen, looked at.
_PASSING = re.compile(
    r"\b(?:found|saw|heard|looked|checked|noticed|opened|closed|called|read|forgot|put|brought)\b", re.I
)
_PASSING_COSTS: Final = 0.25
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
    doubt: str = ""
    """Why it is no fact, a family of `doubts`; empty for what may be one."""
    more: str = ""
    """Sentences that lean on it, as they are kept."""
    followers: tuple[int, ...] = ()
    """Sequences of the messages that these are from."""

    @property
    def line(self) -> str:
        """The sentence as it is kept: who said it, when, and word for word what, with dates made absolute."""
        return self.line_of(f"{self.dated.text} {self.more}".rstrip())

    @property
    def sequences(self) -> tuple[int, ...]:
        """Of the messages that it is from."""
        return (self.sentence.sequence, *self.followers)

    def line_of(self, text: str) -> str:
        """A line of another text that is part of it."""
        said = f" ({self.sentence.day})" if self.sentence.day else ""
        return f"{self.sentence.speaker}{said}: {text}"


def classify(sentences: Sequence[Sentence], likeness: Likeness, guard: RuleGuard = UNGUARDED) -> list[Statement]:
    """Returns one statement a sentence, in order, without those that no rule could read. `likeness` has learned their
    texts."""
    statements: list[Statement] = []
    framed = -1
    for sentence in sentences:
        if framed != sentence.sequence and guard.run("frames", partial(_opens_frame, sentence), False):
            framed = sentence.sequence
        read = partial(_read, sentence, statements, likeness, framed=framed == sentence.sequence)
        statement = guard.run("statements", read, None)
        if statement is not None:
            statements.append(statement)
    return statements


def _own_text(sentence: Sentence) -> tuple[str, bool]:
    """What the sentence says, and whether the speaker asks to remember it."""
    text = own_words(sentence.text)
    wanted = "" if sentence.assistant else to_remember(text)
    return wanted or text, bool(wanted)


def _opens_frame(sentence: Sentence) -> bool:
    return opens_frame(_own_text(sentence)[0])


def _read(sentence: Sentence, earlier: list[Statement], likeness: Likeness, *, framed: bool) -> Statement:
    """Returns the statement of a sentence. One that takes the sentence before it back turns that one into talk."""
    text, wanted = _own_text(sentence)
    if TAKEN_BACK.search(text) and earlier and earlier[-1].sentence.sequence == sentence.sequence:
        earlier[-1] = _talk(earlier[-1].sentence, earlier[-1].dated, "joke")
    dated = make_absolute(without_connective(sentence.text), sentence.day)
    if framed:
        return _talk(sentence, dated, "framed")
    if (language := language_of(sentence.text)) != "en":
        return _foreign(sentence, dated, language)
    if (doubted := doubt(text, assistant=sentence.assistant)) and not (wanted and doubted == "general"):
        return _talk(sentence, dated, doubted)
    statement = _statement(sentence, dated, text, likeness)
    return _wanted(statement) if wanted else statement


def stored_from(likeness: Likeness) -> float:
    """The salience from which statements are stored."""
    return STORED_BY_RULES if likeness.name == RULES else STORED


def _talk(sentence: Sentence, dated: Dated, doubted: str) -> Statement:
    return Statement(sentence, dated, NONE, _salience(sentence, dated, margin=-0.3, cued=False), doubted)


def _foreign(sentence: Sentence, dated: Dated, language: str) -> Statement:
    kind = "" if sentence.assistant or is_question(sentence.text) else kind_of(sentence.text, language)
    if not kind:
        return _talk(sentence, dated, "no cue")
    return Statement(sentence, dated, kind, max(STORED, _salience(sentence, dated, margin=0.0, cued=True)))


def _wanted(statement: Statement) -> Statement:
    """The same, worth keeping because somebody asked for it."""
    kind = ENTITIES if statement.kind == NONE else statement.kind
    return replace(statement, kind=kind, salience=max(STORED, statement.salience))


def _statement(sentence: Sentence, dated: Dated, text: str, likeness: Likeness) -> Statement:
    """`text` are the sentence's own words."""
    if PATTERN.search(text) and not sentence.assistant:
        return Statement(sentence, dated, PATTERNS, _salience(sentence, dated, margin=0.0, cued=True))
    cued = {kind for kind, cue in KIND_CUES.items() if cue.search(text)}
    if is_standing(text):
        cued.add(PREFERENCES)
    if PROFILE in cued and not dated.when and BACKGROUND.search(text):
        cued.discard(EVENTS)
    if is_lasting_denial(text):
        return Statement(sentence, dated, PROFILE, _salience(sentence, dated, margin=0.0, cued=True))
    likes = dict(likeness.kinds(sentence.text)) or {NONE: 0.0, **dict.fromkeys(KIND_CUES, -0.2)}
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
    if STRONG_CORRECTION.search(text) is not None:
        salience += 0.1
    if kind not in cued and not dated.when and margin < 0:
        kind = NONE
    if kind == EVENTS and len(words_of(text)) < _BARE and not _has_detail(text) and not dated.when:
        # `I found the key`: something happened, and nobody will ask for it.
        salience -= _PASSING_COSTS if _PASSING.search(text) else _BARE_COSTS
    if kind in (PROFILE, PREFERENCES) and kind not in cued and FIRST_PERSON.search(text) is None:
        # Advice to everybody, or a word about somebody else's things.
        kind = NONE
    if kind not in (NONE, EVENTS) and kind not in cued and _DAY.match(dated.when):
        kind = EVENTS
    if kind == ENTITIES and _DAY.match(dated.when):
        # What is known of a thing holds on any day; what has a day of its own happens.
        kind = EVENTS
    if sentence.assistant and kind not in (NONE, CASES):
        # `doubt` leaves an agent's deeds only.
        kind = EVENTS if dated.when or _has_detail(text) else NONE
    return Statement(sentence, dated, kind, salience)


def _salience(sentence: Sentence, dated: Dated, margin: float, *, cued: bool) -> float:
    text = sentence.text
    length = len(words_of(text)) if " " in text else len(text) / 2
    salience = 0.5 * margin + 0.25 * min(length / _LONG, 1.0)
    salience += 0.08 * (_DIGIT.search(text) is not None)
    salience += 0.05 * (_NAME.search(text) is not None)
    salience += 0.08 * bool(dated.when)
    salience += 0.10 * (FIRST_PERSON.search(text) is not None)
    salience += 0.15 * cued
    salience -= 0.25 * is_question(text)
    salience -= 0.12 * (SECOND_PERSON.search(text) is not None)
    salience -= 0.10 * is_small_talk(text)
    salience -= 0.05 * (DANGLING.search(text) is not None)
    if length < _SHORT and not cued:
        salience -= 0.15
    return salience


def _has_detail(text: str) -> bool:
    return _DIGIT.search(text) is not None or _NAME.search(text) is not None
