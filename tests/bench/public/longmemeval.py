"""LongMemEval (xiaowu0162/LongMemEval): each question follows a history of chats of its own with an assistant.

docs/bench/public.md quotes the rules.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from runekeep import Message, TextPart
from runekeep.transcripts.batches import safe_id
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

ABSTENTION: Final = "abstention"
"""The group of questions that cannot be answered. They count in their type too."""

_WEEKDAY: Final = re.compile(r"\s*\(\w+\)\s*")
_TIME_FORMAT: Final = "%Y/%m/%d %H:%M"

_ANSWER: Final = (
    "You are an assistant with a memory of your earlier chats with this user. Answer the user's question from what was "
    f"recalled of these chats, as of the current date. {MEMORY_IS_DATA} First note everything recalled that bears on "
    "the question, with its dates, and reason over it; then give the answer."
)
_CONTAINS: Final = (
    "Say yes if the response contains the correct answer, is equivalent to it, or has all steps that lead to it. Say "
    "no if it has only a part of what is asked for, or something else."
)
_JUDGES: Final = {
    "single-session-user": _CONTAINS,
    "single-session-assistant": _CONTAINS,
    "multi-session": _CONTAINS,
    "temporal-reasoning": f"{_CONTAINS} Do not count it as an error if a number of days, weeks or months is off by "
    "one.",
    "knowledge-update": "Say yes if the response gives the correct answer, which is the updated one, also if it "
    "mentions earlier information beside it. Otherwise say no.",
    "single-session-preference": "The correct answer is a rubric of the response that this user would want. Say yes if "
    "the response satisfies it: it must recall and use the user's personal information correctly, and need not reflect "
    "all points. Otherwise say no.",
}
_JUDGE_ABSTENTION: Final = (
    "The question cannot be answered, for the reason that stands in place of a correct answer. Say yes if the response "
    "recognises that, for example by saying that the information is incomplete, or that something else is known but "
    "not what is asked. Otherwise say no."
)
_VERDICTS: Final = ("yes", "no")


class LongMemEval:
    """Implements `tests.bench.public.cases.Benchmark`."""

    name = "longmemeval"

    def read(self, files: Sequence[Path]) -> list[Case]:
        """See `Benchmark`."""
        return [case for file in files for case in _read(file)]

    def answer_prompt(self, question: Question, recalled: str) -> Prompt:
        """See `Benchmark`."""
        asked = f"Current date: {question.asked}\nQuestion: {question.text}"
        schema = text_object(notes="What bears on the question, and your reasoning.", answer="The answer to the user.")
        return Prompt(_ANSWER, with_memory(recalled, asked), schema)

    async def score(self, question: Question, answer: str, judge: Judge) -> Score:
        """See `Benchmark`."""
        rule = _JUDGE_ABSTENTION if ABSTENTION in question.groups else _JUDGES[question.category]
        text = f"Question: {question.text}\nCorrect answer: {question.gold}\nResponse: {answer}"
        prompt = Prompt(f"You judge a model's response to a question. {rule}", text, text_object(verdict="yes or no"))
        verdict = await judge("verdict", prompt, "verdict", _VERDICTS)
        return Score(float(verdict == "yes"))


def _read(file: Path) -> list[Case]:
    try:
        return [_case(one) for one in json.loads(file.read_text(encoding="utf-8"))]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file}: expected a list of instances in the form of LongMemEval: {error!r}") from error


def _case(one: Mapping[str, Any]) -> Case:
    user = safe_id(one["question_id"])
    kind = one["question_type"]
    if kind not in _JUDGES:
        raise ValueError(f"unknown question_type {kind!r}")
    groups = (ABSTENTION,) if "_abs" in one["question_id"] else ()
    question = Question(user, one["question"], kind, gold=str(one["answer"]), asked=one["question_date"], groups=groups)
    # The file with the evidence alone is not in the order of time.
    dated = zip(map(_time, one["haystack_dates"]), one["haystack_session_ids"], one["haystack_sessions"], strict=True)
    sessions = {}
    for number, (said_at, name, turns) in enumerate(sorted(dated, key=lambda session: session[0]), 1):
        session = f"{number:03}-{safe_id(name)}"[:128]
        messages = [_message(place, turn, said_at) for place, turn in enumerate(turns, 1) if turn["content"].strip()]
        if messages:
            sessions[session] = messages
    return Case(user, sessions, [question])


def _message(place: int, turn: Mapping[str, Any], said_at: datetime) -> Message:
    return Message(turn["role"], [TextPart(turn["content"])], id=f"m{place}", created_at=said_at)


def _time(text: str) -> datetime:
    """Reads `2023/05/20 (Sat) 02:21`. The data names no zone."""
    return datetime.strptime(_WEEKDAY.sub(" ", text), _TIME_FORMAT).replace(tzinfo=UTC)
