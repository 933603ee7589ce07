"""What a turn's messages say, as its compressed view is made from it.

A view shows some hundred characters of a turn, and its messages may hold megabytes: of a long one only both ends are
read, in which a part that was cut through is told as far as it is there.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from schemas.turns.views import TEXT_LENGTH, TurnText, context_label, image_label, joined_text, tool_label
from storage.records import Json, Turn
from storage.turns import Outline

MESSAGES: Final = 8
"""First messages of a turn, and last ones, that its view is made from."""
HEAD: Final = 24 * 1024
TAIL: Final = 24 * 1024
"""Characters at both ends of a message's parts, as JSON, that its view is made from."""

_PART: Final = '{"type":"'
_TEXT: Final = '{"type":"text","text":"'
_STRING: Final = r'"(?:[^"\\]|\\.)*"'
_CAPTION: Final = re.compile(rf'"caption":({_STRING})\}}$')
_TOOL_NAME: Final = re.compile(rf'"tool_name":({_STRING})')
_STATUS: Final = re.compile(r'"status":("[a-z]+"),"duration_ms":\d+,"total_tokens":\d+[^}]*\}$')
_TRIES: Final = 16
"""How often what looks like the beginning of a part is taken for one."""


class Spoken(Protocol):
    """A message, as far as views look at it."""

    @property
    def role(self) -> str: ...

    @property
    def parts(self) -> Sequence[Json]: ...


@dataclass(frozen=True, slots=True)
class _Spoken:
    role: str
    parts: Sequence[Json]


def text_of(turn: Turn, messages: Sequence[Spoken]) -> TurnText:
    """`messages`: of that turn, oldest first."""
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
    """The same of messages that were read with HEAD and TAIL. Takes time: not on the event loop."""
    return text_of(turn, [_Spoken(one.role, _parts(one)) for one in messages])


def _said(parts: Iterable[Json]) -> str:
    """All of it, or as much as shows that it is too long for a view."""
    said: list[str] = []
    length = 0
    for part in parts:
        if part["type"] == "text" and length <= TEXT_LENGTH:
            # So many words are longer than a view already.
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
    """The parts that are whole, and the beginning of the one that is not."""
    decode = json.JSONDecoder().raw_decode
    parts: list[Json] = []
    # Behind the bracket, and behind each comma.
    place = 1
    while True:
        try:
            part, end = decode(head, place)
        except ValueError:
            return parts, head[place:]
        parts.append(part)
        place = end + 1


def _last(tail: str) -> tuple[str, list[Json]]:
    """The end of a part that is not whole, and the parts behind it."""
    place = -1
    for _ in range(_TRIES):
        place = tail.find(f",{_PART}", place + 1)
        if place < 0:
            break
        try:
            return tail[:place], json.loads(f"[{tail[place + 1 :]}")
        except ValueError:
            # It is inside of a tool's input.
            continue
    return tail.removesuffix("]"), []


def _through(cut: str, rest: str) -> Json | None:
    """The part that begins with `cut`; `rest` is its end when no other part lay between them."""
    if cut.startswith(_TEXT):
        return {"type": "text", "text": _unfinished(cut[len(_TEXT) :])}
    if cut.startswith(f'{_PART}image"'):
        caption = _CAPTION.search(rest)
        # As long as that is what a data URL is.
        return {"type": "image", "url": "", "caption": json.loads(caption[1]) if caption else ""}
    name, status = _TOOL_NAME.search(cut), _STATUS.search(rest)
    if name and status:
        return {"type": "tool", "tool_name": json.loads(name[1]), "status": json.loads(status[1])}
    return None


def _unfinished(text: str) -> Any:
    """The inside of a JSON string that was cut off, perhaps in the middle of an escape."""
    for dropped in range(6):
        try:
            return json.loads(f'"{text[: len(text) - dropped]}"')
        except ValueError:
            continue
    return ""
