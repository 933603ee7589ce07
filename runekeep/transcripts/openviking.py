"""Packs of OpenViking (`.ovpack`), and its `messages.jsonl`: sessions with their archives, and memories as files.

The form is public: a ZIP archive whose names begin with the name of what was exported, with `_._` for the dot of hidden
files (`openviking/storage/ovpack/format.py`), and a message a line (`Message.to_dict` in
`openviking/message/message.py`, github.com/volcengine/OpenViking).

A memory becomes a message with its text, because its types may be others than those here. Resources, skills, abstracts,
overviews and vectors are left out.
"""

import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from runekeep.client.sessions.messages import Message, Part, TextPart, ToolPart, ToolStatusName
from runekeep.injection.texts import MAX_TEXT_CHARS, clean_text
from runekeep.transcripts.batches import (
    Batch,
    TranscriptError,
    id_or_hash,
    safe_id,
    speaker_name,
    text_message,
)
from runekeep.transcripts.values import MAX_OUTPUT_CHARS, parse_lines, parse_time, tool_input

MESSAGES: Final = "messages.jsonl"
_MEMORIES: Final = "memories"
_ARCHIVE: Final = re.compile(r"archive_(\d+)")
_FIELDS: Final = re.compile(r"<!--.*?-->", re.DOTALL)
"""Comments, in which OpenViking keeps the fields of a memory."""
_MAX_DURATION_MS: Final = 1e12
_STATUSES: Final[Mapping[str, ToolStatusName]] = {
    "pending": "pending",
    "running": "running",
    "completed": "completed",
    "error": "error",
}


def is_message(entry: Any) -> bool:
    """Returns whether a parsed line is a message of OpenViking."""
    return isinstance(entry, dict) and "role" in entry and isinstance(entry.get("parts"), list) and "id" in entry


def is_pack(archive: zipfile.ZipFile) -> bool:
    """Returns whether a ZIP archive holds sessions or memories of OpenViking."""
    return any(one.is_session or one.is_memory for one in _members(archive))


def read_pack(archive: zipfile.ZipFile) -> list[Batch]:
    """Returns a batch for each archive of each session, then for its live messages, and one for the memories. Raises
    TranscriptError with the name of a file that cannot be read."""
    members = [*_members(archive)]
    batches = []
    for one in sorted((one for one in members if one.is_session), key=lambda one: (one.session, one.order)):
        try:
            batches.append(read_messages(archive.read(one.info).decode("utf-8-sig").split("\n"), one.session))
        except TranscriptError as error:
            raise TranscriptError(f"{one.info.filename}: {error}") from error
    memories = Batch("openviking_memories")
    for one in members:
        if one.is_memory:
            text = _FIELDS.sub("", archive.read(one.info).decode("utf-8-sig")).strip()
            if text:
                place = "/".join(one.parts)
                memories.messages.append(text_message("user", text, id_or_hash(None, place, text), None))
            else:
                memories.left_out += 1
    return [*batches, memories] if memories.messages else batches


def read_messages(lines: Iterable[str], session: str) -> Batch:
    """Returns the batch of a file of messages. Lines that hold none are left out. Raises TranscriptError with the
    number of a line that is not JSON."""
    batch = Batch(id_or_hash(safe_id(session), prefix="openviking_"))
    for number, entry in parse_lines(lines):
        message = _message(entry, batch.session_id, number) if isinstance(entry, dict) else None
        if message is None:
            batch.left_out += 1
        else:
            batch.messages.append(message)
    return batch


class _Member:
    """A file of a pack. `parts`: its path there, as OpenViking names it."""

    def __init__(self, info: zipfile.ZipInfo) -> None:
        self.info = info
        self.parts = tuple(
            f".{part[3:]}" if part.startswith("_._") else part for part in PurePosixPath(info.filename).parts
        )
        name = self.parts[-1] if self.parts else ""
        self.is_session = name == MESSAGES and len(self.parts) > 1
        self.is_memory = _MEMORIES in self.parts[:-1] and name.endswith(".md") and not name.startswith(".")
        archive = _ARCHIVE.fullmatch(self.parts[-2]) if self.is_session else None
        self.order = int(archive[1]) if archive else 10**9
        """Archives come in their order, and before the live messages."""
        of_archive = archive is not None and len(self.parts) > 3
        self.session = self.parts[-4 if of_archive else -2] if self.is_session else ""


def _members(archive: zipfile.ZipFile) -> Iterator[_Member]:
    return (_Member(info) for info in archive.infolist() if not info.is_dir())


def _message(entry: Mapping[str, Any], session_id: str, place: int) -> Message | None:
    role = entry.get("role")
    if role not in ("user", "assistant"):
        return None
    given, old = entry.get("parts"), entry.get("content")
    blocks = given if isinstance(given, list) else [{"type": "text", "text": old}]
    parts = [part for block in blocks if isinstance(block, dict) and (part := _part(block)) is not None]
    if not parts:
        return None
    id = id_or_hash(entry.get("id"), session_id, place, str(parts))
    speaker = speaker_name(entry.get("role_id"))
    return Message(role, parts, id, parse_time(entry.get("created_at")), speaker=speaker)


def _part(block: Mapping[str, Any]) -> Part | None:
    match block.get("type"):
        case "text":
            text = _text(block, "text", MAX_TEXT_CHARS)
            return TextPart(text) if text.strip() else None
        case "tool":
            return _tool(block)
    # A context was recalled, and its URI names nothing here.
    return None


def _tool(block: Mapping[str, Any]) -> ToolPart | None:
    name, id = _text(block, "tool_name", 256), _text(block, "tool_id", 128)
    if not name or not id:
        return None
    duration = block.get("duration_ms")
    skill = _text(block, "skill_uri", 1024).rstrip("/").rpartition("/")[2]
    return ToolPart(
        id,
        name,
        skill_name=skill.removesuffix(".md"),
        input=tool_input(block.get("tool_input")),
        output=_text(block, "tool_output", MAX_OUTPUT_CHARS),
        status=_STATUSES.get(str(block.get("tool_status")), "pending"),
        duration_ms=duration if isinstance(duration, int | float) and 0 <= duration < _MAX_DURATION_MS else None,
    )


def _text(block: Mapping[str, Any], field: str, most: int) -> str:
    value = block.get(field)
    return clean_text(value[:most]) if isinstance(value, str) else ""
