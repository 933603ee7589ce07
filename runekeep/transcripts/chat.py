"""Chat transcripts as JSON lines, in the message forms of Anthropic's and of OpenAI's API, mixed as they come.

Three kinds of line are ours:
    {"session": "monday"}      what follows belongs to this session; what came before is committed
    {"commit": true}           commit here and go on in the same session
    {"used": {"contexts": ["viking://..."], "skill": {"uri": ..., "input": ..., "output": ..., "success": true}}}
"""

import uuid
from collections.abc import Iterable
from datetime import UTC
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runekeep.client.sessions.chat_messages import ChatMessage, ChatReader, first_problem
from runekeep.transcripts.batches import Batch, TranscriptError, Usage, safe_id
from runekeep.transcripts.values import parse_lines

_IDS = uuid.UUID("5b0f3c5e-6f0c-4d0e-9b52-9a6f2f0a8c11")
"""Namespace of the ids made for messages that bring none."""


class _UsedLine(BaseModel):
    model_config = ConfigDict(extra="forbid")
    contexts: list[str] = Field(default_factory=list)
    skill: dict[str, Any] | None = None


def read_chat(lines: Iterable[str], session_id: str) -> list[Batch]:
    """Batches of a transcript; `session_id` names the session until a line names another.

    Raises TranscriptError with the number of the line that cannot be read.
    """
    reader = _Reader(session_id)
    for number, entry in parse_lines(lines):
        try:
            reader.take(entry)
        except ValidationError as error:
            raise TranscriptError(f"line {number}: {first_problem(error)}") from error
        except ValueError as error:
            raise TranscriptError(f"line {number}: {error}") from error
    return reader.finish()


class _Reader:
    """Cuts batches at the markers."""

    def __init__(self, session_id: str) -> None:
        self._batches: list[Batch] = []
        self._batch = Batch(safe_id(session_id))
        self._chat = ChatReader(self._id_of)
        self._counts: dict[str, int] = {}

    def take(self, line: Any) -> None:
        if not isinstance(line, dict):
            raise TranscriptError("a line is a JSON object with a role, or one of the markers")
        if "role" in line:
            message = ChatMessage.model_validate(line)
            _check_times(message)
            self._chat.read(message)
        elif "session" in line:
            name = line["session"]
            if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
                raise TranscriptError("session: expected the name of a session")
            self._cut(safe_id(str(name)))
        elif line.get("commit") is True:
            self._cut(self._batch.session_id)
        elif "used" in line:
            used = _UsedLine.model_validate(line["used"])
            self._batch.usages.append(Usage(used.contexts, used.skill))
        else:
            raise TranscriptError("neither a message with a role nor a session, commit or used marker")

    def finish(self) -> list[Batch]:
        self._cut(self._batch.session_id)
        return self._batches

    def _cut(self, next_session: str) -> None:
        self._batch.messages, self._batch.left_out = self._chat.messages, self._chat.left_out
        if self._batch.messages or self._batch.usages or self._batch.left_out:
            self._batches.append(self._batch)
        self._batch, self._chat = Batch(next_session), ChatReader(self._id_of)

    def _id_of(self, line: ChatMessage) -> str:
        session = self._batch.session_id
        count = self._counts[session] = self._counts.get(session, 0) + 1
        # The same file read again gives the same ids, so that a repeated run adds nothing twice; an edited line is new.
        made = uuid.uuid5(_IDS, f"{session}\n{count}\n{line.model_dump_json()}")
        return safe_id(line.id) if line.id else f"msg_{made}"


def _check_times(message: ChatMessage) -> None:
    """Raises TranscriptError for a time that is outside the years 1 to 9999 in UTC, which the server does not take."""
    for name, moment in (("created_at", message.created_at), ("timestamp", message.timestamp)):
        try:
            if moment is not None:
                moment.astimezone(UTC)
        except OverflowError as error:
            raise TranscriptError(f"{name}: expected a time in the years 1 to 9999, UTC") from error
