"""Extracts topic words: stems, recurring phrases, and noun phrases as names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from functools import lru_cache
from typing import Final

from runekeep_extractor.offline.language import Language, languages
from runekeep_extractor.offline.sentences import words_of

MAX_NAME_WORDS: Final = 6
MAX_NAME_CHARS: Final = 60
FAR: Final = (0, 0.0)
# Two texts are similar if they share this many words, or if the shared words are this share of the smaller set.
_MIN_SHARED_WORDS: Final = 2
_MIN_SHARE: Final = 0.5
_MIN_PHRASES: Final = 3
_ENDINGS: Final = ("ingly", "edly", "ings", "ing", "ies", "ied", "ed", "es", "s", "ly")
_BRACKET: Final = re.compile(r" \([^()]*\d{4}[^()]*\)")


def content_words(text: str) -> list[str]:
    """Returns the words of a text in lower case, without those that carry no topic in any known language."""
    written_out = text.replace("’", "'")
    for language in languages():
        written_out = language.write_out(written_out)
    words = (word.lower().removesuffix("'s") for word in words_of(written_out))
    return [word for word in words if not _is_function_word(word) and (len(word) > 2 or not word.isascii())]


@lru_cache(maxsize=4096)
def stem(word: str) -> str:
    """Returns a word's stem, so that `hiking` and `hikes`, or `class` and `classes`, are one topic."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not (ending == "s" and word.endswith("ss")):
            return word[: -len(ending)].rstrip("e")
    return word.rstrip("e") if len(word) > 3 else word


def stems(texts: Iterable[str]) -> set[str]:
    """Returns the stems of all content words."""
    return {stem(word) for text in texts for word in content_words(text)}


def similarity(mine: Set[str], theirs: Set[str]) -> tuple[int, float]:
    """Returns the number of common words and their share of the smaller set, or FAR if both are too small. Larger is
    more similar."""
    shared = len(mine & theirs)
    share = shared / min(len(mine), len(theirs)) if shared else 0.0
    return (shared, share) if shared >= _MIN_SHARED_WORDS or share >= _MIN_SHARE else FAR


def says_no_more(text: str, other: str, language: Language) -> bool:
    """Returns whether the other text has all words of this one, in the same order: the same numbers, names, denials."""
    rest = iter(said_words(other, language))
    return all(word in rest for word in said_words(text, language))


@lru_cache(maxsize=8192)
def said_words(text: str, language: Language) -> tuple[str, ...]:
    """Returns the stems of a text's words in order, without fillers and without dates added in brackets."""
    words = (word.lower() for word in words_of(language.write_out(_BRACKET.sub("", text))))
    return tuple(stem(word) for word in words if not language.has("filler", word))


@lru_cache(maxsize=8192)
def topic_words(text: str, language: Language) -> frozenset[str]:
    """Returns the words that identify a text's subject: the stems of its words without prepositions and dates."""
    calendar = {stem(name) for names in language.calendar.values() for name in names}
    return frozenset(
        word
        for word in said_words(text, language)
        if not word.isdigit() and word not in calendar and not language.has("preposition", word)
    )


def noun_phrase(text: str, language: Language) -> str:
    """Returns the noun phrase at the beginning of a text as a name, without articles; empty if there is none."""
    phrase = phrase_of(text, language)
    return phrase[:1].upper() + phrase[1:]


def phrase_of(text: str, language: Language) -> str:
    """Returns the noun phrase at the beginning of a text as written; empty if there is none."""
    phrase = language.cue("before").sub("", language.write_out(text).strip(' "“'))
    phrase = language.cue("end").split(f"{phrase} ", maxsplit=1)[0].strip(" -'")
    words = phrase.split()[:MAX_NAME_WORDS]
    while len(phrase := " ".join(words)) > MAX_NAME_CHARS:
        words.pop()
    phrase = language.cue("last").sub("", phrase).strip()
    return phrase if content_words(phrase) else ""


def head_noun(phrase: str, language: Language) -> str:
    """Returns the noun that a phrase is about, in lower case and singular; empty if there is none."""
    words = content_words(language.cue("head_end").split(phrase, maxsplit=1)[0]) or content_words(phrase)
    return _singular(words[-1]) if words else ""


def key_phrases(texts: Sequence[str], limit: int) -> list[str]:
    """Returns words and word pairs that occur in many of the texts, names before others, in the spelling of their first
    use.
    """
    weights: dict[str, float] = {}
    spelling: dict[str, str] = {}
    for text in texts:
        words = words_of(text)
        here: dict[str, float] = {}
        for size in (1, 2):
            for start in range(len(words) - size + 1):
                phrase = words[start : start + size]
                plain = [word.lower().replace("’", "'").removesuffix("'s") for word in phrase]
                if not all(map(_names_topic, plain)):
                    continue
                key = " ".join(plain)
                spelling.setdefault(key, re.sub(r"['’]s$", "", " ".join(phrase)))
                # A pair says more than either word, and a capital within a sentence marks a name.
                here[key] = 1.0 + 0.3 * (size - 1) + 0.3 * (start > 0 and phrase[0][:1].isupper())
        for key, weight in here.items():
            weights[key] = weights.get(key, 0.0) + weight
    chosen: list[str] = []
    for key in sorted(weights, key=lambda key: -weights[key]):
        # A word that occurs once says little. It only fills a list that would be too short.
        if len(chosen) == (limit if weights[key] > 1.0 else min(_MIN_PHRASES, limit)):
            break
        if not any(_roots(key) & _roots(other) for other in chosen):
            chosen.append(key)
    return [spelling[key] for key in chosen]


def _names_topic(word: str) -> bool:
    if _is_function_word(word) or word.isdigit() or (len(word) < 3 and word.isascii()):
        return False
    return not any(word in names for one in languages() for names in one.calendar.values())


def _is_function_word(word: str) -> bool:
    return any(word in language.function_words for language in languages())


def _roots(phrase: str) -> set[str]:
    return {stem(word) for word in phrase.split()}


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return f"{word[:-3]}y"
    if len(word) > 4 and word.endswith(("ches", "shes", "sses", "xes")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word
