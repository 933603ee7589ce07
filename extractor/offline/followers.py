"""Sentences that lean on the one before them are kept with it, or not at all: alone nobody understands them."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from extractor.offline.classify import Statement
from extractor.offline.cues import FIRST_PERSON, is_pointing_correction
from extractor.offline.kinds import KIN, PET
from extractor.offline.prototypes import CASES, NONE
from extractor.offline.sentences import split

# Sentences that may hang on one, and words that such a one has at least.
_MOST: Final = 2
_LEAST_WORDS: Final = 4
# Behind a statement of one's own, what sounds general is said of the same.
_STILL_SAID: Final = frozenset({"", "general"})
# `It was my birthday` points at nothing, so a sentence with a word of the speaker's own may stand alone.
_POINTS_BACK = re.compile(
    r"^(?:(?:and|but|so),? )?(?:it|it['’]s|this|that|that['’]s|they|they['’]re|these|those|he|she|he['’]s|she['’]s|his|"
    r"her|their|its|both|neither|there|the (?:former|latter|same))\b",
    re.I,
)
# Somebody whom only the sentence before names, whatever word of the speaker's own follows: `She told me`.
_SOMEBODY = re.compile(
    r"^(?:(?:and|but|so|then|also|yesterday|today|recently|last \w+|this \w+|on \w+day),? )*"
    r"(?:he|she|he['’](?:s|d|ll)|she['’](?:s|d|ll)|him|his|her)\b",
    re.I,
)
# Messages back to what a sentence that only points may correct; between them may be an answer.
_REACH: Final = 2
ATTACHED: Final = "attached"
"""The doubt of a sentence that is kept behind another one."""


def points_back(text: str) -> bool:
    """It begins with a word for something said before."""
    return _POINTS_BACK.match(text) is not None or _SOMEBODY.match(text) is not None or is_pointing_correction(text)


def joined(statements: Sequence[Statement], least: float) -> list[Statement]:
    """The same statements, in order, with each that leans on another put behind that one, and left out by itself.

    A statement that is worth less than `least` is taken along when what leans on it is worth more.
    """
    result: list[Statement] = []
    head, count = -1, 0
    for place, statement in enumerate(statements):
        previous = result[place - 1] if place else None
        follows = previous is not None and _follows(statement, previous) and statement.doubt in _STILL_SAID
        if is_pointing_correction(statement.sentence.text):
            corrected = _corrected(statement, result)
            if corrected is not None:
                result[corrected] = _with(result[corrected], statement, least)
            result.append(_attached(statement))
            continue
        if follows and head >= 0 and count < _MOST and len(statement.sentence.words) >= _LEAST_WORDS:
            result[head] = _with(result[head], statement, least)
            result.append(_attached(statement))
            count += 1
            continue
        if points_back(statement.sentence.text) and not _stands_alone(statement):
            result.append(_left_out(statement))
            head = -1
            continue
        result.append(statement)
        head, count = (-1 if statement.doubt or statement.kind == CASES else place), 0
    return result


def with_followers(text: str) -> tuple[str, str]:
    """A kept text as its first sentence and those that lean on it; all of it and nothing when it is not so made."""
    first, *rest = list(split(text)) or [text]
    if rest and all(points_back(sentence) for sentence in rest) and f"{first} {' '.join(rest)}" == text:
        return first, " ".join(rest)
    return text, ""


def _follows(statement: Statement, previous: Statement) -> bool:
    one, other = statement.sentence, previous.sentence
    return points_back(one.text) and _same_voice(statement, previous) and one.sequence - other.sequence <= 1


def _corrected(statement: Statement, earlier: Sequence[Statement]) -> int | None:
    """Place of the last thing kept that the same person said shortly before; None without one."""
    for place in range(len(earlier) - 1, -1, -1):
        other = earlier[place]
        if statement.sentence.sequence - other.sentence.sequence > _REACH:
            break
        if other.kind != NONE and not other.doubt and not other.sentence.assistant and _same_voice(statement, other):
            return place if other.more.count(". ") < _MOST else None
    return None


def _same_voice(statement: Statement, other: Statement) -> bool:
    one, two = statement.sentence, other.sentence
    return one.speaker == two.speaker and one.owner == two.owner


def _stands_alone(statement: Statement) -> bool:
    text = statement.sentence.text
    if _SOMEBODY.match(text) is not None and KIN.search(text) is None and PET.search(text) is None:
        return False
    return FIRST_PERSON.search(text) is not None


def _with(head: Statement, follower: Statement, least: float) -> Statement:
    worth_more = follower.kind != NONE and follower.salience >= least and (head.kind == NONE or head.salience < least)
    return replace(
        head,
        kind=follower.kind if worth_more else head.kind,
        salience=max(head.salience, follower.salience) if worth_more else head.salience,
        more=f"{head.more} {follower.dated.text}".strip(),
        followers=(*head.followers, follower.sentence.sequence),
    )


def _left_out(statement: Statement) -> Statement:
    return replace(statement, kind=NONE)


def _attached(statement: Statement) -> Statement:
    return replace(statement, kind=NONE, doubt=ATTACHED)
