"""Hands in what was said, and commits it at the end of a session."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runekeep import AsyncClient, Message, NotFoundError, TextPart, ToolPart
from runekeep.client.sessions.messages import Part, RoleName, split_calls
from runekeep.hooks.agents import Agent
from runekeep.hooks.events import HookEvent, Moment
from runekeep.injection.block import strip_memory
from runekeep.injection.sessions import add_new, open_session

_IDS = uuid.UUID("2f2a9f10-6a0e-4a57-b7a5-0f3c6a1f6f4d")
_OWN_TOOLS = "mcp__runekeep__"


@dataclass(slots=True)
class Captured:
    """How many messages were handed in, those included that the session had; and why others were skipped."""

    count: int = 0
    refused: Sequence[Exception] = ()


async def capture(client: AsyncClient, agent: Agent, event: HookEvent) -> Captured:
    """Adds messages that the session does not have yet, and commits if the session has ended. Skips messages that the
    server refuses.

    Messages have the ids of the transcript, so that handing it in once more adds nothing. Raises RunekeepError.
    """
    messages = [message for given in said(agent, event) if (message := without_memory(given)).parts]
    if messages:
        session = await open_session(client, event.session_id, event.project)
    elif event.moment is Moment.END:
        try:
            session = await client.get_session(event.session_id)
        except NotFoundError:
            return Captured()
    else:
        return Captured()
    refused: list[Exception] = []
    for batch in split_calls(messages):
        refused += await add_new(session, batch)
    if event.moment is Moment.END:
        # Repeated it finds nothing to commit.
        await session.commit()
    return Captured(len(messages) - len(refused), refused)


def said(agent: Agent, event: HookEvent) -> list[Message]:
    """Returns what was said in a session so far, or what the event itself holds."""
    if agent.read_transcript is None:
        return _said_in_event(event)
    if event.moment not in (Moment.STOP, Moment.END) or not event.transcript:
        return []
    path = Path(event.transcript).expanduser()
    if not path.is_file():
        # A session without a prompt has no transcript, or its user deleted it.
        return []
    with path.open(encoding="utf-8", errors="replace") as lines:
        messages = agent.read_transcript(lines)
    if event.moment is Moment.END:
        return messages
    # A call whose result is still to come: the next time the message is whole.
    open_call = next((place for place, message in enumerate(messages) if _is_open(message)), len(messages))
    return messages[:open_call] if _only_at_end(messages, open_call) else messages


def _is_open(message: Message) -> bool:
    return any(isinstance(part, ToolPart) and part.status == "pending" for part in message.parts)


def _only_at_end(messages: Sequence[Message], place: int) -> bool:
    """Whether the user has said nothing after that message. A call that was interrupted never gets a result."""
    return all(message.role == "assistant" for message in messages[place:])


def _said_in_event(event: HookEvent) -> list[Message]:
    if event.moment not in (Moment.PROMPT, Moment.ANSWER) or not event.text.strip():
        return []
    made = uuid.uuid5(_IDS, f"{event.session_id}\n{event.turn}\n{event.moment.name}\n{event.text}")
    role: RoleName = "user" if event.moment is Moment.PROMPT else "assistant"
    return [Message(role, [TextPart(event.text)], f"msg_{made}")]


def without_memory(message: Message) -> Message:
    """Returns a message without recalled memory: without marked blocks, and without what our own tools answered."""
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, TextPart):
            if text := strip_memory(part.text):
                parts.append(TextPart(text))
        elif isinstance(part, ToolPart):
            own = part.tool_name.startswith(_OWN_TOOLS)
            parts.append(replace(part, output="" if own else strip_memory(part.output)))
        else:
            parts.append(part)
    return replace(message, parts=parts)
