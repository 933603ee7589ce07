"""Words that give away what kind of sentence it is. English; a sentence in another language shows none of them."""

import re
from typing import Final

from extractor.offline.sentences import words_of

_QUESTION_WORDS: Final = (
    "what|what's|whats|why|how|how's|when|where|who|which|whose|do|does|did|are|is|can|could|would|will|have|has|any"
)
_QUESTION = re.compile(rf"[?？]\W*$|^(?:so |and |but |hey |wow |oh ,?)*(?:{_QUESTION_WORDS})\b.*\byou\b", re.I)
_REQUEST = re.compile(
    r"\b(?:please|can you|could you|would you|help me|i(?:'d| would) like (?:you )?to|i want (?:you )?to|"
    r"i need (?:you )?to|i need help|remind me|show me|tell me how|let's|we need to|make sure)\b",
    re.I,
)
_OPEN_TASK = re.compile(
    r"\b(?:(?:i|we) (?:still )?(?:need|have|ought) to|i must|(?:i|we) should|to-?do|remind me|next step|"
    r"still (?:open|missing|pending|to do)|not (?:done|finished) yet|don't forget|follow up)\b",
    re.I,
)
_INTERJECTION = re.compile(
    r"^(?:\W*(?:yes|yeah|yea|yep|sure|ok|okay|absolutely|definitely|totally|for sure|wow|haha|lol|great|cool|nice|"
    r"awesome|amazing|oh|no|nope|well|right|exactly|agreed|thanks|thank you|thx|hi|hey|hello|bye)\b(?: \w+)?"
    r"[\s,.!:;~-]*[,.!~-]\s*)+",
    re.I,
)
_LEAD_IN = re.compile(
    r"^(?:(?:yes|yeah|yea|yep|okay|oh|and|but|wow|haha|actually|by the way|also)\b[\s,.!-]+|"
    # `No children live here` and `so many came` say something else without their first word.
    r"(?:ok|sure|no|well|so|(?:small |a )?correction|sorry|scratch that|my mistake|i was (?:wrong|mistaken)|"
    r"i misspoke)\s*[,:;.!–—-]+\s*)+",
    re.I,
)
# `So many came` and `but for the rain` need their first word; before a subject it only joins the sentence to another.
_CONNECTIVE = re.compile(
    r"^(?:and|but|so),? (?=(?:i|i['’]\w+|we|we['’]\w+|he|she|it|they|my|our|his|her|its|their|the|a|an|please)\b)", re.I
)
_SMALL_TALK = re.compile(
    r"^\W*(?:(?:hi|hey|hello|bye|goodbye|see (?:you|ya)|take care|talk (?:to you )?soon|"
    r"good (?:morning|night|luck|to see)|thanks|thank you|thx|congrats|congratulations|sounds|looks|looking forward|"
    r"have a|keep|glad|so glad|happy to|haha|lol|no problem|no worries|you're welcome|"
    r"(?:i )?(?:totally |completely |so )?agree)\b|"
    r"that(?:'s| is| sounds| looks)\b.{0,40}\b(?:great|awesome|cool|amazing|nice|sweet|wonderful|fantastic|good|fun|"
    r"beautiful|lovely|inspiring)\b)",
    re.I,
)
_ORDER = re.compile(
    r"^(?:please|can you|could you|would you|help me|show me|tell me|let me know|remind me|let's|let us)\b", re.I
)
CORRECTION: Final = re.compile(
    r"\b(?:actually|correction|i was wrong|i was mistaken|my mistake|i misspoke|i meant|not .{1,40} but |no longer|"
    r"not anymore|any ?more|instead(?: of)?|rather than|changed (?:my|his|her|our|their|its|the|from|to)|"
    r"switched (?:from|to)|moved (?:to|from|back|out)|is now|are now|now (?:is|lives|works|uses)|used to|"
    r"stopped|quit|scratch that|to correct|postponed|rescheduled|, not )\b",
    re.I,
)


def is_question(text: str) -> bool:
    """It asks."""
    return _QUESTION.search(text) is not None


def is_request(text: str) -> bool:
    """It asks for something to be done."""
    return _REQUEST.search(text) is not None


def is_open_task(text: str) -> bool:
    """It names something that is still to be done."""
    return not is_question(text) and _OPEN_TASK.search(text) is not None


