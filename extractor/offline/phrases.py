"""Short names made of a sentence's own words, cut where a reader would pause."""

import re
from typing import Final

from extractor.offline.cues import CONFIRMATION, without_lead_in
from extractor.offline.keywords import content_words

# Characters of a name that a listing still shows whole.
NAME_LIMIT: Final = 60
# A head shorter than this names nothing: then a later cut is better, even within a phrase.
_LEAST: Final = 20

_CLAUSE = re.compile(
    # A comma within a number ends nothing.
    r"\s*(?:[,;:](?!\d)|[–—，、；：])|\s+-\s|\s+(?:and|but|because|so|which|who|when|while|where|since|although|after|before|until|if)\b",
    re.I,
)
_PHRASE = re.compile(r"\s+(?:with|on|in|at|for|from|by|into|about|during|near|as|to|next to)\b", re.I)
# What a correction denies is no part of what it says.
_DENIED = re.compile(r",\s*(?:and )?not\b.*$", re.I | re.S)
_FIRST_CLAUSE = re.compile(r"^[^,;:–—]+[,;:–—]\s*")
# What a cut has left at the end.
_LOOSE: Final = frozenset(
    """
    a an the my our your his her its their this that these those is are was were be been am has have had do does did
    will would can could should and or but so because if when while which who to of in on at for from by with as into
    about until since before after not very really even just i we he she they me you us him them giving making being
    """.split()
)
# What a date that was taken out has left there.
_COPULAS: Final = frozenset({"is", "are", "was", "were", "be"})


def short_name(text: str, limit: int = NAME_LIMIT) -> str:
    """At most `limit` characters of the sentence: whole clauses, else whole phrases, else whole words.

    What leads into it (`correction:`, `that solved it:`) and what it denies at its end is left out. A name that had to
    be cut does not end in a word without a meaning of its own.
    """
    whole = text.strip().rstrip(".!?…。！？ ")
    said = without_lead_in(_DENIED.sub("", whole)) or whole
    lead = _FIRST_CLAUSE.match(said)
    if lead is not None and CONFIRMATION.search(lead[0]) and len(content_words(said[lead.end() :])) > 1:
        said = said[lead.end() :]
    cut = _cut(said, limit)
    name = _without_loose_end(cut, _LOOSE if cut != said else _COPULAS)
    return name[:1].upper() + name[1:]


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    for boundary in (_CLAUSE, _PHRASE):
        ends = [match.start() for match in boundary.finditer(text) if _LEAST <= match.start() <= limit]
        if ends:
            return text[: ends[-1]]
    end = text.rfind(" ", 0, limit + 1)
    return text[: end if end >= _LEAST else limit]


def _without_loose_end(text: str, loose: frozenset[str]) -> str:
    words = text.rstrip(" ,;:-–—").split()
    while len(words) > 2 and words[-1].lower() in loose:
        words.pop()
    return " ".join(words).rstrip(" ,;:-–—")
