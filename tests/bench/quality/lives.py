"""Reads and checks lives: months of sessions of one user, and questions about them. README.md defines the format.

`python -m tests.bench.quality.lives FILE...` checks files and prints their counts.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

DIRECTORY = Path(__file__).parent / "lives"
MIN_SESSIONS, MIN_MESSAGES = 12, 250
_LATIN = "[0-9A-Za-z\u00c0-\u024f]"

Kind = Literal["two_sessions", "corrected", "when", "other_language", "tool", "middle"]
Text = Annotated[str, Field(min_length=1)]


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class About(_Line):
    """The first line. `languages`: those of the conversation, the main one first."""

    life: Text
    about: Text
    user: Text
    languages: list[Literal["en", "de", "zh"]]
    origin: Text


class Session(_Line):
    """Starts a session: the messages after this line belong to it."""

    session: Text


class ToolCall(_Line):
    name: Text
    input: dict[str, Any]
    output: str
    status: Literal["completed", "error"]


class Message(_Line):
    """`name`: who speaks, where several people speak as the user."""

    id: Text
    at: datetime
    role: Literal["user", "assistant"]
    text: Text
    name: str = ""
    tools: list[ToolCall] = []


class Question(_Line):
    """`answers`: groups of alternatives; a text answers if it has one alternative of each group. Empty: no message
    answers the question. `evidence`: ids of the messages that answer. `outdated`: values that were corrected."""

    question: Text
    asked: datetime
    text: Text
    language: Literal["en", "de", "zh"]
    answers: list[Annotated[list[Text], Field(min_length=1)]]
    outdated: list[Text] = []
    evidence: list[Text] = []
    kinds: list[Kind] = []
    never: Literal["subject", "detail"] | None = None


Line = About | Session | Message | Question
_FORMS: dict[str, type[Line]] = {"life": About, "session": Session, "question": Question}
"""Models of lines, by a field that only lines of that model have."""


class LifeError(ValueError):
    """A file breaks the format. The message has one line for each fault."""


@dataclass(frozen=True, slots=True)
class Life:
    """`sessions`: messages by session id, oldest first."""

    about: About
    sessions: dict[str, list[Message]]
    questions: list[Question]

    def messages(self) -> Iterator[Message]:
        for messages in self.sessions.values():
            yield from messages


def has(text: str, value: str) -> bool:
    """Returns whether a text has a value, in upper or lower case, but not as a part of a longer word or number.
    Characters of scripts without spaces may be next to it."""
    start = f"(?<!{_LATIN})" if re.match(_LATIN, value) else ""
    end = f"(?!{_LATIN})" if re.match(_LATIN, value[-1]) else ""
    return re.search(start + re.escape(value.casefold()) + end, text.casefold()) is not None


def read(file: Path) -> Life:
    """Returns the life in a file. Raises LifeError."""
    faults: list[str] = []
    lines: list[Line] = []
    for number, written in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            given = json.loads(written)
            form = next((form for name, form in _FORMS.items() if name in given), Message)
            lines.append(form.model_validate(given))
        except (ValidationError, json.JSONDecodeError) as error:
            faults.append(f"{file.name}:{number}: {error}")
    if faults or not lines or not isinstance(lines[0], About):
        raise LifeError("\n".join(faults) or f"{file.name}: the first line does not say whose life it is")
    life = Life(lines[0], {}, [line for line in lines if isinstance(line, Question)])
    for line in lines:
        if isinstance(line, Session):
            messages = life.sessions[line.session] = []
        elif isinstance(line, Message):
            messages.append(line)
    faults = [f"{file.name}: {fault}" for fault in _faults(life)]
    if faults:
        raise LifeError("\n".join(faults))
    return life


def _faults(life: Life) -> Iterator[str]:
    messages = {message.id: message for message in life.messages()}
    session_of = {message.id: session for session, some in life.sessions.items() for message in some}
    times = [message.at for message in life.messages()]
    if len(life.sessions) < MIN_SESSIONS or len(messages) < MIN_MESSAGES:
        yield f"{len(life.sessions)} sessions and {len(messages)} messages: at least {MIN_SESSIONS} and {MIN_MESSAGES}"
    if len(times) != len(messages):
        yield "two messages have one id"
    if times != sorted(times):
        yield "messages are not in the order of time"
    if len({one.question for one in life.questions}) != len(life.questions):
        yield "two questions have one id"
    for question in life.questions:
        for fault in _faults_of(question, messages, session_of, times[-1]):
            yield f"{question.question}: {fault}"


def _faults_of(
    question: Question, messages: dict[str, Message], session_of: dict[str, str], last: datetime
) -> Iterator[str]:
    if bool(question.answers) == (question.never is not None):
        yield "it has answers and `never`, or neither"
    if missing := [one for one in question.evidence if one not in messages]:
        yield f"no message {missing}"
        return
    evidence = [messages[one] for one in question.evidence]
    text = "\n".join(
        " ".join((f"{one.at:%Y-%m-%d}", one.name, one.text, *(call.model_dump_json() for call in one.tools)))
        for one in evidence
    )
    if bool(question.answers) != bool(evidence):
        yield "it has evidence without answers, or answers without evidence"
    yield from (f"no answer of {group} is in its evidence" for group in question.answers if not _any(text, group))
    if any(one.at > question.asked for one in evidence):
        yield "it is asked before its evidence"
    if ("two_sessions" in question.kinds) != (len({session_of[one] for one in question.evidence}) > 1):
        yield "two_sessions is said, and the evidence is of one session, or the other way round"
    if ("corrected" in question.kinds) != bool(question.outdated):
        yield "corrected without an outdated value, or the other way round"
    if ("middle" in question.kinds) != (question.asked <= last):
        yield "middle is said, and it is asked after the last message, or the other way round"
    if wrong := [one for one in question.outdated if any(_any(one, group) for group in question.answers)]:
        yield f"outdated values hold an answer: {wrong}"


def _any(text: str, group: list[str]) -> bool:
    return any(has(text, value) for value in group)


def main(files: list[str]) -> int:
    failed = 0
    for name in files:
        try:
            life = read(Path(name))
        except LifeError as error:
            print(error)
            failed = 1
            continue
        messages = list(life.messages())
        words = sum(len(message.text.split()) for message in messages)
        print(f"{life.about.life}: {len(life.sessions)} sessions, {len(messages)} messages, {words} words")
        answered = sum(bool(one.answers) for one in life.questions)
        kinds = Counter(kind for one in life.questions for kind in one.kinds)
        never = Counter(one.never for one in life.questions if one.never)
        print(f"  {answered} questions with an answer: {dict(kinds)}; never said: {dict(never)}")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
