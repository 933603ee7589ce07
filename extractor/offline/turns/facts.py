"""What a sentence of the user tells of the user's world."""

import re
from collections.abc import Sequence
from typing import Any, Final

from extractor.offline.keywords import STOPWORDS
from extractor.offline.sentences import words_of
from extractor.offline.turns.amounts import amounts_in, number_of
from extractor.offline.turns.denied import DENIAL
from extractor.offline.turns.keys import PEOPLE, head_of, key_of, singular
from extractor.offline.turns.phrases import phrase_of, phrases_of
from extractor.offline.turns.signals import FACTS, Signals
from schemas.turns.checks import KEY_LENGTH
from schemas.turns.fingerprint import Signal

_LOW: Final = re.compile(
    r"\b(?:maybe|perhaps|might|possibly|probably|not (?:so |quite |entirely )?sure|i guess|i suppose|could be|unsure|"
    r"presumably|no idea|(?-i:may))\b",
    re.I,
)
_MEDIUM: Final = re.compile(
    r"\b(?:i think|i believe|usually|mostly|about|around|roughly|approximately|as far as i (?:know|remember)|should be|"
    r"normally|generally|it seems|apparently|more or less|almost|nearly|sometimes|often|kind of|sort of)\b",
    re.I,
)
_SUPPOSE: Final = re.compile(
    r"^(?:i (?:think|believe|guess|suppose)(?: that)?|as far as i (?:know|remember),?|it seems)\s+", re.I
)
_ADVERB: Final = r"(?:(?:currently|now|still|also|already|actually|usually|mostly|just|both|probably|maybe) )*"
_NUMBER: Final = r"\d+|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
_RULES: Final = tuple(
    (key, re.compile(pattern, re.I))
    for key, pattern in (
        (
            "allergy",
            r"\b(?:i|we|he|she|they|my (?P<of>[\w-]+))(?:'m|'re|'s| am| are| is) (?:\w+ )?allergic to (?P<rest>.+)$",
        ),
        ("allergy", r"\bi have (?:an? )?(?:\w+ )?(?P<rest>[\w-]+) allergy\b"),
        (
            "diet",
            r"\b(?:i|we|my (?P<of>[\w-]+))(?:'m|'re|'s| am| are| is) (?:\w+ )?(?:an? )?"
            r"(?P<rest>vegetarians?|vegans?|pescatarians?|gluten[- ]free|lactose intolerant|celiac|coeliac)\b",
        ),
        ("name", r"\bmy name(?:'s| is) (?P<rest>[A-Z]?.+)$"),
        ("location", rf"\b(?:i|we) {_ADVERB}live (?:in|at|near) (?P<rest>.+)$"),
        ("location", rf"\b(?:i'm|we're|i am|we are) {_ADVERB}(?:based|living) (?:in|at|near) (?P<rest>.+)$"),
        (
            "",
            r"\b(?:i|we) (?:run|host|deploy|keep|store|build|test|wrote|write) (?:it|them|everything|this|that|"
            r"our [\w-]+|the "
            r"[\w-]+) (?:on|in|with|using) (?P<rest>.+)$",
        ),
        ("age", r"\b(?:i'm|i am) (?P<rest>\d{1,3})(?: years old)?(?=[.,;!]|$| and\b)"),
        ("origin", rf"\b(?:i'm|i am|we're|we are) {_ADVERB}(?:originally )?from (?P<rest>.+)$"),
        ("occupation", rf"\bi {_ADVERB}work as (?P<rest>.+)$"),
        ("employer", rf"\bi {_ADVERB}work (?:at|for) (?P<rest>.+)$"),
        (
            "occupation",
            r"\b(?:i'm|i am) (?P<rest>(?:a|an) (?!bit\b|little\b|fan\b|big\b|huge\b|lot\b|"
            r"couple\b)[\w-]+(?: [\w-]+){0,3})",
        ),
    )
)
# `I have finished` tells what was done, not what somebody has.
_PERFECT: Final = (
    r"(?:(?:just|recently|always|often|\w+ly) )?(?:been|had|gone|done|seen|made|said|told|got|gotten|read|written|sent|"
    r"bought|found|lost|paid|met|heard|known|lived|begun|taken|given|come|tried|put|set|left|kept|thought|\w{3,}ed)"
)
_HAVE: Final = re.compile(
    rf"\b(?:i|we|my (?P<of>[\w-]+)) {_ADVERB}(?:have|has|own|owns|own|got|'ve got) (?P<rest>(?!to\b|{_PERFECT}\b).+)$",
    re.I,
)
_COUNT: Final = re.compile(rf"^(?P<number>{_NUMBER}) (?P<noun>[\w-]+(?: [\w-]+)?)", re.I)
_LACK: Final = re.compile(r"\b(?:i|we) (?:(?:do not|don't) have|have no|haven't got)(?: an?| any)? (?P<rest>.+)$", re.I)
_USE: Final = re.compile(
    rf"\b(?:i|we) {_ADVERB}(?:use|run|drive|speak|work with|run on|deploy (?:to|on)|study|teach|play) (?P<rest>.+)$",
    re.I,
)
_IS: Final = re.compile(
    r"^(?:and |but |also |so |maybe |perhaps |probably |well,? |by the way,? |just so you know,? |fyi:?,? )*(?:my|"
    r"our|the) "
    r"(?P<subject>[\w'’-]+(?: (?!(?:is|are|was|were|runs|uses|has|have)\b)[\w'’-]+){0,3}?)(?: (?:currently|now|still|"
    r"usually|probably))?"
    r" (?P<verb>is|are|was|were|runs? on|uses?|has|have|takes?|starts?|ends?|costs?|lives? in|works? (?:as|at|for|in))"
    r" (?P<rest>.+)$",
    re.I,
)
_NO_SUBJECT: Final = re.compile(
    r"^(?:question|problem|issue|point|idea|thing|reason|way|answer|request|preference|guess|fact|truth|favou?rite .*|"
    r"trouble|best .*|only .*|bad|mistake|understanding|feeling|impression|rest|same|other|last|first|next)$",
    re.I,
)
_NO_THING: Final = re.compile(
    r"^(?:(?:an?|the|some|any|no|another|one|this|two|many|few|several) )?(?:\w+ )?(?:questions?|problems?|issues?|"
    r"idea|ideas|feeling|look|doubts?|"
    r"trouble|time|clue|plans?|preference|thoughts?|concerns?|request|point|chance|moment|meeting|error|errors|bug|lot|"
    r"good|bad|nice|great|budget|limit)\b",
    re.I,
)
_MANY: Final = re.compile(r"\b(?:we(?:'re| are)|i(?:'m| am)|there are|family|group|team|party)\b", re.I)
_SPAN: Final = re.compile(
    rf"^(?:{_NUMBER}) (?:years?|months?|weeks?) of (?:\w+ )?(?P<of>experience|practice|training)\b", re.I
)
_PLACE_ENDS: Final = re.compile(r"\s(?:with|for|since|and|near|but)\s", re.I)
_WITH: Final = re.compile(rf"\bwith (?:my |our )?(?P<rest>(?:{_NUMBER}) .+)$", re.I)
_PRONOUN: Final = re.compile(r"^(?:it|that|this|them|these|those|you|what|how|why|not|no|to|fine|ok|okay)\b", re.I)
_WHEN_OR_WHERE: Final = re.compile(r"(?:on|in|at|by|from|for)\s+(?:the |a )?", re.I)
_JUDGEMENT: Final = re.compile(
    r"^(?:really |very |so |too |quite |pretty |just |also |more |less )*(?:important|key|crucial|fine|ok|okay|good|"
    r"great|nice|"
    r"bad|wrong|right|better|best|worse|perfect|enough|interesting|big|small|long|short|hard|easy|essential|up to)\b",
    re.I,
)
_MOST_SUBJECT: Final = 4
_DENIED: Final = re.compile(rf"{DENIAL.pattern}|\b(?:any ?more|used to|formerly|far from|anything but|all but)\b", re.I)
_PLAIN: Final = re.compile(r"^(?:(?!(?:more|less|fewer|over|under|enough|much|many|at|up)\b)[\w-]+)(?: [\w-]+)?$", re.I)


