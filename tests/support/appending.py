"""One append by itself, without the request around it."""

from collections.abc import Sequence

from storage import appends
from storage.appends import Added, Append
from storage.database import Space, Tx
from storage.records import Message


async def add_messages(
    tx: Tx, space: Space, session_id: str, messages: Sequence[Message], tool_outputs: dict[str, tuple[str, int]]
) -> Added:
    """Messages whose ids their caller chose. Raises what AddMessages would answer."""
    made: list[Added] = []

    async def answer(tx: Tx, added: Added) -> bytes:
        made.append(added)
        return b""

    brought = frozenset(message.message_id for message in messages)
    (outcome,) = await appends.add(tx, [(space, Append(session_id, messages, brought, tool_outputs, None, answer))])
    if isinstance(outcome, Exception):
        raise outcome
    return made[0]
