"""Callers: stubs that carry an account and a user, and the few calls that most tests begin with."""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import grpc
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

from runekeep.v1 import (
    common_pb2,
    history_service_pb2_grpc,
    memory_service_pb2,
    memory_service_pb2_grpc,
    proposal_service_pb2,
    proposal_service_pb2_grpc,
    session_service_pb2,
    session_service_pb2_grpc,
    space_service_pb2_grpc,
    task_service_pb2,
    task_service_pb2_grpc,
    turn_memory_service_pb2_grpc,
)

OF_THE_CLIENT = "Internal error from Core"
"""What grpc.aio's own client says when a write meets the end of a stream, in place of what the server said. That the
server itself called something INTERNAL is in its log."""
CALL_SECONDS = 20.0
TASK_ENDED = (
    task_service_pb2.TASK_STATE_COMPLETED,
    task_service_pb2.TASK_STATE_FAILED,
    task_service_pb2.TASK_STATE_CANCELLED,
)


class Service:
    """A stub whose calls carry a caller's metadata and a deadline."""

    def __init__(self, stub: Any, metadata: Sequence[tuple[str, str]]) -> None:
        self._stub = stub
        self._metadata = tuple(metadata)

    def __getattr__(self, method: str) -> Any:
        call = getattr(self._stub, method)

        def send(request: Message, timeout: float | None = CALL_SECONDS) -> Any:
            return call(request, metadata=self._metadata, timeout=timeout)

        return send


STUBS = {
    "SessionService": "sessions",
    "MemoryService": "memories",
    "HistoryService": "history",
    "ProposalService": "proposals",
    "TaskService": "tasks",
    "TurnMemoryService": "turns",
    "SpaceService": "spaces",
}
"""Attributes of `Caller`, by service."""


class Caller:
    """A user of an account."""

    def __init__(self, channel: grpc.aio.Channel, user: str, account: str = "acme") -> None:
        self.account = account
        self.user = user
        self.channel = channel
        metadata = (("x-runekeep-account", account), ("x-runekeep-user", user))
        self.sessions = Service(session_service_pb2_grpc.SessionServiceStub(channel), metadata)
        self.memories = Service(memory_service_pb2_grpc.MemoryServiceStub(channel), metadata)
        self.tasks = Service(task_service_pb2_grpc.TaskServiceStub(channel), metadata)
        self.history = Service(history_service_pb2_grpc.HistoryServiceStub(channel), metadata)
        self.proposals = Service(proposal_service_pb2_grpc.ProposalServiceStub(channel), metadata)
        self.spaces = Service(space_service_pb2_grpc.SpaceServiceStub(channel), metadata)
        self.turns = Service(turn_memory_service_pb2_grpc.TurnMemoryServiceStub(channel), metadata)

    def uri(self, path: str) -> str:
        """Canonical URI of what lies at `path` in the caller's space."""
        return f"viking://user/{self.user}/{path}"

    async def session(self, policy: common_pb2.MemoryPolicy | None = None, session_id: str = "") -> str:
        """Id of a new session."""
        request = session_service_pb2.CreateSessionRequest(session_id=session_id, memory_policy=policy)
        return str((await self.sessions.CreateSession(request)).session.session_id)

    async def add(self, session: str, *messages: common_pb2.Message) -> Any:
        return await self.sessions.AddMessages(
            session_service_pb2.AddMessagesRequest(session=session, messages=messages)
        )

    async def commit(self, session: str, **fields: Any) -> Any:
        return await self.sessions.CommitSession(session_service_pb2.CommitSessionRequest(session=session, **fields))

    async def committed(
        self, *messages: common_pb2.Message, policy: common_pb2.MemoryPolicy | None = None, session: str = ""
    ) -> Any:
        """The answer to a commit of these messages, in a session of their own unless one is named."""
        session = session or await self.session(policy)
        await self.add(session, *(messages or (said("hello"),)))
        return await self.commit(session)

    async def task(self, task_id: str) -> Any:
        return (await self.tasks.GetTask(task_service_pb2.GetTaskRequest(task_id=task_id))).task

    async def proposal(self, task_id: str) -> Any:
        return await self.proposals.GetProposal(proposal_service_pb2.GetProposalRequest(task_id=task_id))

    async def read(self, uri: str, **fields: Any) -> Any:
        return await self.memories.ReadDocument(memory_service_pb2.ReadDocumentRequest(uri=uri, **fields))

    async def memory(self, uri: str, **fields: Any) -> Any:
        return (await self.memories.GetMemory(memory_service_pb2.GetMemoryRequest(uri=uri, **fields))).memory

    async def listing(self, uri: str = "", **fields: Any) -> Any:
        return await self.memories.ListDirectory(memory_service_pb2.ListDirectoryRequest(uri=uri, **fields))

    async def find(self, query: str, **fields: Any) -> Any:
        return await self.memories.FindMemories(memory_service_pb2.FindMemoriesRequest(query=query, **fields))

    async def searchable(self) -> None:
        """Waits until all of the user's memories and passages are in the index, so that equal searches score alike:
        the weight of a word changes with every text that comes in."""
        async with asyncio.timeout(60):
            while True:
                found = await self.find("anything")
                waiting = found.pending_passages or found.pending_memories
                if found.revision == found.latest_revision and not waiting:
                    return
                await asyncio.sleep(0.02)

    async def watch(self, task_id: str, after: int = 0) -> list[Any]:
        """Everything that a watch gives until the task has ended."""
        request = task_service_pb2.WatchTaskRequest(task_id=task_id, after_sequence=after)
        return [update async for update in self.tasks.WatchTask(request)]

    async def reaches(self, task_id: str, state: int) -> Any:
        """The task once it is in the state, told by its events."""
        request = task_service_pb2.WatchTaskRequest(task_id=task_id)
        watch = self.tasks.WatchTask(request)
        async for update in watch:
            kind = update.WhichOneof("update")
            now = update.event.state_change if kind == "event" else getattr(update, kind).state if kind else 0
            if now == state:
                watch.cancel()
                return await self.task(task_id)
        raise AssertionError(f"task {task_id} ended and never was in state {state}")

    async def cancel_open(self) -> None:
        """Ends what a test left in the queue, so that the next one meets only its own jobs."""
        states = [task_service_pb2.TASK_STATE_PENDING, task_service_pb2.TASK_STATE_RUNNING]
        found = await self.tasks.ListTasks(task_service_pb2.ListTasksRequest(states=states, page_size=200))
        for task in found.tasks:
            try:
                await self.tasks.CancelTask(task_service_pb2.CancelTaskRequest(task_id=task.task_id))
            except grpc.aio.AioRpcError as error:
                # It ended meanwhile, for example because its lease expired.
                if error.code() != grpc.StatusCode.FAILED_PRECONDITION:
                    raise


