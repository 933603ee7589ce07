"""Why a sentence is no fact, however much it looks like one. Each family is a rule of its own, with a name.

What is ordered and what is made up have modules of their own, `orders` and `made_up`. All of it is for English; what
`languages` knows of others stands there.
"""

import re
from typing import Final

from extractor.offline.cues import (
    DEED,
    FIRST_PERSON,
    SECOND_PERSON,
    SOLUTION,
    is_question,
    is_small_talk,
    without_lead_in,
)
from extractor.offline.dates import has_date
from extractor.offline.kinds import DONE, ELLIPSIS, EVENT_DEED, HEALTH, KIN, KIND_CUES, PET
from extractor.offline.made_up import (
    is_code,
    is_fiction,
    is_joke,
    is_quoted,
    is_role_play,
    is_sample,
    is_sarcasm,
    is_supposed,
)
from extractor.offline.orders import is_about_what_was_shown, is_held_out, is_order, is_standing
from extractor.offline.remedies import solved_at_once

_INVERTED = re.compile(
    r"^(?:so,? |and |but |hey,? |or |ok,? |well,? )*(?:"
    r"(?:do|does|did|are|is|am|can|could|would|will|shall|should|was|were|may|might|have|has|isn't|aren't|don't|"
    r"doesn't|didn't|won't|wouldn't|shouldn't|can't|couldn't) (?:i|you|we|they|he|she|it|there|this|that|these|those|"
    r"any\w*|some\w*|my|your|our|the)\b|"
    r"(?:what|how|why|who|where|which|whose|when) (?:is|are|do|does|did|was|were|can|could|would|should|will|about|if|"
    r"to|many|much|long|far|often|kind|come|else|shall|\w+ (?:is|are|do|does|did|should|would|can|could))\b|"
    r"any (?:idea|thoughts?|tips?|chance|suggestions?|recommendations?|news|advice)\b)",
    re.I,
)
_WONDERS = re.compile(
    r"\b(?:i wonder|wondering|curious (?:if|whether|how|what|about)|do you (?:know|think)|i'd like to know|"
    r"i don't (?:know|understand|remember) (?:how|why|what|whether|if|where|which|who))\b",
    re.I,
)
_ADVERBS: Final = (
    r"(?:(?:so|really|very|a bit|a little|kind of|kinda|pretty|quite|just|totally|completely|all|still|too|also|"
    r"feeling|super|rather|extremely|absolutely|already|a bit too|even|such)\s+)*"
)
_STATES: Final = (
    "tired|exhausted|hungry|starving|thirsty|sleepy|annoyed|bored|cold|freezing|hot|happy|sad|angry|glad|excited|"
    "nervous|"
    "stressed|confused|stuck|lost|frustrated|relieved|worried|proud|ready|back|here|fine|good|great|ok|okay|sorry|sure|"
    "afraid|lucky|grateful|thankful|surprised|impressed|amazed|thrilled|busy|late|done|curious|in a hurry|speechless|"
    "overwhelmed|upset|lonely|anxious|drained|wiped out|swamped|cranky|grumpy|dizzy|awake|better|awful|terrible|"
    "lazy|restless|hungover|blown away|over the moon|delighted|pleased|honou?red|inspired|right there|all set|"
    "optimistic|hopeful|mad|fed up|shattered|dead|jealous|scared|shaking|melting|sweating|sick of|tempted|in the mood"
)
_MOOD = re.compile(
    rf"^\W*(?:\w+,? ){{0,2}}?(?:i'm|i am|i feel|i'm feeling|we're|"
    rf"feeling) {_ADVERBS}(?:{_STATES})\b",
    re.I,
)
_MOMENT = re.compile(
    r"\b(?:right now|at the moment|just now|for now|this (?:very )?(?:second|minute|moment)|give me a (?:sec|second|"
    r"minute|moment)|"
    r"hang on|hold on|one (?:sec|second|moment)|brb|be right back|i(?:'m| am) about to|i'll be (?:right )?back|"
    r"in a (?:sec|second|minute|moment)|i(?:'m| am) (?:just |still |now |currently )*(?:sitting|standing|lying|"
    r"waiting|looking|"
    r"reading|typing|eating|drinking|listening|trying|checking|scrolling|staring|heading|thinking|having (?:lunch|"
    r"dinner|breakfast|coffee|tea|a coffee|a break)|on (?:my|the) (?:phone|train|bus|way|road|couch|sofa|plane)|"
    r"in (?:the|a) (?:car|kitchen|meeting|queue|lift|taxi|bath))|(?:is|are) (?:calling|ringing)|just (?:had|"
    r"ate) (?:lunch|dinner|breakfast|coffee))\b",
    re.I,
)
_LASTING = re.compile(
    r"\bi(?:'m| am)? (?:currently |now )?(?:live|living|work|working|study|studying|rent|renting|"
    r"own)\b",
    re.I,
)
_HEDGED = re.compile(
    r"\b(?:maybe|perhaps|might|possibly|probably|presumably|i guess|i suppose|not (?:so |really |quite |"
    r"entirely )?sure|unsure|no idea|"
    r"not decided|nothing is (?:decided|settled|fixed)|(?:haven't|not|hasn't) (?:yet )?(?:decided|made up)|undecided|"
    r"think(?:ing)? (?:about|of)|toying with|playing with the idea|considering|contemplating|debating whether|"
    r"on the fence|(?:some|one) ?day i(?:'d|'ll| will| would)|some ?day|who knows|at some point|sooner or later|"
    r"was going to|were going to|almost|nearly|"
    r"i(?:'d| would) (?:really |so )?(?:love|like) to|i could (?:see|imagine|live|do)|(?:i|we|she|he|they) may\b|"
    r"i don't (?:really )?think|i doubt|it (?:seems|looks like|could be)|could (?:also )?be|can't decide|tempted to|"
    r"hoping to|i hope to|hopefully|if (?:all|everything|things) goes?|in case|unless something)\b",
    re.I,
)
_DENIED = re.compile(
    r"\b(?:i never said|(?:didn't|did not|don't) (?:say|mean|claim)|not that (?:i|we)\b|it(?:'s| is) not (?:that|"
    r"true|the case)|"
    r"it isn't (?:that|true)|(?:isn't|is not|not) true|no one ever|i wouldn't say|there is no|there's no|"
    r"contrary to)\b",
    re.I,
)
# What did not come about is no happening; `have not ... since` is a habit, and a failed attempt is a happening.
_UNDONE = re.compile(
    r"\b(?:i|we)(?: still| just| really)? (?:haven't|have not|hadn't|didn't|did not|never (?:got|went|made|did|"
    r"bought|said|actually))"
    r"(?: \w+)? (?!got (?:a|an|any)\b)",
    re.I,
)
_UNDONE_BUT = re.compile(
    r"\b(?:since|for (?:\w+ ){1,3}(?:years?|months?|weeks?|decades?)|ever since|didn't (?:get|pass|make|win|finish|"
    r"survive|work)|"
    r"did not (?:get|pass|make|win|finish|survive))\b",
    re.I,
)
# Nor is what never happened, or was only meant to.
_NEVER = re.compile(
    rf"\b(?:(?:i|we|he|she|they)(?:'ve|'d| have| had| has)?|(?:my|our|his|her|their) [\w-]+(?: (?-i:[A-Z])\w+)?"
    rf"(?: has| have| had)?) (?:\w+ )?never (?:ever |really |actually |once |even )*(?:{DONE}|been|gone|seen|done|"
    rf"taken|given|written|eaten|driven|flown|ridden|known|begun|chosen|broken|spoken|swum|sung)\b|"
    rf"\b(?:{DONE}|done|seen|been|happened|(?:don't|doesn't|didn't|did|'ve|have|has) \w+) "
    r"(?:nothing|nobody|no one|nowhere)\b|"
    r"^(?:nothing|nobody|no one|none of) [^.]*\b(?:\w+ed|was|were|came|went|got|happened)\b|"
    r"\b(?:was|were|had been|wasn't|weren't) (?:\w+ )?(?:supposed|meant|intended) to\b",
    re.I,
)
# What never was says who somebody is where it is about habits.
_NEVER_BUT = re.compile(
    r"\bnever (?:ever |really |actually |once |even )*(?:smoked|drunk|drank|ate|eaten|learned|learnt|owned|driven|"
    r"drove|married|liked|loved|enjoyed|wanted|worked|lived|studied)\b|"
    r"\bnever had (?:kids|children|a (?:car|licen[cs]e|pet))\b",
    re.I,
)
_STRANGER = re.compile(
    r"^(?:\w+,? )?(?:a|an|some|this|the|one|another|two|three|that) (?:\w+ )?(?:woman|man|guy|girl|boy|lady|kid|"
    r"person|driver|barista|waiter|waitress|stranger|"
    r"passenger|tourist|couple|cashier|bloke|dude|teenager|fellow|clerk|commuter|runner|cyclist|jogger|receptionist|"
    r"salesman|"
    r"pedestrian|student|child|customer|neighbou?r's|people)(?:'s)?\b|^(?:someone|somebody)\b|"
    r"^(?:the|a|some) \w+'s (?:sister|brother|son|daughter|wife|husband|cousin|mother|father)\b",
    re.I,
)
_WORLD: Final = (
    r"(?:project|team|service|app|repo|repository|cluster|server|database|office|shop|studio|company|client|customer|"
    r"product|"
    r"build|pipeline|api|site|website|house|flat|apartment|car|kids|children|twins|baby|dog|cat|board|launch|release|"
    r"wedding|"
    r"trip|meeting|deadline|contract|kiln|landlord|supplier|backend|frontend|code ?base|migration|conference|"
    r"appointment|party|"
    r"surgery|operation|court|concert|exam|interview|rehearsal|budget|store|school|club|band|garden|boat|van|bike|farm|"
    r"warehouse|factory|lab|clinic|bakery|cafe|café|restaurant|workshop|newsletter|podcast|course|class|import|backup)"
)
_OWN_WORLD = re.compile(rf"\bthe (?:[\w-]+ ){{0,2}}{_WORLD}\b", re.I)
_DOCTOR = re.compile(r"^(?:Dr|Prof|Mr|Mrs|Ms)\.? ")
# Two words can be a fact that holds.
_SHORT_FACT = re.compile(
    rf"^(?:i'm|i am) (?:\w+ ){{0,2}}(?:{HEALTH})|^(?:i'm|i am) (?:\d{{1,2}}(?=[.!]?$)|"
    rf"(?-i:[A-Z][a-z]+)(?=[.!]?$))",
    re.I,
)
_GENERIC = re.compile(
    r"^(?:most|many|some|all|few|no|every|good|bad|people|everyone|everybody|nobody|humans|children|dogs|cats|women|"
    r"men|"
    r"in general|generally|statistically|studies|research|experts|it(?:'s| is) (?:important|good|best|better|always|"
    r"never|hard|easy|"
    r"nice|great|true|said|known)|there (?:is|are|was|were)|life|love|time|money|one should|you can)\b",
    re.I,
)
_YOU_FIRST = re.compile(r"^(?:\w+,? )?(?:and |but |so )?(?:you|your|you're|you've|you'd|you'll)\b", re.I)
_YOU_SAY = re.compile(
    r"^(?:\w+,? )?(?:and |but |so )?(?:you|you've) (?:\w+ )?(?:told|said|know|knew|mentioned|think|"
    r"asked|remember|see|hear|heard|wrote)\b",
    re.I,
)
_I = re.compile(r"\bi(?:'m|'ve|'d|'ll)?\b|\bcall me\b", re.I)
_OFFER = re.compile(
    r"\b(?:will|would|could|can|(?-i:may)|might|should|shall|if|once|unless|want me|like me|do you|let me|recommend|"
    r"suggest|"
    r"going to|need to|try|consider|maybe|perhaps|usually|typically|i'll)\b|'ll\b",
    re.I,
)


