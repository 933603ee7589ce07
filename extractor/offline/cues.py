"""Words that give away what kind of sentence it is. English; a sentence in another language shows none of them."""

import re
from typing import Final

from extractor.offline.sentences import words_of

_QUESTION_WORDS: Final = (
    "what|what's|whats|why|how|how's|when (?:are|do|did|will|can|would)|where|who|which|whose|do|does|did|are|is|can|"
    "could|would|will|have|has|any"
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
# What stands before a correction, and is no part of what it says.
_TAKING_BACK = re.compile(
    r"^(?:(?:no(?=[\s]*[,:;.!–—-]| wait| sorry| actually)|oh|ah|oops|sorry(?: about that)?|wait|hold on|actually|well|"
    r"ok|okay|(?:small |a )?correction|to correct(?: myself)?|scratch that|my mistake|my bad|"
    r"i was (?:wrong|mistaken)|i misspoke|i mean|i meant)\b[\s,:;.!–—-]*)+",
    re.I,
)
# Such a sentence points back at the one before it and says little more than a word of it.
_POINTING_CORRECTION = re.compile(
    r"^(?:that|this|those|these|it) (?:was|is|were|are)(?:n['’]t)?\b|^(?:that|it)['’]s\b", re.I
)
# `So many came` and `but for the rain` need their first word; before a subject it only joins the sentence to another.
_CONNECTIVE = re.compile(
    r"^(?:and|but|so),? (?=(?:i|i['’]\w+|we|we['’]\w+|he|she|it|they|my|our|his|her|its|their|the|a|an|please)\b)", re.I
)
_SMALL_TALK = re.compile(
    r"^\W*(?:(?:hi|hey|hello|bye|goodbye|see (?:you|ya)|take care|talk (?:to you )?soon|"
    r"good (?:morning|afternoon|evening|night|luck|to see)|thanks|thank you|thx|congrats|congratulations|"
    r"sounds|looks|looking forward|"
    r"have a|keep (?:it up|going|in touch|me posted|up)|glad|so glad|happy to|haha|lol|no problem|no worries|"
    r"you're welcome|"
    r"(?:i )?(?:totally |completely |so |really )?(?:agree|get (?:that|it|you)|understand|hear you|see\b|"
    r"feel (?:you|the same)|"
    r"felt the same|know (?:what you mean|the feeling|how)))\b|"
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


def without_taking_back(text: str) -> str:
    """The text without the words in front that only announce a correction."""
    return _TAKING_BACK.sub("", text)


def is_pointing_correction(text: str) -> bool:
    """`No wait, that was my brother.`: a correction of the sentence before it, which alone nobody understands."""
    rest = without_taking_back(text)
    return rest != text and _POINTING_CORRECTION.match(rest) is not None


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
    r"merged|released|migrated|reserved|placed|arranged|updated|added|moved|renewed|filed|installed|refunded|set up|"
    r"signed up|signed you up|deleted|transferred|shipped|uploaded|backed up|restored|enabled|disabled|appointment|"
    r"(?:meeting|call|flight|delivery) is)\b",
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
# What comes to what was said, and takes nothing back; in the languages of `languages` too.
ADDITION: Final = re.compile(
    r"\b(?:also|too|even|as well|in addition|besides|on top of that|another|auch|außerdem|ebenfalls|también|tambien|"
    r"además|aussi|également|anche|inoltre|ook|também|também|też|również|тоже|также)\b|也|还|同样",
    re.I,
)
# What is no longer so, told by its words.
DENIED: Final = re.compile(
    r"(?:\bnot|\binstead of|\brather than|\bno longer|\b(?:moved|switched|changed) (?:[\w']+ ){0,3}?from|"
    r"\b(?:stopped|quit)|\b(?:don't|doesn't|do not|does not|am not|is not|isn't|are not|aren't|'m not|'re not)"
    r"(?=[^.;!?]{0,80}\bany ?more\b))\s+"
    r"(?P<denied>[^,.;:!?]+?)(?=\s+(?:but|to|and|any ?more)\b|[,.;:!?]|$)",
    re.I,
)
# Where somebody lives changes with these words alone.
MOVED: Final = re.compile(r"\b(?:moved|relocated) (?:back |out |over )?(?:to|from|back|out|in with)\b", re.I)
LIVES: Final = re.compile(
    r"\b(?:live[sd]?|living|moved|reside[sd]?|based|home|rent(?:s|ed)?|flat|apartment|house|stay(?:s|ed|ing)?)\b", re.I
)
FUTURE: Final = re.compile(
    r"\b(?:will|won't|going to|gonna|planning|plan to|plans to|tomorrow|upcoming|next|later|soon|starting|have to|"
    r"need to|want to|hope to|hoping to|looking forward|due|until|by|"
    r"(?:'m|’m|'re|’re|am|are|is) (?:\w+ )?(?!being)\w{2,}ing)\b|'ll\b|’ll\b",
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
