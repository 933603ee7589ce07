"""LoCoMo (snap-research/locomo): two people talk over months, and questions ask about them.

Answers are judged as the papers on memory systems do since Mem0, who published the judge's prompt; the overlap of
words, F1, of the data set's own paper is computed beside it. docs/bench/public.md quotes the rules.
"""

import json
import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import snowballstemmer

from runekeep.transcripts.batches import TranscriptError, safe_id
from runekeep.transcripts.locomo import is_locomo, read_locomo
from tests.bench.public.cases import (
    MEMORY_IS_DATA,
    Case,
    DataError,
    Judge,
    Prompt,
    Question,
    Score,
    text_object,
    with_memory,
)

CATEGORIES: Final = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop"}
"""Category 5, questions about what was never said, is not counted."""

POLICY: Final = {"self": {"enabled": True}, "peer": {"enabled": True}}
"""Both people are peers: neither is the user."""

_ANSWER: Final = (
    f"You answer questions about two people from memories of their conversations. {MEMORY_IS_DATA} Entries carry the "
    "day on which something was said or happened. Rules: rest on the memories alone; if two contradict each other, the "
    "later one counts; work out relative times such as 'last year' from the day of the entry, and answer with the "
    "date, month or year; do not take a person who is talked about for one who talks; answer with a short phrase of at "
    "most six words, in the words of the memories where possible."
)
_JUDGE: Final = (
    "You compare an answer with the gold answer to the same question, and label it CORRECT or WRONG. Gold answers are "
    "short; the answer may be longer. Be generous: an answer that names the same thing as the gold answer is CORRECT. "
    "For questions about time, an answer that means the same date or period is CORRECT, whatever its format, relative "
    "times included. First give your reason in one sentence."
)
_LABELS: Final = ("CORRECT", "WRONG")


class Locomo:
    """Implements `tests.bench.public.cases.Benchmark`."""

    name = "locomo"

    def read(self, files: Sequence[Path]) -> list[Case]:
        """See `Benchmark`."""
        return [case for file in files for case in _read(file)]

    def answer_prompt(self, question: Question, recalled: str) -> Prompt:
        """See `Benchmark`."""
        return Prompt(
            _ANSWER, with_memory(recalled, f"Question: {question.text}"), text_object(answer="The short phrase.")
        )

    async def score(self, question: Question, answer: str, judge: Judge) -> Score:
        """See `Benchmark`."""
        text = f"Question: {question.text}\nGold answer: {question.gold}\nAnswer to label: {answer}"
        schema = text_object(reason="One sentence.", label="CORRECT or WRONG.")
        label = await judge("label", Prompt(_JUDGE, text, schema), "label", _LABELS)
        return Score(float(label == "CORRECT"), {"f1": f1(question.category, answer, question.gold)})


def _read(file: Path) -> list[Case]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        if not is_locomo(document):
            raise DataError(f"{file}: expected a list of conversations in the form of LoCoMo")
        batches = read_locomo(document)
        cases = []
        for position, item in enumerate(document, 1):
            user = safe_id(str(item.get("sample_id") or f"conversation-{position}"))
            sessions = {
                batch.session_id: [replace(one, peer_id=safe_id(one.speaker)) for one in batch.messages]
                for batch in batches
                if batch.user == user
            }
            cases.append(Case(user, sessions, _questions(user, item["qa"]), POLICY))
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, DataError):
            raise
        detail = error if isinstance(error, TranscriptError) else type(error).__name__
        raise DataError(f"{file}: expected the form of LoCoMo: {detail}") from error
    return cases


def _questions(user: str, asked: Sequence[dict[str, Any]]) -> list[Question]:
    return [
        Question(f"{user}:{number}", one["question"], CATEGORIES[one["category"]], gold=str(one["answer"]))
        for number, one in enumerate(asked)
        if one["category"] in CATEGORIES
    ]


def f1(category: str, answer: str, gold: str) -> float:
    """Returns the overlap of words by the data set's own code: of category 3 the gold answer ends at its first
    semicolon; of category 1 each part of the gold answer counts alone, with the best part of the answer."""
    if category == CATEGORIES[3]:
        gold = gold.split(";")[0]
    if category != CATEGORIES[1]:
        return _overlap(answer, gold)
    parts = answer.split(",")
    best = [max(_overlap(part, one) for part in parts) for one in gold.split(",")]
    return sum(best) / len(best)


def _overlap(answer: str, gold: str) -> float:
    said, wanted = _words(answer), _words(gold)
    shared = sum((Counter(said) & Counter(wanted)).values())
    return 2 * shared / (len(said) + len(wanted)) if shared else 0.0


_PUNCTUATION: Final = str.maketrans("", "", string.punctuation)
_ARTICLES: Final = re.compile(r"\b(a|an|the|and)\b")


def _words(text: str) -> list[str]:
    plain = _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION))
    stems: list[str] = snowballstemmer.stemmer("porter").stemWords(plain.split())
    return stems