def read_facts(clauses: Sequence[str], signals: Signals) -> None:
    """Read what the clauses of a sentence state. What is said of nobody's own is left out."""
    for clause in clauses:
        severity = "low" if _LOW.search(clause) else "medium" if _MEDIUM.search(clause) else "high"
        said = _SUPPOSE.sub("", clause)
        for key, value, of in _facts(said):
            signals.add(FACTS, Signal(key, value, severity, "", of.lower()[:KEY_LENGTH]))


def _facts(text: str) -> list[tuple[str, Any, str]]:
    """Key, value and whom or what it is of. Of what is denied only that somebody has no such thing."""
    if lack := _LACK.search(text):
        return _lacking(lack["rest"])
    if _DENIED.search(text):
        return []
    persons = [amount for amount in amounts_in(text) if amount.key == PEOPLE and not amount.bound]
    if persons and _MANY.search(text):
        return [(PEOPLE, persons[0].value, ""), *_counted(text[persons[0].end :])]
    for key, rule in _RULES:
        match = rule.search(text)
        if match is not None:
            of = match.groupdict().get("of") or ""
            things = phrases_of(match["rest"]) if key == "allergy" else [phrase_of(match["rest"])]
            if key == "age":
                return [(key, number_of(match["rest"]), of)]
            if key in ("location", "origin"):
                things = [_PLACE_ENDS.split(thing, maxsplit=1)[0] for thing in things]
            return [(key or key_of(thing), thing, of) for thing in things if thing] + _counted(text)
    match = _HAVE.search(text)
    if match is not None:
        return _having(match["rest"], match["of"] or "")
    match = _USE.search(text)
    if match is not None:
        phrase = phrase_of(match["rest"])
        return [(key_of(phrase), phrase, "")] if phrase and not _PRONOUN.match(match["rest"]) else []
    match = _IS.match(text)
    return _being(match) if match is not None else []


