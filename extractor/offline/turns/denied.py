"""Amounts that stand beside a denial: a bound is turned round where that is plainly meant, else left out."""

import re
from typing import Final

# Whatever denies, forbids or doubts. Before an amount or said of it, it makes unclear which bound is meant.
DENIAL: Final = re.compile(
    r"\b(?:not|never|no|nor|neither|nothing|nobody|none|cannot|without|avoid(?:s|ed|ing)?|hate|dislike|refuse[sd]?|"
    r"unwilling|reluctant|hesitate|hardly|barely|rarely|seldom|stop|refrain(?:ing)?|forbid(?:s|den)?|prohibit(?:s|ed)?|"
    r"exclud(?:e|es|ed|ing)|except|skip|reject(?:s|ed)?|rule[sd]? out|instead of|rather than|no longer|impossible|"
    r"unacceptable)\b|n't\b",
    re.I,
)
_ABOVE: Final = re.compile(
    r"(?:more|longer|later|bigger|larger|higher|greater) than|over|above|upwards of|exceed(?:s|ing)?\b", re.I
)
_BELOW: Final = re.compile(r"(?:less|fewer|shorter|lower|smaller|cheaper) than|under|below", re.I)
_DEED: Final = (
    r"(?:be|cost|spend|pay|go|use|take|write|have|contain|include|exceed|last|charge|run|need|give me|make it|book|"
    r"buy|spending|paying|going|using|taking|writing|having|costing)"
)
# What runs from its denial up to the bound, and forbids to pass it.
_FORBIDS: Final = re.compile(
    r"(?:"
    r"^(?:(?:and|but|so|also|please|then|just|ok|okay|really|actually),? )*"
    rf"(?:(?:do not|don't|dont|never)(?: ever)?(?: {_DEED})?|nothing(?: that(?:'s| is)| costing)?|avoid(?: anything|"
    r" everything| going| spending| paying| using| writing)?|not|refrain from (?:spending|paying|using|writing|going))|"
    r"^[^,;:]*?\b(?<!not )(?:must|should|shall|may)(?: not|n't| never)(?: ever)?"
    rf"(?: {_DEED})?|"
    rf"^[^,;:]*?\b(?:i|we|it|they|the [\w-]+) (?:can't|cannot|can not) (?:be|cost|spend|pay|afford|exceed|last|take)|"
    r"^[^,;:]*?\b(?:i|we) (?:do not|don't|never) (?:want|wish|plan|intend)(?: you)?(?: to (?:spend|pay|go|use|"
    r"have|take|write|give))?|"
    r"^[^,;:]*?\b(?:i|we) (?:will not|won't) (?:spend|pay)|"
    r"^(?:[\w-]+ ){0,3}(?:is|are) not to (?:be|cost|exceed|have)"
    r")$",
    re.I,
)
_INTENDS: Final = r"(?: (?:simply|just|absolutely|totally|strictly|completely|clearly|really|all))?"
# Said of what lies beyond a bound.
_FORBIDDEN: Final = re.compile(
    rf"^ (?:is|are|would be|will be|isn't|aren't|is not|are not|won't|will not|wouldn't|would not|doesn't|do not|don't|"
    rf"does not){_INTENDS} (?P<said>[\w' -]+)",
    re.I,
)
_BAD: Final = re.compile(
    r"^(?:unacceptable|a no-go|no-gos?|not (?:ok|okay|acceptable|allowed|fine|an option)|forbidden|prohibited|"
    r"off limits|out of the question|a deal ?breaker|too (?:much|many|long|expensive|few|little|short|cheap))\b",
    re.I,
)
_GOOD: Final = re.compile(
    r"^(?:ok|okay|acceptable|allowed|fine|an option)\b|^(?:work|be (?:ok|okay|acceptable|allowed|fine|an option))\b",
    re.I,
)
_WELCOME: Final = re.compile(
    r"^ (?:is|are|would be|will be)(?: \w+)? (?:nice|great|good|lovely|ideal|perfect|best|better|preferred|preferable|"
    r"a must|required|needed|necessary|mandatory|essential|important|my|our|what|fine|ok|okay|acceptable|alright|"
    r"all right|welcome|allowed|enough)\b|^ (?:would|will) (?:also )?(?:work|do|be enough|suffice)\b",
    re.I,
)
_SIDE: Final = re.compile(
    r"^,? ?(?:(?:or|and) (?:less|fewer|under|below|more|up|above)|max(?:imum)?|min(?:imum)?|tops|at (?:the )?most|"
    r"at least)\b",
    re.I,
)
_RELATIVE: Final = re.compile(r",|\s(?:that|which|who|where|with|without)\b", re.I)
_SUBJECT: Final = 2
"""Words before an amount, at most, where the two may be what the clause speaks of."""
_DENIED_BEHIND: Final = re.compile(
    r"^ (?:is|are|was|were|will|would|can|could|does|do)(?:n't| not| never| im\w+)\b", re.I
)
_PREDICATE: Final = re.compile(
    r"^ (?:is|are|was|were|will|would|can|could|may|might|does|do|did|has|have|had|seems?|sounds?|feels?|gets?|"
    r"makes?)(?:n't)?\b",
    re.I,
)


def reading(text: str, start: int, end: int, *, bound: bool) -> str:
    """What a clause makes of the amount that stands there: `as said`, `turned` (the bound is the other one), or ``:
    nothing of it is certain."""
    front, said, behind = text[:start].rstrip(), text[start:end], _SIDE.sub("", text[end:])
    if len(front.split()) > _SUBJECT:
        # It is no subject, so that what follows a relative is said of something else.
        behind = _RELATIVE.split(behind, maxsplit=1)[0]
    plain = _ABOVE.match(said) or _BELOW.match(said)
    verdict = _verdict(behind)
    if DENIAL.search(front) is None:
        if verdict == "bad":
            return "turned" if plain is not None else ""
        if verdict == "good" or (not bound and _DENIED_BEHIND.match(behind) is None):
            return "as said"
        return "" if _PREDICATE.match(behind) is not None or DENIAL.search(behind) is not None else "as said"
    if verdict == "bad" or plain is None or _PREDICATE.match(behind) is not None:
        return ""
    match = _FORBIDS.search(front)
    # Of two denials nobody knows which one takes back the other.
    return "turned" if match is not None and len(DENIAL.findall(front)) == 1 else ""


def _verdict(behind: str) -> str:
    """What a clause says of the amount: `good`, `bad`, or nothing of the kind."""
    match = _FORBIDDEN.match(behind)
    if match is not None:
        denied = DENIAL.search(match[0][: match.start("said")]) is not None
        good, bad = _GOOD.match(match["said"]) is not None, _BAD.match(match["said"]) is not None
        if (good and denied) or (bad and not denied):
            return "bad"
        if denied:
            return ""
    return "good" if _WELCOME.match(behind) is not None else ""
