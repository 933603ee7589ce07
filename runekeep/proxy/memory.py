"""Recalls memory for a request, and appends the turn to its session."""

import asyncio
import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runekeep import AsyncClient, Message, TextPart
from runekeep.client.memories.results import RecallResult
from runekeep.client.sessions.messages import RoleName
from runekeep.injection.block import strip_memory
from runekeep.injection.sessions import add_new, open_session
from runekeep.injection.texts import MAX_QUERY_CHARS, MAX_TEXT_CHARS, clean_text, name_error
from runekeep.proxy.dialects import Body, Dialect, text_of
from runekeep.proxy.settings import ProxySettings
from runekeep.web.callers import open_client
from runekeep.web.exposure import refuse_open_server

RECALL_SECONDS = 1.0
APPEND_SECONDS = 20.0

KEY_HEADER = "x-runekeep-key"
SESSION_HEADER = "x-runekeep-session"

log = logging.getLogger("runekeep.proxy")


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of a conversation. `place`: of the user's last words in its messages. `session` empty: nothing is
    appended."""

    dialect: Dialect
    body: Body
    place: int
    session: str

    @property
    def query(self) -> str:
        return strip_memory(text_of(self.body["messages"][self.place]["content"]))

    def messages(self, answer: str) -> list[Message]:
        """Returns the user's last message and the answer; nothing without a session. Their ids follow from the texts of
        the conversation before, so that a request that is repeated adds nothing twice."""
        if not self.session:
            return []
        before = _texts(self.body["messages"][: self.place + 1])
        whole = _texts(self.body["messages"])
        pairs: tuple[tuple[RoleName, str, list[tuple[str, str]]], ...] = (
            ("user", self.query, before),
            ("assistant", strip_memory(answer), whole),
        )
        return [
            Message(role, [TextPart(clean_text(text[:MAX_TEXT_CHARS]))], _message_id(self.session, role, conversation))
            for role, text, conversation in pairs
            if text
        ]


class RequestMemory:
    """Calls Runekeep with the credentials in the headers of a request."""

    def __init__(self, settings: ProxySettings) -> None:
        self._settings = settings
        self._asks_for_keys = False
        """Whether Runekeep is known to ask for keys. False until it can be reached."""

    async def recall(self, headers: Mapping[str, str], query: str) -> RecallResult | None:
        """Returns the stable part and what is relevant; None if memory is unavailable, late or refuses. Raises
        nothing."""
        settings = self._settings
        try:
            async with asyncio.timeout(RECALL_SECONDS), self._client(headers, RECALL_SECONDS) as client:
                await self._check()
                return await client.recall(
                    query[:MAX_QUERY_CHARS],
                    parts=["stable", "query"],
                    stable_budget=settings.stable_budget,
                    token_budget=settings.query_budget,
                )
        except Exception as error:  # the model must be reached, whatever this is
            log.warning("no memory: %s", name_error(error))
            return None

    async def append(self, headers: Mapping[str, str], session_id: str, messages: Sequence[Message]) -> None:
        """Appends the messages of a turn to its session. Raises nothing."""
        try:
            async with self._client(headers, APPEND_SECONDS) as client:
                await self._check()
                session = await open_session(client, session_id)
                for refused in await add_new(session, messages):
                    log.warning("a message was not appended: %s", name_error(refused))
        except Exception as error:  # the caller has its answer, whatever this is
            log.warning("a turn was not appended: %s", name_error(error))

    async def _check(self) -> None:
        """Raises ListenError while it is not known that Runekeep asks for keys."""
        if not self._asks_for_keys:
            await refuse_open_server(self._settings, self._settings.server)
            self._asks_for_keys = True

    def _client(self, headers: Mapping[str, str], timeout: float) -> AsyncClient:
        return open_client(self._settings, headers, headers.get(KEY_HEADER, ""), timeout)


def _texts(messages: Sequence[object]) -> list[tuple[str, str]]:
    """Returns roles and texts of what user and assistant said. Other fields, such as `cache_control`, move from request
    to request."""
    said = (one for one in messages if isinstance(one, dict) and one.get("role") in ("user", "assistant"))
    texts = ((str(one["role"]), " ".join(text_of(one.get("content")).split())) for one in said)
    return [(role, text) for role, text in texts if text]


def _message_id(session: str, role: str, conversation: list[tuple[str, str]]) -> str:
    made = hashlib.sha256(json.dumps([session, role, conversation]).encode())
    return f"msg_{made.hexdigest()[:32]}"
