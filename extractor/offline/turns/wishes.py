"""Words by which people say what they want, allow and exclude, and for how long."""

import re
from typing import Final

from extractor.offline.keywords import content_words
from extractor.offline.turns.keys import FORMATS, HUMAN_LANGUAGES, SIZES, TONES

SOFT: Final = re.compile(
    r"\b(?:preferably|ideally|if possible|if you can|where possible|would be (?:nice|great|good|lovely|ideal)|"
    r"prefer(?:red)?|try (?:to|not)|rather|nice to have|bonus|maybe|perhaps)\b",
    re.I,
)
MUST: Final = re.compile(
    r"\b(?:must|have to|has to|needs? to|required?|mandatory|essential|non-negotiable|absolutely|only|always|"
    r"make sure|ensure|important|strictly|at all costs|definitely|no exceptions?)\b",
    re.I,
)
# Words of denial that deny nothing.
NO_DENIAL: Final = re.compile(
    r"\byou (?:can|may) (?:also )?(?:skip|omit|leave|exclude|drop|ignore|forget)\b|"
    r"\b(?:don't|do not|dont) (?:worry|forget|hesitate|get me wrong|you\b|know|think|understand|mind|care|remember|"
    r"believe|see (?:how|why|what)|mean|bother me)|\bnever ?mind\b|"
    r"\bno,? (?:wait|sorry|actually|problem|worries|thanks|thank you|idea|rush|hurry|matter|doubt|wonder|offen[cs]e|"
    r"pressure|big deal|clue|"
    r"questions? asked)\b|^no$|^no[,.!]|"
    r"\bnot (?:necessarily|sure|yet|only|just|really|at all|too bad|bad\b|that (?:i|it|we)\b|a (?:problem|big deal)|"
    r"even|to mention|but\b|because\b)|"
    r"\b(?:why|if|or|whether) not\b|\bwithout (?:a )?(?:doubt|problems?|question|fail|further ado)\b|"
    r"\b(?:can't|cannot) (?:wait|believe|help|remember|find|figure|get|see|decide|seem|tell|think|log|open|connect|"
    r"access)\b",
    re.I,
)
# Besides what they exclude these verbs say nothing: `don't use tables` excludes tables.
PLAIN_VERB: Final = re.compile(
    r"^(?:using|including|adding|giving|showing|writing|sending|making|putting|answering(?: in)?|replying|returning|"
    r"use|include|add|give|show|write|book|choose|pick|suggest|recommend|mention|send|put|make|want|need|have|"
    r"like|offer|propose|list|return|output|create|contain|do|answer|reply|respond|take|consider|start|in|any|the|a|an|"
    r"my|more|too|so|that|overly|very)$",
    re.I,
)
_REST: Final = r"\s+(?P<rest>.+)$"
# Without what is said of all the rest: `anything but sushi is fine`.
_REST_ALONE: Final = (
    r"\s+(?P<rest>.+?)(?: (?:is|are|would be|works?|will do|goes) (?:also )?(?:fine|ok|okay|good|great)\b.*)?$"
)
_DO_REST: Final = r"\s+(?:ever\s+)?(?P<verb>[a-z]+)\s+(?P<rest>.+)$"
# What is denied then is the deed under that condition: `never book without asking`.
CONDITION: Final = re.compile(r"^(?:without|before|until|unless|if|when|while|after)\b", re.I)
# It holds in a case that the sentence names. `Check if` asks, and `if possible` is no case.
CONDITIONAL: Final = re.compile(
    r"(?<!check )(?<!see )(?<!know )(?<!ask )(?<!tell me )(?<!wonder )(?<!sure )(?<!out )(?<!nice )(?<!great )"
    r"(?<!good )\b(?:if|unless|whenever|in case)\b(?! (?:possible|you can|you could|not|so|necessary|needed|it had|"
    r"it has|it were|it was)\b)|"
    r"^when\b",
    re.I,
)
INSTEAD: Final = re.compile(r"^(?:instead of|rather than|other than|except)\b", re.I)
"""What stands behind it takes the place of something, which must be wished for to be a wish."""
DENIALS: Final = tuple(
    (re.compile(pattern, re.I), severity)
    for pattern, severity in (
        (rf"\b(?:i|we) (?:no longer|don't) (?:need|want)(?= .*\b(?:any ?more|any longer)\b){_REST}", "do_not"),
        (rf"\b(?:i|we) no longer (?:need|want){_REST}", "do_not"),
        (
            r"^(?:please |actually,? |ok(?:ay)?,? )*(?:forget about|forget|drop|scratch)"
            rf"(?! (?:that|it|this)\b){_REST}",
            "do_not",
        ),
        (
            r"^(?P<rest>.+?) (?:is|are|would be) (?:a no-go|no-gos|out of the question|off limits|not an option|"
            r"not allowed|not acceptable|unacceptable|forbidden|a deal ?breaker|not ok(?:ay)?|not fine)\b",
            "do_not",
        ),
        (
            r"^(?:(?:and|but|please|also|so|now|then|just|again|ok|okay),? )*(?:(?:can|could|would|will) you |"
            r"(?:i|we)(?:'d| would)? (?:want|like|need) you to )?(?:please |kindly )?(?:stop|quit|cease|refrain from)"
            rf"(?: with)?(?: (?P<verb>[a-z]+ing)\b)?(?! (?:at|by|for|in|it|me|that|this|here|there|over)\b){_REST}",
            "do_not",
        ),
        (
            r"^(?:anything|everything|any [\w-]+|all [\w-]+|whatever)(?: else)? (?:except(?: for)?|but|other than|"
            r"apart from) "
            r"(?P<rest>.+?)(?: (?:is|are|would be|'s|works?|will do|goes)\b.*)?[.!]?$",
            "do_not",
        ),
        (
            r"\b(?:i|we) (?:really )?(?:like|love|want|need|enjoy|eat|drink) neither (?!of\b)(?P<rest>.+? nor .+)$",
            "avoid",
        ),
        (
            r"^neither (?!of\b)(?P<rest>.+? nor .+?) (?:is|are|would be|works?|will do|fits?|suits?)\b"
            r"(?: (?:an option|ok|okay|fine|acceptable|allowed|alright|possible|for me|me|wanted|welcome|good))*[.!]?$",
            "do_not",
        ),
        (
            r"(?:^|\b)(?:instead of|rather than|other than|except(?: for)?)\s+(?P<rest>.+?)"
            r"(?: (?:is|are|would be|'s|works?|will do|goes) .*)?$",
            "avoid",
        ),
        (
            r"\b(?:avoid(?:ing)?|stay away from|steer clear of|i (?:really |absolutely |just )?(?:hate|dislike|detest|"
            r"loathe|despise)|i(?:'m| am) not (?:a (?:big )?fan of|into|keen on|fond of)|i can(?:'t|not) (?:stand|"
            r"bear)|(?:i(?:'d| would) )?(?:rather|prefer(?:ably)?) not(?: to)?(?: have| get)?|try not to(?: use)?|"
            r"i (?:really )?(?:don't|do not) (?:really |particularly )?(?:like|enjoy|love)|anything but)" + _REST_ALONE,
            "avoid",
        ),
        (
            r"\b(?:i|we|he|she|they|my [\w-]+) (?:can(?:'t|not)|do(?:es)?(?:n't| not)|never|must not|mustn't|am not "
            r"allowed to|are not allowed to) (?:eat|drink|tolerate|take|use|fly|drive|accept)" + _REST,
            "do_not",
        ),
        (rf"\b(?:can|could|would|will) you (?:please )?(?:not|never){_DO_REST}", "do_not"),
        (rf"\b(?:i|we|he|she|they|my [\w-]+) (?:can't|cannot) have(?! (?:access|time|to)\b){_REST}", "do_not"),
        (
            r"^(?:and |but )?nothing"
            rf"(?! (?:else|is|was|to|but|has|special|works|with|containing|in|too|that)\b){_REST}",
            "do_not",
        ),
        (rf"\b(?:i|we|he|she|they|my [\w-]+) (?:eats?|drinks?|takes?|uses?) no{_REST}", "do_not"),
        (rf"\b(?:i|we) (?:don't|do not) want(?: you to(?: \w+)?| to)?(?: see| have)?{_REST}", "do_not"),
        (
            r"(?:^|\bwith |\bthere (?:should|must) be |\b(?:i|we) want |\b(?:should|must|ha(?:s|ve) to|needs? to) "
            r"(?:contain|have|use|include|be) )(?:absolutely |strictly )?"
            r"no(?! (?:one|longer|more|less|fewer|later|need|reason|point|limits?|budget|preferences?|exceptions?|"
            r"restrictions?|changes?|further|comments?|news|luck|way|big|such|other|others|hard feelings|stress|"
            r"requirements?|rules?|particular|special|specific|good|use|wonder|chance|means|kidding|matter)\b)"
            rf"{_REST}",
            "do_not",
        ),
        (
            r"\b(?:without(?! \w+ing\b)(?: any| using)?|exclud(?:e|ing)|leav(?:e|ing) out|skip|omit|nothing (?:with|"
            r"containing|in|"
            rf"too|that (?:is|has))){_REST}",
            "do_not",
        ),
        (
            r"(?:\b(?<!i )(?<!we )(?<!they )(?<!you )(?:do not|don't|dont)|\b(?:it|there|they|you|this|that|"
            r"the [\w-]+) "
            r"(?:must not|mustn't|should not|shouldn't|may not|can't|cannot|must never|should never)(?: be| contain| "
            rf"have)?|(?:^|\bplease |\band |\bbut )never){_DO_REST}",
            "do_not",
        ),
        (rf"^(?:must|should|may) (?:not|never)(?: be)?{_DO_REST}", "do_not"),
        (
            r"\b(?<!i )(?<!we )(?<!they )(?<!you )(?:do not|don't|dont|never) (?P<verb>[a-z]+)(?P<rest>[.!]?)$",
            "do_not",
        ),
        (rf"(?:^|[,:] |\band |\bbut )not(?! (?:over|more|less|later|under|longer|above)\b){_REST}", "do_not"),
    )
)
"""What excludes, with its severity unless the sentence is soft; `rest` is what is excluded, `verb` what is not to be
done with it."""