def said(
    text: str, *, peer: str = "", role: int = common_pb2.ROLE_USER, id: str = "", turn: str = ""
) -> common_pb2.Message:
    """A message of text."""
    return common_pb2.Message(
        id=id,
        turn_id=turn,
        role=role,  # type: ignore[arg-type]  # a number of the enum
        peer_id=peer,
        parts=[common_pb2.Part(text=common_pb2.TextPart(text=text))],
    )


def used_tool(tool_id: str, output: str, *, id: str = "", name: str = "grep") -> common_pb2.Message:
    """A message of one finished tool call."""
    tool = common_pb2.ToolPart(tool_id=tool_id, tool_name=name, output=output, status=common_pb2.TOOL_STATUS_COMPLETED)
    return common_pb2.Message(id=id, role=common_pb2.ROLE_ASSISTANT, parts=[common_pb2.Part(tool=tool)])


CALLED = used_tool("call-1", "found")
"""A message that records one call of `grep`."""


def policy(
    *,
    self: bool = True,
    peer: bool = False,
    types: Sequence[str] | None = None,
    skills: bool | None = None,
    review: int = 0,
) -> common_pb2.MemoryPolicy:
    made = common_pb2.MemoryPolicy(peer=common_pb2.TargetPolicy(enabled=peer), review=review)
    # `self` cannot be a keyword argument of a generated constructor.
    made.self.SetInParent()
    made.self.enabled = self
    if types is not None:
        made.memory_types.SetInParent()
        made.memory_types.names.extend(types)
    if skills is not None:
        made.session_skills.SetInParent()
        made.session_skills.enabled = skills
    return made


def unique(word: str) -> str:
    return f"{word}-{uuid4().hex[:8]}"


class Failure:
    """A status that a call ended with, and its details."""

    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        self.code = error.code()
        self.message = error.details() or ""
        self.reason = ""
        self.fields: list[str] = []
        self.resource = ("", "")
        self.metadata: dict[str, str] = {}
        self.retry_seconds: float | None = None
        self.preconditions: dict[str, str] = {}
        for key, value in error.trailing_metadata() or ():
            if key == "grpc-status-details-bin":
                self._read(status_pb2.Status.FromString(value))

    def _read(self, status: status_pb2.Status) -> None:
        info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        resource, retry = error_details_pb2.ResourceInfo(), error_details_pb2.RetryInfo()
        states = error_details_pb2.PreconditionFailure()
        for detail in status.details:
            if detail.Unpack(info):
                assert info.domain == "runekeep.dev"
                self.reason = info.reason
                self.metadata = dict(info.metadata)
            elif detail.Unpack(bad):
                self.fields = [violation.field for violation in bad.field_violations]
            elif detail.Unpack(states):
                self.preconditions = {one.subject: one.description for one in states.violations}
            elif detail.Unpack(resource):
                self.resource = (resource.resource_type, resource.resource_name)
            elif detail.Unpack(retry):
                self.retry_seconds = retry.retry_delay.ToMilliseconds() / 1000

    @property
    def seen(self) -> tuple[str, str]:
        """(code, reason), the pair that most tests compare."""
        return self.code.name, self.reason

    def __repr__(self) -> str:
        return f"{self.code.name} {self.reason} {self.fields}: {self.message}"


async def failure(call: Any) -> Failure:
    """How a call, unary or of a stream, failed."""
    try:
        if hasattr(call, "__aiter__"):
            answer: Any = [one async for one in call]
        else:
            answer = await call
    except grpc.aio.AioRpcError as error:
        return Failure(error)
    raise AssertionError(f"the call should have failed, but answered: {answer}")


def lasting(task: task_service_pb2.Task) -> task_service_pb2.Task:
    """The task without its counts of what a search does not find yet, which fall while one looks."""
    copy = task_service_pb2.Task()
    copy.CopyFrom(task)
    copy.ClearField("pending_passages")
    copy.ClearField("pending_memories")
    return copy
