"""Of whom or what a sentence tells. Only for English, and rather too often different than too often the same."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from extractor.offline.cues import without_taking_back
from extractor.offline.kinds import KIN, PET
from extractor.offline.sentences import words_of

_SELF: Final = frozenset({"i", "i'm", "i've", "i'd", "i'll", "we", "we're", "we've", "we'd", "we'll"})
_PRONOUNS: Final = frozenset({"it", "he", "she", "they", "that", "this", "these", "those", "its"})
_OWNERS: Final = {"my": "own", "our": "own", "his": "his", "her": "her", "their": "their", "your": "your"}
_ARTICLES: Final = frozenset({"the", "a", "an"})
# Before the subject: a time, a place, a word that joins.
_BEFORE: Final = frozenset(
    """
    and but so also then now currently today yesterday tomorrow tonight recently lately last next this every starting
    """.split()
)
# What stands behind one of these is no subject, name or not.
_PREPOSITIONS: Final = frozenset("in on at from for since by after before until during as of with".split())
# After it: the verb, or what says something more of it.
_VERB: Final = frozenset(
    """
    am is are was were be been has have had do does did will would can could should may might must no not never now
    live work like love hate prefer want need go come and or who which that with in on at from of for to just also
    moved got went left met took made became began told said actually still always usually
    """.split()
)
# Words that name it, at most.
_MOST: Final = 3


@dataclass(frozen=True, slots=True)
class Subject:
    """`own` when the speaker tells of themselves; else the words that name it, none when it is only pointed at."""

    own: bool
    words: frozenset[str] = frozenset()
    owner: str = ""
    """Whose it is, as a word for it says."""

    def may_be(self, other: "Subject") -> bool:
        """Whether nothing shows that they differ: neither has a relative, a pet, a name or an owner of its own."""
        if self.own or other.own:
            return self.own and other.own
        if not self.words or not other.words:
            return True
        if self.owner and other.owner and self.owner != other.owner:
            return False
        mine, others = _near(self.words), _near(other.words)
        if mine and others and mine != others:
            return False
        return self.words <= other.words or other.words <= self.words


@lru_cache(maxsize=4096)
def subject_of(text: str) -> Subject:
    """The first thing in the sentence of which something may be told."""
    words = [word.replace("’", "'") for word in words_of(without_taking_back(text).replace("’", "'"))]
    place = 0
    while place < len(words) and (before := words[place].lower()) in _BEFORE | _PREPOSITIONS:
        named = before in _PREPOSITIONS and words[place + 1 : place + 2] and words[place + 1][:1].isupper()
        place += 2 if named and words[place + 1].lower() not in _SELF else 1
    if place and place < len(words) and words[place].islower():
        # Behind a time or place in words of its own: whoever acts comes first.
        place = next((n for n in range(place, len(words)) if words[n].lower() in _SELF | _OWNERS.keys()), len(words))
    if place == len(words):
        return Subject(own=False)
    first = words[place].lower()
    if first in _SELF:
        return Subject(own=True)
    if first.partition("'")[0] in _PRONOUNS:
        return Subject(own=False)
    owner = _OWNERS.get(first, "")
    noun = words[place + 1 :] if owner or first in _ARTICLES else words[place:]
    return Subject(own=False, words=_noun(noun), owner=owner)


def _noun(words: list[str]) -> frozenset[str]:
    found: list[str] = []
    for word in words:
        plain = word.lower()
        stem, _, ending = plain.partition("'")
        verb_like = found and word.islower() and (plain.endswith("ed") or (plain.endswith("s") and not ending))
        closed = found and word.islower() and _is_near(found[-1])
        # A relative or a pet in the plural is one still.
        ends = plain in _VERB or verb_like or closed or len(found) == _MOST
        if ends and not (verb_like and _is_near(plain)):
            break
        found.append(stem)
        if ending not in ("", "s"):
            break
    return frozenset(re.sub(r"(?<=[^s])s$", "", word) for word in found)


def _near(words: frozenset[str]) -> frozenset[str]:
    return frozenset(word for word in words if _is_near(word))


def _is_near(word: str) -> bool:
    return KIN.fullmatch(word) is not None or PET.fullmatch(word) is not None
