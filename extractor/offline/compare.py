"""Whether a statement is new, known already, or takes back an earlier one."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from extractor.offline.classify import Statement
from extractor.offline.cues import STRONG_CORRECTION, is_correction, is_question
from extractor.offline.keywords import content_words, stem
from extractor.offline.known import KnownLine
from extractor.offline.likeness import RULES, Likeness
from extractor.offline.prototypes import EVENTS, NONE
from extractor.offline.retractions import takes_back
from extractor.offline.sentences import words_of

# A cue that also stands in sentences which correct nothing needs a closer earlier statement.
_WEAK_CUE_ADDS: Final = 0.1
_NEGATIONS: Final = frozenset({"no", "not", "never", "none", "without", "nothing", "nobody"})
_NUMBER_WORDS: Final = frozenset(
    "one two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty hundred thousand".split()
)
_BRACKET = re.compile(r" \([^()]*\d{4}[^()]*\)")


@dataclass(frozen=True, slots=True)
class Correction:
    """A statement that stands in for an earlier one: lines of memories, or statements of the same batch."""

    statement: Statement
    replaced: tuple[KnownLine, ...]
    earlier: tuple[Statement, ...]


def says_the_same(text: str, when: str, other: str, other_when: str, likeness: Likeness) -> bool:
    """Whether the other text says all that this one says, number by number and name by name."""
    if when and other_when and when != other_when:
        return False
    plain, other_plain = _plain(text), _plain(other)
    if plain == other_plain or f" {plain} " in f" {other_plain} ":
        return True
    return (
        likeness.between(text, other) >= likeness.same
        and _hard_facts(text) <= _hard_facts(other)
        and _negations(text) == _negations(other)
        # Vectors hardly tell "tea to coffee" from "coffee to tea", or what was raised from what was lowered.
        and _occur_in_order(_stems(text), _stems(other))
    )


def without_repeats(statements: Sequence[Statement], known: Sequence[KnownLine], likeness: Likeness) -> list[Statement]:
    """The statements that no memory of their owner and no earlier statement has said already."""
    new: list[Statement] = []
    for statement in statements:
        text, when = statement.dated.text, statement.dated.when
        repeats_memory = any(
            says_the_same(text, when, line.text, line.when, likeness)
            for line in known
            if line.owner == statement.sentence.owner
        )
        repeats_batch = any(
            says_the_same(text, when, earlier.dated.text, earlier.dated.when, likeness)
            for earlier in new
            if earlier.sentence.owner == statement.sentence.owner
            and earlier.sentence.speaker == statement.sentence.speaker
        )
        if not repeats_memory and not repeats_batch:
            new.append(statement)
    return new


def may_correct(statement: Statement) -> bool:
    """Whether it is worded as a correction, by a person."""
    sentence = statement.sentence
    return not sentence.assistant and is_correction(sentence.text) and not is_question(sentence.text)


def corrections(
    statements: Sequence[Statement], known: Sequence[KnownLine], fixed_types: Iterable[str], likeness: Likeness
) -> list[Correction]:
    """For each statement worded as a correction what it takes back, if anything near enough was said.

    Memories of `fixed_types` cannot be changed. Of them only events are corrected, those that it clearly takes back.
    """
    fixed = frozenset(fixed_types)
    found = []
    for statement in filter(may_correct, statements):
        text = statement.dated.text
        least = likeness.related
        if likeness.name != RULES and STRONG_CORRECTION.search(text) is None:
            least += _WEAK_CUE_ADDS
        lines = [
            line
            for line in known
            if line.owner == statement.sentence.owner
            # Several people may feed one memory; none of them corrects what another one said.
            and line.speaker in ("", statement.sentence.speaker)
            and (
                line.memory_type not in fixed
                or (line.memory_type == EVENTS and line.alone and takes_back(statement, line.text, line.when))
            )
        ]
        earlier = [
            other
            for other in statements
            if other.sentence.sequence < statement.sentence.sequence
            and other.sentence.owner == statement.sentence.owner
            and other.sentence.speaker == statement.sentence.speaker
            and other.kind != NONE
            and (
                other.kind not in fixed
                or (other.kind == EVENTS and takes_back(statement, other.dated.text, other.dated.when))
            )
        ]
        scores = [
            *((likeness.between(text, line.text), line.text) for line in lines),
            *((likeness.between(text, other.dated.text), other.dated.text) for other in earlier),
        ]
        score, nearest = max(scores, default=(0.0, ""))
        if score < least or says_the_same(text, "", nearest, "", likeness):
            continue
        replaced = tuple(line for line in lines if says_the_same(line.text, "", nearest, "", likeness))
        same = tuple(other for other in earlier if says_the_same(other.dated.text, "", nearest, "", likeness))
        found.append(Correction(statement, replaced, same))
    return found


def _plain(text: str) -> str:
    return " ".join(word.lower() for word in words_of(text)) or text


def _hard_facts(text: str) -> frozenset[str]:
    """Numbers and names: what makes a near copy another fact."""
    words = words_of(_BRACKET.sub("", text))
    return frozenset(
        word.lower()
        for place, word in enumerate(words)
        if any(sign.isdigit() for sign in word)
        or (place > 0 and word[:1].isupper() and word.lower() not in ("i", "i'm", "i've", "i'd", "i'll"))
        or word.lower() in _NUMBER_WORDS
    )


def _stems(text: str) -> list[str]:
    return [stem(word) for word in content_words(_BRACKET.sub("", text))]


def _occur_in_order(few: Sequence[str], many: Sequence[str]) -> bool:
    rest = iter(many)
    return all(word in rest for word in few)


def _negations(text: str) -> int:
    words = (word.lower().replace("’", "'") for word in words_of(text))
    return sum(word in _NEGATIONS or word.endswith("n't") for word in words)
