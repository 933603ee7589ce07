"""The short account of a turn that later turns are shown, quoted from what was said in it."""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from extractor.offline.cues import is_question, is_small_talk
from extractor.offline.sentences import Sentence, sentences_of
from extractor.offline.turns.phrases import quoted
from extractor.offline.turns.reading import Said
from runekeep.v1 import common_pb2, turn_memory_service_pb2
from schemas.turns.summary import ITEM_LENGTH, TEXT_LENGTH

_ITEMS: Final = 5
_ATTACHMENTS: Final = 5
_DONE: Final = re.compile(
    r"\b(?:i(?:'ve| have)?|we(?:'ve| have)?) (?:now |already |just |also |successfully )*(?:booked|scheduled|ordered|"
    r"cancell?ed|"
    r"confirmed|deployed|created|sent|submitted|registered|paid|merged|released|migrated|reserved|arranged|updated|"
    r"added|"
    r"moved|renewed|filed|installed|refunded|set up|deleted|removed|transferred|uploaded|restored|enabled|disabled|"
    r"fixed|"
    r"changed|wrote|written|drafted|prepared|renamed|replaced|found|checked|tested|generated|saved|compared|translated|"
    r"summari[sz]ed|rewrote|rewritten|made|put together|built|finished|completed)\b|"
    r"^(?:done|booked|sent|fixed|all set)\b|\b(?:has|have) been (?:booked|sent|created|updated|saved|confirmed|"
    r"cancell?ed|"
    r"deployed|added|removed|scheduled)\b",
    re.I,
)
_DELIVERED: Final = re.compile(
    r"^(?:here(?:'s| is| are| you go)|attached|below(?: is| are|,)|please find)|\b(?:i(?:'ve| have) (?:attached|"
    r"prepared|written|created|"
    r"drafted|generated|put together|made)|(?:is|are) attached|you(?:'ll| will| can) find)\b",
    re.I,
)
_NOT_DONE: Final = re.compile(
    r"\b(?:i|we) (?:could(?:n't| not)|can(?:'t|not)(?! (?:wait|recommend|stress|thank|help but|imagine|go wrong))|"
    r"was(?:n't| not) able to|am not able to|were(?:n't| not) able to|did(?:n't| not)|have(?:n't| not)|failed to)"
    r"(?! (?:only|just|take any|find any|see any|need|have to|want|know)\b)\b|"
    r"^(?:could|can|was|were|did|have|has)(?:n't| not)\b|"
    r"^(?:nothing|none(?: of [\w ]+?)?|no [\w-]+) (?:has|have|was|were|could be|can be)\b|"
    r"\b(?:has|have) not (?:yet )?been\b|\b(?:has|have)n't (?:yet )?been\b|"
    r"\b(?:still (?:missing|open|pending|to do|needs?)|remains? (?:open|to be)|"
    r"not (?:yet )?(?:done|booked|available|possible|sent|included))\b|"
    r"^unfortunately\b.*(?:\b(?:not|no|never|nothing|unable|failed|impossible|unavailable|sold out|"
    r"fully booked)\b|n't\b)",
    re.I,
)
_ASSUMED: Final = re.compile(
    r"\b(?:assum(?:e|ed|es|ing|ption)|i took it that|taking it that|presumably|i(?:'ve| have) taken|"
    r"unless you (?:tell|say)|"
    r"i(?:'m| am) going with)\b",
    re.I,
)
_RISK: Final = re.compile(
    r"\b(?:risks?(?!-free)|risky|careful|caution|warning|beware|keep in mind|note that|"
    r"may (?:fail|change|break|not|sell out|"
    r"be)|might (?:fail|change|"
    r"break|not|sell out|be)|could (?:fail|break|change|sell out)|not guaranteed|double-check|at your own)\b",
    re.I,
)


