"""Transcripts of Claude Code: JSON lines that wrap messages in the form of Anthropic's API.

Anthropic calls the form internal, so a line of an unknown kind is passed over, never refused. Each line with text or
tool calls is one message, with the line's own `uuid` as its id: a transcript that is read twice gives the same ids.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from runekeep.client.sessions.message_log import MessageLog
from runekeep.client.sessions.messages import Message, Part, RoleName, TextPart, ToolPart
from runekeep.injection.block import strip_memory
from runekeep.injection.texts import MAX_TEXT_CHARS, clean_text
from runekeep.transcripts.batches import id_or_hash
from runekeep.transcripts.values import MAX_OUTPUT_CHARS, parse_time, parse_valid_lines, tool_input

# Not said by anybody: a meta line, a subagent's work, a summary that the agent made for itself.
_NOT_SAID = ("isMeta", "isSidechain", "isCompactSummary", "isVisibleInTranscriptOnly")
_REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>", re.DOTALL)
# A slash command and what it printed.
_COMMAND = re.compile(r"^\s*<(command-name|command-message|command-args|local-command-\w+|bash-\w+)>")


def read_claude_code(lines: Iterable[str]) -> list[Message]:
    """Returns the messages of a transcript, in order. A tool call whose result is missing has the status `pending`."""
    reader = _Reader()
    for _, entry in parse_valid_lines(lines):
        reader.take(entry)
    return reader.log.messages


class _Reader:
    def __init__(self) -> None:
        self.log = MessageLog()

    def take(self, entry: Mapping[str, Any]) -> None:
        role, message, uuid = entry.get("type"), entry.get("message"), entry.get("uuid")
        if role not in ("user", "assistant") or not isinstance(message, dict):
            return
        if not isinstance(uuid, str) or not uuid or any(entry.get(mark) for mark in _NOT_SAID):
            return
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        parts: list[Part] = []
        for block in blocks if isinstance(blocks, list) else ():
            if not isinstance(block, dict):
                continue
            if block.get("type") == "text":
                if text := _said(block.get("text")):
                    parts.append(TextPart(text))
            elif block.get("type") == "tool_use":
                parts.append(_call(block))
            elif block.get("type") == "tool_result":
                is_error = block.get("is_error") is True
                self.log.finish_call(_text(block.get("tool_use_id")), _output(block.get("content")), is_error=is_error)
        if not parts:
            return
        said_by: RoleName = "user" if role == "user" else "assistant"
        self.log.add(Message(said_by, parts, id_or_hash(uuid), parse_time(entry.get("timestamp"))))


def _said(text: Any) -> str:
    if not isinstance(text, str) or _COMMAND.match(text):
        return ""
    # First, since a block may stand inside a reminder and quote the end of one.
    return clean_text(_REMINDER.sub("", strip_memory(text)).strip()[:MAX_TEXT_CHARS])


def _call(block: Mapping[str, Any]) -> ToolPart:
    return ToolPart(_text(block.get("id")), _text(block.get("name")) or "tool", input=tool_input(block.get("input")))


def _text(value: Any) -> str:
    return clean_text(value) if isinstance(value, str) else ""


def _output(content: Any) -> str:
    if isinstance(content, list):
        content = "\n".join(_text(block.get("text")) for block in content if isinstance(block, dict))
    return clean_text(content[:MAX_OUTPUT_CHARS]) if isinstance(content, str) else ""
