"""What a turn is for: its main request, what it is about, and a title."""

import re
from collections.abc import Sequence
from typing import Final

from extractor.offline.cues import PROBLEM, is_question, is_small_talk
from extractor.offline.keywords import content_words, key_phrases
from extractor.offline.phrases import short_name
from extractor.offline.sentences import SENTENCE_LIMIT, without_code, words_of
from extractor.offline.turns.foreign import content_words_of
from extractor.offline.turns.phrases import quoted
from extractor.offline.turns.reading import ENGLISH, Said, without_greeting
from runekeep.v1 import common_pb2
from schemas.turns.checks import TOPIC_LENGTH
from schemas.turns.fingerprint import MOST_TOPICS, OBJECTIVE_LENGTH

_TITLE_LENGTH: Final = 60
_DEED: Final = re.compile(
    r"\b(?:find|book|write|draft|plan|explain|compare|create|build|make|fix|translate|summari[sz]e|review|help|show|"
    r"tell|give|list|suggest|recommend|design|order|schedule|calculate|prepare|analy[sz]e|debug|refactor|implement|"
    r"generate|check|search|look|add|send|update|convert|organi[sz]e|rewrite|proofread)\b",
    re.I,
)
# How, not what.
_CONDITION: Final = re.compile(
    r"^(?:please |but |and |also )*(?:don't|do not|never|always|avoid|keep (?:it|your|the)|make sure|use|only|no|not|"
    r"without|"
    r"under|at most|at least|preferably|ideally|be (?:brief|concise|short)|answer in|reply in|respond in|from now on|"
    r"it (?:must|should|has to|needs to)|the [\w-]+ (?:must|should|has to|needs to)|it would be)\b",
    re.I,
)
_SOOTHES: Final = re.compile(
    r"^\W*(?:don't worry|do not worry|never ?mind|no (?:problem|worries|rush|hurry)|sorry about)\b", re.I
)
# Words of requests that name no topic.
_NO_TOPICS: Final = frozenset(
    """
    book books booking write draft plan explain compare create build fix translate summarize summarise review suggest
    recommend design order schedule calculate prepare analyze analyse debug refactor implement generate check search
    list send update convert organize organise rewrite proofread answer reply include avoid prefer want looking euros
    dollars shorter longer short brief version please need allowed under below maximum minimum max min preferably
    ideally possible instead regarding open near nearby close
    """.split()
)


def main_request(said: Sequence[Said]) -> Said | None:
    """The sentence that asks for the most; without one the first trouble told of, else the first statement."""
    meant = [one for one in said if _says_what(one)]
    asked = sorted(
        (one for one in meant if one.asks and one.meant), key=lambda one: (-_weight(one), one.sentence.position)
    )
    deeds = [one for one in asked if _CONDITION.match(one.text) is None]
    questions = [one for one in meant if is_question(one.text) and one not in asked]
    troubles = [one for one in meant if PROBLEM.search(one.text)]
    stated = [one for one in meant if one.meant]
    return next(iter([*deeds, *questions, *troubles, *asked, *stated, *meant]), None)


def objective_of(request: Said | None) -> str:
    """The main request in the user's own words, at most OBJECTIVE_LENGTH characters; empty without one."""
    return quoted(without_greeting(request.sentence.text), OBJECTIVE_LENGTH) if request is not None else ""


def opening_of(messages: Sequence[common_pb2.Message]) -> str:
    """How the user begins, where nothing of it is a sentence: one that never ends; empty for a word alone."""
    for message in messages:
        for part in message.parts if message.role == common_pb2.ROLE_USER else ():
            text = without_code(part.text.text)
            if len(text) > SENTENCE_LIMIT and len(words_of(text)) > 1:
                return quoted(text, OBJECTIVE_LENGTH)
    return ""


def topics_of(said: Sequence[Said]) -> tuple[str, ...]:
    """Keywords in lower case, those of most weight first."""
    texts = [one.text for one in said if one.meant and one.language == ENGLISH and _says_what(one)]
    found: dict[str, None] = {}
    for phrase in key_phrases(texts, 2 * MOST_TOPICS):
        words = [word for word in phrase.lower().split() if word not in _NO_TOPICS]
        if words and not all(word.isdigit() for word in words):
            found.setdefault(" ".join(words)[:TOPIC_LENGTH], None)
    for one in said:
        if one.language != ENGLISH:
            found.update(dict.fromkeys(content_words_of(one.text, one.language)))
    return tuple(found)[:MOST_TOPICS]


def title_of(request: Said | None) -> str:
    """A short name for the conversation that a turn opens; empty without a request."""
    if request is None:
        return ""
    text = without_greeting(request.sentence.text)
    return short_name(text, _TITLE_LENGTH) if request.language == ENGLISH else quoted(text, _TITLE_LENGTH)


def _says_what(one: Said) -> bool:
    """No greeting, thanks or soothing."""
    if one.language != ENGLISH:
        return True
    return (not is_small_talk(one.text) or one.asks) and _SOOTHES.match(one.text) is None


def _weight(one: Said) -> float:
    text = without_greeting(one.text)
    weight = min(len(content_words(text)), 8) / 8
    weight += 1.0 * (_DEED.search(text) is not None)
    return weight
