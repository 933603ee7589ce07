"""What every transcript becomes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from runekeep.client.sessions.messages import Message

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_ID_LENGTH = 128


class TranscriptError(ValueError):
    """The file is no transcript of a form known here. The text names the line or place, and never quotes it."""


@dataclass(slots=True)
class Usage:
    """What the agent really used, as `Session.used` takes it."""

    contexts: Sequence[str] = ()
    skill: dict[str, Any] | None = None


@dataclass(slots=True)
class Batch:
    """The messages of one commit. Several batches of one session follow each other in order."""

    session_id: str
    messages: list[Message] = field(default_factory=list)
    usages: list[Usage] = field(default_factory=list)
    user: str = ""
    """Whose conversation it is, where the file says so."""
    left_out: int = 0
    """Lines of the transcript that are no part of the conversation, such as system prompts."""


def safe_id(name: str) -> str:
    """A name as an id that the server takes: letters, digits, dot, underscore and dash, at most 128.

    Raises TranscriptError when nothing of it is left.
    """
    found = _UNSAFE.sub("-", name).strip("-._")[:_ID_LENGTH]
    if not found:
        raise TranscriptError("a name in the transcript has no letter or digit of the Latin alphabet to make an id of")
    return found
