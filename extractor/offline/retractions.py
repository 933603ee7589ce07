"""Whether a correction takes back an event. The event is deleted then, so nothing else must be possible."""

import re
from typing import Final

from extractor.offline.classify import Statement
from extractor.offline.cues import RETRACTION
from extractor.offline.keywords import CALENDAR, content_words, stem
from extractor.offline.sentences import words_of

# Share of an event's topics that the correction must speak of.
_SHARED: Final = 0.5
_BRACKET = re.compile(r" \([^()]*\d{4}[^()]*\)")
_DENIED = re.compile(
    r"(?:\bnot|\binstead of|\brather than|\bmoved from)\s+(?P<denied>[^,.;!?]+?)(?=\s+(?:but|to)\b|[,.;!?]|$)", re.I
)


def takes_back(statement: Statement, event: str, when: str) -> bool:
    """Whether the statement corrects that event, told by its text and time.

    It must be worded as nothing but a correction and be about the same: one of the two has no topic that the other has
    not. It must deny nothing that the event does not say, and where it denies nothing in particular, repeat every word
    of the event but the date.
    """
    text = statement.dated.text
    if RETRACTION.search(text) is None:
        return False
    topics, said = _topics(event), _topics(text)
    if len(topics & said) < max(1, _SHARED * len(topics)) or not (topics <= said or said <= topics):
        return False
    if statement.dated.denied:
        return when in statement.dated.denied
    denied = {word for match in _DENIED.finditer(_BRACKET.sub("", text)) for word in _plain(match["denied"])}
    if denied:
        return denied <= _plain(_BRACKET.sub("", event))
    return _plain(_undated(event)) <= _plain(text)


def _topics(text: str) -> set[str]:
    """What it is about: stems of its content words."""
    return {stem(word) for word in content_words(_undated(text))}


def _undated(text: str) -> str:
    """Its words, without those of dates and those that make it a correction."""
    words = words_of(RETRACTION.sub(" ", _BRACKET.sub("", text)))
    return " ".join(w for w in words if w.lower() not in CALENDAR and not any(sign.isdigit() for sign in w))


def _plain(text: str) -> set[str]:
    return {stem(word.lower()) for word in words_of(text) if word.lower() not in _ARTICLES}


_ARTICLES: Final = frozenset("a an the on in at my our it".split())
