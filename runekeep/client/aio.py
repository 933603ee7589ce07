"""The client as coroutines."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, cast

from runekeep.client import reading
from runekeep.client.aio_admin import AsyncAdmin
from runekeep.client.aio_documents import UserDocuments
from runekeep.client.aio_erasing import UserErasing
from runekeep.client.aio_exports import UserExports
from runekeep.client.aio_history import UserHistory
from runekeep.client.aio_recall import UserRecall
from runekeep.client.aio_session import AsyncSession
from runekeep.client.aio_turns import UserTurns
from runekeep.client.arguments import Moment, ViewName, listed, timestamp
from runekeep.client.arguments import as_of as _as_of
from runekeep.client.changes import DeleteMemory, EditMemory, FieldEdit, MemoryChange, PutMemory
from runekeep.client.connection import Connection, new_request_id
from runekeep.client.errors import DeadlineExceededError
from runekeep.client.plain import enum_number, plain
from runekeep.client.results import (
    AutoCommit,
    DeletedUser,
    ExtractionAttempt,
    Found,
    Memory,
    MemoryDiff,
    MemoryTypes,
    Scalar,
    SessionInfo,
    Task,
    TaskStatus,
    TaskUpdate,
    Usage,
    Written,
)
from runekeep.client.watching import watch
from runekeep.v1 import memory_service_pb2, session_service_pb2, task_service_pb2

_PAGE = 200


class AsyncClient(UserTurns, UserRecall, UserHistory, UserErasing, UserDocuments, UserExports):
    """Speaks to one server as one user.

    `address` is `host:port`, or `https://host:port` over TLS; `account` and `user` say for whom it calls. `api_key`
    is the caller's key, `ca_file` the authority that the server's certificate must come from, in place of those that
    the system trusts, and `cert_file` and `key_file` are the caller's own certificate; all in PEM. What is None comes
    from RUNEKEEP_ADDRESS, RUNEKEEP_ACCOUNT, RUNEKEEP_USER, RUNEKEEP_API_KEY, RUNEKEEP_CA_FILE, RUNEKEEP_CERT_FILE and
    RUNEKEEP_KEY_FILE. Files may be replaced meanwhile: calls that begin later go by what they hold then.
    `timeout` in seconds replaces the deadline that each method has of its own.

    Raises ValueError for what cannot be used, such as a key that would go over a network in plain text. Every call may
    raise a RunekeepError; one that finds the server away is repeated until its deadline.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        account: str | None = None,
        user: str | None = None,
        api_key: str | None = None,
        ca_file: str | Path | None = None,
        cert_file: str | Path | None = None,
        key_file: str | Path | None = None,
        timeout: float | None = None,
    ) -> None:
        self._connection = Connection(
            address,
            account=account,
            user=user,
            api_key=api_key,
            ca_file=ca_file,
            cert_file=cert_file,
            key_file=key_file,
            timeout=timeout,
        )

    @property
    def address(self) -> str:
        return self._connection.address

    @property
    def admin(self) -> AsyncAdmin:
        """What operators do; the client's key or certificate must have the scope admin."""
        return AsyncAdmin(self._connection)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection. A later call opens a new one."""
        await self._connection.close()

    # Sessions

    def session(self, session_id: str | None = None) -> AsyncSession:
        """A session to write to, made on the server with its first use when there is none; a new id when None."""
        return AsyncSession(self._connection, session_id or f"session_{uuid.uuid4()}", exists=False)

    async def get_session(self, session_id: str, auto_create: bool = False) -> AsyncSession:
        """A session that exists, by id or URI. Raises NotFoundError when there is none and `auto_create` is off."""
        request = session_service_pb2.GetSessionRequest(session=session_id, auto_create=auto_create)
        response = await self._connection.call(self._connection.stubs.sessions.GetSession, request, 5)
        return AsyncSession(self._connection, response.session.session_id, exists=True)

    async def create_session(
        self,
        session_id: str = "",
        *,
        title: str = "",
        memory_policy: dict[str, Any] | None = None,
        auto_commit: AutoCommit | None = None,
        request_id: str | None = None,
    ) -> AsyncSession:
        """A new session, with a policy that holds for its commits, and those that it makes by itself; never any when
        None. Raises AlreadyExistsError when the id is taken."""
        request = session_service_pb2.CreateSessionRequest(
            session_id=session_id,
            title=title,
            memory_policy=reading.policy_to_wire(memory_policy),
            auto_commit=reading.auto_commit_to_wire(auto_commit),
            request_id=request_id or new_request_id(),
        )
        response = await self._connection.call(self._connection.stubs.sessions.CreateSession, request, 5)
        return AsyncSession(self._connection, response.session.session_id, exists=True)

    async def list_sessions(self) -> AsyncGenerator[SessionInfo, None]:
        """The user's sessions, latest activity first."""
        request = session_service_pb2.ListSessionsRequest(page_size=_PAGE)
        while True:
            page = await self._connection.call(self._connection.stubs.sessions.ListSessions, request, 5)
            for session in page.sessions:
                yield cast(SessionInfo, plain(session))
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def delete_session(self, session_id: str, *, request_id: str | None = None) -> int:
        """Deletes a session with its messages and archives; memories made from it stay.

        Answers how many open commits were cancelled by that.
        """
        request = session_service_pb2.DeleteSessionRequest(
            session=session_id, request_id=request_id or new_request_id()
        )
        response = await self._connection.call(self._connection.stubs.sessions.DeleteSession, request, 10)
        return response.cancelled_tasks

    async def memory_diff(self, archive_uri: str) -> MemoryDiff:
        """What a finished commit changed. Raises FailedPreconditionError before it is finished."""
        request = session_service_pb2.GetMemoryDiffRequest(archive_uri=archive_uri)
        diff = session_service_pb2.MemoryDiff()
        while True:
            page = await self._connection.call(self._connection.stubs.sessions.GetMemoryDiff, request, 5)
            # The lists of the pages follow each other.
            diff.MergeFrom(page.diff)
            if not page.next_page_token:
                return reading.memory_diff(diff)
            request.page_token = page.next_page_token

    # Tasks

    async def get_task(self, task_id: str) -> Task:
        """How a task stands: `status`, and once it has ended `result`, or `turn_result` of a task about turns."""
        request = task_service_pb2.GetTaskRequest(task_id=task_id)
        response = await self._connection.call(self._connection.stubs.tasks.GetTask, request, 5)
        return reading.task(response.task)

    async def list_tasks(self, session: str = "", states: Sequence[TaskStatus] = ()) -> AsyncGenerator[Task, None]:
        """The user's tasks, newest first; only of one session or in some states when these are given."""
        numbers = [enum_number(task_service_pb2.TaskState, state) for state in listed(states, "states")]
        request = task_service_pb2.ListTasksRequest(
            session=session,
            states=[task_service_pb2.TaskState.ValueType(number) for number in numbers],
            page_size=_PAGE,
        )
        while True:
            page = await self._connection.call(self._connection.stubs.tasks.ListTasks, request, 5)
            for task in page.tasks:
                yield reading.task(task)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def watch_task(self, task_id: str, after_sequence: int = 0) -> AsyncGenerator[TaskUpdate, None]:
        """Follows a task to its end: a snapshot, every event after `after_sequence` once, the task as it ended.

        A stream that breaks is taken up again where it was.
        """
        async with aclosing(watch(self._connection, task_id, after_sequence)) as updates:
            async for update in updates:
                yield update

    async def wait_task(self, task_id: str, timeout: float | None = None) -> Task:
        """The task as it ended, whatever its status. Raises DeadlineExceededError after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout), aclosing(watch(self._connection, task_id)) as updates:
                async for update in updates:
                    if update["kind"] == "ended":
                        return update["task"]
        except TimeoutError as error:
            message = f"task {task_id} has not ended within {timeout} s"
            raise DeadlineExceededError(message, code="DEADLINE_EXCEEDED") from error
        raise AssertionError("a watch ends with the task")

    async def cancel_task(self, task_id: str, reason: str = "", *, request_id: str | None = None) -> Task:
        """Cancels an open task: its result is never applied. Raises FailedPreconditionError when it has ended."""
        request = task_service_pb2.CancelTaskRequest(
            task_id=task_id, reason=reason, request_id=request_id or new_request_id()
        )
        response = await self._connection.call(self._connection.stubs.tasks.CancelTask, request, 5)
        return reading.task(response.task)

    async def retry_task(self, task_id: str, *, request_id: str | None = None) -> Task:
        """Queues a failed or cancelled task again. Raises FailedPreconditionError for others."""
        request = task_service_pb2.RetryTaskRequest(task_id=task_id, request_id=request_id or new_request_id())
        response = await self._connection.call(self._connection.stubs.tasks.RetryTask, request, 5)
        return reading.task(response.task)

    async def extraction_record(self, task_id: str) -> list[ExtractionAttempt]:
        """What the newest attempts at a task were made of, oldest first: models, prompts by digest, raw answers.

        Raises NotFoundError once the session is deleted.
        """
        request = task_service_pb2.GetExtractionRecordRequest(task_id=task_id)
        response = await self._connection.call(self._connection.stubs.tasks.GetExtractionRecord, request, 5)
        return cast(list[ExtractionAttempt], plain(response)["attempts"])

    async def usage(self, session: str = "", *, account: bool = False, start_time: datetime | None = None) -> Usage:
        """What models cost by phase and model: for the user, for one session, or for the whole account.

        `start_time`: not before the UTC day of that time. Raises NotFoundError for a session that is not there.
        """
        if session and account:
            raise ValueError("of a session or of the account, not of both")
        scope = "session" if session else "account" if account else ""
        request = task_service_pb2.GetUsageRequest(session_id=session)
        if scope:
            number = enum_number(task_service_pb2.UsageScope, scope)
            request.scope = task_service_pb2.UsageScope.ValueType(number)
        if start_time is not None:
            request.start_time.FromDatetime(start_time)
        response = await self._connection.call(self._connection.stubs.tasks.GetUsage, request, 5)
        return cast(Usage, plain(response))

    # Memories

    async def find(
        self,
        query: str,
        target_uri: str = "",
        limit: int = 10,
        score_threshold: float | None = None,
        filter: Mapping[str, Scalar] | None = None,
        *,
        memory_types: Sequence[str] = (),
        kinds: Sequence[Literal["memory", "passage"]] = (),
        view: ViewName = "abstract",
        min_revision: int = 0,
        peers: Sequence[str] = (),
        tags: Sequence[str] = (),
        sessions: Sequence[str] = (),
        start_time: datetime | None = None,
        end_time: datetime | None = None,
        as_of: Moment | None = None,
        explain: bool = False,
    ) -> Found:
        """Searches memories and archived conversation, best first.

        `target_uri` confines it to what is below; `filter` asks for equality on fields of memories; `min_revision`
        waits until that revision, from a commit's result, can be found. Of `peers`, "" is the user; every tag of `tags`
        must be there; `sessions` are URIs or ids. From `start_time` on and before `end_time`; a time without a zone is
        local. `as_of` is a revision or a time: memories as they were then, and what had been archived by then.
        `explain` adds to `detail` the parts of each score.
        """
        numbers = [enum_number(memory_service_pb2.FoundKind, kind) for kind in listed(kinds, "kinds")]
        request = memory_service_pb2.FindMemoriesRequest(
            query=query,
            target_uri=target_uri,
            memory_types=listed(memory_types, "memory_types"),
            kinds=[memory_service_pb2.FoundKind.ValueType(number) for number in numbers],
            limit=limit,
            score_threshold=score_threshold,
            view=reading.view_number(view),
            min_revision=min_revision,
            filter={name: reading.field_value(value) for name, value in (filter or {}).items()},
            peers=listed(peers, "peers"),
            tags=listed(tags, "tags"),
            sessions=listed(sessions, "sessions"),
            start_time=timestamp(start_time),
            end_time=timestamp(end_time),
            as_of=_as_of(as_of),
            explain=explain,
        )
        response = await self._connection.call(self._connection.stubs.memories.FindMemories, request, 10)
        return reading.found(response)

    async def write_memories(self, changes: Sequence[MemoryChange], *, request_id: str | None = None) -> Written:
        """Changes memories by hand: all of the changes or none, as one revision, each memory named once.

        Raises AbortedError (`VERSION_MISMATCH`) when one is not at its `base_version`, FailedPreconditionError when a
        replacement does not apply (`PATCH_NOT_APPLICABLE`) or the type forbids the change (`WRITE_NOT_ALLOWED`).
        """
        request = memory_service_pb2.WriteMemoriesRequest(
            changes=[change.to_wire() for change in changes], request_id=request_id or new_request_id()
        )
        response = await self._connection.call(self._connection.stubs.memories.WriteMemories, request, 10)
        return cast(Written, plain(response))

    async def put_memory(
        self,
        memory_type: str,
        fields: Mapping[str, Scalar],
        *,
        base_version: int = 0,
        peer_id: str = "",
        abstract: str = "",
        overview: str = "",
        request_id: str | None = None,
    ) -> Memory:
        """Writes one whole memory, see PutMemory and `write_memories`."""
        change = PutMemory(memory_type, fields, base_version, peer_id, abstract, overview)
        return (await self.write_memories([change], request_id=request_id))["memories"][0]

    async def edit_memory(
        self, uri: str, fields: Mapping[str, FieldEdit], *, base_version: int, request_id: str | None = None
    ) -> Memory:
        """Changes fields of one memory, see EditMemory and `write_memories`."""
        change = EditMemory(uri, fields, base_version)
        return (await self.write_memories([change], request_id=request_id))["memories"][0]

    async def delete_memory(self, uri: str, *, base_version: int, request_id: str | None = None) -> Memory:
        """Removes one memory, see `write_memories`; what is answered is the version that stands for the delete."""
        change = DeleteMemory(uri, base_version)
        return (await self.write_memories([change], request_id=request_id))["memories"][0]

    async def versions(self, uri: str) -> AsyncGenerator[Memory, None]:
        """The versions of one memory, newest first, deletes among them."""
        request = memory_service_pb2.ListMemoryVersionsRequest(uri=uri, page_size=_PAGE)
        while True:
            page = await self._connection.call(self._connection.stubs.memories.ListMemoryVersions, request, 5)
            for memory in page.memories:
                yield cast(Memory, plain(memory))
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def delete_user(self, user: str, *, request_id: str | None = None) -> DeletedUser:
        """Deletes everything of the user in whose name this client calls, and whose name `user` is once more.

        Sessions, archives, memories with their history and tasks are gone at once; open commits are cancelled. The
        same name may be used again. Raises InvalidArgumentError for another name.
        """
        request = memory_service_pb2.DeleteUserRequest(user=user, request_id=request_id or new_request_id())
        response = await self._connection.call(self._connection.stubs.memories.DeleteUser, request, 30)
        return cast(DeletedUser, plain(response))

    async def memory_types(self) -> MemoryTypes:
        """The kinds of memory that the server keeps."""
        request = memory_service_pb2.ListMemoryTypesRequest()
        response = await self._connection.call(self._connection.stubs.memories.ListMemoryTypes, request, 5)
        return cast(MemoryTypes, plain(response))
