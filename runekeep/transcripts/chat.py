"""Chat transcripts as JSON lines, in the message forms of Anthropic's and of OpenAI's API, mixed as they come.

A line is a message, `{"role": ..., "content": ...}`. Content is text or blocks: text, image (Anthropic), image_url
(OpenAI), tool_use and tool_result (Anthropic). `tool_calls` and lines with the role `tool` are OpenAI's way to say the
same. A call and its result become one tool part, in the message that made the call. System prompts and the model's own
thinking are no conversation and are left out.

Beside what the two forms have, a message may have `created_at` or `timestamp` (ISO 8601, or seconds since 1970),
`peer_id`, `turn_id`, `id`, and `speaker` or `name`; a call may have `skill_name`; a result may have `duration_ms`,
`total_tokens` and `is_error`.

Three more kinds of line are ours:
    {"session": "monday"}      what follows belongs to this session; what came before is committed
    {"commit": true}           commit here and go on in the same session
    {"used": {"contexts": ["viking://..."], "skill": {"uri": ..., "input": ..., "output": ..., "success": true}}}
"""

import json
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from runekeep.client.sessions.messages import ImagePart, Message, Part, RoleName, TextPart, ToolPart
from runekeep.transcripts.batches import Batch, TranscriptError, Usage, safe_id

_IDS = uuid.UUID("5b0f3c5e-6f0c-4d0e-9b52-9a6f2f0a8c11")
"""Namespace of the ids made for messages that bring none."""


class _Loose(BaseModel):
    """Exports carry keys of their own; what is not read here is passed over."""

    model_config = ConfigDict(extra="ignore")


class _Text(_Loose):
    type: Literal["text", "input_text", "output_text"]
    text: str


class _ImageSource(_Loose):
    type: Literal["url", "base64"]
    url: str = ""
    media_type: str = ""
    data: str = ""


class _Image(_Loose):
    type: Literal["image"]
    source: _ImageSource


class _ImageUrl(_Loose):
    url: str
    detail: str = "auto"


class _ImageUrlBlock(_Loose):
    type: Literal["image_url"]
    image_url: _ImageUrl


class _ToolUse(_Loose):
    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any] = Field(default_factory=dict)
    skill_name: str = ""


class _Outcome(_Loose):
    is_error: bool = False
    duration_ms: float | None = Field(default=None, ge=0)
    total_tokens: int = Field(default=0, ge=0)


class _ToolResult(_Outcome):
    type: Literal["tool_result"]
    tool_use_id: str
    content: str | list[Annotated[_Text | _Image, Field(discriminator="type")]] = ""


class _Thinking(_Loose):
    type: Literal["thinking", "redacted_thinking"]


_Block = Annotated[_Text | _Image | _ImageUrlBlock | _ToolUse | _ToolResult | _Thinking, Field(discriminator="type")]


class _Function(_Loose):
    name: str
    arguments: str = ""


class _ToolCall(_Loose):
    id: str
    function: _Function
    skill_name: str = ""


class _Line(_Outcome):
    role: Literal["user", "assistant", "tool", "system", "developer"]
    content: str | list[_Block] | None = None
    tool_calls: list[_ToolCall] | None = None
    tool_call_id: str = ""
    created_at: AwareDatetime | None = None
    timestamp: AwareDatetime | None = None
    id: str = ""
    peer_id: str = ""
    turn_id: str = ""
    speaker: str = ""
    name: str = ""


class _UsedLine(BaseModel):
    model_config = ConfigDict(extra="forbid")
    contexts: list[str] = Field(default_factory=list)
    skill: dict[str, Any] | None = None


def read_chat(lines: Iterable[str], session_id: str) -> list[Batch]:
    """Batches of a transcript; `session_id` names the session until a line names another.

    Raises TranscriptError with the number of the line that cannot be read.
    """
    reader = _Reader(session_id)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            reader.take(json.loads(line))
        except json.JSONDecodeError as error:
            raise TranscriptError(f"line {number} is not JSON: {error.msg} at column {error.colno}") from error
        except ValidationError as error:
            raise TranscriptError(f"line {number}: {_say(error)}") from error
        except TranscriptError as error:
            raise TranscriptError(f"line {number}: {error}") from error
    return reader.finish()


