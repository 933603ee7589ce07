"""What is said without being meant of oneself: supposed, acted, quoted, invented, joked, or pasted."""

import re
from typing import Final

from extractor.offline.orders import is_standing
from extractor.offline.speech import INNER_QUOTE

_SUPPOSED = re.compile(
    r"^(?:\w+,? )?(?:suppose|supposing|imagine|imagining|assume|assuming|let's (?:say|assume|imagine|pretend|"
    r"suppose)|say i|"
    r"what if|picture this|had i|had we|were i)\b|"
    r"\b(?:hypothetically|in theory|in an ideal world|in another life|as if i|would(?:n't)? have|"
    r"could have|should have|might have|(?:i|we)'d have|i wish|we wish|if only|if i (?:were|was|had|could|lived|won)|"
    r"if we (?:were|had|could)|were to)\b|"
    r"\bif\b[^.]*(?:\bwould\b|\bcould\b|\bmight\b|'d\b)|(?:\bwould\b|\bcould\b|\bmight\b|'d\b)[^.]*\bif\b",
    re.I,
)
# What somebody believes or plays need not be so; `my doctor says` is another matter.
_BELIEVED = re.compile(
    r"\b(?:(?:thinks|believes|assumes|imagines|pretends|jokes|fancies|reckons|fantasi[sz]es|dreams|(?:is|are|was|were) "
    r"convinced|(?:is|are|was|were) under the impression|"
    r"(?:they|people|everyone|everybody|some|many|(?:my|our|his|her|their|the) [\w-]+s) (?:all )?(?:think|believe|"
    r"assume|imagine|pretend|joke|reckon)|(?:thought|believed|assumed|imagined|pretended|joked)) (?:that )?"
    r"(?:i|i'm|i'd|i've|we|we're|he|he's|she|she's|it|it's|they|they're|you|my|our|his|her|their|the)|"
    r"pretend(?:s|ed|ing)? to)\b",
    re.I,
)
_POLITE = re.compile(
    r"\b(?:i'd|i would|would|i'd really|it would) (?:appreciate|prefer|be (?:great|nice|"
    r"good))\b",
    re.I,
)
_JOKE = re.compile(
    r"[😂🤣😜😉😝🤪😆]|\b(?:a?haha(?:ha)*|hehe|lol|lmao|rofl|(?:just |only )?(?:kidding|joking)|kidding aside|jk|"
    r"as a joke|"
    r"pun intended)\b|(?:^|\s)/s(?:$|\s)|;-?\)",
    re.I,
)
TAKEN_BACK: Final = re.compile(r"^\W*(?:no,? )?(?:i(?:'m| am) |i was )?(?:just |only )?(?:kidding|joking|jk)\b", re.I)
_BAD_LUCK: Final = (
    r"(?:break(?:s|ing)?|broke|crash\w*|fail\w*|dies?|died|dying|delay\w*|late|tax(?:es)?|queue\w*|wait(?:s|ing)?|"
    r"stuck|bugs?|"
    r"down|lost|los(?:e|es|ing)|ignor\w+|spam|cancel\w*|overtime|traffic|meetings?|rain(?:s|ed)?|dentist|paperwork|"
    r"forms|monday|again|another|nobody|no one|out of|error|update|overnight|weekends?)"
)
_SARCASM = re.compile(
    r"^\W*(?:oh,? |ah,? |yeah,? |well,? )*(?:oh (?:great|joy|wonderful|good|fantastic|brilliant|perfect|yay|sure|"
    r"lovely)|yeah,? right|"
    r"oh,? yeah|sure,? because|because (?:i|who|nothing|obviously|clearly|everyone)\b)|"
    r"\b(?:just what i (?:love|need|wanted|always)|couldn't be happier|who doesn't love|as if\b|living the dream|"
    r"(?:because|since) (?:i|we|who|obviously)[^.]*\b(?:love|adore|enjoy)\b|my favou?rite thing[^.]* ever|said no one|"
    r"how (?:lovely|wonderful|delightful|convenient)|big surprise|what a surprise|lucky me|thanks for nothing)\b|"
    rf"^(?:sure|great|wonderful|fantastic|brilliant|lovely|perfect|nice|super|fabulous|marvell?ous|awesome|terrific|"
    rf"yay|wow)\b[,.!]?.*\b{_BAD_LUCK}\b|"
    rf"\b(?:i|we) (?:just|absolutely|so|simply|really|do)? ?(?:love|adore|enjoy|live for) (?:it when|when|how|being|"
    rf"nothing more than)\b.*\b{_BAD_LUCK}\b|"
    r"\bnothing (?:beats|says|better)\b.*\blike\b",
    re.I,
)
_SPEAKER_VERBS: Final = (
    r"(?:sa(?:ys?|id)|goes|claims?|claimed|whisper(?:s|ed)|shout(?:s|ed)|yell(?:s|ed)|asks?|asked|repl(?:ies|ied)|"
    r"wr(?:ites|ote)|reads?|sings?|sang)"
)
_REPORTED = re.compile(
    rf"\b(?:he|she|they|someone|somebody|everyone|people|it|(?:the|a|this|that|his|her|"
    rf"one) [\w-]+(?: [\w-]+)?) {_SPEAKER_VERBS}\b|"
    r"\b(?:according to|as the saying goes|i (?:read|heard|overheard|saw)(?: somewhere| online|"
    r" once)?(?: that)?(?: the| about| in| on)?\b|apparently|"
    r"supposedly|allegedly|rumou?r has it|(?:song|poem|quote|proverb|motto|lyrics?|headline|slogan|sign|ad|"
    r"advert) (?:goes|says|reads|is|was)|"
    r"to quote|quote:|in the words of|once (?:said|wrote))\b",
    re.I,
)
_WORKS: Final = (
    r"(?:novel|story|short story|book|film|movie|game|campaign|screenplay|script|poem|song|comic|series|show|"
    r"fairy tale|play|"
    r"dream|episode|tale|musical|manga|anime|sitcom|thriller|fanfic)"
)
_FICTION = re.compile(
    rf"\b(?:in (?:my|the|a|this|his|her|our) (?:\w+ )?{_WORKS},? (?:i|we|he|she|they|there|the|a|an|my|you|\w+ (?:is|"
    rf"lives|has|was))\b|"
    rf"(?:the|this|that|a) {_WORKS} (?:is about|tells|follows|begins|opens|starts with|ends|takes place)|"
    r"(?:my|the|our|main|a) (?:\w+ )?(?:character|protagonist|hero|heroine|villain|narrator|avatar|npc)\b|"
    r"once upon a time|"
    r"fictional|i (?:dreamt|dreamed) (?:that|i|about|of)|in (?:my|the|a) dream|d&d|dungeons|chapter (?:\d+|one|two|"
    r"three))\b",
    re.I,
)
_ROLE_PLAY = re.compile(
    r"\b(?:pretend(?:ing)?|act (?:as|like)|role-?play\w*|play (?:the (?:role|part) of|along)|let's play|"
    r"(?:you play|you be|i'll play|i'll be|i play) (?:the|a|an|my)|imagine you|you are (?:now )?(?:a|an|my|"
    r"the) [\w-]+(?: [\w-]+)?(?:,| and i\b| who\b)|"
    r"in character|in (?:this|that|our|the|my|a) (?:little )?(?:role[ -]?play|make-believe|skit)\w*|"
    r"in this (?:scene|scenario|story|simulation|fantasy)|from now on you are)\b",
    re.I,
)
_SAMPLE = re.compile(
    r"\b(?:(?:test|sample|example|dummy|placeholder|mock|demo|fake|made-up|toy|seed|filler) (?:data|text|user|users|"
    r"sentence|sentences|input|"
    r"record|records|name|names|value|values|row|rows|line|entry|customer|person|persona|profile|account|email|"
    r"address|case|output|dialogue|message)|"
    r"lorem ipsum|foo ?bar|john doe|jane doe|max mustermann|translate|for (?:example|instance):|"
    r"proofread|paraphrase|placeholder|spell-?check|conjugate|"
    r"(?:correct|rephrase|rewrite|summari[sz]e|parse|classify|format|check|analy[sz]e|edit|shorten) (?:this|"
    r"the following|my|these|it|that|the)(?: \w+)?\s*:|"
    r"(?:sentence|text|string|phrase|word|caption|slogan|line)s? ?(?:[:\"“„«⟨]))|^(?:for example|for instance|"
    r"example|sample|input|test|q|a|draft|subject)\b[^:]{0,20}:",
    re.I,
)
_CODE = re.compile(
    r"[{};]\s*$|^\s*(?:def|class|import|const|let|var|function|public|private|return|SELECT|INSERT|UPDATE|DELETE|"
    r"CREATE|ALTER|FROM|WHERE|"
    r"npm|npx|pip|git|docker|sudo|curl|kubectl|cd|ls|echo|export|apt|apt-get|brew|make|cargo|yarn|"
    r"poetry)\s+[\w\"'{(*./-]+(?:\s*[({=:]|.*(?:--?\w|[=;*/]))|"
    r"=>|==|!=|\+=|&&|\|\||\w+\([^)]*\)\s*[:;{]|\w+\(\"|</?\w+>|^\s*[\[{<]|\b\w+\.\w+\([^)]*\)|\$\w+|^[A-Z_]+=|"
    r"^\s*(?://|#!|/\*)|::|->",
)
_CODE_CASE = re.compile(r"^\s*(?:SELECT|INSERT INTO|UPDATE|DELETE FROM|CREATE TABLE|ALTER TABLE)\b")
_LOG_LINE = re.compile(
    r"^\s*(?:error|warning|warn|info|debug|fatal|traceback|exception|\w+error|"
    r"\w+exception)\b\s*[:(\[]",
    re.I,
)