def doubt(text: str, *, assistant: bool) -> str:
    """The family of the reason why it is no fact; empty when there is none.

    `text` is in the speaker's own words (see `speech.own_words`).
    """
    if assistant:
        return _doubt_of_assistant(text)
    said = without_lead_in(text)
    for family, doubted in _FAMILIES:
        if doubted(text) or doubted(said):
            return family
    return ""


def _doubt_of_assistant(text: str) -> str:
    # What an agent says about the world is mostly not the user's world: only what it has done is.
    if is_question(text) or _INVERTED.search(text) or (_OFFER.search(text) and SOLUTION.search(text) is None):
        return "offer"
    if solved_at_once(text) and EVENT_DEED.search(text):
        return ""
    return "" if DEED.search(text) or SOLUTION.search(text) else "assistant"


def is_lasting_denial(text: str) -> bool:
    """`I have never smoked`: what never was, and says who somebody is."""
    return _NEVER.search(text) is not None and _NEVER_BUT.search(text) is not None and not has_date(text)


def _asks(text: str) -> bool:
    return is_question(text) or _INVERTED.search(text) is not None or _WONDERS.search(text) is not None


def _is_mood(text: str) -> bool:
    match = _MOOD.search(text)
    if match is None:
        return False
    rest = text[match.end() :]
    return EVENT_DEED.search(rest) is None and KIND_CUES["profile"].search(rest) is None


