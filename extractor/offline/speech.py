"""A sentence reduced to what the speaker says in words of their own."""

import re
from typing import Final

from extractor.offline.sentences import words_of

INNER_QUOTE: Final = "⟨…⟩"
"""Stands where somebody else's words were."""

_QUOTED = re.compile(r"[\"“„«](?P<words>[^\"“”„«»]+)[\"“”»]")
# Shorter ones are names, titles and messages of machines rather than speech.
_SPEECH: Final = 4
_SPOKEN = re.compile(r"\b(?:i|i'm|i've|you|your|he|she|we|they|my|our|is|are|was|has|have|had)\b", re.I)


# The speaker asks for the rest to be remembered; `remember to` names a task instead.
_TO_REMEMBER = re.compile(
    r"^(?:(?:please|and|also),? )*(?:(?:remember|note|keep in mind|bear in mind|don't forget|make a note|"
    r"for the record|fyi|just so you know|"
    r"you should know|for your information|for future reference)(?: that\b|[,:]| (?=my\b|i\b|i'm\b|our\b|we\b|"
    r"the\b)) ?)",
    re.I,
)


def to_remember(text: str) -> str:
    """What the speaker asks to be remembered, with such words in front; empty for any other sentence."""
    match = _TO_REMEMBER.match(text)
    return text[match.end() :] if match else ""


def own_words(text: str) -> str:
    """The text with straight apostrophes, and with INNER_QUOTE in place of each longer quotation of speech."""
    return _QUOTED.sub(_mark, text.replace("’", "'"))


def _mark(match: re.Match[str]) -> str:
    words = match["words"]
    return INNER_QUOTE if len(words_of(words)) >= _SPEECH and _SPOKEN.search(words) else match[0]
