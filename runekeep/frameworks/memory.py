"""Recalls and appends for agents of any framework. Failures are logged and never raised."""

import asyncio
import hashlib
import logging
import re
from collections.abc import Iterable
from dataclasses import dataclass

from runekeep import AsyncClient, Message, TextPart
from runekeep.client.sessions.messages import RoleName, split_calls
from runekeep.injection.block import strip_memory, wrap_memory
from runekeep.injection.sessions import add_new, open_session
from runekeep.injection.texts import MAX_QUERY_CHARS, MAX_TEXT_CHARS, clean_text, name_error

RECALL_SECONDS = 2.0
APPEND_SECONDS = 20.0

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

log = logging.getLogger("runekeep.frameworks")


@dataclass(frozen=True, slots=True)
class SpokenText:
    """A text of the conversation. `id`: that of its message in the framework; without one the text counts as new."""

    role: RoleName
    text: str
    id: str = ""


class Memory:
    """The memory of one user, for an agent. While Runekeep is away, agents go on without it; the log says so."""

    def __init__(self, client: AsyncClient, *, token_budget: int = 1000, stable_budget: int = 500) -> None:
        self._client = client
        self._token_budget = token_budget
        self._stable_budget = stable_budget

    async def recall(self, query: str) -> str:
        """Returns what is known of the user and relevant to the query, as a marked block; empty if nothing is or memory
        is away."""
        try:
            async with asyncio.timeout(RECALL_SECONDS):
                known = await self._client.recall(
                    clean_text(query[:MAX_QUERY_CHARS]),
                    parts=["stable", "query"] if query.strip() else ["stable"],
                    token_budget=self._token_budget,
                    stable_budget=self._stable_budget,
                )
        except Exception as error:  # the agent must go on, whatever this is
            log.warning("no memory: %s", name_error(error))
            return ""
        text = "\n\n".join(part for part in (known.stable_text, known.text) if part)
        return wrap_memory(text) if text else ""

    async def append(self, session_id: str, texts: Iterable[SpokenText]) -> bool:
        """Appends texts to a session, which commits by itself after a pause. What was recalled is left out, and a text
        whose id the session has is not added again. An id that Runekeep does not take becomes one that it takes.

        Returns False if memory was away."""
        try:
            messages = [_message(session_id, one) for one in texts if strip_memory(one.text).strip()]
            if messages:
                async with asyncio.timeout(APPEND_SECONDS):
                    await self._append(_usable_id(session_id, "session"), messages)
        except Exception as error:  # the agent must go on, whatever this is
            log.warning("messages were not appended: %s", name_error(error))
            return False
        return True

    async def _append(self, session_id: str, messages: list[Message]) -> None:
        session = await open_session(self._client, session_id)
        for call in split_calls(messages):
            for refused in await add_new(session, call):
                log.warning("a message was not appended: %s", name_error(refused))


def _message(session_id: str, spoken: SpokenText) -> Message:
    text = clean_text(strip_memory(spoken.text).strip()[:MAX_TEXT_CHARS])
    # Of two sessions messages may have the same id.
    id = _hashed("msg", f"{session_id} {spoken.id}") if spoken.id else ""
    return Message(spoken.role, [TextPart(text)], id)


def _usable_id(id: object, kind: str) -> str:
    """Returns an id, or one made from it if it has other characters than Runekeep's ids may have."""
    return text if _ID.fullmatch(text := str(id)) else _hashed(kind, text)


def _hashed(kind: str, text: str) -> str:
    return f"{kind}_{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:32]}"
