"""Messages in the forms of OpenAI's and of Anthropic's API, mixed as they come, as messages of a session.

A message is `{"role": ..., "content": ...}`. Content is text or blocks: text, image (Anthropic), image_url and refusal
(OpenAI), tool_use and tool_result (Anthropic). `tool_calls` and messages with the role `tool` are OpenAI's way to say
the same. A call and its result become one tool part, in the message that made the call. An image in a result becomes
`[image]`. OpenAI's `refusal` and the transcript of its `audio` are text. System prompts and the model's own thinking
are no conversation and are left out. A key with the value None counts as absent.

Beside what the two forms have, a message may have `created_at` or `timestamp` (ISO 8601, or seconds since 1970),
`peer_id`, `turn_id`, `id`, and `speaker` or `name`; a call may have `skill_name`; a result may have `duration_ms`,
`total_tokens` and `is_error`.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from runekeep.client.sessions.message_log import MessageLog
from runekeep.client.sessions.messages import ImagePart, Message, Part, RoleName, TextPart, ToolPart

SYSTEM = "system"
"""Speaker of a system prompt that is kept: the contract has no role for it."""


_IMAGE = "[image]"
"""Stands for an image in the result of a tool."""


class _Loose(BaseModel):
    """Exports carry keys of their own; what is not read here is passed over."""

    model_config = ConfigDict(extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _without_none(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        return {name: value for name, value in given.items() if value is not None}


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


class _Refusal(_Loose):
    type: Literal["refusal"]
    refusal: str


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


_Block = Annotated[
    _Text | _Image | _ImageUrlBlock | _Refusal | _ToolUse | _ToolResult | _Thinking, Field(discriminator="type")
]


class _Function(_Loose):
    name: str
    arguments: str = ""


class _ToolCall(_Loose):
    id: str
    function: _Function
    skill_name: str = ""


class _Audio(_Loose):
    transcript: str = ""


class ChatMessage(_Outcome):
    """One message, in either form."""

    role: Literal["user", "assistant", "tool", "system", "developer"]
    content: str | list[_Block] | None = None
    tool_calls: list[_ToolCall] | None = None
    tool_call_id: str = ""
    refusal: str = ""
    audio: _Audio | None = None
    function_call: Any = None
    created_at: AwareDatetime | None = None
    timestamp: AwareDatetime | None = None
    id: str = ""
    peer_id: str = ""
    turn_id: str = ""
    speaker: str = ""
    name: str = ""

    @field_validator("function_call")
    @classmethod
    def _refuse_function_call(cls, given: Any) -> Any:
        # It has no id, so its result could not be told from that of another call.
        raise ValueError("is OpenAI's outdated form: give tool_calls, and results with the role tool")


def first_problem(error: ValidationError) -> str:
    """Returns the place and the rule of the first value that does not fit, and never the value."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(step) for step in first["loc"])
    return f"{place or 'the message'}: {first['msg']}"


class ChatReader:
    """Reads messages in order, and joins calls with results that come later. `messages` holds what was read, `left_out`
    counts system prompts.

    `id_of` gives the id of each message; `include_system` keeps system prompts, as messages of the user.
    """

    def __init__(self, id_of: Callable[[ChatMessage], str], *, include_system: bool = False) -> None:
        self.left_out = 0
        self._id_of = id_of
        self._include_system = include_system
        self._log = MessageLog()

    @property
    def messages(self) -> list[Message]:
        return self._log.messages

    def read(self, said: ChatMessage) -> None:
        """Raises ValueError for a tool result whose call was not read before."""
        is_system = said.role in ("system", "developer")
        if is_system and not self._include_system:
            self.left_out += 1
            return
        if said.role == "tool":
            self._join(said.tool_call_id, _plain_text(said.content), said)
            return
        role: RoleName = "assistant" if said.role == "assistant" else "user"
        parts = list(self._parts(said))
        if not parts:
            # Only results, which now are with their calls, or nothing at all.
            return
        message = Message(
            role=role,
            parts=parts,
            id=self._id_of(said),
            created_at=said.created_at or said.timestamp,
            peer_id=said.peer_id,
            turn_id=said.turn_id,
            speaker=said.speaker or said.name or (SYSTEM if is_system else ""),
        )
        self._log.add(message)

    def take(self, message: Message) -> None:
        """Adds a message that needs no reading."""
        self.messages.append(message)

    def _parts(self, line: ChatMessage) -> Iterator[Part]:
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
                    case _Refusal() if block.refusal.strip():
                        yield TextPart(block.refusal)
                    case _ImageUrlBlock():
                        yield ImagePart(block.image_url.url, block.image_url.detail)
                    case _ToolUse():
                        yield ToolPart(block.id, block.name, block.skill_name, block.input)
                    case _ToolResult():
                        self._join(block.tool_use_id, _plain_text(block.content), block)
        for text in (line.refusal, line.audio.transcript if line.audio else ""):
            if text.strip():
                yield TextPart(text)
        for call in line.tool_calls or []:
            yield ToolPart(call.id, call.function.name, call.skill_name, _arguments(call.function.arguments))

    def _join(self, call_id: str, output: str, outcome: _Outcome) -> None:
        is_joined = self._log.finish_call(
            call_id,
            output,
            is_error=outcome.is_error,
            duration_ms=outcome.duration_ms,
            total_tokens=outcome.total_tokens,
        )
        if not is_joined:
            raise ValueError("a tool result answers no tool call before it; give the call and its result together")


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


def _plain_text(content: str | Sequence[Any] | None) -> str:
    """Returns the text of a tool's result, with a placeholder for each image: a tool part has only text."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = [_IMAGE if isinstance(block, (_Image, _ImageUrlBlock)) else getattr(block, "text", "") for block in content]
    return "\n".join(text for text in texts if text)
