"""Scores how much a message reads like a fact worth finding: it gives a time, names somebody or something, speaks in
the first person, and does not ask.

A prior, independent of the query. The cues are English; in other scripts only figures and questions count.
"""

import re

MEMORY = 3
"""Score of a memory, the maximum of a message: an extractor found it worth keeping, and may have corrected it since, so
it ranks above its source where both match equally."""

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
# Text that `runekeep_storage.indexing.passages` writes for parts that are no text: descriptions by others, and tool
# output.
_BESIDE = re.compile(r"\s*\[(?:photo: |tool [^\]:]*: )[^\]]*(?:\]|$)")
# The addressed person, as in `Thanks, Robin!` and `Hey Robin, ...`, is already known.
_ADDRESSED = re.compile(r"(?:(?<=, )|(?:^|(?<=[.!?] ))(?P<opening>[A-Z][a-z']+(?: you)?),? )[A-Z][a-z]+(?=[,.!?]|$)")
# Within a sentence, where a capital is not due to its beginning.
_NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]+|[\"“]")
_SELF = re.compile(r"\b(?:I|I'm|I've|my|we|our|me)\b", re.IGNORECASE)
_FIGURE = re.compile(r"\d")
_QUESTION = ("?", "？", "؟")


def fact_score(words: str) -> int:
    """Returns the fact score, from -1 to 3, of a message's words without speaker and date."""
    said = _BESIDE.sub("", words)
    return (
        bool(_WHEN.search(said) or (not said.isascii() and _FIGURE.search(said)))
        + bool(_NAME.search(_ADDRESSED.sub(r"\g<opening>", said)))
        + bool(_SELF.search(said))
        - said.rstrip(" \"'”)").endswith(_QUESTION)
    )
