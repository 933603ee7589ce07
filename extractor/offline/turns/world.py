"""Sentences that sound like wishes and are none: rules of the world, complaints, lines of logs, questions to know."""

import re
from typing import Final

_MODAL: Final = r"(?:must|should|shall|ha(?:s|ve) to|needs?(?: to)?|ought to|can't|cannot|mustn't|shouldn't|may)"
# `In Germany you must drive on the right`, against `in your answers you must cite sources`.
_ELSEWHERE: Final = re.compile(
    r"^(?:and |but |also |because |since )*(?:in|at|under|by|according to|on|inside|within|throughout|as an?|with) "
    r"(?!(?:your|this|that|these|the (?:answers?|repl(?:y|ies)|texts?|reports?|emails?|documents?|summar(?:y|ies)|"
    r"tables?|code|list|future|end|first|last|next)|all (?:your )?|every|each|future|case|order|addition|"
    r"any case)\b)"
    rf"[^,]{{1,60}}?,? (?:you|one|we|they|people|everyone|everybody|drivers|students) {_MODAL}\b",
    re.I,
)
_AT_PLACE: Final = re.compile(
    rf"^(?:you|one|we|they|people|everyone|everybody) {_MODAL}\b.*\b(?:at my (?:school|work|job|company|office|gym|"
    r"university|college)|by law|in (?:germany|france|england|japan|china|india|italy|spain|the (?:uk|us|usa|eu)|my "
    r"country|our country|court|prison))\b",
    re.I,
)
_MANY: Final = re.compile(
    r"^(?!(?:my|our|your|the|these|those|all|both|its|each|every|and|but|answers|replies|responses|texts|sentences|paragraphs|summaries|emails|mails|tables|headings|titles|slides|"
    r"lists|comments|names|messages|pages|results|reports|meals|dishes|rooms|this|always|please|it's|that's|its|his|as|"
    rf"us|yes)\b)(?:[\w-]+ )?[\w-]*(?:[a-rt-z]s|people|children|men|women|everyone|everybody|nobody) {_MODAL}\b",
    re.I,
)
_LEAD_IN: Final = re.compile(
    r"^(?:(?:and|but|also|please|so|then|plus|because|since|ok|okay|yes|no|well|actually|remember|note|besides|"
    r"therefore|however|from now on|always|for [\w -]+|when [^,]+|if [^,]+|in (?:your|this|the|all|every|each) "
    r"[\w -]+|above all|again|finally|first|most importantly|importantly|ideally|preferably|if possible)\b[,:]? ?)*$",
    re.I,
)
# Said of what the agent did before, not of what it is to do.
_COMPLAINS: Final = re.compile(
    r"\b(?<!can )(?<!could )(?<!would )(?<!will )(?<!must )(?<!should )(?<!may )(?<!sure )(?<!sure that )(?<!ensure )"
    r"(?<!ensure that )(?<!if )(?<!when )(?<!whenever )(?<!do )(?<!did )(?<!unless )(?<!prefer )(?<!prefer that )"
    r"(?<!time )(?<!until )(?<!before )(?<!after )(?<!important that )(?<!suggest )(?<!demand )(?<!insist )(?<!have )"
    r"you(?:'ve| have|'re| are)?(?: (?:always|keep|kept|still|again|just|never|often|only|also|even|constantly))? "
    r"(?:us(?:e|es|ed|ing)|g[ai]ve|giving|wr[io]te|written|writing|answer(?:ed|ing)?|repl(?:y|ied|ying)|put|putting|"
    r"add(?:ed|ing)?|includ(?:e|ed|ing)|made|make|making|sen[dt]|sending|return(?:ed|ing)?|respond(?:ed|ing)?|"
    r"show(?:ed|ing)?|avoid(?:ed|ing)?|format(?:ted|ting)?|start(?:ed|ing)?|wrap(?:ped|ping)?)\b",
    re.I,
)
_LOG: Final = re.compile(
    r"^\W*(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S*\s|\d\d:\d\d:\d\d\S*\s|(?:\S+ )?"
    r"(?:ERROR|WARN|WARNING|FATAL|INFO|DEBUG|TRACE|CRITICAL|SEVERE|NOTICE|PANIC|FAILED|Traceback|"
    r"Exception|\w+Error|\w+Exception)\b(?=\W*\s))"
)
_TO_KNOW: Final = re.compile(
    r"^(?:(?:and|but|so|also|well|ok|okay|by the way|just wondering),? )*(?:(?:is|was|are|were) "
    r"(?:it|this|that|they|these) |"
    r"do (?:i|we|they|people|students|you (?:think|believe|know|agree|feel|say|always|ever|usually|really))\b|"
    r"(?:does|did|has|had|am|was|were)\b|have (?:you|i|we|they)\b|should(?:n't)? (?:i|we|you|one|they|he|she|it)\b|"
    r"must(?:n't)? (?:i|we|you|one|they|he|she|it)\b|can (?:i|one|they)\b|why\b|how (?:come|is|are|does|do|did|many|"
    r"much|long|often|far|old)\b|since when\b|who\b|whose\b|(?:don't|doesn't|didn't|isn't|aren't|wasn't|won't|can't|"
    r"shouldn't|wouldn't|couldn't) )",
    re.I,
)


_SAY: Final = re.compile(
    r"^(?:[\w-]+ ){0,2}[\w-]*(?:s|people|some|many|most) (?:say|think|believe|recommend|claim|suggest|agree|advise)\b",
    re.I,
)


def is_log(text: str) -> bool:
    """It is a line that a program wrote."""
    return _LOG.match(text) is not None


def asks_to_know(text: str) -> bool:
    """It asks whether, why or how something is, which wants nothing but an answer."""
    return text.rstrip(" )\"'").endswith("?") and _TO_KNOW.match(text) is not None


def is_general(text: str) -> bool:
    """It tells what somebody else must do, or everybody in some place."""
    return any(rule.match(text) for rule in (_ELSEWHERE, _AT_PLACE, _MANY, _SAY))


def complains(clause: str) -> bool:
    """It tells the agent what that did."""
    return _COMPLAINS.search(clause) is not None


def is_lead_in(text: str) -> bool:
    """Nothing but words that lead to the subject of a sentence."""
    return _LEAD_IN.match(text.strip() + " " if text.strip() else "") is not None
