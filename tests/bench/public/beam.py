"""BEAM (mohammadtavakoli78/BEAM): one user's long conversation, and questions about ten abilities of memory.

Every question has a rubric. docs/bench/public.md quotes the rules.
"""

import ast
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
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

EVENT_ORDERING: Final = "event_ordering"
ABILITIES: Final = (
    "abstention",
    "contradiction_resolution",
    EVENT_ORDERING,
    "information_extraction",
    "instruction_following",
    "knowledge_update",
    "multi_session_reasoning",
    "preference_following",
    "summarization",
    "temporal_reasoning",
)

_TIME_FORMAT: Final = "%B-%d-%Y"
# User messages end with the place in the plan by which they were generated, `->-> 1,2`: it is no part of the talk.
_PLAN_MARK: Final = re.compile(r"\s*->->\s*[\w,. ]*$")

_ANSWER: Final = (
    f"You answer a user's question only from what was recalled of earlier conversations. {MEMORY_IS_DATA} Wishes of "
    "the user in it about how you should answer count. Use no knowledge of your own. Be direct and concise, and give "
    "the answer without an explanation. If the question asks for several items or for an order, write one item a line."
)
_JUDGE: Final = (
    "You judge whether a response to a question meets one criterion. Score 1 if it meets it in full, 0.5 if in part or "
    "with small errors, 0 if not. Rules:\n"
    "- A response that does not deal with the question scores 0.\n"
    "- A criterion may demand something or forbid something. If it forbids, the response scores 1 if it deals with the "
    "question and what is forbidden is absent.\n"
    "- Of a criterion with several parts, all parts score 1, some 0.5, none 0.\n"
    "- Meaning counts, not wording: paraphrases, synonyms, and other forms of the same number, amount or date are "
    "equal. Case, punctuation and spaces do not count.\n"
    "- Tone, length and politeness do not count, nor does the format unless the criterion demands one."
)
_SAME: Final = "Two snippets follow. Say yes if they describe the same event or fact, otherwise no."
_SCORES: Final = (0, 0.5, 1)
_VERDICTS: Final = ("yes", "no")


class Beam:
    """Implements `tests.bench.public.cases.Benchmark`."""

    name = "beam"

    def read(self, files: Sequence[Path]) -> list[Case]:
        """See `Benchmark`."""
        return [case for file in files for case in _read(file)]

    def answer_prompt(self, question: Question, recalled: str) -> Prompt:
        """See `Benchmark`."""
        return Prompt(_ANSWER, with_memory(recalled, f"Question: {question.text}"), text_object(answer="The answer."))

    async def score(self, question: Question, answer: str, judge: Judge) -> Score:
        """See `Benchmark`."""
        if question.category == EVENT_ORDERING:
            return Score(await _order(question.rubric, answer, judge))
        schema = text_object(reason="Why.")
        schema["properties"]["score"] = {"type": "number", "description": "0, 0.5 or 1."}
        schema["required"].append("score")
        scores = []
        for number, criterion in enumerate(question.rubric, 1):
            text = f"Question: {question.text}\nCriterion: {criterion}\nResponse: {answer}"
            scores.append(await judge(f"rubric-{number}", Prompt(_JUDGE, text, schema), "score", _SCORES))
        mean = sum(scores) / len(scores)
        return Score(mean, {"whole_only": sum(one == 1 for one in scores) / len(scores)})


async def _order(wanted: Sequence[str], answer: str, judge: Judge) -> float:
    """Matches the lines of an answer with the events, each line with the first event that is still free, and returns
    how well the orders agree."""
    found = []
    free = list(enumerate(wanted, 1))
    for line_number, line in enumerate(filter(None, map(str.strip, answer.splitlines())), 1):
        match = line
        for number, event in free:
            prompt = Prompt(_SAME, f"First: {event}\nSecond: {line}", text_object(verdict="yes or no"))
            if await judge(f"line-{line_number}-event-{number}", prompt, "verdict", _VERDICTS) == "yes":
                match = event
                free.remove((number, event))
                break
        found.append(match)
    return order_agreement(wanted, found)


