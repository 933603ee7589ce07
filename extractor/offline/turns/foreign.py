"""Signals of sentences in the other languages that `languages` knows: whole sentences, as far as its cues go."""

import re
from typing import Final

from extractor.offline.languages import kind_of
from extractor.offline.prototypes import PREFERENCES, PROFILE
from extractor.offline.sentences import words_of
from extractor.offline.turns.phrases import quoted
from extractor.offline.turns.signals import ASSERTIONS, EXCEPTIONS, FACTS, Signals
from schemas.turns.checks import KEY_LENGTH, TOPIC_LENGTH
from schemas.turns.fingerprint import Signal

_LENGTH: Final = 240
_LEAST: Final = 5
_DENIES: Final = re.compile(
    r"\b(?:nicht|kein(?:e|en|er|em)?|nie|niemals|hasse|no (?:me|quiero|soporto)|nunca|odio|detesto|sin|ne .{1,20} pas|"
    r"n['’]\w+ pas|jamais|déteste|non (?:mi|voglio|sopporto)|mai|niet|geen|nooit|haat|não|nao|nie (?:lubię|znoszę)|"
    r"nigdy|"
    r"nienawidzę|не|никогда|ненавижу)\b|讨厌|不(?:喜欢|吃|喝|要)|嫌い|苦手|ないで",
    re.I,
)
_ALWAYS: Final = re.compile(
    r"\b(?:immer|nur|muss|siempre|sólo|solo|toujours|seulement|sempre|solo|soltanto|altijd|alleen|só|zawsze|tylko|"
    r"всегда|только)\b|总是|一直|必须|いつも|必ず",
    re.I,
)


_DENIAL_WORD: Final = re.compile(
    r"\b(?:nicht|kein\w*|nie|niemals|nichts|ohne|hasse|no|nunca|jamás|sin|odio|detesto|(?:ne |n['’])\S+(?: \S+){0,3}? "
    r"(?:pas|jamais|plus|rien)|jamais|sans|déteste|non|mai|senza|niet|geen|nooit|zonder|haat|não|nao|sem|nigdy|bez|"
    r"nienawidzę|не|никогда|без|ненавижу)\b|讨厌|不|没|嫌い|苦手|ない",
    re.I,
)
# Behind it stands the other half, of which the denial may not hold.
_CONTRAST: Final = re.compile(
    r"\b(?:aber|sondern|doch|pero|sino|mais|sauf|ma|però|maar|behalve|mas|ale|tylko|но|а|außer|excepto|eccetto)\b|但|けど|が、",
    re.I,
)


def read_foreign(text: str, language: str, signals: Signals) -> None:
    """Take what its cues call a preference as a wish or an exclusion, what they call profile as a fact. What is denied
    twice, or only in part, is left out.
    """
    kind = kind_of(text, language)
    said = quoted(text, _LENGTH)
    denials = len(_DENIAL_WORD.findall(text))
    if denials > 1 or (denials and _CONTRAST.search(text)) or bool(denials) != (_DENIES.search(text) is not None):
        return
    if kind == PREFERENCES and denials:
        signals.add(EXCEPTIONS, Signal(_key(text, language, "preference"), {"rule": said}, "avoid"))
    elif kind == PREFERENCES:
        severity = "must" if _ALWAYS.search(text) else "prefer"
        signals.add(ASSERTIONS, Signal(_key(text, language, "preference"), {"rule": said}, severity))
    elif kind == PROFILE:
        signals.add(FACTS, Signal(_key(text, language, "profile"), said, "medium"))


def content_words_of(text: str, language: str) -> list[str]:
    """Its longer words in lower case; in German those with a capital, its nouns. None of a text without spaces."""
    if " " not in text.strip():
        return []
    words = [word for word in words_of(text) if len(word) >= _LEAST and not word.isdigit()]
    return [word.lower()[:TOPIC_LENGTH] for word in _nouns(text, language) or words]


def _nouns(text: str, language: str) -> list[str]:
    """The longer ones, in German alone: there they have a capital."""
    words = words_of(text) if language == "de" else []
    return [word for word in words[1:] if len(word) >= _LEAST and word[:1].isupper()]


def _key(text: str, language: str, otherwise: str) -> str:
    """The last of its nouns, where the language marks them; without a grammar no other word is one for certain."""
    nouns = _nouns(text, language)
    return nouns[-1].lower()[:KEY_LENGTH] if nouns else otherwise
