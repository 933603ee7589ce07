"""Finds the user's reaction to the previous answer by fixed cues."""

import re
from collections.abc import Sequence
from typing import Final

from extractor.offline.turns.phrases import quoted
from extractor.offline.turns.reading import read
from runekeep.v1 import common_pb2
from runekeep.v1 import turn_memory_service_pb2 as pb
from schemas.turns.feedback import TEXT_LENGTH

_END: Final = r"(?=\s*(?:[,.!;:…–—-]|$))"
_IT: Final = r"(?:that|this|it|these|those|they)"
# Reaction, confidence and pattern. The first rule that matches a sentence of the turn counts. Complaints come before
# praise, because users often thank first and complain then.
_CUES: Final = tuple(
    (reaction, confidence, re.compile(pattern, re.I))
    for reaction, confidence, pattern in (
        (
            pb.REACTION_NOT_OK,
            0.9,
            rf"\b{_IT}(?:['’]s| is| was|['’]re| are)(?: still)? (?:wrong|incorrect|false|useless|"
            r"not (?:what|right|correct|true|helpful))|\bnot what i (?:asked|meant|wanted|need)|"
            rf"\byou (?:misunderstood|misread|forgot|missed|ignored|got (?:{_IT}|me) wrong)\b|"
            rf"\b{_IT} (?:doesn['’]t|didn['’]t|does not|did not|don['’]t) (?:work|help)\b|"
            r"\bi (?:asked|said|meant)\b.*,? not\b|\bstill (?:wrong|broken|fails|not working)\b",
        ),
        (
            pb.REACTION_NOT_OK,
            0.8,
            rf"^\W*(?:no,? )?(?:{_IT}(?:['’]s| is| was| are) )?"
            rf"(?:far |way |much |a bit |still )?too \w+(?: \w+)?{_END}|"
            rf"\bi (?:don['’]t|do not|didn['’]t) like {_IT}\b|"
            r"\b(?:das|es) (?:ist|war|stimmt) (?:falsch|nicht|zu)\b|"
            r"\bc['’]est (?:faux|trop)\b|\beso (?:no es|está mal)\b",
        ),
        (
            pb.REACTION_OK,
            0.9,
            rf"\b{_IT} (?:worked|works|helped|helps)\b|"
            rf"\b{_IT}(?:['’]s| is| was| are) (?:perfect|great|exactly|right|what i (?:need|want|meant))|"
            r"\b(?:just|exactly) what i (?:needed|wanted|meant|asked for)\b|"
            rf"\bi (?:really )?(?:like|love) {_IT}\b|^\W*(?:great|perfect|nice|thanks),? .*\bworked\b",
        ),
        (
            pb.REACTION_OK,
            0.75,
            r"^\W*(?:thanks|thank you|thx|perfect|great|excellent|awesome|wonderful|brilliant|lovely|well done|danke|"
            r"perfekt|merci|parfait|gracias|perfecto|grazie|obrigad[oa])"
            rf"(?: (?:a lot|so much|very much|again|job|sehr|beaucoup))?{_END}",
        ),
    )
)
# Up to three words at the beginning, such as `Thanks!`, which the sentence reader does not take for a sentence.
_OPENING: Final = re.compile(r"\A\s*(\w+(?: \w+){0,2}(?:[.!]|\s*\Z))")


def reactions_of(messages: Sequence[common_pb2.Message]) -> list[pb.Feedback]:
    """Returns at most one reaction, about the previous turn, from sentences that the user says in earnest."""
    said = [one.sentence.text for one in read(messages) if one.meant]
    for one in messages:
        for part in one.parts if one.role == common_pb2.ROLE_USER else ():
            said += _OPENING.findall(part.text.text)
    said = [text for text in said if not text.endswith(("?", "？"))]
    for reaction, confidence, cue in _CUES:
        for text in said:
            if cue.search(text):
                return [
                    pb.Feedback(
                        reaction=reaction,
                        text=quoted(text, TEXT_LENGTH),
                        origin=pb.FEEDBACK_ORIGIN_MACHINE,
                        confidence=confidence,
                    )
                ]
    return []