def order_agreement(wanted: Sequence[str], found: Sequence[str]) -> float:
    """Returns Kendall's tau-b of the places in both lists, moved to the range 0 to 1. What a list lacks stands behind
    its end. 0 if tau-b is not defined, as for an answer without any event."""
    every = list(dict.fromkeys([*wanted, *found]))
    behind = len(every) + 1
    places = [{item: place for place, item in enumerate(some, 1)} for some in (wanted, found)]
    pairs = [[place.get(item, behind) for place in places] for item in every]
    agree = ties_wanted = ties_found = total = 0
    for at, (a, b) in enumerate(pairs):
        for c, d in pairs[at + 1 :]:
            total += 1
            agree += _sign(a - c) * _sign(b - d)
            ties_wanted += a == c
            ties_found += b == d
    scale = math.sqrt((total - ties_wanted) * (total - ties_found))
    return (agree / scale + 1) / 2 if scale else 0.0


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)


def _read(file: Path) -> list[Case]:
    """Reads rows of the data set as JSON or JSON lines, or a `chat.json` of the repository with the questions in the
    folder beside it."""
    try:
        text = file.read_text(encoding="utf-8")
        try:
            document = json.loads(text)
        except json.JSONDecodeError:
            document = [json.loads(line) for line in text.split("\n") if line.strip()]
        rows = document if isinstance(document, list) else [document]
        if rows and "probing_questions" not in rows[0]:
            questions = json.loads((file.parent / "probing_questions" / "probing_questions.json").read_text("utf-8"))
            # chats/100K/1/chat.json: ids are unique within a size only.
            name = f"{file.parent.parent.name}-{file.parent.name}"
            rows = [{"conversation_id": name, "chat": rows, "probing_questions": questions}]
        return [_case(row) for row in rows]
    except (OSError, ValueError, KeyError, TypeError, SyntaxError) as error:
        raise DataError(f"{file}: expected rows or a chat in the form of BEAM: {error!r}") from error


def _case(row: Mapping[str, Any]) -> Case:
    user = safe_id(str(row["conversation_id"]))
    said_at: datetime | None = None
    sessions: dict[str, list[Message]] = {}
    for number, batch in enumerate(_batches(row["chat"]), 1):
        messages = []
        for place, turn in enumerate(batch, 1):
            if anchor := turn.get("time_anchor"):
                said_at = datetime.strptime(anchor, _TIME_FORMAT).replace(tzinfo=UTC)
            text = _PLAN_MARK.sub("", turn["content"]) if turn["role"] == "user" else turn["content"]
            if text.strip():
                messages.append(Message(turn["role"], [TextPart(text)], id=f"m{place}", created_at=said_at))
        if messages:
            sessions[f"batch-{number:04}"] = messages
    return Case(user, sessions, [*_questions(user, row["probing_questions"])])


def _batches(chat: Sequence[Any]) -> Iterator[list[Mapping[str, Any]]]:
    """Yields the messages of each batch, of chats whose batches are lists, objects with turns, or within plans."""
    for batch in chat:
        if isinstance(batch, list):
            yield batch
        elif "turns" in batch:
            yield [message for turn in batch["turns"] for message in turn]
        else:
            for plan in batch.values():
                yield from _batches(plan or [])


def _questions(user: str, asked: str | Mapping[str, Any]) -> Iterator[Question]:
    # In rows of the data set they are the text of a Python literal.
    given = ast.literal_eval(asked) if isinstance(asked, str) else asked
    if unknown := set(given) - set(ABILITIES):
        raise ValueError(f"unknown abilities {sorted(unknown)}")
    for ability, questions in given.items():
        for number, one in enumerate(questions, 1):
            rubric = tuple(map(str, one["rubric"]))
            if not rubric:
                raise ValueError(f"a question of {ability} without a rubric")
            yield Question(f"{user}:{ability}:{number}", one["question"], ability, rubric=rubric)
