"""Opens a transcript file and finds out what it is."""

import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, get_args

from runekeep.transcripts.batches import Batch, TranscriptError, parse_json, safe_id

Form = Literal["auto", "chat", "locomo", "chatgpt", "claude", "claude-code", "codex"]
FORMS: Final[tuple[str, ...]] = get_args(Form)

_LISTS: Final = {"locomo": "LoCoMo", "chatgpt": "ChatGPT", "claude": "Claude"}
"""The forms that are one JSON list, with their names."""
MAX_BYTES: Final = 1024**3
"""Largest file that is read: all of it is in memory."""


def read_transcript(path: Path, *, form: Form = "auto", session_id: str = "") -> list[Batch]:
    """Returns the batches of a file, or of the files `conversations*.json` of a ZIP archive, as ChatGPT and Claude
    export them. `session_id` names the session of a chat that names none; empty: the file's name.

    Raises TranscriptError for what cannot be read, OSError for a file that cannot be opened.
    """
    batches: list[Batch] = []
    in_order = True
    for name, text in _texts(path):
        try:
            found, has_order = _read(text, form, session_id or path.stem)
        except TranscriptError as error:
            raise TranscriptError(f"{name}: {error}") from error
        batches += found
        in_order = in_order and has_order
    return batches if in_order else _oldest_first(batches)


_DAMAGE: Final = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    # zipfile's error for an archive with a password, and the base of NotImplementedError for an unknown compression.
    RuntimeError,
)


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    """Yields the name and the text of each file."""
    try:
        if not zipfile.is_zipfile(path):
            _check_size(path.stat().st_size)
            yield path.name, path.read_text(encoding="utf-8-sig")
            return
        with zipfile.ZipFile(path) as archive:
            held = [one for one in archive.infolist() if Path(one.filename).match("conversations*.json")]
            if not held:
                raise TranscriptError(f"{path.name} holds no file conversations.json")
            _check_size(sum(one.file_size for one in held))
            for one in sorted(held, key=lambda held: held.filename):
                yield one.filename, archive.read(one).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TranscriptError(f"{path.name} is not UTF-8 text") from error
    except _DAMAGE as error:
        raise TranscriptError(f"{path.name} cannot be unpacked: {str(error) or type(error).__name__}") from error


def _check_size(size: int) -> None:
    if size > MAX_BYTES:
        raise TranscriptError(f"the file has {size} bytes, and {MAX_BYTES} are read at most: divide it")


def _read(text: str, form: Form, session_id: str) -> tuple[list[Batch], bool]:
    """Returns the batches of a text, and whether their order is that of time: exports have the newest first."""
    from runekeep.transcripts.chat import read_chat
    from runekeep.transcripts.chatgpt import is_chatgpt, read_chatgpt
    from runekeep.transcripts.claude_chats import is_claude, read_claude
    from runekeep.transcripts.locomo import is_locomo, read_locomo

    document = _whole_document(text) if form == "auto" or form in _LISTS else None
    if form in ("auto", "locomo") and is_locomo(document):
        return read_locomo(document), True
    if form in ("auto", "chatgpt") and is_chatgpt(document):
        return read_chatgpt(document), False
    if form in ("auto", "claude") and is_claude(document):
        return read_claude(document), False
    if form in _LISTS:
        raise TranscriptError(f"not a list of {_LISTS[form]} conversations")
    if document is not None:
        raise TranscriptError("an empty list" if not document else "a list, but not of conversations of a known form")
    # Lines end at line feeds alone: U+2028 and its like may stand unescaped inside a JSON string.
    lines = text.split("\n")
    if form in ("claude-code", "codex") or (form == "auto" and (form := _form_of(lines)) != "chat"):
        return _read_agent(lines, form, session_id), True
    return read_chat(lines, session_id), True


def _read_agent(lines: list[str], form: Form, session_id: str) -> list[Batch]:
    """Reads the transcript of a coding agent: one session, whose file is named after it."""
    from runekeep.transcripts.claude_code import read_claude_code
    from runekeep.transcripts.codex import read_codex

    messages = read_codex(lines) if form == "codex" else read_claude_code(lines)
    if not messages:
        raise TranscriptError(f"nothing that was said was found, of the form {form}")
    return [Batch(safe_id(session_id), messages)]


def _form_of(lines: list[str]) -> Form:
    """Finds out what JSON lines are by the first that can tell."""
    for line in lines[:50]:
        try:
            entry = parse_json(line)
        except TranscriptError:
            continue
        if isinstance(entry, dict) and entry.get("type") == "session_meta":
            return "codex"
        if isinstance(entry, dict) and "sessionId" in entry and "type" in entry:
            return "claude-code"
        if isinstance(entry, dict) and "role" in entry:
            return "chat"
    return "chat"


def _oldest_first(batches: list[Batch]) -> list[Batch]:
    """Exports list the newest conversation first, and what was said later must be remembered later."""
    never = datetime.max.replace(tzinfo=UTC)
    return sorted(batches, key=lambda batch: min((one.created_at or never for one in batch.messages), default=never))


def _whole_document(text: str) -> Any:
    if not text.lstrip().startswith("["):
        return None
    try:
        return parse_json(text)
    except TranscriptError as error:
        raise TranscriptError(f"the file begins like one JSON list but is {error}") from error