def _lacking(rest: str) -> list[tuple[str, Any, str]]:
    """`no car`; nothing where only some of a thing is lacking, as in `no car in town`."""
    phrase = phrase_of(rest)
    plain = phrase and _PLAIN.match(phrase) and not _NO_THING.match(phrase)
    key = head_of(phrase) if plain else ""
    return [(key, False, "")] if key else []


def _counted(text: str) -> list[tuple[str, Any, str]]:
    """`with two kids`."""
    match = _WITH.search(text)
    return _having(match["rest"], "") if match is not None else []


def _having(rest: str, of: str) -> list[tuple[str, Any, str]]:
    found: list[tuple[str, Any, str]] = []
    rest = rest.rstrip(".! ")
    span = _SPAN.match(rest)
    if span is not None:
        return [(singular(span["of"].lower()), phrase_of(rest), of)]
    for part in re.split(
        r",? and (?=(?:an? |\d|one\b|two\b|three\b|four\b|my\b))|, (?=(?:an? |\d|one\b|two\b|three\b))", rest
    ):
        if _NO_THING.match(part) or _PRONOUN.match(part):
            continue
        count = _COUNT.match(part)
        phrase = phrase_of(part)
        if count is not None and (key := head_of(phrase_of(count["noun"]))):
            found.append((key, number_of(count["number"]), of))
        elif bounds := [amount for amount in amounts_in(part) if amount.bound]:
            found.append((bounds[0].key, bounds[0].value, of or bounds[0].applies_to))
        elif phrase:
            found.append((key_of(phrase), phrase, of))
    return found


def _being(match: re.Match[str]) -> list[tuple[str, Any, str]]:
    subject, phrase = match["subject"].lower().replace("’", "'"), phrase_of(match["rest"])
    if (
        _NO_SUBJECT.match(subject)
        or _JUDGEMENT.match(match["rest"])
        or not phrase
        or _PRONOUN.match(match["rest"])
        or len(words_of(subject)) > _MOST_SUBJECT
    ):
        return []
    words = [word for word in words_of(subject) if word not in STOPWORDS or word in ("name",)]
    if not words:
        return []
    *of, noun = [word.removesuffix("'s") for word in words]
    bounds = [amount for amount in amounts_in(match["rest"]) if amount.bound]
    value: Any = bounds[0].value if bounds else _whole(match)
    return [(singular(noun), value, " ".join(of))]


def _whole(match: re.Match[str]) -> str:
    """The rest of the statement, with the word that says when or where in front of it."""
    rest = match["rest"]
    lead = _WHEN_OR_WHERE.match(rest)
    return f"{lead[0]}{phrase_of(rest[lead.end() :])}" if lead is not None else phrase_of(rest)
