"""Formats messages for the model: a line with the speaker and the time, and below it the indented text.

Every line of a text is indented, so that no message can imitate another message or a record of the system.
"""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from google.protobuf import struct_pb2
from google.protobuf.json_format import MessageToDict

from runekeep.v1 import common_pb2, extractor_service_pb2
from runekeep_extractor.prompts.records import line

INDENT: Final = "  "

_TOOL_INPUT: Final = 1500
# Characters of a tool output, so that an output of many megabytes does not cost as much as a book. A program's
# important lines stand at the end as often as at the beginning.
_OUTPUT_HEAD: Final = 8_000
_OUTPUT_TAIL: Final = 4_000
_URL: Final = 300

_STATUS: Final = {
    common_pb2.TOOL_STATUS_COMPLETED: "completed",
    common_pb2.TOOL_STATUS_ERROR: "error",
    common_pb2.TOOL_STATUS_RUNNING: "running",
}


def head(message: common_pb2.Message, part: str = "") -> str:
    """Returns the line above a message. `part` says which part follows, if the message is shown in parts."""
    role = "assistant" if message.role == common_pb2.ROLE_ASSISTANT else "user"
    when = _time(message).strftime("%Y-%m-%d %a %H:%M") if message.HasField("create_time") else "time unknown"
    said = line({"peer_id": message.peer_id, "speaker": message.speaker, "part": part})
    return f"#{message.sequence} {role} {when}" + (f" {said}" if said != "{}" else "")


def body(message: common_pb2.Message) -> list[str]:
    """Returns the lines below the head."""
    return [text for part in message.parts for text in _part_lines(part)]


def usage_lines(usage: extractor_service_pb2.UsageChunk) -> list[str]:
    """Returns what the agent reported as used, one record per line."""
    lines = [f"[Context] {line({'uri': uri})}" for uri in usage.context_uris]
    for skill in usage.skills:
        record = {
            "skill": skill.uri,
            "status": "completed" if skill.success else "error",
            "input": _cut(_input_text(skill.input), _TOOL_INPUT) if skill.HasField("input") else "",
            "output": _ends(skill.output),
        }
        lines.append(f"[SkillUse] {line(record)}")
    return lines


def span(messages: Sequence[common_pb2.Message]) -> str:
    """Returns a sentence that states the time range of the messages."""
    times = [_time(message) for message in _timed(messages)]
    if not times:
        return "When they were said is not known."
    first, last = min(times), max(times)
    return f"Said from {first:%A, %Y-%m-%d %H:%M} to {last:%A, %Y-%m-%d %H:%M}."


def _part_lines(part: common_pb2.Part) -> list[str]:
    match part.WhichOneof("part"):
        case "text":
            return [f"{INDENT}{text}" for text in part.text.text.splitlines()]
        case "tool":
            return [f"[ToolCall] {line(_tool_record(part.tool))}"]
        case "context":
            return [f"[Context] {line({'uri': part.context.uri, 'abstract': part.context.abstract})}"]
        case "image":
            url = part.image.url
            shown = "(image data)" if url.startswith("data:") else url[:_URL]
            return [f"[Image] {line({'caption': part.image.caption, 'url': shown})}"]
    return []


def _tool_record(tool: common_pb2.ToolPart) -> dict[str, Any]:
    record: dict[str, Any] = {
        "tool_name": tool.tool_name,
        "skill_name": tool.skill_name,
        "status": _STATUS.get(tool.status, "pending"),
    }
    if tool.HasField("duration"):
        record["duration_ms"] = tool.duration.ToMilliseconds()
    if tool.total_tokens:
        record["total_tokens"] = tool.total_tokens
    if tool.HasField("input"):
        record["input"] = _cut(_input_text(tool.input), _TOOL_INPUT)
    record["output"] = _ends(tool.output)
    return record


def _input_text(given: struct_pb2.Struct | struct_pb2.Value) -> str:
    """Returns an input as JSON, or a plain text as it is."""
    # Sorted, because a map has another order in each process, and equal conversations must give equal prompts.
    value = MessageToDict(given)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _timed(messages: Iterable[common_pb2.Message]) -> Iterable[common_pb2.Message]:
    return (message for message in messages if message.HasField("create_time"))


def _time(message: common_pb2.Message) -> datetime:
    return message.create_time.ToDatetime(tzinfo=UTC)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} [cut, {len(text)} characters in all]"


def _ends(text: str) -> str:
    """Returns the beginning and the end of an output that is too long to show."""
    between = len(text) - _OUTPUT_HEAD - _OUTPUT_TAIL
    if between <= 0:
        return text
    note = f"[cut, {len(text)} characters in all, {between} of them left out here]"
    return f"{text[:_OUTPUT_HEAD]} {note} {text[-_OUTPUT_TAIL:]}"
