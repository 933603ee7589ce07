"""How much a message reads like a fact worth finding: it says when, it names somebody or something, somebody speaks of
themselves, and it does not ask.

A prior, independent of the query. English cues; in other scripts figures and questions count alone.
"""

import re

MEMORY = 3
"""Of a memory, as much as a message can have: an extractor found it worth keeping, and may have corrected it since, so
that it stands before what it came from where both match as well."""

_DAYS = "mon|tues|wednes|thurs|fri|satur|sun"
_MONTHS = "january|february|march|april|june|july|august|september|october|november|december"
_WHEN = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|recently|ago|since|weekend"
    rf"|(?:last|next) (?:night|week|month|year|summer|fall|autumn|winter|spring|{_DAYS})\w*"
    r"|(?:this|past|the other) (?:week|month|year|morning|day)\w*"
    r"|just (?:got|had|finished|started|went|came|did)"
    r"|for \w+ years|(?:few|couple)(?: of)? (?:days|weeks|months|years)"
    rf"|(?:{_DAYS})day|{_MONTHS}|\d{{4}})\b",
    re.IGNORECASE,
)
# What `storage.passages` writes for what is no text: a description by somebody else, and what a program said.
_BESIDE = re.compile(r"\s*\[(?:photo: |tool [^\]:]*: )[^\]]*(?:\]|$)")
# Who is spoken to, as in `Thanks, Robin!` and `Hey Robin, ...`, is known already.
_ADDRESSED = re.compile(r"(?:(?<=, )|(?:^|(?<=[.!?] ))(?P<opening>[A-Z][a-z']+(?: you)?),? )[A-Z][a-z]+(?=[,.!?]|$)")
# In the middle of a sentence, so that no capital is owed to its beginning.
_NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]+|[\"“]")
_SELF = re.compile(r"\b(?:I|I'm|I've|my|we|our|me)\b", re.IGNORECASE)
_FIGURE = re.compile(r"\d")
_QUESTION = ("?", "？", "؟")


def weight(words: str) -> int:
    """From -1 to 3, for what a message says without speaker and date."""
    said = _BESIDE.sub("", words)
    return (
        bool(_WHEN.search(said) or (not said.isascii() and _FIGURE.search(said)))
        + bool(_NAME.search(_ADDRESSED.sub(r"\g<opening>", said)))
        + bool(_SELF.search(said))
        - said.rstrip(" \"'”)").endswith(_QUESTION)
    )
