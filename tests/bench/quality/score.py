"""Judges whether a recalled text answers a question, and whether it gives an outdated value as current."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.bench.quality.lives import Life, Question, has

CORRECTED = "later corrected"
"""The mark that Recall puts on what was corrected."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The judgement of one answer of Recall. `sources`: memories, passages or both. `has_answer`: the text has an
    alternative of each group. `is_stale`: the text gives an outdated value as current."""

    life: str
    question: Question
    sources: str
    budget: int
    tokens: int
    has_answer: bool
    is_stale: bool

    @property
    def answers(self) -> bool:
        return self.has_answer and not self.is_stale


def judge(life: Life, question: Question, sources: str, budget: int, recalled: Mapping[str, Any]) -> Judgement:
    has_answer = bool(question.answers) and all(_has_one(recalled["text"], group) for group in question.answers)
    is_stale = any(_is_stale(question, entry, recalled["entries"]) for entry in recalled["entries"])
    return Judgement(life.about.life, question, sources, budget, recalled["tokens"], has_answer, is_stale)


def _is_stale(question: Question, entry: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> bool:
    """Returns whether a reader would take an outdated value of this entry for the current one. A reader would not if
    the entry also has the answer or is marked as corrected, or if it is a message and a later entry has the answer."""
    text = entry["text"]
    if not _has_one(text, question.outdated) or CORRECTED in text or _has_all(text, question):
        return False
    is_message = entry["kind"] == "passage"
    return not (is_message and any(_has_all(one["text"], question) and one["time"] > entry["time"] for one in entries))


def _has_all(text: str, question: Question) -> bool:
    return all(_has_one(text, group) for group in question.answers)


def _has_one(text: str, values: Sequence[str]) -> bool:
    return any(has(text, value) for value in values)
