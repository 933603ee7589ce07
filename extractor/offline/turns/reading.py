"""The sentences of a turn's user, and how far each may be taken at its word."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from extractor.offline.cues import is_question, is_request, without_lead_in
from extractor.offline.doubts import doubt
from extractor.offline.languages import kind_of, language_of
from extractor.offline.made_up import TAKEN_BACK, is_joke, is_quoted, is_sample, is_supposed, opens_frame
from extractor.offline.orders import is_order, is_standing
from extractor.offline.sentences import Sentence, sentences_of
from extractor.offline.speech import INNER_QUOTE, own_words
from extractor.offline.turns.world import asks_to_know, is_log
from runekeep.v1 import common_pb2

ENGLISH: Final = "en"
TURN_MOST: Final = 400
"""Sentences of one turn that are read: its fingerprint is short however much was pasted into it."""
# Said of what is not, or by somebody else: nothing of it is the speaker's own wish or fact.
_NOT_MEANT: Final = frozenset(
    (
        "code",
        "joke",
        "sarcasm",
        "quoted",
        "role play",
        "fiction",
        "sample",
        "supposed",
        "stranger",
        "held out",
        "undone",
    )
)
# Of these only a wish may be taken, which its own words show.
_WISH_ONLY: Final = frozenset(("question", "order", "small talk", "mood", "moment", "just shown", "the other"))
# Somebody else's words, however short, where a word of speaking stands before them; and who speaks without any.
_SPOKEN: Final = re.compile(r"(?<=\W)[\"“„«](?P<words>[^\"“”„«»]+)[\"“”»]")
_SAYS: Final = re.compile(
    r"\b(?:(?:my|our|his|her|their|the|a|an|some) [\w-]+(?: [\w-]+)?|he|she|they|somebody|someone) (?:always |just |"
    r"once )?"
    r"(?:says?|said|wrote|writes|claims?|claimed|thinks?|believes?|told (?:me|us)|keeps? saying)\b",
    re.I,
)
# In other languages, whose words of speaking are many, a quotation alone tells it.
_OF_OTHERS: Final = re.compile(
    r"[\"“”„«»「」『』]|\b(?:sagte?|sagen|meinte?|schreibt|schrieb|behauptet|dice|dijo|dicen|dit|disent|écrit|dicono|"
    r"disse|diz|zegt|zei|mówi|powiedział\w*|говорит|сказал\w*)\b|说|言っ",
    re.I,
)
# A sum of money is no variable of a shell.
_DOLLARS: Final = re.compile(r"\$ ?(?=\d)")
# Behind these words stands material to work on, whatever it says.
_MATERIAL: Final = re.compile(r":\s*$|:\s*[\"“„«⟨]|:\s+\S")
_GREETING: Final = re.compile(
    r"^(?:(?:hi|hey|hello|good (?:morning|afternoon|evening)|dear \w+|thanks(?: a lot)?|thank you|great|perfect|ok|"
    r"okay|"
    r"sure|cool|nice|alright|yes|no|well|so|and|also|now|then|next)(?: there| again| everyone| all|"
    r" team)?\s*[,.!:–—-]+\s*)+",
    re.I,
)
_NEGATIVE_QUESTION: Final = re.compile(
    r"^(?:don't|doesn't|didn't|isn't|aren't|wasn't|won't|can't|shouldn't|wouldn't|couldn't) (?:you|it|that|this|"
    r"there|we|i|they|"
    r"the|he|she)\b",
    re.I,
)
_ASKS: Final = re.compile(
    r"^(?:(?:please|kindly|now|then|next|also|first|so)\b,? )*(?:(?:can|could|would|will) (?:you|we)|may i|help me|"
    r"i need|i want|i'd like|"
    r"i would like|from now on|always|never|i'm looking for|we need|we'd like|we're looking for|looking for|let's|"
    r"tell me|show me|is there|are there|any)\b",
    re.I,
)


@dataclass(frozen=True, slots=True)
class Said:
    """One sentence of a user. `text` has straight apostrophes and no words of others."""

    sentence: Sentence
    text: str
    language: str
    asks: bool
    """It asks for something to be done: an order, a request, a question to somebody who can act."""
    meant: bool
    """It is the speaker's own, in earnest."""
    wishes: bool
    """It may say what is wanted or excluded."""
    states: bool
    """It may state a fact."""