def is_small_talk(text: str) -> bool:
    """A greeting, thanks or applause, and little besides."""
    rest = _INTERJECTION.sub("", text)
    count = len(words_of(rest)) if " " in text else 9
    return count < 3 or (count <= 12 and _SMALL_TALK.search(rest) is not None)


def without_lead_in(text: str) -> str:
    """The text without a `yeah, `, `actually, ` or `correction: ` in front of it."""
    return _LEAD_IN.sub("", text)


def without_connective(text: str) -> str:
    """The text without an `and`, `but` or `so` that only joins it to what was said before; else word for word."""
    rest = _CONNECTIVE.sub("", text)
    return text if rest == text else rest[:1].upper() + rest[1:]


def is_order(text: str) -> bool:
    """It tells somebody to do something now."""
    return _ORDER.search(text) is not None


def is_correction(text: str) -> bool:
    """It takes back or renews something."""
    return CORRECTION.search(text) is not None


_KIN: Final = (
    "mother|mom|mum|father|dad|sister|brother|son|daughter|wife|husband|partner|girlfriend|boyfriend|fiancée?|"
    "aunt|uncle|cousin|niece|nephew|grandma|grandmother|grandpa|grandfather|friend|colleague|coworker|boss|manager|"
    "neighbou?r|teacher|doctor|roommate|mentor|coach"
)
_PET: Final = "dog|cat|puppy|kitten|horse|rabbit|hamster|parrot|turtle|pet"
KIN: Final = re.compile(rf"\b(?:{_KIN})s?\b", re.I)
PET: Final = re.compile(rf"\b(?:{_PET})s?\b", re.I)

