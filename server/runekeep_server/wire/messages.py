"""Converts messages, their parts and usages."""

from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.json_format import MessageToDict, SerializeToJsonError
from google.protobuf.struct_pb2 import NULL_VALUE, Struct, Value

from runekeep.ids import new_uuid
from runekeep.v1 import common_pb2, session_service_pb2
from runekeep_server.protocol.errors import invalid
from runekeep_server.wire.basics import microseconds, timestamp
from runekeep_storage.records import STORED_OUTPUT, Json, Message, Usage

_ROLES = {common_pb2.ROLE_USER: "user", common_pb2.ROLE_ASSISTANT: "assistant"}
_ROLE_NUMBERS = {name: number for number, name in _ROLES.items()}
_STATUSES = {
    common_pb2.TOOL_STATUS_UNSPECIFIED: "pending",
    common_pb2.TOOL_STATUS_PENDING: "pending",
    common_pb2.TOOL_STATUS_RUNNING: "running",
    common_pb2.TOOL_STATUS_COMPLETED: "completed",
    common_pb2.TOOL_STATUS_ERROR: "error",
}
_STATUS_NUMBERS = {name: number for number, name in _STATUSES.items()}
_MAX_DURATION_SECONDS = 315_576_000_000
"""About 10,000 years: the limit of google.protobuf.Duration, above which it cannot be written back."""


def from_wire(field: str, message: common_pb2.Message) -> Message:
    """Returns the message in `field` of a request. A message without an id gets one. Raises ApiError."""
    return Message(
        message_id=message.id or f"msg_{new_uuid()}",
        role=_ROLES[message.role],
        parts=tuple([_part(field, number, part) for number, part in enumerate(message.parts)]),
        peer_id=message.peer_id,
        turn_id=message.turn_id,
        speaker=message.speaker,
        created_at=_said_at(f"{field}.create_time", message) if message.HasField("create_time") else 0,
    )


def _said_at(field: str, message: common_pb2.Message) -> int:
    try:
        return microseconds(message.create_time)
    except ValueError as error:
        raise invalid(field, "is no valid time", "Leave it empty for the time of arrival") from error


def _duration_ms(field: str, duration: Duration) -> int:
    if not (0 <= duration.seconds <= _MAX_DURATION_SECONDS and 0 <= duration.nanos < 1_000_000_000):
        raise invalid(field, "is no valid duration", "Leave it empty when it is not known")
    return int(duration.ToMilliseconds())


def _json(field: str, value: Struct | Value) -> Any:
    """Returns free-form JSON of a caller. Raises ApiError for numbers that JSON does not have."""
    try:
        return MessageToDict(value)
    except (SerializeToJsonError, ValueError) as error:
        raise invalid(field, "holds a number that is not finite", "Send JSON values") from error


def _part(field: str, number: int, part: common_pb2.Part) -> Json:
    match part.WhichOneof("part"):
        case "text":
            return {"type": "text", "text": part.text.text}
        case "image":
            image = part.image
            return {"type": "image", "url": image.url, "detail": image.detail or "auto", "caption": image.caption}
        case "context":
            return {"type": "context", "uri": part.context.uri, "abstract": part.context.abstract}
        case _:
            return _tool(f"{field}.parts[{number}].tool", part.tool)


def _tool(field: str, tool: common_pb2.ToolPart) -> Json:
    return {
        "type": "tool",
        "tool_id": tool.tool_id,
        "tool_name": tool.tool_name,
        "skill_name": tool.skill_name,
        "input": _json(f"{field}.input", tool.input),
        "output": tool.output,
        "status": _STATUSES[tool.status],
        "duration_ms": _duration_ms(f"{field}.duration", tool.duration),
        "total_tokens": tool.total_tokens,
    }


def to_wire(message: Message) -> common_pb2.Message:
    return common_pb2.Message(
        id=message.message_id,
        sequence=message.sequence,
        role=_ROLE_NUMBERS[message.role],
        parts=[_wire_part(part) for part in message.parts],
        peer_id=message.peer_id,
        turn_id=message.turn_id,
        create_time=timestamp(message.created_at),
        speaker=message.speaker,
    )


def _wire_part(part: Json) -> common_pb2.Part:
    match part["type"]:
        case "text":
            return common_pb2.Part(text=common_pb2.TextPart(text=part["text"]))
        case "image":
            image = common_pb2.ImagePart(url=part["url"], detail=part["detail"], caption=part["caption"])
            return common_pb2.Part(image=image)
        case "context":
            return common_pb2.Part(context=common_pb2.ContextPart(uri=part["uri"], abstract=part["abstract"]))
        case _:
            return common_pb2.Part(tool=_wire_tool(part))


def _wire_tool(part: Json) -> common_pb2.ToolPart:
    tool = common_pb2.ToolPart(
        tool_id=part["tool_id"],
        tool_name=part["tool_name"],
        skill_name=part["skill_name"],
        output=part["output"],
        status=_STATUS_NUMBERS[part["status"]],
        total_tokens=part["total_tokens"],
        stored_output_length=part.get("stored_output_length", 0),
    )
    for name, value in part["input"].items():
        _write_json(tool.input.fields[name], value)
    if part["duration_ms"]:
        duration = Duration()
        duration.FromMilliseconds(part["duration_ms"])
        tool.duration.CopyFrom(duration)
    return tool


def _write_json(wire: Value, value: Any) -> None:
    """Writes a JSON value. Several times as fast as protobuf's own function: a message may contain millions of
    values."""
    match value:
        case None:
            wire.null_value = NULL_VALUE
        case bool():
            wire.bool_value = value
        case str():
            wire.string_value = value
        case dict():
            wire.struct_value.SetInParent()
            for name, one in value.items():
                _write_json(wire.struct_value.fields[name], one)
        case list():
            wire.list_value.SetInParent()
            add = wire.list_value.values.add
            for one in value:
                _write_json(add(), one)
        case _:
            wire.number_value = value


def line(message: Message) -> Json:
    """Returns a message as a line of messages.jsonl."""
    created = timestamp(message.created_at)
    entry: dict[str, Any] = {
        "id": message.message_id,
        "sequence": message.sequence,
        "role": message.role,
        "parts": [{name: value for name, value in part.items() if name != STORED_OUTPUT} for part in message.parts],
        "created_at": created.ToJsonString() if created else "",
    }
    for name in ("peer_id", "turn_id", "speaker"):
        if value := getattr(message, name):
            entry[name] = value
    return entry


def usage_from_wire(field: str, skill: session_service_pb2.SkillUsage, uri: str) -> Usage:
    """Returns the use of a skill in `field` of a request. Raises ApiError."""
    body = {
        "input": _json(f"{field}.input", skill.input) if skill.HasField("input") else None,
        "output": skill.output,
        "success": skill.success,
    }
    return Usage("skill", uri, body)


def usage_to_wire(usage: Usage) -> session_service_pb2.SkillUsage:
    skill = session_service_pb2.SkillUsage(uri=usage.uri, output=usage.body["output"], success=usage.body["success"])
    if usage.body["input"] is not None:
        _write_json(skill.input, usage.body["input"])
    return skill
