"""Pieces of a sentence: its clauses, and the phrase that a rule is about."""

import re
from collections.abc import Iterator
from typing import Final

from extractor.offline.sentences import words_of
from schemas.turns.text import cut, line

PHRASE_LENGTH: Final = 80
RULE_LENGTH: Final = 200
_MOST_WORDS: Final = 9
_OPENERS: Final = (
    r"please|don't|do not|never|always|not\b|avoid|without (?!\w+ing\b)|nothing|nobody|make|use|keep|only|preferably|"
    r"ideally|"
    r"if possible|rather|skip|exclude|i\b|i'm|i'd|we\b|we're|my|our|you (?:can|may|must|should)|it (?:must|should|"
    r"has|needs|is|can)|"
    r"the [\w-]+ (?:must|should|has to|needs to|is|are|can)|they (?:must|should)|there (?:must|should)|at most|"
    r"at least|under|"
    r"no more than|maximum|max\b|no (?!idea|problem)\w+"
)
_CLAUSE: Final = re.compile(
    rf"[;–—]\s*|:\s+|,\s+(?:(?:and|but|so|then|also|plus) )*(?=(?:{_OPENERS}))|"
    r"(?<!anything)(?<!everything)(?<!nothing)\s+but\s+(?=\w)|\s+and (?:also )?"
    r"(?=(?:please|don't|do not|never|always|avoid|without (?!\w+ing\b)|use|keep|make|no\b|not\b|only|i\b|"
    r"i'm|i'd|we\b|my\b|our\b|it (?:must|should|has|needs)|it's\b|at most|at least|under)\b)|"
    r"\s+and (?=the [\w-]+(?: [\w-]+)? (?:is|are|was|were|runs?|uses?|has|have|must|should|can|starts?|ends?|"
    r"costs?)\b)|"
    r"\s+and (?=(?:must|should|may|can|needs?|has)(?:n't| not| to)\b|(?:he|she|they) )|"
    r"\s+(?=(?:because|since|so that|although|though)\s)|\s+(?=instead of\s|rather than\s|without\s(?!\w+ing\b)|"
    r"other than\s|"
    r"except\s)",
    re.I,
)
_END: Final = re.compile(
    r"[,:](?!\d)|(?<!\bSt)(?<!\bDr)(?<!\bMr)(?<!\bMrs)\.(?!\d)|[;!?()\"“”–—⟨]|\s-\s|\s(?:because|since|when|while|if|"
    r"but|so|unless|until|although|though|instead|"
    r"either|please|"
    r"anymore|any more|only|any longer|at all|thanks|thank you|if possible|for now|for (?:it|this|that|them|me|us)|"
    r"from now on|as well|too|"
    r"though|and (?:i|i'm|we|it|it's|they|please|don't|do|make|use|keep|also|then|not|no|that|tell|show|give))\b",
    re.I,
)
_LEADING: Final = re.compile(
    r"^(?:(?:to|the|a|an|my|our|your|that|it|them|this|any|some|all|just|really|doing|having|too|ever|be|being|get|"
    r"getting|have|see|us|me|of|is|are|both|either|rather)\s+)+",
    re.I,
)
_LIST: Final = re.compile(
    r"^(?P<list>[^\s,;.!?]+(?: [^\s,;.!?]+){0,2}(?:, (?:and |or |nor )?[^\s,;.!?]+(?: [^\s,;.!?]+){0,2})*,? (?:or|"
    r"and|nor) "
    r"[^\s,;.!?]+(?: [^\s,;.!?]+){0,2})\s*(?:[.!?;]|$)",
    re.I,
)
_JOINT: Final = re.compile(
    r"^[\s,.;:!?()\"“”–—]*(?:(?:and|but|so|then|also|please|though|although|as well|too)\b[\s,]*)*", re.I
)
_PARTED: Final = re.compile(r",? (?:or|and|nor) |, ")
_LAST: Final = frozenset("a an the to of in on at for with and or my our your by as".split())


def clauses_of(text: str) -> Iterator[str]:
    """The clauses of a sentence, in order; each may state one thing of its own."""
    start = 0
    for gap in _CLAUSE.finditer(text):
        if piece := text[start : gap.start()].strip():
            yield piece
        start = gap.end()
    if rest := text[start:].strip():
        yield rest


def phrase_of(text: str) -> str:
    """The phrase at the beginning of a text, without articles in front; empty when there is none."""
    phrase = _LEADING.sub("", _END.split(text.strip(), maxsplit=1)[0].strip())
    words = phrase.split()[:_MOST_WORDS]
    while words and words[-1].lower() in _LAST:
        words.pop()
    return quoted(" ".join(words), PHRASE_LENGTH)


def taken_from(text: str) -> tuple[list[str], str]:
    """The things at the beginning of a text, as `phrases_of`, and what stands behind them."""
    things = phrases_of(text)
    listed = _LIST.match(text.strip()) if len(things) > 1 else None
    end = listed.end() if listed is not None else (found.start() if (found := _END.search(text)) else len(text))
    return things, _JOINT.sub("", text[end:])


def phrases_of(text: str) -> list[str]:
    """The things listed at the beginning of a text (`nuts, eggs or dairy`), else the one phrase there."""
    match = _LIST.match(text.strip())
    if match is not None:
        parts = [phrase_of(part) for part in _PARTED.split(match["list"])]
        if all(parts) and all(len(words_of(part)) <= 3 for part in parts):
            return parts
    one = phrase_of(text)
    return [one] if one else []


def quoted(text: str, limit: int) -> str:
    """On one line, and so many characters at most."""
    return cut(line(text), limit)
