"""What the assistant promoted: sentences of it that match what the caller says counts."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from extractor.offline.cues import is_question
from extractor.offline.keywords import STOPWORDS, content_words, stem
from extractor.offline.names import names_in
from extractor.offline.sentences import sentences_of, words_of
from extractor.offline.turns.keys import singular
from extractor.offline.turns.phrases import phrase_of, quoted
from runekeep.v1 import common_pb2
from schemas.turns.checks import KEY_LENGTH
from schemas.turns.fingerprint import MOST_SIGNALS, Signal, normal_key

_VALUE_LENGTH: Final = 120
_STRONG: Final = re.compile(
    r"\b(?:(?:highly|strongly|warmly|wholeheartedly|absolutely|definitely) recommend|must[- ]have|must[- ]see|"
    r"can't go wrong|"
    r"cannot go wrong|by far the|(?:clearly|simply|easily|definitely) the best|the best (?:choice|option|pick|deal|"
    r"value|"
    r"[\w-]+ (?:on the market|out there|available|for you))|(?:top|number one|no\. ?1) (?:choice|pick|recommendation)|"
    r"don't miss|unbeatable|perfect (?:choice|fit|match|for you)|you (?:should|have to|must) (?:absolutely|"
    r"definitely|really)|"
    r"unmatched|second to none|no better)\b",
    re.I,
)
_RECOMMEND: Final = re.compile(
    r"\b(?:recommend(?:ed|s|ation)?|suggest(?:ed|s|ion)?|advise|i'd (?:go|pick|choose|take|start|opt)|i would (?:go|"
    r"pick|choose|take|"
    r"start|opt)|go (?:with|for)|my (?:pick|choice|favou?rite)|(?:good|great|excellent|ideal|solid|better|best|"
    r"popular|right) (?:choice|option|"
    r"pick|fit|value|alternative|match)|ideal for|perfect for|great for|worth (?:it|a look|considering|trying|buying|"
    r"the)|"
    r"consider(?:ed|ing)?|try (?:the|our|out)|opt for|you should (?:get|buy|try|book|choose|take|upgrade|use)|"
    r"upgrad(?:e|"
    r"ing) to|best suited|well suited)\b",
    re.I,
)
# Praise with a denial in it.
_IDIOM: Final = re.compile(
    r"\b(?:can(?:no|')t go wrong|can not go wrong|don't miss|do not miss|no better|second to none|no\. ?1|why not|"
    r"not only|nothing (?:beats|better)|no doubt|without (?:a )?doubt|not to be missed|no hidden|never fails?)\b",
    re.I,
)
_AGAINST: Final = re.compile(
    r"\b(?:not|never|neither|nor|no(?!\. ?\d)|none|nothing|cannot|without|hardly|avoid(?:s|ed|ing)?|against|stay away|"
    r"unfortunately|sadly|better (?:[\w-]+ )?than|think twice|too (?!good)[\w-]+|overkill|unnecessary|"
    r"overpriced|unavailable|sold out|worse|worst|skip|"
    r"instead of|rather than|wrong|poor|bad|gone|discontinued)\b|n't\b",
    re.I,
)
# Somebody else's words or question, or what was said before.
_TOLD: Final = re.compile(
    r"\b(?:whether|you (?:asked|said|mentioned|told|wanted|want|wondered|chose|have chosen|were|had|considered|"
    r"already have|rejected|dislike)|your (?:question|message)|(?:he|she|they|people|customers|reviewers|some) "
    r"(?:say|says|said|claims?|recommend(?:s|ed)?|think|thinks)|if i (?:recommended|suggested))\b",
    re.I,
)
# What is said for it stands behind this, whatever speaks against another one in front.
_SO: Final = re.compile(
    r",? (?:so|but|therefore|hence|instead)(?:,)? (?=(?:i|we)(?:'d| would| can| strongly| highly)* "
    r"(?:recommend|suggest|advise|go|pick|choose|take)\b)",
    re.I,
)
_OBJECT: Final = re.compile(
    r"\b(?:recommend(?:ing)?|suggest(?:ing)?|go (?:with|for)|opt for|pick|choose|consider(?:ed|ing)?|try(?: out)?|"
    r"upgrad(?:e|"
    r"ing) to|take|get|buy|book|"
    r"my (?:pick|choice|favou?rite) (?:is|would be))\s+(?:getting |buying |booking |trying |using |you (?:try|get|"
    r"take|book|choose|use) )?"
    r"(?P<rest>(?!you\b|that\b|it\b|to\b|this\b|going\b|starting\b|checking\b|making\b|visiting\b|with\b|for\b).+)$",
    re.I,
)
_SUBJECT: Final = re.compile(
    r"^(?:(?:so|then|overall|in short|if you [^,]+),? )?(?P<rest>(?:the |our |"
    r"a )?[\w'’&.-]+(?: [\w'’&.-]+){0,5}?) (?:is|are|would be|offers?|has|have|comes?|"
    r"gives?|makes?|provides?)\b",
    re.I,
)
_POINTING: Final = re.compile(r"^(?:it|this|that|there|here|they|these|those|you|i|we|what|which|he|she|one)\b", re.I)
# Any offer fits an entry that names one of these.
_ANY: Final = frozenset(
    "product products option options item items offer offers brand brands vendor vendors tool tools service services "
    "solution solutions alternative alternatives thing things anything".split()
)
# Words of specs that name nothing to look for.
_NO_TERMS: Final = frozenset(
    """
    assistant record track note log extract capture recommend recommends recommended recommending recommendation
    recommendations promote promotes promoted promoting promotion promotions mention mentions mentioned suggest suggests
    suggested suggestion suggestions claim claims signal signals key keys value named name names whenever every specific
    particular user answer answers count counts emit including severity strong strongly advertise push pushes
    encourage encouraged such upsell whatever concrete model models kind kinds type types
    """.split()
)
_ENTRY: Final = re.compile(r"[\n;.]+")
_KEYED: Final = re.compile(
    r"^\s*(?:[-*•]\s*)?[`'\"]?(?P<key>[A-Za-z][\w .-]{0,30}?)[`'\"]?\s*(?::|=|->|→)\s*(?P<rest>.+)$"
)
_ALTERNATIVE: Final = re.compile(r",| or | and |/")
# Behind it stands where, whose or when, not what.
_BEHIND: Final = re.compile(r"\s(?:of|in|from|by|that|which|who|for|with|on|at|to|we|our|whenever|when|if)\s", re.I)
# Said of the signals, not of what to look for.
_ABOUT_SIGNALS: Final = frozenset({"key", "keys", "value", "values", "severity", "note", "format"})


@dataclass(frozen=True, slots=True)
class Wanted:
    """One entry of a spec."""

    key: str
    """Empty: what was matched names the signal."""
    ways: tuple[tuple[str, ...], ...]
    """Stems; a sentence that holds all of one of these matches."""
    any_offer: bool
    """So does one that recommends something with a name."""


def wanted(spec: str) -> list[Wanted]:
    """The entries of a spec: its lines, or its sentences. Those that name nothing to look for are left out.

    An entry may begin with its key (`upgrade: the premium plan or the enterprise plan`), and `key=` names that of the
    entry before it.
    """
    found: list[Wanted] = []
    for piece in _ENTRY.split(spec):
        keyed = _KEYED.match(piece)
        if keyed is not None and keyed["key"].lower() in _ABOUT_SIGNALS:
            if found and keyed["key"].lower() == "key":
                found[-1] = replace(found[-1], key=normal_key(keyed["rest"])[:KEY_LENGTH])
            continue
        key = normal_key(keyed["key"])[:KEY_LENGTH] if keyed is not None else ""
        text = keyed["rest"] if keyed is not None else piece
        alternatives = [*([keyed["key"]] if keyed is not None else ()), *_ALTERNATIVE.split(text)]
        words = [word for one in alternatives for word in content_words(one)]
        terms = (_terms(_BEHIND.split(one, maxsplit=1)[0]) or _terms(one) for one in alternatives)
        ways = tuple(dict.fromkeys(way for way in terms if way))
        generic = next((singular(word) for word in words if word in _ANY), "")
        if ways or generic:
            found.append(Wanted(key or (generic if not ways else ""), ways, bool(generic)))
    return found


def _terms(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(stem(word) for word in content_words(text) if _looks_for(word)))


def _looks_for(word: str) -> bool:
    return word not in _NO_TERMS and word not in _ANY


def promotions_of(messages: Sequence[common_pb2.Message], spec: str) -> list[Signal]:
    """Signals from what the assistant said, in order; none without a spec, and none that does not match it."""
    entries = wanted(spec)
    if not entries:
        return []
    sentences, _ = sentences_of([(one, None) for one in messages if one.role == common_pb2.ROLE_ASSISTANT])
    found: dict[tuple[str, str], Signal] = {}
    for sentence in sentences:
        text = _SO.split(sentence.text.replace("’", "'"))[-1]
        if _AGAINST.search(_IDIOM.sub(" ", text)) or _TOLD.search(text):
            continue
        for signal in _signals(text, entries):
            there = found.get((signal.key, str(signal.value).lower()))
            if there is None or _RANKS[signal.severity] > _RANKS[there.severity]:
                found[signal.key, str(signal.value).lower()] = signal
    return list(found.values())[:MOST_SIGNALS]


_RANKS: Final = {"mention": 0, "recommend": 1, "strong_promote": 2}


def _signals(text: str, entries: Sequence[Wanted]) -> Iterator[Signal]:
    severity = "strong_promote" if _STRONG.search(text) else "recommend" if _RECOMMEND.search(text) else "mention"
    if is_question(text) and severity == "strong_promote":
        severity = "recommend"
    said = {stem(word): word for word in content_words(text)}
    for entry in entries:
        way = next((way for way in entry.ways if all(stemmed in said for stemmed in way)), None)
        if way is not None:
            value = _promoted(text) or _around(text, said[way[0]])
            yield Signal(entry.key or singular(said[way[-1]])[:KEY_LENGTH], value, severity)
        elif entry.any_offer and severity != "mention" and (value := _promoted(text)) and _is_named(value):
            yield Signal(entry.key or "product", value, severity)


def _is_named(value: str) -> bool:
    """Whether it has a name: a capital, wherever it stands."""
    return bool(names_in(f"x {value}", (), frozenset()))


def _promoted(text: str) -> str:
    """What is recommended, in the assistant's words; empty where no such thing is named."""
    match = _OBJECT.search(text)
    if match is None:
        match = _SUBJECT.match(text) if _RECOMMEND.search(text) or _STRONG.search(text) else None
    if match is None or _POINTING.match(match["rest"]):
        return ""
    phrase = re.split(r"\s(?:for|as|if|since|because|which|that|when)\s", phrase_of(match["rest"]), maxsplit=1)[0]
    return quoted(phrase, _VALUE_LENGTH) if content_words(phrase) else ""


def _around(text: str, word: str) -> str:
    """The matched word with the words beside it that belong to its name."""
    words = words_of(text)
    plain = [one.lower().replace("’", "'").removesuffix("'s") for one in words]
    place = plain.index(word)
    start, end = place, place + 1
    while start > 0 and place - start < 3 and plain[start - 1] not in STOPWORDS and words[start - 1][0].isupper():
        start -= 1
    if start == place and start > 0 and plain[start - 1] not in STOPWORDS:
        start -= 1
    while end < len(words) and end - place < 3 and words[end][0].isupper() and plain[end] not in STOPWORDS:
        end += 1
    return quoted(" ".join(words[start:end]), _VALUE_LENGTH)