_FINE: Final = (
    r"(?:also |perfectly |totally |absolutely |just )?(?:fine|ok|okay|acceptable|alright|all right|welcome|allowed)"
)
ALLOWANCES: Final = tuple(
    re.compile(pattern, re.I)
    for pattern in (
        r"\b(?:i (?:really )?(?:don't|do not|wouldn't) mind|i(?:'m| am) (?:also |perfectly |totally )?(?:fine|ok|okay|"
        r"happy|flexible|cool) with|i(?:'m| am) open to|feel free to|you(?:'re| are) (?:free|welcome|allowed) to|"
        r"(?:it's|it is|that's) (?:fine|ok|okay) to)" + _REST,
        rf"^(?P<rest>.+?)(?: is| are| would be|'s) {_FINE}\b",
        r"^(?P<rest>.+?) (?:would|will) (?:also )?work(?: for me| too| as well)?[.!]?$",
    )
)
"""What allows; `rest` is what is allowed."""
POINTING: Final = re.compile(r"^(?:it|this|that|what|which|everything|all|these|those|they|both|he|she|there)$", re.I)
TIME: Final = re.compile(
    r"\b(?:(?P<deadline>(?:by|before|no later than|not later than|until) (?:the )?(?:end of (?:the |this |next )?\w+|"
    r"(?:next |this )?(?:mon|tues|wednes|thurs|fri|satur|sun)day(?: (?:morning|noon|evening|night))?|tomorrow|tonight|"
    r"noon|midnight|(?:next|this) (?:week|month|year)|(?:january|february|march|april|may|june|july|august|september|"
    r"october|november|december)(?: \d{1,2}(?:st|nd|rd|th)?)?|\d{1,2}(?:st|nd|rd|th)?(?: of)? (?:january|february|"
    r"march|april|may|june|july|august|september|october|november|december)|\d{4}-\d{2}-\d{2}))|"
    r"(?P<time>(?:not |no )?(?:later than|earlier than|before|after|by|until|at|from|between) "
    r"\d{1,2}(?:[:.]\d{2})?(?: (?:and|to) \d{1,2}(?:[:.]\d{2})?)? ?(?:a\.?m\b\.?|p\.?m\b\.?|o'clock|(?<=:\d\d))))"
    r"(?!\w)",
    re.I,
)
MODAL: Final = re.compile(
    r"\b(?P<subject>it|they|this|that|there|everything|you|(?:the|my|our|your|each|every|all) [\w-]+(?: [\w-]+)?|"
    r"^(?!(?:i|we|he|she|you|they|what|which|who|how|there|and|but|or|no|not|nothing|nobody|none|neither|never|any)\b)"
    r"[\w-]+) "
    r"(?:really |absolutely )?(?P<force>must|should|ha(?:s|ve) to|needs? to|can|may|could)(?: really| always| also|"
    r" only)? "
    r"(?!not\b|never\b)(?P<rest>.+)$",
    re.I,
)
ONLY: Final = re.compile(
    r"^(?:and |but |please )?(?:strictly |nothing but )?only(?: use| give me| show(?: me)?| book)? (?P<rest>.+)$", re.I
)
LIKED_BEHIND: Final = re.compile(
    r"^(?P<rest>.+?) (?:would be|is|are) (?:really |very )?(?:nice(?: to have)?|great|good|lovely|ideal|perfect|"
    r"better|best|preferred|"
    r"preferable|a (?:plus|bonus)|a must(?:-have)?)[.!]?$",
    re.I,
)
USED: Final = re.compile(
    r"^(?:(?:please|also|always|and|then|just) )*(?:use|stick (?:to|with)|go with|choose|pick|work with)\s+"
    r"(?P<rest>(?!it\b|that\b|this\b|these\b|those\b|your\b|the (?:above|same|following|first|second|last)\b|what\b|"
    r"whatever\b).+)$",
    re.I,
)
FAVOURITE: Final = re.compile(r"\bmy favou?rite (?P<of>[\w-]+)(?: [\w-]+)? (?:is|are)\s+(?P<rest>.+)$", re.I)
CALLED: Final = re.compile(r"^(?:(?i:please|and|just),? )*(?i:call me) (?P<rest>[A-ZÀ-Þ][\w'’-]*)[.!]?$")
LIKED: Final = re.compile(
    r"\b(?:i(?:'d| would)? (?:really |much |strongly |definitely |generally |usually |always )?(?:prefer|favou?r)|"
    r"i(?:'d| would) rather(?: have)?|(?:i|we) (?:really |absolutely |do |both |all )?(?:like|love|enjoy)|"
    r"my preference (?:is|would be)|"
    r"i(?:'m| am) a (?:big |huge )?fan of|^prefer|^preferably|^ideally|^if possible,?|^always|"
    r"it would be (?:nice|great|good|lovely) (?:if it (?:had|has|were|"
    r"was)|to have))"
    r"\s+(?P<rest>(?!it\b|that\b|this\b|how\b|what\b|your\b|my\b|our\b|the idea\b).+)$",
    re.I,
)
WANTED: Final = re.compile(
    r"\b(?:(?:i|we)(?:'d| would)? (?:really |definitely |only |just |absolutely |also )?(?:like|want|need|require|"
    r"insist on))"
    r"\s+(?P<rest>(?!you\b|to\b|it\b|that\b|this\b|your\b|help\b|some (?:help|advice)\b).+)$",
    re.I,
)
TO_DO: Final = re.compile(
    r"\b(?:make sure(?: that)?(?: to| you| it| they)?|be sure to|ensure(?: that)?|don't forget to|do not forget to|"
    r"remember to|it(?:'s| is) (?:very )?(?:important|essential|crucial) (?:that|to))\s+(?P<rest>.+)$",
    re.I,
)
_DET: Final = r"(?:an? |very |more |rather |some )*"
_TONED: Final = rf"(?:{TONES})(?: (?:tone|style|voice|way|language|wording))"
_SIZED: Final = (
    rf"(?:{SIZES})(?: (?:answers?|repl(?:y|ies)|responses?|explanations?|summar(?:y|ies)|texts?|versions?|sentences|"
    r"emails?|mails?))"
)
_IT: Final = r"(?:it|them|this|everything|(?:your |the |all )?(?:answers?|repl(?:y|ies)|tone|style|language|text))"
OF_OUTPUT: Final = tuple(
    re.compile(pattern, re.I)
    for pattern in (
        rf"\bin (?P<form>{HUMAN_LANGUAGES})(?=\s*(?:[.,;:!?)]|$|please|only|and|but|with|not|instead|from|unless|as|"
        r"using|for)\b|[.,;:!?)]|$)",
        rf"\b(?:as|in|into|using|with|use|prefer|want|give me|output|return) {_DET}(?:(?:{SIZES}|simple|plain) )?"
        rf"(?P<form>{FORMATS})(?![\w-])",
        rf"\b(?:in|use|using|with|want|prefer) {_DET}(?P<form>{_TONED})(?![\w-])",
        rf"\b(?:be|sound|keep {_IT}|make {_IT}) {_DET}(?P<form>{TONES}|{SIZES})(?![\w-])",
        rf"\b(?:give me|write|want|prefer|like|need|keep|with|only) {_DET}(?P<form>{_SIZED})(?![\w-])",
        r"\b(?P<form>in detail|in depth)\b",
    )
)
"""How what the agent gives should be; `form` is what `keys.classed` knows."""
# Without a subject it is said of what is wanted.
FRAGMENT: Final = re.compile(
    r"^(?:and |but |also )*(?:from now on|always|under|below|at most|at least|no|not|never|without|only|max(?:imum)?|"
    r"min(?:imum)?|between|"
    r"up to|less than|more than|preferably|ideally|if possible|nothing|for \d|avoid|please|it (?:must|should|has to|"
    r"needs to)|"
    r"the [\w-]+ (?:must|should|has to|needs to)|[\w-]+ (?:only|please)|\d+)\b",
    re.I,
)
_SCOPES: Final = (
    (
        "conversation",
        re.compile(
            r"\b(?:from now on|always|in this (?:conversation|chat|session)|for the rest of (?:this|the|our) "
            r"(?:conversation|chat|session)|going forward|in (?:all|every) (?:your )?(?:answers?|repl(?:y|ies)|"
            r"responses?|messages?)|throughout|every time|in future|in the future)\b",
            re.I,
        ),
    ),
    ("thread", re.compile(r"\b(?:in|for) this thread\b", re.I)),
    (
        "artifact",
        re.compile(
            r"\b(?:in|for|to|of|throughout) (?:this|the) (?:document|file|draft|report|table|list|email|mail|letter|"
            r"essay|slides?|presentation|spreadsheet|script|code|page|article|post|section|readme|contract)\b",
            re.I,
        ),
    ),
    (
        "objective",
        re.compile(
            r"\b(?:for now|this time|just this once|for this (?:task|trip|one|project|request|question|search|booking|"
            r"order)|for the (?:trip|task|project|booking|search))\b",
            re.I,
        ),
    ),
)
_FOR: Final = re.compile(
    r"^(?:and |but )?(?:for|when(?: you)? (?:it comes to|writ(?:e|ing)|review(?:ing)?|book(?:ing)?|plan(?:ning)?))\s+"
    r"(?P<label>(?:(?:the|my|our|all|any|your) )?[\w-]+(?: [\w-]+)?),",
    re.I,
)
_FOR_BEHIND: Final = re.compile(r"\bfor (?P<label>(?:the|my|our|all|any) [\w-]+(?: [\w-]+)?)\s*[.!]?$", re.I)
_ARTICLE: Final = re.compile(r"^(?:the|my|our|all|any|your) ", re.I)
_LABEL: Final = 64


def scope_of(text: str) -> str:
    """How far what a sentence wants reaches, one of `schemas.turns.fingerprint.SCOPES`; empty where it does not say."""
    return next((scope for scope, cue in _SCOPES if cue.search(text)), "")


def label_of(sentence: str) -> str:
    """What all of its wishes are for: `For emails, ...`; empty without."""
    return _label(_FOR.search(sentence))


def label_behind(clause: str) -> str:
    """What a clause says at its end that it is for: `... for the kids`; empty without."""
    return _label(_FOR_BEHIND.search(clause))


def _label(match: re.Match[str] | None) -> str:
    label = _ARTICLE.sub("", match["label"]).lower()[:_LABEL] if match is not None else ""
    return label if content_words(label) else ""
