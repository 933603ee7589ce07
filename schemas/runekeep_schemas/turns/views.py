"""Compressed views of turns: one line that stands for a turn's messages.

The forms are those of `design/turn-memory.md`. No part contains a `|`, so that no text can imitate a part.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from runekeep_schemas.turns.summary import Summary
from runekeep_schemas.turns.text import cut, line, unbarred

MAX_ITEMS: Final = 5
TEXT_LENGTH: Final = 500
NOTES_LENGTH: Final = 300


@dataclass(frozen=True, slots=True)
class TurnText:
    """The text of a turn's messages.

    prompt: the user's text parts, joined. attachments: labels of the user's attachments, from `image_label` and
    `context_label`. answer: the assistant's text parts, joined. tools: labels of its tool parts, from `tool_label`.
    """

    turn_id: str
    started_at: int
    prompt: str = ""
    attachments: tuple[str, ...] = ()
    answer: str = ""
    tools: tuple[str, ...] = ()


def joined_text(parts: Iterable[str]) -> str:
    """Returns the text parts of one speaker on one line."""
    return line(" ".join(parts))


def image_label(caption: str, url: str) -> str:
    """Returns `image <caption>`; without a caption the file name of its URL, else `image data`."""
    return f"image {line(caption) or _file_name(url) or 'data'}"


def context_label(uri: str) -> str:
    return f"context {line(uri)}"


def tool_label(name: str, status: str) -> str:
    """Returns `tool <name> (<status>)`."""
    return f"tool {line(name)} ({line(status)})"


def _file_name(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    # A data URL contains no name.
    return "" if parts.scheme == "data" else line(unquote(parts.path.rstrip("/").rpartition("/")[2]))


def compressed_view(text: TurnText, objective: str, summary: Summary) -> str:
    """Returns one line without empty parts; empty if nothing is known of the turn."""
    parts = (
        ("user", _shortened(text.prompt, summary.user_inquiry)),
        ("attachments", _listed(text.attachments) or line(summary.user_message_description)),
        ("objective", line(objective)),
        ("answer", _shortened(text.answer, summary.assistant_answer) or _listed(dict.fromkeys(text.tools))),
        ("delivered", line(summary.delivered_to_user)),
        ("done", _listed(summary.done)),
        ("not_done", _listed(summary.not_done)),
        ("assumptions", _listed(summary.assumptions)),
        ("risks", _listed(summary.risks)),
        ("notes", cut(line(summary.notes), NOTES_LENGTH)),
    )
    return " | ".join(f"{name}: {unbarred(value)}" for name, value in parts if value)


def _shortened(said: str, summary: str) -> str:
    """Returns the original text, or the summary's text if the original is too long."""
    said = line(said)
    return said if len(said) <= TEXT_LENGTH else cut(line(summary) or said, TEXT_LENGTH)


def _listed(items: Iterable[str]) -> str:
    kept = [item for item in map(line, items) if item]
    return "; ".join(kept[:MAX_ITEMS])
