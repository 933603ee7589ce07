"""Names of people and things in a sentence."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from extractor.offline.keywords import STOPWORDS
from extractor.offline.kinds import KIN, PET
from extractor.offline.sentences import Sentence, words_of

_NAME_LIMIT: Final = 60
_CAPITAL = re.compile(r"[A-ZÀ-ÖØ-ÞĀ-Ž]")
_PLACE_BEFORE = re.compile(r"\b(?:in|to|from|at|near|visit(?:ed|ing)?|around|through)\s+(?:the\s+)?$", re.I)
_SPOKEN_TO = re.compile(r"^(?:hey|hi|hello|thanks|thank you|wow|oh|yeah|yes|so|well|ok|okay)?,?\s*$", re.I)
_ORGANIZATION = re.compile(r"\b(?:Inc|Corp|Ltd|GmbH|University|College|School|Hospital|Bank|Agency|Institute|Church)\b")
_PROJECT_BEFORE = re.compile(r"\b(?:project|repo|repository|service|app|product|system|tool|startup|company)\s+$", re.I)
_COMPANY_BEFORE = re.compile(r"\b(?:company|startup|client|customer|employer)\s+$", re.I)
# Capitalised in English whatever they name.
_NO_NAMES: Final = frozenset(
    """
    monday tuesday wednesday thursday friday saturday sunday january february march april may june july august september
    october november december english german french spanish portuguese chinese japanese american european christmas
    easter halloween thanksgiving mr mrs ms dr tv pc ok lol
    """.split()
)


@dataclass(frozen=True, slots=True)
class Name:
    """A name as it was written, and what kind of thing it seems to be; empty when nothing tells."""

    text: str
    entity_type: str


def names_in(text: str, speakers: Iterable[str], trusted: frozenset[str]) -> list[Name]:
    """Names in a sentence, those that it is likely to be about first.

    The speakers of the batch are left out: a conversation calls them by name. A capital at the beginning counts only
    for a name of `trusted` (see `names_written_within`).
    """
    people = {part.lower() for speaker in speakers for part in (speaker, *speaker.split())}
    found: list[tuple[bool, int, Name]] = []
    for start, run in _capital_runs(text):
        first = run.split()[0]
        plain = run.lower()
        if plain in people or any(person.startswith(plain) for person in people if len(plain) > 2):
            continue
        before = text[:start]
        if not words_of(before) and first not in trusted:
            continue
        if _SPOKEN_TO.match(before) and text[start + len(run) :][:1] in (",", "!", "?"):
            continue
        place = _PLACE_BEFORE.search(before) is not None
        found.append((place, start, Name(run[:_NAME_LIMIT].rstrip(), _entity_type(run, before, place))))
    return [name for _, _, name in sorted(found, key=lambda entry: entry[:2])]


def names_written_within(sentences: Sequence[Sentence]) -> frozenset[str]:
    """Words that the batch also writes with a capital within a sentence: so they are names at its beginning too."""
    return frozenset(
        word
        for sentence in sentences
        for word in words_of(sentence.text)[1:]
        if _CAPITAL.match(word) and not _is_common(word)
    )


def _capital_runs(text: str) -> list[tuple[int, str]]:
    """Words with a capital that stand together, with where they begin."""
    runs: list[tuple[int, str]] = []
    for match in re.finditer(r"[^\W\d_][\w’'&+-]*", text):
        word = re.sub(r"[’']s?$", "", match[0])
        if not _CAPITAL.match(word) or _is_common(word):
            continue
        if runs and text[runs[-1][0] + len(runs[-1][1]) : match.start()] == " ":
            start = runs[-1][0]
            runs[-1] = (start, text[start : match.start() + len(word)])
        else:
            runs.append((match.start(), word))
    return [(start, run) for start, run in runs if len(run) > 1]


def _is_common(word: str) -> bool:
    plain = word.lower().replace("’", "'")
    return plain in STOPWORDS or plain in _NO_NAMES or plain.startswith(("i'", "it'"))


def _entity_type(name: str, before: str, place: bool) -> str:
    near = before[-40:]
    kin, pet = KIN.search(near), PET.search(near)
    if _ORGANIZATION.search(name) or _COMPANY_BEFORE.search(near):
        return "organization"
    if pet is not None and not place:
        return "pet"
    if kin is not None and not place:
        return "person"
    if _PROJECT_BEFORE.search(near):
        return "project"
    return ""
