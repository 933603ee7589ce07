"""A session: one conversation of a user."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Self

from runekeep.client.blocking import BlockingWrapper, blocking, blocking_iter
from runekeep.client.connection.connection import Connection, new_request_id
from runekeep.client.event_loop_thread import event_loop_thread
from runekeep.client.sessions.context import BlockingSessionRecall, SessionRecall
from runekeep.client.sessions.message_forms import MessageForm, read_messages
from runekeep.client.sessions.messages import Message, Part, RoleName, TextPart, message_from_wire, message_to_wire
from runekeep.client.sessions.requests import auto_commit_to_wire, policy_to_wire, skill_to_wire
from runekeep.client.sessions.results import (
    AddedMessage,
    AddedMessages,
    Archive,
    AutoCommit,
    AutoCommitRules,
    Commit,
    RecordedUsage,
    SessionInfo,
)
from runekeep.client.sessions.writer import AsyncWriter, Writer
from runekeep.client.tasks.results import Task
from runekeep.client.tasks.watch import wait_task
from runekeep.client.turns.session_turns import BlockingSessionTurns, SessionTurns
from runekeep.client.wire.arguments import require_list
from runekeep.client.wire.proto_json import enum_number, to_json
from runekeep.v1 import session_service_pb2

_PAGE = 200


class AsyncSession(SessionTurns, SessionRecall):
    """A handle of a session. `AsyncClient.session`, `get_session` and `create_session` return it.

    At the end of a `with` block it commits, unless the block raised or nothing was added to the session with this
    handle.

    Every mutation takes a `request_id`. To repeat a call whose result is unknown, give the same one.
    """

    def __init__(self, connection: Connection, session_id: str, *, exists: bool) -> None:
        super().__init__(connection, session_id)
        self._exists = exists
        self._has_written = False
        self._creating = asyncio.Lock()
        self._last_task_id = ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self._has_written:
            await self.commit()

    async def add_message(
        self,
        role: RoleName,
        parts: str | Sequence[Part],
        *,
        peer_id: str = "",
        turn_id: str = "",
        created_at: datetime | None = None,
        message_id: str = "",
        speaker: str = "",
        request_id: str | None = None,
    ) -> AddedMessage:
        """Appends a message, of a text or of parts. It is durable once the call returns. The keywords are those of
        Message.

        ```python
        added = session.add_message("user", "I live in Lisbon")
        print(added.id, added.sequence)
        ```
        """
        parts = [TextPart(parts)] if isinstance(parts, str) else parts
        message = Message(role, parts, message_id, created_at, peer_id, turn_id, speaker)
        return (await self.add_messages([message], request_id=request_id)).messages[0]

    async def add_messages(
        self, messages: Sequence[MessageForm], *, include_system: bool = False, request_id: str | None = None
    ) -> AddedMessages:
        """Appends up to 100 messages in order, all or none. `auto_commit` is the commit that they caused.

        Messages may have OpenAI's or Anthropic's form, also as their SDKs return them. The result of a tool joins its
        call, which must be among the messages before it. System prompts are left out; `include_system` keeps them as
        messages of the user with the speaker `system`.

        Raises ValueError for another form.

        ```python
        session.add_messages([{"role": "user", "content": "I live in Lisbon"}])
        ```
        """
        read = read_messages(messages, include_system=include_system)
        await self._ensure_exists()
        request = session_service_pb2.AddMessagesRequest(
            session=self.session_id,
            messages=[message_to_wire(message) for message in read],
            request_id=request_id or new_request_id(),
        )
        self._has_written = True
        response = await self._connection.call(self._connection.stubs.sessions.AddMessages, request)
        self._note_added(response)
        return AddedMessages(to_json(response))

    def writer(self) -> AsyncWriter:
        """Returns a writer, which appends without waiting for each append to be durable.

        At the end of its `with` block all of its appends are durable. Before a commit that is to take them along, call
        its `flush`.

        ```python
        with session.writer() as writer:
            writer.add("user", "I live in Lisbon")
            writer.add("assistant", "Since when?")
        ```
        """
        return AsyncWriter(self._connection, self.session_id, self._ensure_exists, self._note_added)

    async def used(
        self,
        contexts: Sequence[str] = (),
        skill: Mapping[str, Any] | None = None,
        *,
        request_id: str | None = None,
    ) -> RecordedUsage:
        """Records contexts, by URI, and a skill that the agent used since the last commit.

        `skill` is `{"uri", "input", "output", "success"}`. Returns how many of each are recorded.

        ```python
        session.used(["viking://user/robin/memories/profile.md"])
        ```
        """
        await self._ensure_exists()
        self._has_written = True
        request = session_service_pb2.RecordUsageRequest(
            session=self.session_id,
            context_uris=require_list(contexts, "contexts"),
            skills=[] if skill is None else [skill_to_wire(skill)],
            request_id=request_id or new_request_id(),
        )
        response = await self._connection.call(self._connection.stubs.sessions.RecordUsage, request)
        return RecordedUsage(to_json(response))

    async def commit(
        self,
        memory_policy: Mapping[str, Any] | None = None,
        keep_recent_count: int = 0,
        *,
        priority: int = 0,
        request_id: str | None = None,
    ) -> Commit:
        """Archives the live messages except the newest `keep_recent_count`, and queues their extraction.

        `memory_policy` replaces the session's own for this commit: `{"self": {"enabled": True}, "peer": {"enabled":
        False}, "memory_types": {"names": ["profile"]}}`. All keys are optional; `memory_types` may also be a list.
        `priority`, from -100 to 100: waiting commits of the account with a higher one go first.

        ```python
        commit = session.commit()
        print(commit.status, commit.task_id)
        ```
        """
        await self._ensure_exists()
        request = session_service_pb2.CommitSessionRequest(
            session=self.session_id,
            request_id=request_id or new_request_id(),
            memory_policy=policy_to_wire(memory_policy),
            keep_recent_count=keep_recent_count,
            priority=priority,
        )
        response = await self._connection.call(self._connection.stubs.sessions.CommitSession, request)
        self._last_task_id = response.task_id or self._last_task_id
        return Commit(to_json(response))

    async def wait(self, timeout: float | None = None) -> Task | None:
        """Waits until the last commit that was made with this handle has ended and a search finds its memories, as
        `wait_task`. Returns its task; None if it made none. Raises DeadlineExceededError after `timeout` seconds.

        ```python
        session.commit()
        task = session.wait(timeout=60)
        print(task.status if task else "nothing was committed")
        ```
        """
        return await wait_task(self._connection, self._last_task_id, timeout) if self._last_task_id else None

    async def update(
        self,
        *,
        title: str | None = None,
        memory_policy: Mapping[str, Any] | None = None,
        auto_commit: AutoCommit | AutoCommitRules | None = None,
        request_id: str | None = None,
    ) -> SessionInfo:
        """Changes title, policy or automatic commits; None: unchanged. Returns the session.

        An empty dictionary is the default policy, or no automatic commits. `memory_policy` takes what
        `info().memory_policy` is.

        ```python
        session.update(title="Holidays", auto_commit={"message_count": 20})
        ```
        """
        request = session_service_pb2.UpdateSessionRequest(
            session=self.session_id,
            title=title or "",
            memory_policy=policy_to_wire(memory_policy),
            auto_commit=auto_commit_to_wire(auto_commit),
            request_id=request_id or new_request_id(),
        )
        given = {"title": title, "memory_policy": memory_policy, "auto_commit": auto_commit}
        request.update_mask.paths.extend(name for name, value in given.items() if value is not None)
        if not request.update_mask.paths:
            raise ValueError(f"nothing to change: give any of {', '.join(given)}")
        await self._ensure_exists()
        response = await self._connection.call(self._connection.stubs.sessions.UpdateSession, request)
        return SessionInfo(to_json(response.session))

    async def info(self) -> SessionInfo:
        """Returns the session's state on the server. Raises NotFoundError before its first use.

        ```python
        info = session.info()
        print(info.message_count, info.live_tokens)
        ```
        """
        request = session_service_pb2.GetSessionRequest(session=self.session_id)
        response = await self._connection.call(self._connection.stubs.sessions.GetSession, request)
        return SessionInfo(to_json(response.session))

    async def messages(
        self, scope: Literal["live", "all"] = "live", *, start_sequence: int = 0
    ) -> AsyncGenerator[Message, None]:
        """Lists its messages, oldest first: those not archived yet, or all. `start_sequence`: none before this position
        in the session.

        ```python
        for message in session.messages("all"):
            print(message.sequence, message.role, message.parts)
        ```
        """
        number = enum_number(session_service_pb2.MessageScope, scope)
        request = session_service_pb2.ListMessagesRequest(
            session=self.session_id,
            scope=session_service_pb2.MessageScope.ValueType(number),
            page_size=_PAGE,
            start_sequence=start_sequence,
        )
        async for page in self._connection.pages(self._connection.stubs.sessions.ListMessages, request):
            for message in page.messages:
                yield message_from_wire(message)

    async def archives(self) -> AsyncGenerator[Archive, None]:
        """Lists its commits, newest first.

        ```python
        for archive in session.archives():
            print(archive.uri, archive.state, archive.revision)
        ```
        """
        request = session_service_pb2.ListArchivesRequest(session=self.session_id, page_size=_PAGE)
        async for page in self._connection.pages(self._connection.stubs.sessions.ListArchives, request):
            for archive in page.archives:
                yield Archive(to_json(archive))

    def _note_added(self, response: session_service_pb2.AddMessagesResponse) -> None:
        self._has_written = True
        self._last_task_id = response.auto_commit.task_id or self._last_task_id

    async def _ensure_exists(self) -> None:
        if self._exists:
            return
        async with self._creating:
            if not self._exists:
                request = session_service_pb2.GetSessionRequest(session=self.session_id, auto_create=True)
                await self._connection.call(self._connection.stubs.sessions.GetSession, request)
                self._exists = True


class Session(BlockingSessionTurns, BlockingSessionRecall, BlockingWrapper[AsyncSession]):
    """A session; see AsyncSession. Any number of threads may share it."""

    @property
    def session_id(self) -> str:
        """The id of the session: the last segment of its URI.

        ```python
        print(client.session().session_id)
        ```
        """
        return self._wrapped.session_id

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        event_loop_thread().run(self._wrapped.__aexit__(kind, error, trace))

    def writer(self) -> Writer:
        """Returns a writer, which appends without waiting for each append to be durable.

        At the end of its `with` block all of its appends are durable. Before a commit that is to take them along, call
        its `flush`.

        ```python
        with session.writer() as writer:
            writer.add("user", "I live in Lisbon")
            writer.add("assistant", "Since when?")
        ```
        """
        return Writer(self._wrapped.writer())

    add_message = blocking(AsyncSession.add_message)
    add_messages = blocking(AsyncSession.add_messages)
    used = blocking(AsyncSession.used)
    commit = blocking(AsyncSession.commit)
    wait = blocking(AsyncSession.wait)
    update = blocking(AsyncSession.update)
    info = blocking(AsyncSession.info)
    messages = blocking_iter(AsyncSession.messages)
    archives = blocking_iter(AsyncSession.archives)