def _say(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(step) for step in first["loc"])
    return f"{place or 'the line'}: {first['msg']}"


class _Reader:
    """Joins calls with results that come later, and cuts batches at the markers."""

    def __init__(self, session_id: str) -> None:
        self._batches: list[Batch] = []
        self._batch = Batch(safe_id(session_id))
        self._open_calls: dict[str, tuple[int, int]] = {}
        """Call id to the place of its part: message of the batch, part of the message."""
        self._counts: dict[str, int] = {}

    def take(self, line: Any) -> None:
        if not isinstance(line, dict):
            raise TranscriptError("a line is a JSON object with a role, or one of the markers")
        if "role" in line:
            self._take_message(_Line.model_validate(line))
        elif "session" in line:
            self._cut(safe_id(str(line["session"])))
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
        if self._batch.messages or self._batch.usages or self._batch.left_out:
            self._batches.append(self._batch)
        self._batch = Batch(next_session)
        self._open_calls.clear()

    def _take_message(self, line: _Line) -> None:
        if line.role in ("system", "developer"):
            self._batch.left_out += 1
            return
        if line.role == "tool":
            self._join(line.tool_call_id, _plain_text(line.content), line)
            return
        role: RoleName = "assistant" if line.role == "assistant" else "user"
        parts: list[Part] = []
        calls: dict[str, int] = {}
        for part in self._parts(line):
            if isinstance(part, ToolPart):
                calls[part.tool_id] = len(parts)
            parts.append(part)
        if not parts:
            # Only results, which now are with their calls, or nothing at all.
            return
        place = len(self._batch.messages)
        self._batch.messages.append(self._message(role, parts, line))
        self._open_calls.update({call: (place, position) for call, position in calls.items()})

    def _message(self, role: RoleName, parts: list[Part], line: _Line) -> Message:
        session = self._batch.session_id
        count = self._counts[session] = self._counts.get(session, 0) + 1
        # The same file read again gives the same ids, so that a repeated run adds nothing twice; an edited line is new.
        made = uuid.uuid5(_IDS, f"{session}\n{count}\n{line.model_dump_json()}")
        return Message(
            role=role,
            parts=parts,
            id=safe_id(line.id) if line.id else f"msg_{made}",
            created_at=line.created_at or line.timestamp,
            peer_id=line.peer_id,
            turn_id=line.turn_id,
            speaker=line.speaker or line.name,
        )

    def _parts(self, line: _Line) -> Iterator[Part]:
        if isinstance(line.content, str):
            if line.content.strip():
                yield TextPart(line.content)
        else:
            for block in line.content or []:
                match block:
                    case _Text() if block.text.strip():
                        yield TextPart(block.text)
                    case _Image():
                        yield _image(block)
                    case _ImageUrlBlock():
                        yield ImagePart(block.image_url.url, block.image_url.detail)
                    case _ToolUse():
                        yield ToolPart(block.id, block.name, block.skill_name, block.input)
                    case _ToolResult():
                        self._join(block.tool_use_id, _plain_text(block.content), block)
        for call in line.tool_calls or []:
            yield ToolPart(call.id, call.function.name, call.skill_name, _arguments(call.function.arguments))

    def _join(self, call_id: str, output: str, outcome: _Outcome) -> None:
        place = self._open_calls.pop(call_id, None)
        if place is None:
            raise TranscriptError("a tool result answers no open tool call of this batch")
        message = self._batch.messages[place[0]]
        parts = list(message.parts)
        call = parts[place[1]]
        assert isinstance(call, ToolPart)
        parts[place[1]] = replace(
            call,
            output=output,
            status="error" if outcome.is_error else "completed",
            duration_ms=outcome.duration_ms,
            total_tokens=outcome.total_tokens,
        )
        self._batch.messages[place[0]] = replace(message, parts=parts)


def _arguments(text: str) -> dict[str, Any]:
    """What a model wrote as arguments need not be an object, or JSON at all; then it is kept as it is."""
    if not text.strip():
        return {}
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        found = text
    return found if isinstance(found, dict) else {"arguments": found}


def _image(block: _Image) -> ImagePart:
    source = block.source
    return ImagePart(source.url if source.type == "url" else f"data:{source.media_type};base64,{source.data}")


def _plain_text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(block.text for block in content if isinstance(block, _Text))