def _is_moment(text: str) -> bool:
    return _MOMENT.search(text) is not None and _LASTING.search(text) is None and not has_date(text)


def _is_undone(text: str) -> bool:
    if _DENIED.search(text) is not None:
        return True
    if _NEVER.search(text) is not None and not is_lasting_denial(text):
        return True
    return _UNDONE.search(text) is not None and _UNDONE_BUT.search(text) is None


def _is_hedged(text: str) -> bool:
    return _HEDGED.search(text) is not None and SOLUTION.search(text) is None


def _is_about_the_other(text: str) -> bool:
    """Of the one spoken to, with nothing of the speaker's own."""
    if SECOND_PERSON.search(text) is None or is_standing(text):
        return False
    if FIRST_PERSON.search(text) is None:
        return True
    # `You should know that I'm deaf` says something of the speaker, `you know that I'm right` does not.
    return _YOU_FIRST.match(text) is not None and (_I.search(text) is None or _YOU_SAY.match(text) is not None)


def _is_general(text: str) -> bool:
    """About the world, not about anybody's own."""
    if _GENERIC.search(text) and FIRST_PERSON.search(text) is None:
        return True
    if (
        FIRST_PERSON.search(text)
        or ELLIPSIS.search(text)
        or _OWN_WORLD.search(text)
        or is_standing(text)
        or _DOCTOR.match(text)
    ):
        return False
    return not (
        EVENT_DEED.search(text)
        or has_date(text)
        or KIN.search(text)
        or PET.search(text)
        or KIND_CUES["preferences"].search(text)
    )


def _is_small_talk(text: str) -> bool:
    return is_small_talk(text) and _SHORT_FACT.search(text) is None


def _is_about_a_stranger(text: str) -> bool:
    return _STRANGER.search(text) is not None


_FAMILIES: Final = (
    ("code", is_code),
    ("question", _asks),
    ("joke", is_joke),
    ("sarcasm", is_sarcasm),
    ("quoted", is_quoted),
    ("small talk", _is_small_talk),
    ("role play", is_role_play),
    ("fiction", is_fiction),
    ("sample", is_sample),
    ("order", is_order),
    ("held out", is_held_out),
    ("just shown", is_about_what_was_shown),
    ("supposed", is_supposed),
    ("hedged", _is_hedged),
    ("undone", _is_undone),
    ("mood", _is_mood),
    ("moment", _is_moment),
    ("stranger", _is_about_a_stranger),
    ("the other", _is_about_the_other),
    ("general", _is_general),
)
