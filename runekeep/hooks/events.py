"""What agents tell their hooks, in one form. The field names on the wire are those of each vendor's documentation."""

import json
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import PurePath
from typing import Any

from runekeep.injection.texts import clean_text
from runekeep.transcripts.batches import safe_id


class Moment(Enum):
    """When a hook is called."""

    START = auto()
    PROMPT = auto()
    ANSWER = auto()
    """The agent said something, which the event holds."""
    STOP = auto()
    """The agent has answered and waits for the next prompt."""
    END = auto()


MOMENTS = {
    # Claude Code and Codex
    "SessionStart": Moment.START,
    "UserPromptSubmit": Moment.PROMPT,
    "Stop": Moment.STOP,
    "SessionEnd": Moment.END,
    # Cursor
    "sessionStart": Moment.START,
    "beforeSubmitPrompt": Moment.PROMPT,
    "afterAgentResponse": Moment.ANSWER,
    "sessionEnd": Moment.END,
}


class UnknownEventError(ValueError):
    """The input is not of a hook that is known here. The text quotes nothing of it."""


@dataclass(frozen=True, slots=True)
class HookEvent:
    """One call of a hook. `session_id` names the session in Runekeep. `text` is the prompt, or what the agent said;
    `turn` names the exchange that it belongs to, where the agent says so."""

    moment: Moment
    name: str
    session_id: str
    project: str = ""
    transcript: str = ""
    text: str = ""
    turn: str = ""


def parse_event(agent: str, data: str) -> HookEvent:
    """Reads the input of a hook. Raises UnknownEventError."""
    try:
        given = json.loads(data)
    except json.JSONDecodeError as error:
        raise UnknownEventError(f"the input is not JSON: {error.msg}") from error
    if not isinstance(given, dict):
        raise UnknownEventError("the input is not a JSON object")
    name = _text(given, "hook_event_name")
    moment = MOMENTS.get(name)
    if moment is None:
        raise UnknownEventError("hook_event_name names no event that is handled here")
    session = _text(given, "session_id") or _text(given, "conversation_id")
    if not session:
        raise UnknownEventError("session_id is missing")
    roots = given.get("workspace_roots")
    root = roots[0] if isinstance(roots, list) and roots and isinstance(roots[0], str) else ""
    return HookEvent(
        moment=moment,
        name=name,
        session_id=safe_id(f"{agent}-{session}"),
        project=PurePath(_text(given, "cwd") or clean_text(root)).name,
        transcript=_text(given, "transcript_path"),
        text=_text(given, "prompt") or _text(given, "text"),
        turn=_text(given, "generation_id"),
    )


def _text(given: dict[str, Any], name: str) -> str:
    value = given.get(name)
    return clean_text(value) if isinstance(value, str) else ""
