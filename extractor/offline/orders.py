"""Orders and wishes: those for the task at hand are no memory, those that hold from now on are."""

import re
from typing import Final

from extractor.offline.cues import FIRST_PERSON, SECOND_PERSON
from extractor.offline.sentences import words_of

_STANDING = re.compile(
    r"\b(?:always|never|ever|from (?:now|here|today) on|in (?:the )?future|whenever|every ?time|each time|by default|"
    r"going forward|"
    r"as a rule|in general|generally|any ?time|every(?:where)?|unless i|for all|from here|when (?:you|i)|"
    r"if you (?:send|write|give|answer|reply|draft|show|suggest|use|make|generate|summari[sz]e|propose|need to)|"
    r"for (?:\w+ ){0,2}(?:plots|charts|"
    r"code|mails|emails|dates|numbers|replies|answers|commits|tests|names)|until further notice|at all times|"
    r"no matter|if i (?:ask|say|write|send))\b",
    re.I,
)
# What an assistant brings forth again and again: an order about it is a standing wish, unless it points at one thing.
_OUTPUT: Final = (
    r"(?:replies|answers|responses|feedback|messages|mails|emails|names|explanations|summaries|sentences|comments|"
    r"emojis?|code samples|snippets|reports|apologi[sz]\w*|jargon|bullet points|small talk|"
    r"(?:british|american|plain|simple) english|metric|english|german|french|spanish|dutch|italian|first name)"
)
_ABOUT_OUTPUT = re.compile(rf"\b{_OUTPUT}\b", re.I)
_AT_HAND = re.compile(
    r"\b(?:this (?:answer|reply|time|one|once|file|paragraph|mail|email|text|sentence|list|table|function|code|"
    r"message|draft|line|summary)|the (?:last|first|second|third|next|other|"
    r"following|above|attached|same) |for now|just now|in a hurry|today|here\b|these|below|"
    r"now (?:sort|write|add|make|do|show|translate|summari[sz]e)|once more|again)",
    re.I,
)
_WISH = re.compile(
    r"\b(?:i (?:always |only )?(?:want|need|expect|insist)|i(?:'d| would) (?:like|rather|prefer)|"
    r"please|tell me|call me)\b",
    re.I,
)
_CALL_ME = re.compile(r"\b(?i:call me) (?!back\b|later\b|when\b)[A-Z]")
_TO_YOU = re.compile(
    r"\b(?:when(?:ever)?|if|every ?time|each time|any ?time|anything) you\b|"
    r"\byou (?:should|must|need|have to|ought|can|may)\b",
    re.I,
)
_FOR_ME = re.compile(r"\bfor me\b", re.I)
_FEW: Final = 6
_VERBS: Final = (
    "make|rewrite|write|use|add|remove|draft|explain|sort|list|show|give|tell|send|check|find|put|change|move|set|"
    "create|fix|"
    "replace|rename|convert|turn|book|order|call|remind|summari[sz]e|translate|keep|shorten|delete|schedule|compare|"
    "search|look|"
    "open|run|try|let|take|start|stop|leave|go|read|help|update|generate|format|cut|draw|plan|suggest|calculate|"
    "count|describe|"
    "do|don't|do not|answer|avoid|ignore|include|mention|skip|drop|pick|choose|prepare|cancel|reply|print|test|"
    "refactor|"
    "review|analy[sz]e|think|be|say|ask|bring|get|have|save|wait|continue|double-check|insert|design|build|implement|"
    "mark|merge|"
    "sum|walk|think|assume|round|group|filter|plot|rank|capitali[sz]e|align|center|pull|push|deploy|install|attach|"
    "forward|post|spell|limit|stick|respond|speak|switch|see|note|remember|wish"
)
_ORDER_START = re.compile(
    rf"^(?:(?:please|ok|okay|then|now|so|also|and|just|first|next|kindly|again|"
    rf"great)[,:]? )*(?:{_VERBS})\b(?!['’])",
    re.I,
)
_REQUEST = re.compile(
    r"^(?:\w+,? )?(?:(?:can|could|would|will) you|i need (?:you|a|an|some|the|help|to know|this|it|your)|"
    r"i want (?:you|this|it|that|a|an|the|some|all)\b|"
    r"i(?:'d| would) like (?:you|a|an|the|some|to (?:know|see|ask|have))|let's|let us|help me|please|we need (?:a|an|"
    r"the)|i'm looking for)\b",
    re.I,
)
# A picture or a link is held out; what it shows is not said.
_HELD_OUT = re.compile(
    r"\b(?:here(?:'s| is| are| ya go| you go)|check (?:out )?(?:this|these|it)|take a look|look at (?:this|these|"
    r"that)|have a look)\b|"
    r"\b(?:this|that|(?:in|of|from) the) (?:pic|pics|photo|photos|picture|pictures|snap|video|clip|image)\b",
    re.I,
)
_JUST_SHOWN = re.compile(
    r"\b(?:like|love|loved|liked|prefer|adore|hate|dislike|enjoy|enjoyed|go with|go for|take)(?: more| better)? "
    r"(?:it|that|this|these|those|them|your|how|what|the (?:\w+ )?(?:one|ones|version|option|draft|idea|title|line|"
    r"layout|wording|"
    r"way you|suggestion|variant|first|second|third|last|latter|former|phrasing|tone|sound of (?:it|that))|both|"
    r"either|all of (?:them|it))\b(?! when| hot| cold)",
    re.I,
)


def is_standing(text: str) -> bool:
    """An order or wish that holds beyond the task at hand."""
    if _AT_HAND.search(text) and not re.search(r"\b(?:from (?:here|now|today) on|always|never)\b", text, re.I):
        return False
    orders = _ORDER_START.match(text) is not None
    if (orders and _ABOUT_OUTPUT.search(text)) or _CALL_ME.search(text):
        return True
    return _STANDING.search(text) is not None and (
        orders or _WISH.search(text) is not None or _TO_YOU.search(text) is not None or _is_verbless(text)
    )


def is_order(text: str) -> bool:
    """It has something done now."""
    if is_standing(text):
        return False
    return _ORDER_START.match(text) is not None or _REQUEST.search(text) is not None


def is_held_out(text: str) -> bool:
    """It shows something, and does not say what."""
    return _HELD_OUT.search(text) is not None


def is_about_what_was_shown(text: str) -> bool:
    """An opinion of what the other one has just said or made."""
    return _JUST_SHOWN.search(text) is not None


def _is_verbless(text: str) -> bool:
    """`Window seats for me, every time.`"""
    if len(words_of(text)) > _FEW or SECOND_PERSON.search(text):
        return False
    return FIRST_PERSON.search(text) is None or _FOR_ME.search(text) is not None
