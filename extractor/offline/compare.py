"""Whether a statement is new, or has been said already."""

import re
from collections.abc import Sequence
from typing import Final

from extractor.offline.classify import Statement
from extractor.offline.keywords import content_words, stem
from extractor.offline.known import KnownLine
from extractor.offline.likeness import Likeness
from extractor.offline.sentences import words_of
from extractor.offline.speech import to_remember

_NEGATIONS: Final = frozenset({"no", "not", "never", "none", "without", "nothing", "nobody"})
_NUMBER_WORDS: Final = frozenset(
    "one two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty hundred thousand".split()
)
_TAG = re.compile(r",? (?:remember|by the way|as i said|as you know|you know|again)\W*$", re.I)
_WRITTEN_OUT: Final = (
    (r"\bcan't\b", "cannot"),
    (r"\bwon't\b", "will not"),
    (r"n't\b", " not"),
    (r"'m\b", " am"),
    (r"'re\b", " are"),
    (r"'ve\b", " have"),
    (r"'ll\b", " will"),
)
_BRACKET = re.compile(r" \([^()]*\d{4}[^()]*\)")


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
            if line.owner == statement.sentence.owner and statement.more in line.more
        )
        repeats_batch = any(
            says_the_same(text, when, earlier.dated.text, earlier.dated.when, likeness)
            for earlier in new
            if earlier.sentence.owner == statement.sentence.owner
            and earlier.sentence.speaker == statement.sentence.speaker
            and statement.more in earlier.more
        )
        if not repeats_memory and not repeats_batch:
            new.append(statement)
    return new


def _plain(text: str) -> str:
    """Its words in lower case, written out, without words that only ask to remember the rest."""
    said = _TAG.sub("", to_remember(text) or text).replace("’", "'")
    for short, long in _WRITTEN_OUT:
        said = re.sub(short, long, said, flags=re.I)
    return " ".join(word.lower() for word in words_of(said)) or text


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
