"""Opens a transcript file and finds out what it is."""

import json
from pathlib import Path
from typing import Any, Literal

from runekeep.transcripts.batches import Batch, TranscriptError

Form = Literal["auto", "chat", "locomo"]


def read_transcript(path: Path, *, form: Form = "auto", session_id: str = "") -> list[Batch]:
    """The batches of a file. `session_id` names the session of a chat that names none; empty: the file's name.

    Raises TranscriptError for what cannot be read, OSError for a file that cannot be opened.
    """
    from runekeep.transcripts.chat import read_chat
    from runekeep.transcripts.locomo import is_locomo, read_locomo

    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise TranscriptError(f"{path.name} is not UTF-8 text") from error
    document = None if form == "chat" else _whole_document(text)
    if is_locomo(document):
        return read_locomo(document)
    if form == "locomo":
        raise TranscriptError(f"{path.name} is no list of LoCoMo conversations")
    # Lines end at line feeds alone: U+2028 and its like may stand unescaped inside a JSON string.
    return read_chat(text.split("\n"), session_id or path.stem)


def _whole_document(text: str) -> Any:
    if not text.lstrip().startswith("["):
        return None
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise TranscriptError(f"the file begins like one JSON list but is none: {error}") from error
