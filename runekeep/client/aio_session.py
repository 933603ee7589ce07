"""A session: the conversation of one user, written to and committed."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from typing import Any, Literal, cast

from runekeep.client import reading
from runekeep.client.aio_recall import SessionRecall
from runekeep.client.aio_turns import SessionTurns
from runekeep.client.arguments import listed
from runekeep.client.connection import Connection, new_request_id
from runekeep.client.messages import Message, Part, RoleName, message_from_wire, message_to_wire
from runekeep.client.plain import enum_number, plain
from runekeep.client.results import Added, AddedMessage, Archive, AutoCommit, Commit, SessionInfo, Used
from runekeep.v1 import session_service_pb2

_PAGE = 200


class AsyncSession(SessionTurns, SessionRecall):
    """A handle; `AsyncClient.session` and `AsyncClient.get_session` make it.

    Every mutation takes a `request_id`: give the one of a call whose result is unknown to repeat it harmlessly.
    """

    def __init__(self, connection: Connection, session_id: str, *, exists: bool) -> None:
        super().__init__(connection, session_id)
        self._exists = exists
        self._creating = asyncio.Lock()

    async def add_message(
        self,
        role: RoleName,
        parts: Sequence[Part],
        *,
        peer_id: str = "",
        turn_id: str = "",
        created_at: datetime | None = None,
        message_id: str = "",
        speaker: str = "",
        request_id: str | None = None,
    ) -> AddedMessage:
        """Appends a message, durably before it answers. The keywords are those of Message."""
        message = Message(role, parts, message_id, created_at, peer_id, turn_id, speaker)
        return (await self.add_messages([message], request_id=request_id))["messages"][0]

    async def add_messages(self, messages: Sequence[Message], *, request_id: str | None = None) -> Added:
        """Appends up to 100 messages in order, all or none; `auto_commit` answers the commit that they made."""
        await self._ensure()
        request = session_service_pb2.AddMessagesRequest(
            session=self.session_id,
            messages=[message_to_wire(message) for message in messages],
            request_id=request_id or new_request_id(),
        )
        response = await self._connection.call(self._connection.stubs.sessions.AddMessages, request, 5)
        return cast(Added, plain(response))

    async def used(
        self,
        contexts: Sequence[str] = (),
        skill: dict[str, Any] | None = None,
        *,
        request_id: str | None = None,
    ) -> Used:
        """Records contexts, by URI, and a skill that the agent really used since the last commit.

        `skill` is `{"uri", "input", "output", "success"}`. Answers how many of each are recorded by now.
        """
        await self._ensure()
        request = session_service_pb2.RecordUsageRequest(
            session=self.session_id,
            context_uris=listed(contexts, "contexts"),
            skills=[] if skill is None else [reading.skill_to_wire(skill)],
            request_id=request_id or new_request_id(),
        )
        response = await self._connection.call(self._connection.stubs.sessions.RecordUsage, request, 5)
        return cast(Used, plain(response))

    async def commit(
        self,
        memory_policy: dict[str, Any] | None = None,
        keep_recent_count: int = 0,
        *,
        priority: int = 0,
        request_id: str | None = None,
    ) -> Commit:
        """Archives the live messages, but the newest `keep_recent_count`, and queues their extraction.

        `memory_policy` replaces the session's own for this commit: `{"self": {"enabled": True}, "peer": {"enabled":
        False}, "memory_types": {"names": ["profile"]}}`, every key optional; `memory_types` may also be
        a plain list. `priority`, from -100 to 100: among the waiting commits of the account's users, higher goes first.
        """
        await self._ensure()
        request = session_service_pb2.CommitSessionRequest(
            session=self.session_id,
            request_id=request_id or new_request_id(),
            memory_policy=reading.policy_to_wire(memory_policy),
            keep_recent_count=keep_recent_count,
            priority=priority,
        )
        response = await self._connection.call(self._connection.stubs.sessions.CommitSession, request, 10)
        return cast(Commit, plain(response))

    async def update(
        self,
        *,
        title: str | None = None,
        memory_policy: dict[str, Any] | None = None,
        auto_commit: AutoCommit | None = None,
        request_id: str | None = None,
    ) -> SessionInfo:
        """Changes title, policy or automatic commits; what is None stays. Answers how the session stands.

        An empty dict is a policy of defaults, or says that the session never commits by itself. `memory_policy` takes
        what `info()["memory_policy"]` returns.
        """
        request = session_service_pb2.UpdateSessionRequest(
            session=self.session_id,
            title=title or "",
            memory_policy=reading.policy_to_wire(memory_policy),
            auto_commit=reading.auto_commit_to_wire(auto_commit),
            request_id=request_id or new_request_id(),
        )
        given = {"title": title, "memory_policy": memory_policy, "auto_commit": auto_commit}
        request.update_mask.paths.extend(name for name, value in given.items() if value is not None)
        if not request.update_mask.paths:
            raise ValueError(f"nothing to change: give any of {', '.join(given)}")
        await self._ensure()
        response = await self._connection.call(self._connection.stubs.sessions.UpdateSession, request, 5)
        return cast(SessionInfo, plain(response.session))

    async def info(self) -> SessionInfo:
        """How it stands on the server. Raises NotFoundError before its first use."""
        request = session_service_pb2.GetSessionRequest(session=self.session_id)
        response = await self._connection.call(self._connection.stubs.sessions.GetSession, request, 5)
        return cast(SessionInfo, plain(response.session))

    async def messages(self, scope: Literal["live", "all"] = "live") -> AsyncGenerator[Message, None]:
        """Its messages, oldest first: those not yet archived, or all."""
        number = enum_number(session_service_pb2.MessageScope, scope)
        request = session_service_pb2.ListMessagesRequest(
            session=self.session_id, scope=session_service_pb2.MessageScope.ValueType(number), page_size=_PAGE
        )
        while True:
            page = await self._connection.call(self._connection.stubs.sessions.ListMessages, request, 5)
            for message in page.messages:
                yield message_from_wire(message)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def archives(self) -> AsyncGenerator[Archive, None]:
        """Its commits so far, newest first."""
        request = session_service_pb2.ListArchivesRequest(session=self.session_id, page_size=_PAGE)
        while True:
            page = await self._connection.call(self._connection.stubs.sessions.ListArchives, request, 5)
            for archive in page.archives:
                yield cast(Archive, plain(archive))
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def _ensure(self) -> None:
        if self._exists:
            return
        async with self._creating:
            if not self._exists:
                request = session_service_pb2.GetSessionRequest(session=self.session_id, auto_create=True)
                await self._connection.call(self._connection.stubs.sessions.GetSession, request, 5)
                self._exists = True
