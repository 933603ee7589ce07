"""Where a user refers back to what was said or made before: a search for that turn."""

import re
from collections.abc import Sequence
from typing import Final

from extractor.offline.keywords import content_words
from extractor.offline.turns.phrases import quoted
from extractor.offline.turns.reading import ENGLISH, Said
from schemas.turns.checks import QUERY_LENGTH
from schemas.turns.fingerprint import MOST_QUERIES, Query

_MADE: Final = (
    r"drafts?|reports?|tables?|files?|code|scripts?|lists?|plans?|documents?|summar(?:y|ies)|emails?|letters?|"
    r"versions?|"
    r"itinerar(?:y|ies)|slides?|presentations?|spreadsheets?|charts?|queries|query|designs?|images?|texts?|stor(?:y|"
    r"ies)|"
    r"recipes?|schedules?|budgets?|functions?"
)
_EARLIER: Final = r"(?:earlier|previous|last|first|original|old|older|prior|former)"
_RULES: Final = (
    (
        "assistant_artifact",
        re.compile(
            rf"\b(?:the|that|your|this) (?:{_EARLIER} )(?:[\w-]+ )?(?:{_MADE})\b|"
            rf"\b(?:the|that) (?:[\w-]+ ){{0,2}}(?:{_MADE}) (?:that )?(?:you|we) (?:just |already |"
            rf"previously )?(?:made|wrote|created|gave|sent|"
            r"drafted|generated|prepared|built|produced|showed|shared|did)\b|"
            rf"\b(?:the|that|your) (?:[\w-]+ ){{0,2}}(?:{_MADE}) from (?:before|earlier|yesterday|last (?:time|week|"
            rf"month)|the (?:beginning|start))\b",
            re.I,
        ),
    ),
    (
        "assistant",
        re.compile(
            r"\b(?:(?:as|like|what|which|that|the [\w-]+(?: [\w-]+)?) you (?:just |already |previously |first |"
            r"had )?(?:said|suggested|recommended|mentioned|proposed|"
            r"told me|explained|offered|listed|described)|your (?:earlier|previous|last|first|original) (?:answer|"
            r"suggestion|"
            r"recommendation|proposal|advice|reply|idea|option)|you (?:said|suggested|recommended|mentioned|proposed|"
            r"told me)"
            r"(?: [\w-]+){0,6} (?:before|earlier|last time|yesterday)|(?:did|had) you (?:suggest|recommend|propose|"
            r"mention)(?:ed|d)?)\b",
            re.I,
        ),
    ),
    (
        "user",
        re.compile(
            r"\b(?:(?:as|like|what|that) (?:i|we) (?:just |already |previously )?(?:said|discussed|agreed|mentioned|"
            r"talked about|"
            r"decided|told you|asked|planned|settled on)|i (?:already )?(?:told you|mentioned|"
            r"said)(?: [\w-]+){0,6} (?:before|earlier|last time|yesterday)|"
            r"remember (?:when|what|that|how) (?:i|we)|as (?:discussed|agreed|mentioned|before|planned)(?! by)|"
            r"like last time|"
            r"same as (?:before|last time)|back to (?:what|the|our)|the (?:thing|topic|question|issue|"
            r"problem) (?:from|we had) "
            r"(?:before|earlier|yesterday|last (?:time|week)))\b",
            re.I,
        ),
    ),
)
_NO_TOPICS: Final = frozenset(
    """
    earlier previous last first original draft use put send show said discussed agreed mentioned talked decided told
    asked planned suggested recommended proposed explained offered listed described remember already previously
    yesterday version change add make wrote created gave before
    """.split()
)


def queries_of(said: Sequence[Said]) -> list[Query]:
    """Searches for what the user refers back to, at most MOST_QUERIES; none where nothing says for what to look."""
    found: list[Query] = []
    for one in said:
        if one.language != ENGLISH or not one.meant:
            continue
        for where, rule in _RULES:
            match = rule.search(one.text)
            if match is None:
                continue
            query = _key_phrases(one.text, match)
            if query and all(query != other.query for other in found):
                found.append(Query(where, query, quoted(match[0], QUERY_LENGTH)))
            break
    return found[:MOST_QUERIES]


def _key_phrases(text: str, match: re.Match[str]) -> str:
    """The words of content of a sentence; what was made is among them, that it was made before is not."""
    words = [word for word in content_words(text) if word not in _NO_TOPICS]
    made = re.search(rf"\b(?:{_MADE})\b", match[0], re.I)
    if made is not None and made[0].lower() not in words:
        words.append(made[0].lower())
    return quoted(" ".join(dict.fromkeys(words)), QUERY_LENGTH)
