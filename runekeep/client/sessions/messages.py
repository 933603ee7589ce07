"""Messages and their parts, and their conversion to messages of the contract and back."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

from google.protobuf import duration_pb2, json_format, struct_pb2

from runekeep.client.wire.arguments import time_to_wire
from runekeep.client.wire.proto_json import enum_number, enum_word, to_json
from runekeep.v1 import common_pb2

RoleName: TypeAlias = Literal["user", "assistant"]
ToolStatusName: TypeAlias = Literal["pending", "running", "completed", "error"]

MAX_CALL_MESSAGES = 100
"""Maximum of one call of AddMessages."""
_MAX_CALL_BYTES = 1024 * 1024
"""Below what the server takes, since the size of a message is estimated."""


@dataclass(frozen=True, slots=True)
class TextPart:
    """Plain text, at most 256 KiB."""

    text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    """An image by https or data URL. `detail` is auto, low or high; `caption` says what it shows, if known."""

    url: str
    detail: str = "auto"
    caption: str = ""


@dataclass(frozen=True, slots=True)
class ContextPart:
    """A context that the agent saw: its URI and abstract."""

    uri: str
    abstract: str = ""


@dataclass(frozen=True, slots=True)
class ToolPart:
    """A tool call and its result.

    `status` is pending, running, completed or error; only completed counts as a success. `duration_ms` is in
    milliseconds. `total_tokens` counts prompt and completion tokens of the call. `skill_name` names the skill that
    the call ran, if any. If the message has only the beginning of a long output, the server sets
    `stored_output_length`: the length of the whole output in characters.
    """

    tool_id: str
    tool_name: str
    skill_name: str = ""
    input: Mapping[str, Any] = field(default_factory=dict)
    output: str = ""
    status: ToolStatusName = "pending"
    duration_ms: float | None = None
    total_tokens: int = 0
    stored_output_length: int = 0


Part: TypeAlias = TextPart | ImagePart | ContextPart | ToolPart


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a session.

    An empty `id`: the server chooses one. `created_at` None: the time of arrival; a time without a zone is local. The
    server sets `sequence`, its position in the session, and `shortened`: the message is larger than a response may be,
    so its longest parts are cut.
    """

    role: RoleName
    parts: Sequence[Part]
    id: str = ""
    created_at: datetime | None = None
    peer_id: str = ""
    turn_id: str = ""
    speaker: str = ""
    sequence: int = 0
    shortened: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Returns a dictionary that `json.dumps` takes, with the time as ISO 8601 and the `type` of each part. It has
        `shortened` only if that is true."""
        kinds = ((type(part).__name__.removesuffix("Part").lower(), part) for part in self.parts)
        return {
            "sequence": self.sequence,
            "id": self.id,
            "role": self.role,
            "speaker": self.speaker,
            "peer_id": self.peer_id,
            "turn_id": self.turn_id,
            "created_at": self.created_at.isoformat() if self.created_at else None,
            "parts": [{"type": kind, **asdict(part)} for kind, part in kinds],
            **({"shortened": True} if self.shortened else {}),
        }


def split_calls(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """Yields the messages in order, in lists that one call of `add_messages` takes: at most 100 messages and about
    1 MiB. A larger message is alone."""
    call: list[Message] = []
    call_bytes = 0
    for message in messages:
        message_bytes = sum(_part_bytes(part) for part in message.parts)
        if call and (len(call) == MAX_CALL_MESSAGES or call_bytes + message_bytes > _MAX_CALL_BYTES):
            yield call
            call, call_bytes = [], 0
        call.append(message)
        call_bytes += message_bytes
    if call:
        yield call


def _part_bytes(part: Part) -> int:
    """Returns an estimate. It takes also a part that cannot be sent."""
    return len((part.text if isinstance(part, TextPart) else str(part)).encode(errors="replace"))


def message_to_wire(message: Message) -> common_pb2.Message:
    """Raises ValueError for an unknown role or status, and TypeError for a part of another kind."""
    return common_pb2.Message(
        id=message.id,
        role=common_pb2.Role.ValueType(enum_number(common_pb2.Role, message.role)),
        parts=[_part_to_wire(part) for part in message.parts],
        peer_id=message.peer_id,
        turn_id=message.turn_id,
        create_time=time_to_wire(message.created_at, "created_at"),
        speaker=message.speaker,
    )


def message_from_wire(message: common_pb2.Message) -> Message:
    role: RoleName = "assistant" if message.role == common_pb2.ROLE_ASSISTANT else "user"
    return Message(
        role=role,
        parts=[_part_from_wire(part) for part in message.parts],
        id=message.id,
        created_at=message.create_time.ToDatetime(UTC) if message.HasField("create_time") else None,
        peer_id=message.peer_id,
        turn_id=message.turn_id,
        speaker=message.speaker,
        sequence=message.sequence,
        shortened=message.shortened,
    )


def _part_to_wire(part: Part) -> common_pb2.Part:
    match part:
        case TextPart():
            return common_pb2.Part(text=common_pb2.TextPart(text=part.text))
        case ImagePart():
            image = common_pb2.ImagePart(url=part.url, detail=part.detail, caption=part.caption)
            return common_pb2.Part(image=image)
        case ContextPart():
            return common_pb2.Part(context=common_pb2.ContextPart(uri=part.uri, abstract=part.abstract))
        case ToolPart():
            return common_pb2.Part(tool=_tool_to_wire(part))
    raise TypeError(f"a message part is a TextPart, ImagePart, ContextPart or ToolPart, not {type(part).__name__}")


def _tool_to_wire(part: ToolPart) -> common_pb2.ToolPart:
    tool = common_pb2.ToolPart(
        tool_id=part.tool_id,
        tool_name=part.tool_name,
        skill_name=part.skill_name,
        output=part.output,
        status=common_pb2.ToolStatus.ValueType(enum_number(common_pb2.ToolStatus, part.status)),
        total_tokens=part.total_tokens,
    )
    if part.input:
        try:
            tool.input.CopyFrom(json_format.ParseDict(dict(part.input), struct_pb2.Struct()))
        except (json_format.ParseError, OverflowError, RecursionError) as error:
            what = "holds a number that is too large, is nested too deeply, or is no JSON"
            raise ValueError(f"the input of the tool call {part.tool_id!r} {what}") from error
    if part.duration_ms is not None:
        duration = duration_pb2.Duration()
        duration.FromNanoseconds(round(part.duration_ms * 1_000_000))
        tool.duration.CopyFrom(duration)
    return tool


def _part_from_wire(part: common_pb2.Part) -> Part:
    match part.WhichOneof("part"):
        case "text":
            return TextPart(part.text.text)
        case "image":
            return ImagePart(part.image.url, part.image.detail or "auto", part.image.caption)
        case "context":
            return ContextPart(part.context.uri, part.context.abstract)
        case "tool":
            return _tool_from_wire(part.tool)
    raise ValueError("the server sent a message part that this client does not know; upgrade the client")


def _tool_from_wire(tool: common_pb2.ToolPart) -> ToolPart:
    status: dict[str | None, ToolStatusName] = {"running": "running", "completed": "completed", "error": "error"}
    return ToolPart(
        tool_id=tool.tool_id,
        tool_name=tool.tool_name,
        skill_name=tool.skill_name,
        input=to_json(tool.input) if tool.HasField("input") else {},
        output=tool.output,
        status=status.get(enum_word(common_pb2.ToolStatus, tool.status), "pending"),
        duration_ms=tool.duration.ToNanoseconds() / 1e6 if tool.HasField("duration") else None,
        total_tokens=tool.total_tokens,
        stored_output_length=tool.stored_output_length,
    )