# What a kind of statement is often told with. A cue alone makes no statement; it tips the balance.
KIND_CUES: Final = {
    "profile": re.compile(
        r"\b(?:my name(?:'s| is)|(?:i'm|i am) (?:a|an|from|single|married|divorced|allergic|originally|\d+)\b|"
        r"i (?:live|lived|work|study|studied|grew up|was born|speak|teach|majored|graduated)\b|"
        r"i(?:'ve| have) (?:\w+ )?(?:kids?|children|sons?|daughters?|brothers?|sisters?|years)\b|"
        r"my (?:job|birthday|goal|dream|hometown|degree|native|age|profession|role|time ?zone|email|address|"
        r"background|family|hobby|hobbies)\b)",
        re.I,
    ),
    "preferences": re.compile(
        r"\b(?:i (?:\w+ )?(?:prefer|love|like|enjoy|hate|dislike|adore|loathe)\b|i can(?:'|no)t stand|favou?rite|"
        r"i (?:always |only |never )?want (?!to\b|you\b)|"
        r"i(?:'d| would) rather|(?:i'm|i am) (?:\w+ )?(?:fan of|into|fond of)|(?:please |always |never )(?:use|write|"
        r"answer|keep|send|call|avoid|start|give)|don't (?:use|write|send|call)|i usually)",
        re.I,
    ),
    "entities": re.compile(
        rf"\b(?:(?:my|our|his|her|their) (?:\w+ )?(?:{_KIN}|{_PET})s?\b|(?:is|are|was) (?:called|named|written in|"
        r"owned by|based in|located in|run by|made of)|named\b|runs on\b|(?:our|my|the) (?:project|company|team|"
        r"service|startup|product|app|repo|repository|cluster|client|customer)\b)",
        re.I,
    ),
    "events": re.compile(
        r"\b(?:(?:i|we) (?:just |also |finally |recently )*(?:went|got|met|bought|started|finished|signed|joined|ran|"
        r"won|lost|moved|visited|adopted|decided|agreed|deployed|released|launched|booked|quit|attended|took|gave|made|"
        r"painted|graduated|celebrated|traveled|travelled|cancelled|canceled|ordered|created|volunteered|organized|"
        r"(?:am|are) going to)|(?:i'm|we're|i am|we are) (?:going|planning|getting|starting|moving|meeting|flying))\b",
        re.I,
    ),
}
PROBLEM: Final = re.compile(
    r"\b(?:error|errors|exception|traceback|fails?|failed|failing|failure|broken|breaks?|bug|crash(?:es|ed|ing)?|"
    r"hangs?|hung|stuck|time ?outs?|timed out|does(?:n't| not) (?:work|start|connect|load|build|compile|respond)|"
    r"(?:can't|cannot|could not|couldn't|unable to) \w+|not working|refused|denied|problem|issue|leak(?:s|ing)?|"
    r"too slow|out of memory)\b",
    re.I,
)
SOLUTION: Final = re.compile(
    r"\b(?:the (?:fix|solution|root cause|cause|trick|problem) (?:is|was|turned out)|turned out|"
    r"(?:i|we) (?:have )?(?:fixed|solved|resolved)|(?:fixed|solved|resolved) (?:it|this|that|the|by)|"
    r"(?:(?:it|that|this|everything) )?works (?:now|again)|working (?:now|again)|"
    r"(?:that|this) (?:fixed|solved|did|worked))\b",
    re.I,
)
CONFIRMATION: Final = re.compile(
    r"\b(?:(?:it|that|this|everything) works? (?:now|again)|works (?:now|again)|"
    r"(?:that|this) (?:fixed|solved|did|worked)|(?:that|this) worked|did the trick|problem solved|all good now)\b",
    re.I,
)
INSTRUCTION: Final = re.compile(
    r"\b(?:try|set|add|remove|install|upgrade|update|restart|change|use|run|increase|raise|lower|delete|clear|rename|"
    r"configure|enable|disable|replace|move|read|check|rebuild|reinstall|you (?:need|have|should|can)|make sure)\b",
    re.I,
)
# An agent that reports a deed or an appointment states a fact about the user's world.
DEED: Final = re.compile(
    r"\b(?:booked|scheduled|ordered|cancelled|canceled|confirmed|deployed|created|sent|submitted|registered|paid|"
    r"merged|released|migrated|reserved|appointment|meeting is)\b",
    re.I,
)
STRONG_CORRECTION: Final = re.compile(
    r"\b(?:actually|correction|i was wrong|i was mistaken|my mistake|i misspoke|i meant|not .{1,40} but |no longer|"
    r"not anymore|any ?more|changed (?:my|his|her|our|their|its|the|from|to)|switched (?:from|to)|scratch that|"
    r"to correct|moved (?:to|from|back|out)|, not )\b",
    re.I,
)
# Words of a correction that mean nothing else. `Actually` and `no longer` also stand where nothing is taken back.
RETRACTION: Final = re.compile(
    r"\b(?:correction|i was wrong|i was mistaken|my mistake|i misspoke|i meant|scratch that|to correct|not .{1,40} but|"
    r"instead of|rather than|postponed|rescheduled|moved from)\b|, (?:and )?not\b",
    re.I,
)
FUTURE: Final = re.compile(
    r"\b(?:will|won't|going to|gonna|planning|plan to|plans to|tomorrow|upcoming|next|later|soon|starting|have to|"
    r"need to|want to|hope to|hoping to|looking forward|due|until|by)\b|'ll\b|’ll\b",
    re.I,
)
# What comes round again, or began in a year that nobody said.
RECURRING: Final = re.compile(
    r"\b(?:birthdays?|born|anniversary|every|each|annual|annually|yearly|always|usually)\b", re.I
)
PAST: Final = re.compile(
    r"\b(?:was|were|did|didn't|had|went|got|came|saw|met|made|took|bought|told|ran|ate|gave|found|felt|left|won|lost|"
    r"began|broke|built|caught|chose|drove|fell|flew|grew|held|kept|knew|led|paid|put|read|rode|sang|sent|sold|spent|spoke|"
    r"stood|swam|taught|thought|woke|wore|wrote|been|last|ago|\w+[^e\W]ed)\b",
    re.I,
)
FIRST_PERSON: Final = re.compile(r"\b(?:i|i'm|i've|i'll|i'd|my|mine|we|we're|we've|we'll|our|ours|me|us)\b", re.I)
SECOND_PERSON: Final = re.compile(r"\b(?:you|your|yours|you're|you've|you'll|you'd)\b", re.I)
DANGLING: Final = re.compile(
    r"^(?:(?:and|but|so|well|yeah|yes|oh|totally),? )*(?:it|it's|that|that's|this|they|they're|these|those|he|she|"
    r"he's|she's|there's)\b",
    re.I,
)
