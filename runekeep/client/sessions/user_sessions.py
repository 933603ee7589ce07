"""The sessions of a user."""

import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from runekeep.client.blocking import blocking, blocking_iter
from runekeep.client.connection.connection import Connection, new_request_id
from runekeep.client.sessions.requests import auto_commit_to_wire, policy_to_wire
from runekeep.client.sessions.responses import memory_diff_from_wire
from runekeep.client.sessions.results import AutoCommit, AutoCommitRules, Commit, MemoryDiff, SessionInfo
from runekeep.client.sessions.session import AsyncSession
from runekeep.client.wire.proto_json import to_json
from runekeep.v1 import session_service_pb2

_PAGE = 200


class UserSessions:
    """The sessions of a user; every AsyncClient is this too."""

    _connection: Connection

    def session(self, session_id: str | None = None) -> AsyncSession:
        """Returns a session. Its first use creates it on the server if it does not exist. None: a new id.

        ```python
        session = client.session("chat_001")
        session.add_message("user", "I live in Lisbon")
        ```
        """
        return AsyncSession(self._connection, session_id or f"session_{uuid.uuid4()}", exists=False)

    async def get_session(self, session_id: str, auto_create: bool = False) -> AsyncSession:
        """Returns a session by id or URI. Raises NotFoundError if it does not exist, unless `auto_create`.

        ```python
        print(client.get_session("chat_001").info().message_count)
        ```
        """
        request = session_service_pb2.GetSessionRequest(session=session_id, auto_create=auto_create)
        response = await self._connection.call(self._connection.stubs.sessions.GetSession, request)
        return AsyncSession(self._connection, response.session.session_id, exists=True)

    async def create_session(
        self,
        session_id: str = "",
        *,
        title: str = "",
        memory_policy: Mapping[str, Any] | None = None,
        auto_commit: AutoCommit | AutoCommitRules | None = None,
        request_id: str | None = None,
    ) -> AsyncSession:
        """Creates a session. `memory_policy` holds for its commits; `auto_commit` None: no automatic commits.

        Raises AlreadyExistsError if the id is taken.

        ```python
        session = client.create_session("chat_001", title="Holidays", auto_commit={"message_count": 20})
        ```
        """
        request = session_service_pb2.CreateSessionRequest(
            session_id=session_id,
            title=title,
            memory_policy=policy_to_wire(memory_policy),
            auto_commit=auto_commit_to_wire(auto_commit),
            request_id=request_id or new_request_id(),
        )
        response = await self._connection.call(self._connection.stubs.sessions.CreateSession, request)
        return AsyncSession(self._connection, response.session.session_id, exists=True)

    async def remember(self, text: str, *, session_id: str = "remembered", request_id: str | None = None) -> Commit:
        """Remembers what a text says: adds it as a message of the user to a session for such texts, and commits it.
        Extractors turn it into memories; `wait_task` waits for them. To repeat a call, give the same `request_id`.

        ```python
        commit = client.remember("I live in Lisbon")
        client.wait_task(commit.task_id)
        ```
        """
        session = self.session(session_id)
        first = request_id or new_request_id()
        added = await session.add_message("user", text, request_id=first)
        commit = await session.commit(request_id=first)
        if commit.status == "skipped":
            # The commit of a concurrent call took the message.
            async with aclosing(session.archives()) as archives:
                async for archive in archives:
                    if archive.messages and archive.messages.end_sequence < added.sequence:
                        break
                    if archive.messages and archive.messages.start_sequence <= added.sequence:
                        names = {"task_id": archive.task_id, "archive_uri": archive.uri}
                        return Commit({"status": "accepted", **names, "archived": True})
        return commit

    async def list_sessions(self) -> AsyncGenerator[SessionInfo, None]:
        """Lists the user's sessions, latest activity first.

        ```python
        for info in client.list_sessions():
            print(info.session_id, info.message_count)
        ```
        """
        request = session_service_pb2.ListSessionsRequest(page_size=_PAGE)
        async for page in self._connection.pages(self._connection.stubs.sessions.ListSessions, request):
            for session in page.sessions:
                yield SessionInfo(to_json(session))

    async def delete_session(self, session_id: str, *, request_id: str | None = None) -> int:
        """Deletes a session with its messages and archives. Memories made from it stay.

        Returns how many open commits it cancelled.

        ```python
        cancelled = client.delete_session("chat_001")
        ```
        """
        request = session_service_pb2.DeleteSessionRequest(
            session=session_id, request_id=request_id or new_request_id()
        )
        response = await self._connection.call(self._connection.stubs.sessions.DeleteSession, request)
        return response.cancelled_tasks

    async def memory_diff(self, archive_uri: str) -> MemoryDiff:
        """Returns what a commit changed. Raises FailedPreconditionError while the commit is not finished.

        ```python
        diff = client.memory_diff(session.commit().archive_uri)
        for change in diff.operations.adds:
            print(change.uri, change.after)
        ```
        """
        request = session_service_pb2.GetMemoryDiffRequest(archive_uri=archive_uri)
        diff = session_service_pb2.MemoryDiff()
        async for page in self._connection.pages(self._connection.stubs.sessions.GetMemoryDiff, request):
            # The lists of the pages follow each other.
            diff.MergeFrom(page.diff)
        return memory_diff_from_wire(diff)


class BlockingUserSessions:
    """Blocking versions of the methods of UserSessions; a base of Client."""

    remember = blocking(UserSessions.remember)
    list_sessions = blocking_iter(UserSessions.list_sessions)
    delete_session = blocking(UserSessions.delete_session)
    memory_diff = blocking(UserSessions.memory_diff)
