"""Which earlier statements a later one takes back. In doubt none: then both are kept, and nothing true is lost."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

from extractor.offline.classify import Statement
from extractor.offline.compare import says_the_same
from extractor.offline.cues import (
    ADDITION,
    DENIED,
    LIVES,
    MOVED,
    RETRACTION,
    is_correction,
    is_question,
    without_taking_back,
)
from extractor.offline.guard import UNGUARDED, RuleGuard
from extractor.offline.keywords import content_words, stem
from extractor.offline.known import KnownLine
from extractor.offline.likeness import Likeness
from extractor.offline.prototypes import EVENTS, NONE
from extractor.offline.retractions import takes_back
from extractor.offline.sentences import words_of
from extractor.offline.subjects import subject_of

# Reasons to keep no fact that still let it take one back. What is asked, supposed or played takes back nothing.
_STILL_CORRECTS: Final = frozenset({"", "general"})
# Where one fact of a sentence ends and another may begin.
_CLAUSE = re.compile(r"[,;:–—]\s+|\s+(?:and|but|while|whereas|although|because|who|which|where|as well as)\s+", re.I)
_BRACKET = re.compile(r" \([^()]*\d{4}[^()]*\)")
_SMALL: Final = frozenset(
    """
    a an the my our your his her their its i i'm i've i'd we we're we've he she it they me us him them this that at in
    on of to for from with as by and or am is are was were be been being have has had do does did don't doesn't will
    would can could just really so very any anymore more now
    """.split()
)


@dataclass(frozen=True, slots=True)
class Correction:
    """A statement that stands in for an earlier one: lines of memories, or statements of the same batch."""

    statement: Statement
    replaced: tuple[KnownLine, ...]
    earlier: tuple[Statement, ...]
    beside: bool = False
    """The earlier ones say more than what it takes back, so they stay and it comes beside them."""


def may_correct(statement: Statement) -> bool:
    """Whether it is worded as a correction, by a person."""
    sentence = statement.sentence
    return (
        not sentence.assistant
        and statement.doubt in _STILL_CORRECTS
        and is_correction(sentence.text)
        and ADDITION.search(sentence.text) is None
        and not is_question(sentence.text)
    )


def corrections(
    statements: Sequence[Statement],
    known: Sequence[KnownLine],
    fixed_types: Iterable[str],
    likeness: Likeness,
    guard: RuleGuard = UNGUARDED,
) -> list[Correction]:
    """Returns for each statement worded as a correction what it takes back, if something near enough was said.

    Memories of `fixed_types` cannot be changed. Of them only events are corrected, those that it clearly takes back.
    """
    fixed = frozenset(fixed_types)
    found = (
        guard.run("corrections", partial(_correction, statement, statements, known, fixed, likeness), None)
        for statement in statements
    )
    return [correction for correction in found if correction is not None]


def _correction(
    statement: Statement,
    statements: Sequence[Statement],
    known: Sequence[KnownLine],
    fixed: frozenset[str],
    likeness: Likeness,
) -> Correction | None:
    if not may_correct(statement):
        return None
    text = statement.dated.text
    lines = [
        line
        for line in known
        if line.owner == statement.sentence.owner
        # Several people may feed one memory; none of them corrects what another one said.
        and line.speaker in ("", statement.sentence.speaker)
        and _may_take_back(statement, line.text)
        and (
            _is_denied(statement, line.text)
            if line.memory_type not in fixed
            else line.memory_type == EVENTS and line.alone and takes_back(statement, line.text, line.when)
        )
    ]
    earlier = [
        other
        for other in statements
        if other.sentence.sequence < statement.sentence.sequence
        and other.sentence.owner == statement.sentence.owner
        and other.sentence.speaker == statement.sentence.speaker
        and other.kind != NONE
        and _may_take_back(statement, other.dated.text)
        and (
            _is_denied(statement, other.dated.text)
            if other.kind not in fixed
            else other.kind == EVENTS and takes_back(statement, other.dated.text, other.dated.when)
        )
    ]
    scores = [
        *((likeness.between(text, line.text), line.text) for line in lines),
        *((likeness.between(text, other.dated.text), other.dated.text) for other in earlier),
    ]
    score, nearest = max(scores, default=(0.0, ""))
    if score < likeness.related or says_the_same(text, "", nearest, "", likeness):
        return None
    replaced = tuple(line for line in lines if says_the_same(line.text, "", nearest, "", likeness))
    same = tuple(other for other in earlier if says_the_same(other.dated.text, "", nearest, "", likeness))
    return Correction(statement, replaced, same, beside=_says_more(nearest, text))


def _may_take_back(statement: Statement, earlier: str) -> bool:
    return subject_of(earlier).may_be(subject_of(statement.sentence.text))


def _is_denied(statement: Statement, earlier: str) -> bool:
    """Whether it says that just this is no longer so, or never was.

    What it denies is all in the earlier text. Without such words it must retract in general, or tell of a move where
    the earlier one tells where somebody lives. `Actually` alone, or `now`, also stands before what is merely new.
    """
    text = statement.sentence.text.replace("’", "'")
    denied = {word for match in DENIED.finditer(text) for word in _roots(match["denied"])}
    if denied:
        return denied <= _roots(earlier)
    return RETRACTION.search(text) is not None or (MOVED.search(text) is not None and LIVES.search(earlier) is not None)


def _says_more(earlier: str, text: str) -> bool:
    """Whether one of its clauses has a topic of its own, and none that the correction speaks of."""
    said = {stem(word) for word in content_words(_BRACKET.sub("", text))}
    # Of an earlier correction neither its announcement nor what it took back is a fact of its own.
    stated = DENIED.sub("", without_taking_back(_BRACKET.sub("", earlier)))
    clauses = [{stem(word) for word in content_words(clause)} for clause in _CLAUSE.split(stated)]
    return len(clauses) > 1 and any(clause and not clause & said for clause in clauses)


@lru_cache(maxsize=4096)
def _roots(text: str) -> frozenset[str]:
    """What its words come from, so that `lives`, `living` and `live` are one; small words left out."""
    words = (word.lower().replace("’", "'") for word in words_of(_BRACKET.sub("", text)))
    return frozenset(stem(word).rstrip("e") for word in words if word not in _SMALL)
