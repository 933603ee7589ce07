"""What a kind of statement is often told with. A cue alone makes no statement; it tips the balance."""

import re
from typing import Final

_KIN: Final = (
    "mother|mom|mum|father|dad|parents|sister|brother|son|daughter|wife|husband|partner|girlfriend|boyfriend|fiancée?|"
    "aunt|uncle|cousin|niece|nephew|grandma|grandmother|grandpa|grandfather|grandson|granddaughter|best friend|friend|"
    "colleague|coworker|boss|manager|neighbou?r|teacher|doctor|dentist|therapist|landlord|landlady|roommate|flatmate|"
    "mentor|coach|twin|twins|stepmother|stepfather|in-laws|assistant|lawyer|accountant|godmother|godfather|supplier"
)
_PET: Final = "dog|cat|puppy|kitten|horse|rabbit|hamster|parrot|turtle|tortoise|guinea pig|greyhound|pet"
KIN: Final = re.compile(rf"\b(?:{_KIN})s?\b", re.I)
PET: Final = re.compile(rf"\b(?:{_PET})s?\b", re.I)

_ADVERB: Final = (
    r"(?:(?:just|also|finally|recently|now|already|still|always|never|usually|often|only|really|currently|both|mostly|"
    r"absolutely|actually|officially|eventually|simply|sometimes|even|then|first|once|gladly|once again|mainly) )*"
)
_IRREGULAR: Final = (
    "was|were|had|went|got|came|saw|met|made|took|bought|told|ran|ate|gave|found|felt|left|won|lost|began|broke|built|"
    "caught|chose|drove|fell|flew|grew|held|kept|led|paid|put|rode|sang|sent|sold|spent|spoke|stood|swam|taught|wore|"
    "wrote|quit|became|drew|hurt|cut|set|lent|dropped|beat|bit|hit|shot|slept|woke|threw"
)
# States and opinions in the past tense tell of no happening.
_NO_DEED: Final = (
    "used|liked|loved|wanted|needed|hoped|wondered|seemed|guessed|tried|mentioned|asked|said|thought|enjoyed"
)
DONE: Final = rf"(?:{_IRREGULAR}|(?!(?:{_NO_DEED})\b)\w+[^e\W]ed|agreed|freed)"
_TURN: Final = (
    r"(?:died|passed away|(?:was|were|been) (?:born|promoted|fired|hired|accepted|diagnosed|elected|put down|stolen|"
    r"robbed|cancell?ed|"
    r"approved|rejected|sold|laid off|evicted|admitted|operated)|got (?:married|engaged|divorced|promoted|fired|"
    r"hired)|broke (?:up|down)|split up|separated)"
)
# Talk leaves out `I`: `Just finished a novel`, `Been volunteering a lot`.
ELLIPSIS: Final = re.compile(
    rf"^(?:(?:just|finally|recently|lately|also|still|currently|already),? )*(?:been \w+|(?:{DONE})\b(?! (?:on|in|"
    rf"at|from)\b)|love|hate|enjoy|loving|planning|"
    r"working on|learning|starting|heading to|moving to|thinking of) (?:\w+)",
    re.I,
)
EVENT_DEED: Final = re.compile(
    rf"\b(?<!since )(?<!when )(?<!before )(?<!while )(?<!as )(?<!if )(?<!that )(?:i|we|my [\w-]+(?: [\w-]+)?|"
    rf"our [\w-]+(?: [\w-]+)?) {_ADVERB}(?:{DONE})\b|"
    rf"\b(?:i've|we've|i have|we have|has) {_ADVERB}(?!been (?:a|an|the|in|with|to be|\w+ing)\b)(?:\w+[^e\W]ed|been|"
    rf"gone|got|met|made|taken|bought|given|found|left|won|lost|broken|built|chosen|"
    r"sold|sent|written|become|quit|begun|started|finished|agreed|moved|hired|had)\b|"
    rf"\b{_TURN}\b|^(?:(?:just|finally|recently|also) )*(?:had|went|got|passed|finished|started|met|bought|signed|"
    rf"sold|moved|ran|won|lost|made|took|gave|broke|visited|joined|"
    r"adopted|booked|released|deployed|quit|handed in)\b (?:my|our|the|a|an|to|in|on|for|with|up|out)\b|"
    r"\b(?:i'm|we're|i am|we are|(?:my|our) [\w-]+ (?:is|are)) (?:going to|getting (?:married|divorced|engaged|a|an|"
    r"my|the)|moving (?:to|in|out)|flying|starting (?:at|a|my|as|in|on)|leaving|"
    r"expecting|defending|having (?:my|a|an|surgery)|retiring|opening|launching|closing)\b|"
    r"\bi (?:start|begin|fly|move|leave|travel) (?:at|my|a|as|to|on|in|for|next|tomorrow)\b",
    re.I,
)
HEALTH: Final = (
    r"allerg(?:y|ies|ic)|asthma|diabet\w+|c(?:o?e)liac|intoleran\w+|migraines?|epileps?y|epileptic|adhd|autis\w+|"
    r"dyslexi[ac]|"
    r"arthritis|blood pressure|insulin|colou?r-?blind|hearing aids?|wheelchair|pacemaker|glasses|contact lenses|"
    r"off limits for me|"
    r"throat swell|rash|hay fever|tinnitus|anaemi[ac]|anemi[ac]|vegan|vegetarian|pescatarian|gluten|lactose|"
    r"left-handed|"
    r"right-handed|ambidextrous"
)
_CALLING: Final = (
    r"(?:live|lived|work|worked|study|studied|speak|teach|majored|graduated|volunteer|coach|run (?:a|an|my|the|our)|"
    r"own|manage|lead|rent|"
    r"commute|belong to|come from|play (?:the|in|for)|train|practi[cs]e|sing in|raise|wear|keep (?:bees|chickens|"
    r"goats|a)|"
    r"grew up|was born|was raised|was brought up|spent my (?:childhood|youth))"
)
_ROUTINE: Final = (
    r"(?:get up|wake up|go (?:to bed|running|swimming|to the gym|for a)|don't work|work|meditate|swim|run|walk|cook|"
    r"bake|write|pray|fast|read|jog|cycle)"
)
KIND_CUES: Final = {
    "profile": re.compile(
        rf"\b(?:my (?:[\w-]+ )?(?:name|pronouns|job|birthday|goal|dream|hometown|degree|native|age|profession|role|"
        rf"time ?zone|email|address|"
        rf"background|family|hobby|hobbies|mother tongue|first language|faith|religion|height|blood type|nickname|"
        rf"shoe size|nationality|passport)\b|"
        rf"(?:i'm|i am) {_ADVERB}(?:a|an|the (?:oldest|youngest|only|head|mother|father|owner|founder)|from|single|"
        rf"married|divorced|widowed|engaged|originally|retired|pregnant|self-employed|unemployed|"
        rf"freelanc\w+|gay|lesbian|bisexual|trans\w*|jewish|muslim|christian|catholic|buddhist|atheist|hindu|half|"
        rf"fluent|training to|studying|based in|in the \w+ time ?zone|"
        rf"learning|in my (?:\w+ )?(?:thirties|forties|fifties|sixties|twenties|first|second|third|final|last)|\d+|"
        rf"blind|deaf|not a (?:morning|night|religious|native))\b|"
        rf"(?:i|we) {_ADVERB}{_CALLING}\b|(?:i|we) {_ADVERB}(?:don't|do not|can't|cannot|never) (?:drink|eat|smoke|"
        rf"drive|own|swim|cook|work|celebrate|speak|have (?:kids|children|a car|pets))\b|"
        rf"i(?:'ve| have) (?:\w+ )?(?:been (?:a|an|\w+ing|together|married|in|with)|kids?|children|sons?|daughters?|"
        rf"brothers?|sisters?|siblings|years|(?:an? )?\w+ degree|got)\b|"
        rf"(?:\w+ and i|we) have been (?:together|married)|we have (?:\w+ )?(?:kids|children|sons|daughters|twins|"
        rf"cats|dogs|chickens)\b|"
        rf"{HEALTH}|i {_ADVERB}{_ROUTINE} (?:\w+ ){{0,6}}(?:every|each|on (?:mon|tues|wednes|thurs|fri|satur|"
        rf"sun)days|at (?:half|five|six|seven|\d))|"
        rf"on (?:mon|tues|wednes|thurs|fri|satur|sun)days? i (?:don't )?\w+|every (?:day|morning|evening|week|"
        rf"weekend|night|sunday|monday|tuesday|wednesday|thursday|friday|saturday|summer|winter|year))",
        re.I,
    ),
    "preferences": re.compile(
        rf"\b(?:i {_ADVERB}(?:do |don't |did not |do not )?(?:\w+ )?(?:prefer|love|like|enjoy|hate|dislike|adore|"
        rf"loathe|avoid|despise|detest)\b|i can(?:'|no)t (?:stand|bear)|favou?rite|"
        rf"i (?:always |only |never )?want (?!to\b|you\b)|i(?:'d| would) (?:much |far )?(?:rather|sooner)|(?:i'm|"
        rf"i am) {_ADVERB}(?:not )?(?:much of |such )?(?:a |an )?(?:\w+ )?(?:fan of|into|fond of|crazy about|"
        rf"obsessed with|"
        rf"addicted to|\w+ person|\w+ lover|keen on)|(?:please |always |never )(?:use|write|answer|keep|send|call|"
        rf"avoid|start|give|put|reply|ask|add|tell|make)|don't (?:ever )?(?:use|write|send|call)|i (?:usually|always|"
        rf"only|never|tend to|rarely)\b|"
        rf"(?:relax(?:es)?|calms?|cheers?|soothes?) me|helps me (?:relax|unwind|sleep|focus)|for me,? (?:every time|"
        rf"always|please)|over \w+ any ?(?:day|time)|drives me (?:mad|crazy|up the wall|nuts)|"
        rf"gets on my nerves|call me\b|no \w+ in my|my (?:guilty pleasure|comfort food|go-to|drink of choice))",
        re.I,
    ),
    "entities": re.compile(
        rf"\b(?:(?:my|our|his|her|their) (?:\w+ ){{0,2}}(?:{_KIN}|{_PET})s?\b|(?:is|are|was) (?:called|named|"
        rf"written in|owned by|based in|located in|run by|made of|"
        r"the (?:name|code name) of)|named\b|called\b|runs on\b|is my\b|(?:our|my|the) (?:\w+ ){0,2}(?:project|"
        r"company|team|service|startup|product|app|repo|repository|cluster|client|"
        r"customer|database|server|office|supplier|backend|website|band|school|shop|studio|landlord|ci|boat)\b)",
        re.I,
    ),
    "events": EVENT_DEED,
}
# Told in the past tense, and yet who somebody is.
BACKGROUND: Final = re.compile(r"\b(?:grew up|born|raised|brought up|childhood|youth|studied|majored)\b", re.I)
# A way of working: a rule for a class of tasks, or steps in their order.
PATTERN: Final = re.compile(
    r"\b(?:our|my|the|a) (?:\w+ )?(?:way|process|routine|workflow|procedure|recipe|checklist|method|approach|"
    r"playbook|ritual) "
    r"(?:of|for|is|with|when|to|that works)\b[^.]*(?:[:,;]|→|->|\bthen\b)|"
    r"\bwhat (?:always |usually |really )?(?:works|worked|helps) (?:best |well |wonders )?(?:for (?:us|me)|when|with|"
    r"is)\b|"
    r"\b(?:before|after|for|on|with|at|during) (?:every|each|any)\b[^.]*\b(?:we|i)\b[^.]*(?:,[^.]*,|\bthen\b|"
    r"\band only\b)|"
    r"\b(?:we|i) (?:always |usually )?first\b[^.]*\bthen\b|"
    r"\b(?:works|worked) best (?:when|if) (?:we|i)\b|\bthe best way (?:for us |for me )?to\b[^.]* is to\b",
    re.I,
)