def is_supposed(text: str) -> bool:
    """It tells what would be, or what somebody believes."""
    if _BELIEVED.search(text) is not None:
        return True
    return _SUPPOSED.search(text) is not None and _POLITE.search(text) is None and not is_standing(text)


def is_joke(text: str) -> bool:
    """It is marked as one."""
    return _JOKE.search(text) is not None


def is_sarcasm(text: str) -> bool:
    """It praises what nobody wants."""
    return _SARCASM.search(text) is not None


def is_quoted(text: str) -> bool:
    """It says what somebody else says, or what was read or heard somewhere."""
    return _REPORTED.search(text) is not None or INNER_QUOTE in text


def is_fiction(text: str) -> bool:
    """It is about invented people."""
    return _FICTION.search(text) is not None


def is_role_play(text: str) -> bool:
    """It gives out parts to play."""
    return _ROLE_PLAY.search(text) is not None


def is_sample(text: str) -> bool:
    """It is material to work on."""
    return _SAMPLE.search(text) is not None


def is_code(text: str) -> bool:
    """It is code, a command, or a line of a log."""
    return any(rule.search(text) for rule in (_CODE, _CODE_CASE, _LOG_LINE))


def opens_frame(text: str) -> bool:
    """Whether what follows in the same message is made up, acted, or material to work on."""
    return (
        is_fiction(text)
        or is_role_play(text)
        or is_sample(text)
        or (_SUPPOSED.match(text) is not None and _POLITE.search(text) is None)
    )