def read(messages: Sequence[common_pb2.Message], most: int = TURN_MOST) -> list[Said]:
    """What users said in messages, in order. Words of others, of parts to play and of samples are marked, not left out.

    Behind a sentence that hands over material (`Proofread this: ...`) nothing of the message is meant; behind one that
    only sets a scene, orders still are. Of more than `most` sentences those in the middle are left out.
    """
    sentences, _ = sentences_of([(one, "") for one in messages if one.role == common_pb2.ROLE_USER])
    if len(sentences) > most:
        # What somebody wants stands before what they paste, or behind it.
        sentences = [*sentences[: most - most // 3], *sentences[len(sentences) - most // 3 :]]
    said: list[Said] = []
    framed, closed = -1, -1
    whole: dict[int, str] = {}
    for sentence in sentences:
        whole[sentence.sequence] = f"{whole.get(sentence.sequence, '')} {sentence.text}"
    for sentence in sentences:
        text = (
            _SPOKEN.sub(INNER_QUOTE, own_words(sentence.text))
            if _SAYS.search(sentence.text)
            else own_words(sentence.text)
        )
        if TAKEN_BACK.search(text) and said and said[-1].sentence.sequence == sentence.sequence:
            before = said[-1]
            said[-1] = replace(before, meant=False, wishes=False, states=False)
        language = _language(sentence.text, whole[sentence.sequence])
        asks = _asks(text) if language == ENGLISH else is_question(text)
        one = _said(sentence, text, language, asks, framed == sentence.sequence, closed == sentence.sequence)
        said.append(one)
        if language == ENGLISH and opens_frame(text):
            framed = sentence.sequence
            if is_sample(text) and (_MATERIAL.search(text) or not asks):
                closed = sentence.sequence
    return said


def without_greeting(text: str) -> str:
    """The text without a greeting or thanks in front; with a capital where it begins."""
    rest = without_lead_in(_GREETING.sub("", text)).strip() or text
    return rest[:1].upper() + rest[1:]


def _said(sentence: Sentence, text: str, language: str, asks: bool, framed: bool, closed: bool) -> Said:
    if closed or is_log(text):
        return Said(sentence, text, language, asks, meant=False, wishes=False, states=False)
    if language != ENGLISH:
        own = not asks and not _OF_OTHERS.search(sentence.text)
        return Said(sentence, text, language, asks, meant=own or asks, wishes=own, states=own)
    family = doubt(_DOLLARS.sub("€", text), assistant=False)
    of_others = is_quoted(text) or _SAYS.search(text) is not None
    # A question or an order may be supposed, too, or hand on what another one has said.
    unreal = is_supposed(text) or is_joke(text)
    made_up = family in _NOT_MEANT or framed or of_others or unreal
    # `Write a story of at most 300 words`: the order is meant, whatever the story tells.
    orders = asks and not of_others and not unreal and family not in ("sarcasm", "code")
    meant = not made_up or orders
    states = not made_up and family not in _WISH_ONLY and not asks
    # A question to know something wants nothing else.
    wishes = meant and (asks or family != "question")
    text = text.split(": ", 1)[0] if made_up else text
    return Said(sentence, text, language, asks, meant=meant, wishes=wishes, states=states)


def _language(text: str, whole: str) -> str:
    """Of a sentence. Plain letters and a few small words, such as `no` and `per`, do not show one: a cue must, in the
    sentence or in its message.
    """
    if not text.isascii():
        return language_of(text)
    for said in (text, whole):
        language = language_of(said)
        if language != ENGLISH and kind_of(said, language):
            return language
    return ENGLISH


def _asks(text: str) -> bool:
    said = without_greeting(text)
    if _NEGATIVE_QUESTION.match(said) or asks_to_know(said):
        return False
    return is_request(said) or is_order(said) or is_standing(said) or _ASKS.match(said) is not None
