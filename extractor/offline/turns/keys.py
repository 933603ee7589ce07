"""Names of signals: one of a few that always mean the same, else the word that a phrase is about."""

import re
from typing import Final

from extractor.offline.keywords import STOPWORDS
from extractor.offline.sentences import words_of
from schemas.turns.checks import KEY_LENGTH

BUDGET: Final = "budget"
LENGTH: Final = "length"
DURATION: Final = "duration"
PEOPLE: Final = "people"
LANGUAGE: Final = "language"
FORMAT: Final = "format"
TONE: Final = "tone"
DIET: Final = "diet"

HUMAN_LANGUAGES: Final = (
    "english|german|french|spanish|italian|portuguese|dutch|polish|russian|chinese|mandarin|japanese|korean|arabic|"
    "turkish|swedish|danish|norwegian|finnish|greek|czech|hungarian|ukrainian|hindi|hebrew|catalan|romanian"
)
FORMATS: Final = (
    r"bullet(?:ed)?(?: points?| lists?)?|bullets|numbered lists?|lists?|tables?|json|csv|tsv|xml|yaml|toml|html|"
    r"markdown|latex|pdfs?|"
    r"plain text|prose|paragraphs?|spreadsheets?|excel|slides?|word document|docx|code blocks?|diagrams?|charts?|"
    r"checklists?|emojis?|headings?|headers|footnotes"
)
TONES: Final = (
    "formal|informal|casual|friendly|professional|polite|humorous|funny|warm|neutral|academic|playful|serious|"
    "technical|non-technical|friendlier|warmer|enthusiastic|matter-of-fact|conversational|business-like"
)
SIZES: Final = "short|shorter|brief|briefer|concise|succinct|terse|long|longer|detailed|in detail|in depth|thorough"
DIETS: Final = (
    "vegetarian|vegan|pescatarian|gluten[- ]free|lactose[- ]free|dairy[- ]free|nut[- ]free|sugar[- ]free|halal|kosher|"
    "keto|low[- ]carb|meat|pork|beef|fish|seafood|shellfish|dairy|gluten|lactose|nuts|peanuts|alcohol"
)
_CLASSES: Final = (
    (LANGUAGE, re.compile(rf"^(?:in )?(?P<value>{HUMAN_LANGUAGES})(?: only)?$", re.I)),
    (
        FORMAT,
        re.compile(
            rf"^(?:(?:\w+ )?(?:as|in|into|using|with) )?(?:an? |the |any )?(?:plain |simple )?(?P<value>{FORMATS})$",
            re.I,
        ),
    ),
    (
        TONE,
        re.compile(
            rf"^(?:in )?(?:an? |the |your )?(?:very |more |less |too )?(?P<value>{TONES})(?: (?:tone|style|voice|way|"
            rf"language|wording))?$",
            re.I,
        ),
    ),
    (
        LENGTH,
        re.compile(
            rf"^(?:an? |the )?(?:very |more |too |rather |fairly )?(?P<value>{SIZES})(?: (?:answers?|repl(?:y|ies)|"
            rf"responses?|explanations?|summar(?:y|ies)|texts?|versions?|sentences|emails?|mails?))?$",
            re.I,
        ),
    ),
    (DIET, re.compile(rf"^(?:\w+ )?(?P<value>{DIETS})(?: (?:food|meals?|dishes|options?|restaurants?))?$", re.I)),
)
# What a phrase is about when one of these words is in it; the value is the whole phrase.
_FAMILIES: Final = (
    ("seat", re.compile(r"\b(?:window|aisle|middle) seats?\b|\bseats?\b", re.I)),
    ("price", re.compile(r"\b(?:cheap\w*|expensive|pricey|afford\w*|prices?|costs?)\b", re.I)),
    (
        "transport",
        re.compile(r"\b(?:trains?|bus(?:es)?|tram|taxi|ferry|car|bike|by plane|flying|fly|driv(?:e|ing))\b", re.I),
    ),
    ("deadline", re.compile(r"\bdeadlines?\b|\bdue (?:date|on|by)\b", re.I)),
    ("allergy", re.compile(r"\ballerg(?:y|ies|ic)\b", re.I)),
    ("database", re.compile(r"\b(?:postgres(?:ql)?|mysql|mariadb|sqlite|mongodb|oracle|redis|databases?)\b", re.I)),
    (
        "programming_language",
        re.compile(
            r"\b(?:python|rust|golang|typescript|javascript|kotlin|c\+\+|c#|scala|ruby|php|perl|haskell)(?![\w+#])|"
            r"\b(?i:java|programming languages?)\b",
            re.I,
        ),
    ),
)
_BEFORE_PREPOSITION = re.compile(
    r"\s+(?:with|in|of|for|from|on|at|to|that|which|who|by|near|about|than|as|when|where|while|per|over|between|"
    r"without|"
    r"into|under|around|after|before|during|like|is|are|(?:more|less|fewer|longer|shorter|cheaper|larger|smaller|bigger|"
    r"higher|lower|later|earlier) than)\b",
    re.I,
)
_NEAR: Final = re.compile(
    r"^(?:very )?(?:close|near|next|adjacent|within walking distance|in walking distance)(?: to| of)? ", re.I
)
_WORDS_WITHOUT_A_SUBJECT: Final = frozenset(
    "anything something nothing everything stuff way ways kind kinds lot lots bit use one ones other others".split()
)


def classed(phrase: str) -> tuple[str, str] | None:
    """Key and value of a phrase that says nothing but one thing with a name of its own: `in German`."""
    plain = phrase.strip().strip(".,;:!?")
    for key, rule in _CLASSES:
        match = rule.match(plain)
        if match is not None:
            return key, match["value"]
    return None


def key_of(phrase: str) -> str:
    """The name for what a phrase is about; empty where nothing in it carries a topic."""
    known = classed(phrase)
    if known is not None:
        return known[0]
    for key, rule in _FAMILIES:
        if rule.search(phrase):
            return key
    return head_of(phrase)


def head_of(phrase: str) -> str:
    """The noun that it turns on, in the singular and lower case; empty without one."""
    chunk = _BEFORE_PREPOSITION.split(f" {_NEAR.sub('', phrase)}", maxsplit=1)[0]
    for part in (chunk, phrase):
        words = [re.sub(r"['’]s$", "", word) for word in words_of(part)]
        carrying = [word for word in words if _carries(word.lower())]
        if carrying:
            return singular(carrying[-1])[:KEY_LENGTH]
    return ""


def _carries(word: str) -> bool:
    if word in ("way", "day", "days"):
        return True
    return word not in STOPWORDS and word not in _WORDS_WITHOUT_A_SUBJECT and not word.isdigit()


def first_of(phrase: str) -> str:
    """The first word in it that carries a topic, in the singular; empty without one."""
    return next((singular(word)[:KEY_LENGTH] for word in words_of(phrase) if _carries(word.lower())), "")


def singular(word: str) -> str:
    """`dishes` as `dish`, in lower case; a name and what is singular already stay."""
    plain = word.lower()
    if word[:1].isupper():
        return plain
    if len(plain) > 4 and plain.endswith("ies"):
        return plain[:-3] + "y"
    if len(plain) > 4 and plain.endswith(("ches", "shes", "sses", "xes")):
        return plain[:-2]
    if len(plain) > 3 and plain.endswith("s") and not plain.endswith(("ss", "us", "is")):
        return plain[:-1]
    return plain