_NO_RISK: Final = re.compile(
    r"(?:\b(?:no|not|without|never|nor|neither|zero|free of|avoids?|avoiding|removes?|eliminates?)|n't)"
    r"(?: [\w-]+){0,3} $",
    re.I,
)
# Parts of a sentence, each of which may tell of another deed.
_PART: Final = re.compile(r",?\s+(?:but|although|though|however|yet)\s+(?=\w)|;\s+", re.I)
_WHOSE: Final = re.compile(r"^(?:(?:i|we)\b|could|can|was|were|did|have|has|not\b)", re.I)
_QUOTED: Final = re.compile(r"[\"“„«][^\"“”„«»]*[\"”“»]|(?<!\w)[‘'][^‘'’]*['’](?!\w)")
_OTHERS: Final = re.compile(
    r"\b(?:you|he|she|they|it|the [\w-]+|your [\w-]+|somebody|someone) (?:said|says?|wrote|writes|asked|asks?|claims?|"
    r"claimed|mentioned|told|reads?|wanted|want|think|thought|believe)\b",
    re.I,
)
# What stands behind one of these has not happened for certain.
_OPEN: Final = re.compile(
    r"\b(?:if|once|when|whenever|as soon as|after|unless|until|before|whether|in case|should|would|will|could|can|may|"
    r"might|assuming|supposing|imagine|pretend|as though|let me know|make sure|say|for example|for instance|e\.g\.)\b|"
    r"'ll\b|'d\b",
    re.I,
)
_DENIED: Final = re.compile(
    r"\b(?:not|no|never|nothing|none|nobody|neither|nor|without|hardly|barely|almost|nearly|fail(?:ed|s)?)\b|n't\b",
    re.I,
)


def account_of(messages: Sequence[common_pb2.Message], request: Said | None) -> turn_memory_service_pb2.TurnSummary:
    """What the user wanted and attached, and what the assistant says that it answered, gave, did and left open."""
    told, _ = sentences_of([(one, None) for one in messages if one.role == common_pb2.ROLE_ASSISTANT])
    stated = [one for one in told if not is_question(one.text)]
    parts = [part for one in stated for part in _parts(one.text)]
    not_done = [part for part in parts if _holds(_NOT_DONE, part, denied=True)]
    return turn_memory_service_pb2.TurnSummary(
        user_inquiry=quoted(request.sentence.text, TEXT_LENGTH) if request is not None else "",
        user_message_description=_attached(messages),
        assistant_answer=_answer(stated),
        delivered_to_user=quoted(" ".join(one.text for one in stated if _holds(_DELIVERED, one.text)), TEXT_LENGTH),
        done=_items(part for part in parts if _holds(_DONE, part) and part not in not_done),
        not_done=_items(not_done),
        assumptions=_items(one.text for one in stated if _holds(_ASSUMED, one.text, denied=True)),
        risks=_items(part for part in parts if _is_risk(part) and part not in not_done),
    )


def _parts(text: str) -> list[str]:
    """The parts of a sentence; as one where its second half has no deed of its own."""
    parts = [part for part in _PART.split(text) if part]
    return parts if all(_WHOSE.match(part) for part in parts[1:]) else [text]


def _holds(rule: re.Pattern[str], text: str, *, denied: bool = False) -> bool:
    """Whether it is told as so: not quoted, of no other, under no condition, and, but for `denied`, not denied."""
    bare = _QUOTED.sub(" ", text.replace("’", "'"))
    match = rule.search(bare)
    if match is None or _OTHERS.search(bare[: match.start()]) or _OPEN.search(bare[: match.start()]):
        return False
    return denied or _DENIED.search(bare) is None


def _is_risk(text: str) -> bool:
    bare = _QUOTED.sub(" ", text.replace("’", "'"))
    match = _RISK.search(bare)
    return match is not None and _NO_RISK.search(bare[: match.start()]) is None


def _answer(stated: Sequence[Sentence]) -> str:
    """The assistant's sentences from the first that says something, as far as there is room."""
    text = ""
    for one in stated:
        if is_small_talk(one.text):
            continue
        longer = f"{text} {one.text}".strip()
        if len(longer) > TEXT_LENGTH:
            return text or quoted(one.text, TEXT_LENGTH)
        text = longer
    return text


def _items(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(quoted(one, ITEM_LENGTH) for one in texts))[:_ITEMS]


def _attached(messages: Sequence[common_pb2.Message]) -> str:
    """Kind and description of what users attached."""
    found = []
    for message in messages:
        if message.role != common_pb2.ROLE_USER:
            continue
        for part in message.parts:
            if part.WhichOneof("part") == "image":
                found.append(f"image: {part.image.caption}" if part.image.caption else "image")
            elif part.WhichOneof("part") == "context":
                found.append(f"context {part.context.uri}")
    return quoted("; ".join(quoted(one, ITEM_LENGTH) for one in found[:_ATTACHMENTS]), TEXT_LENGTH)
