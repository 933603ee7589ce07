"""What every transcript becomes."""

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from runekeep.client.sessions.messages import Message, RoleName, TextPart
from runekeep.injection.texts import MAX_TEXT_CHARS, clean_text

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_ID_LENGTH = 128
_IDS = uuid.UUID("8f0e5a4c-93c5-4f8e-8a3c-6d0f1b0a7e52")
"""Namespace of the ids made for names that are no ids."""


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

    A name that has no letter or digit of the Latin alphabet becomes a hash.
    """
    return _UNSAFE.sub("-", name).strip("-._")[:_ID_LENGTH] or _hash(name)


def id_or_hash(given: Any, *seed: object, prefix: str = "") -> str:
    """The id of something in an export, after `prefix`, if the server takes it as it is.

    Another text becomes its hash, so that two texts never become one id. What is no text, or empty, becomes a hash of
    `seed`, which must be the same in each export.
    """
    if not isinstance(given, str) or not given:
        return prefix + _hash("\n".join(str(one) for one in seed))
    return prefix + (given if safe_id(prefix + given) == prefix + given else _hash(given))


def text_message(role: RoleName, text: str, id: str, created_at: datetime | None, *, speaker: str = "") -> Message:
    """A message of one text, which is cut where it is too long to be sent."""
    part = TextPart(clean_text(text.strip()[:MAX_TEXT_CHARS]))
    return Message(role, [part], id, created_at, speaker=speaker_name(speaker))


def speaker_name(given: Any) -> str:
    """The name of a speaker as the server takes it; empty for what is no text."""
    return clean_text(given[:_ID_LENGTH]) if isinstance(given, str) else ""


def _hash(text: str) -> str:
    return str(uuid.uuid5(_IDS, clean_text(text)))
