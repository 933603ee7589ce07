"""Opens a transcript file and finds out what it is."""

import lzma
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, get_args

from runekeep.transcripts.batches import Batch, TranscriptError, safe_id
from runekeep.transcripts.values import parse_json, parse_valid_lines

Form = Literal[
    "auto", "chat", "locomo", "chatgpt", "claude", "claude-code", "codex", "mem0", "openviking", "letta", "zep"
]
FORMS: Final[tuple[str, ...]] = get_args(Form)

_AGENT_SESSION: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
_DOCUMENTS: Final = {
    "locomo": "a list of LoCoMo conversations",
    "chatgpt": "a list of ChatGPT conversations",
    "claude": "a list of Claude conversations",
    "letta": "an agent file of Letta",
    "mem0": "memories of mem0",
    "zep": "messages of Zep",
}
"""The forms that are one JSON document, with what it is."""
MAX_BYTES: Final = 1024**3
"""Largest file that is read: all of it is in memory."""


def read_transcript(path: Path, *, form: Form = "auto", session_id: str = "") -> list[Batch]:
    """Returns the batches of a file, or of the files `conversations*.json` of a ZIP archive, as ChatGPT and Claude
    export them, or of a pack of OpenViking. `session_id` names the session of a chat that names none; empty: the file's
    name.

    Raises TranscriptError for what cannot be read, OSError for a file that cannot be opened.
    """
    if form in ("auto", "openviking") and (packed := _packed(path)) is not None:
        return packed
    batches: list[Batch] = []
    in_order = True
    for name, text in _texts(path):
        try:
            found, has_order = _read(text, form, session_id, path.stem)
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


def _packed(path: Path) -> list[Batch] | None:
    """Returns the batches of a pack of OpenViking; None for another file."""
    from runekeep.transcripts.openviking import is_pack, read_pack

    if not zipfile.is_zipfile(path):
        return None
    with _readable(path), zipfile.ZipFile(path) as archive:
        if not is_pack(archive):
            return None
        _check_size(sum(one.file_size for one in archive.infolist()))
        return read_pack(archive)


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    """Yields the name and the text of each file."""
    with _readable(path):
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


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Raises TranscriptError for a file that is no text or cannot be unpacked."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise TranscriptError(f"{path.name} is not UTF-8 text") from error
    except _DAMAGE as error:
        raise TranscriptError(f"{path.name} cannot be unpacked: {str(error) or type(error).__name__}") from error


def _check_size(size: int) -> None:
    if size > MAX_BYTES:
        raise TranscriptError(f"the file has {size} bytes, and {MAX_BYTES} are read at most: divide it")


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads one form. `has_order`: its order is that of time; exports have the newest conversation first."""

    is_form: Callable[[Any], bool]
    read: Callable[[Any], list[Batch]]
    has_order: bool = True


def _readers(session_id: str) -> dict[str, _Reader]:
    """Returns the readers of documents, in the order in which they are tried."""
    from runekeep.transcripts.chatgpt import is_chatgpt, read_chatgpt
    from runekeep.transcripts.claude_chats import is_claude, read_claude
    from runekeep.transcripts.letta import is_letta, read_letta
    from runekeep.transcripts.locomo import is_locomo, read_locomo
    from runekeep.transcripts.mem0 import is_mem0, read_mem0
    from runekeep.transcripts.zep import is_zep, read_zep

    return {
        "locomo": _Reader(is_locomo, read_locomo),
        "chatgpt": _Reader(is_chatgpt, read_chatgpt, has_order=False),
        "claude": _Reader(is_claude, read_claude, has_order=False),
        "letta": _Reader(is_letta, read_letta),
        "mem0": _Reader(is_mem0, read_mem0),
        "zep": _Reader(is_zep, lambda document: read_zep(document, session_id)),
    }


def _read(text: str, form: Form, named: str, stem: str) -> tuple[list[Batch], bool]:
    """Returns the batches of a text, and whether their order is that of time. `named`: the session that was asked for;
    `stem`: the file's name."""
    from runekeep.transcripts.chat import read_chat
    from runekeep.transcripts.openviking import read_messages

    session_id = named or stem
    document = _whole_document(text) if form == "auto" or form in _DOCUMENTS else None
    for name, reader in _readers(session_id).items():
        if form in ("auto", name) and document is not None and reader.is_form(document):
            return reader.read(document), reader.has_order
    if form in _DOCUMENTS:
        raise TranscriptError(f"not {_DOCUMENTS[form]}")
    if isinstance(document, list):
        raise TranscriptError("an empty list" if not document else "a list, but not of conversations of a known form")
    # Lines end at line feeds alone: U+2028 and its like may stand unescaped inside a JSON string.
    lines = text.split("\n")
    form = _form_of(lines) if form == "auto" else form
    if form == "openviking":
        return [read_messages(lines, session_id)], True
    if form in ("claude-code", "codex"):
        return _read_agent(lines, form, named or _session_of_agent(form, stem)), True
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
    from runekeep.transcripts.openviking import is_message

    for _, entry in parse_valid_lines(lines[:50]):
        if entry.get("type") == "session_meta":
            return "codex"
        if "sessionId" in entry and "type" in entry:
            return "claude-code"
        if is_message(entry):
            return "openviking"
        if "role" in entry:
            return "chat"
    return "chat"


def _oldest_first(batches: list[Batch]) -> list[Batch]:
    """Exports list the newest conversation first, and what was said later must be remembered later."""
    never = datetime.max.replace(tzinfo=UTC)
    return sorted(batches, key=lambda batch: min((one.created_at or never for one in batch.messages), default=never))


def _whole_document(text: str) -> Any:
    """Returns the list or object that is the whole text; None if it is lines."""
    begin = text.lstrip()[:1]
    if begin not in ("[", "{"):
        return None
    try:
        return parse_json(text)
    except TranscriptError as error:
        if begin == "{":
            # Lines of JSON begin like an object too.
            return None
        raise TranscriptError(f"the file begins like one JSON list but is {error}") from error


def _session_of_agent(form: Form, stem: str) -> str:
    """Returns the session that the agent's hooks fill, so that nothing is remembered twice. `stem`: of its transcript,
    which is named by the agent's session; in Codex with the time in front."""
    own = _AGENT_SESSION.search(stem)
    return f"{form}-{own[0] if own else stem}"
