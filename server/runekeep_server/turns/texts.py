"""Extracts the texts of a turn's messages from which its compressed view is made.

A view shows some hundred characters, but messages may have megabytes. So only both ends of a long message are read. A
part that is cut is used as far as it was read.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from runekeep_schemas.turns.views import (
    TEXT_LENGTH,
    TurnText,
    context_label,
    image_label,
    joined_text,
    tool_label,
)
from runekeep_storage.records import Json, Turn
from runekeep_storage.turns.turns import Outline

MESSAGES: Final = 8
"""Number of first messages of a turn, and of last ones, from which its view is made."""
HEAD: Final = 24 * 1024
TAIL: Final = 24 * 1024
"""Characters at the beginning and at the end of a message's parts, as JSON, from which its view is made."""

_PART: Final = '{"type":"'
_TEXT: Final = '{"type":"text","text":"'
_STRING: Final = r'"(?:[^"\\]|\\.)*"'
_CAPTION: Final = re.compile(rf'"caption":({_STRING})\}}$')
_TOOL_NAME: Final = re.compile(rf'"tool_name":({_STRING})')
_STATUS: Final = re.compile(r'"status":("[a-z]+"),"duration_ms":\d+,"total_tokens":\d+[^}]*\}$')
_TRIES: Final = 16
"""Attempts to parse what looks like the beginning of a part."""


class Spoken(Protocol):
    """The attributes of a message that views use."""

    @property
    def role(self) -> str: ...

    @property
    def parts(self) -> Sequence[Json]: ...


@dataclass(frozen=True, slots=True)
class _Spoken:
    role: str
    parts: Sequence[Json]


def text_of(turn: Turn, messages: Sequence[Spoken]) -> TurnText:
    """Returns the texts of a turn. `messages`: its messages, oldest first."""
    asked = [part for message in messages if message.role == "user" for part in message.parts]
    answered = [part for message in messages if message.role == "assistant" for part in message.parts]
    return TurnText(
        turn_id=turn.turn_id,
        started_at=turn.started_at,
        prompt=_said(asked),
        attachments=tuple(label for part in asked if (label := _attachment(part))),
        answer=_said(answered),
        tools=tuple(tool_label(part["tool_name"], part["status"]) for part in answered if part["type"] == "tool"),
    )


def outlined(turn: Turn, messages: Iterable[Outline]) -> TurnText:
    """Returns the same for messages that were read with HEAD and TAIL. Slow: do not call it on the event loop."""
    return text_of(turn, [_Spoken(one.role, _parts(one)) for one in messages])


def _said(parts: Iterable[Json]) -> str:
    """Returns the whole text, or enough of it to show that it is too long for a view."""
    said: list[str] = []
    length = 0
    for part in parts:
        if part["type"] == "text" and length <= TEXT_LENGTH:
            # This many words are longer than a view.
            said.append(joined_text(part["text"].split(None, TEXT_LENGTH)[:TEXT_LENGTH]))
            length += len(said[-1])
    return joined_text(said)


def _attachment(part: Json) -> str:
    if part["type"] == "image":
        return image_label(part["caption"], part["url"])
    return context_label(part["uri"]) if part["type"] == "context" else ""


def _parts(message: Outline) -> list[Json]:
    if not message.is_cut:
        whole: list[Json] = json.loads(message.head + message.tail)
        return whole
    first, cut = _first(message.head)
    rest, last = _last(message.tail)
    through = _through(cut, rest)
    return [*first, *([through] if through else []), *last]


def _first(head: str) -> tuple[list[Json], str]:
    """Returns the complete parts, and the beginning of the incomplete one."""
    decode = json.JSONDecoder().raw_decode
    parts: list[Json] = []
    # After the bracket, and after each comma.
    place = 1
    while True:
        try:
            part, end = decode(head, place)
        except ValueError:
            return parts, head[place:]
        parts.append(part)
        place = end + 1


def _last(tail: str) -> tuple[str, list[Json]]:
    """Returns the end of an incomplete part, and the parts after it."""
    place = -1
    for _ in range(_TRIES):
        place = tail.find(f",{_PART}", place + 1)
        if place < 0:
            break
        try:
            return tail[:place], json.loads(f"[{tail[place + 1 :]}")
        except ValueError:
            # The match is inside of a tool's input.
            continue
    return tail.removesuffix("]"), []


def _through(cut: str, rest: str) -> Json | None:
    """Returns the part that begins with `cut`, or None. `rest` is its end if no other part was between them."""
    if cut.startswith(_TEXT):
        return {"type": "text", "text": _unfinished(cut[len(_TEXT) :])}
    if cut.startswith(f'{_PART}image"'):
        caption = _CAPTION.search(rest)
        # The URL may be a data URL, which can be as long as this.
        return {"type": "image", "url": "", "caption": json.loads(caption[1]) if caption else ""}
    name, status = _TOOL_NAME.search(cut), _STATUS.search(rest)
    if name and status:
        return {"type": "tool", "tool_name": json.loads(name[1]), "status": json.loads(status[1])}
    return None


def _unfinished(text: str) -> Any:
    """Returns the text of a JSON string that was cut, possibly within an escape."""
    for dropped in range(6):
        try:
            return json.loads(f'"{text[: len(text) - dropped]}"')
        except ValueError:
            continue
    return ""
