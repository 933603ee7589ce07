"""The mutations of the contract, and for each what is asked, what happens in between, and what cannot be done."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from runekeep.v1 import (
    extractor_service_pb2,
    memory_service_pb2,
    session_service_pb2,
    task_service_pb2,
)
from tests.support.callers import Caller, said
from tests.support.worker import value

FILES = (session_service_pb2, memory_service_pb2, task_service_pb2, extractor_service_pb2)
METHODS: dict[str, MethodDescriptor] = {
    method.name: method
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
OF_WORKERS = {method.name for method in extractor_service_pb2.DESCRIPTOR.services_by_name["ExtractorService"].methods}
TASK = task_service_pb2


def has_request_id(method: MethodDescriptor) -> bool:
    return "request_id" in method.input_type.fields_by_name


MUTATIONS = sorted(name for name, method in METHODS.items() if has_request_id(method))

Prepare = Callable[[Caller], Awaitable[Message]]
Act = Callable[[Caller, Any], Awaitable[Any]]


@dataclass(frozen=True)
class Case:
    """`prepare` brings the caller's space so far that the request it gives, which has no id yet, can be answered.

    `other`: the request with another body that would be answered too; None where the contract allows no other body.
    `move_on` changes the state so that the same request, taken for a new one, would do something else. `impossible`
    gives a request that fails now, and `mend` makes it one that does not.
    """

    prepare: Prepare
    move_on: Act
    other: Callable[[Any], Message] | None = None
    impossible: Prepare | None = None
    mend: Act | None = None


def service_of(caller: Caller, method: str) -> Any:
    service = METHODS[method].containing_service.name
    return getattr(caller, {"SessionService": "sessions", "MemoryService": "memories", "TaskService": "tasks"}[service])


async def send(caller: Caller, method: str, request: Message, request_id: str) -> Any:
    sent = type(request)()
    sent.CopyFrom(request)
    sent.request_id = request_id  # type: ignore[attr-defined]  # any of the messages
    return await getattr(service_of(caller, method), method)(sent)


def changed(request: Any, **fields: Any) -> Any:
    made = type(request)()
    made.CopyFrom(request)
    for name, of in fields.items():
        made.ClearField(name)
        made.MergeFrom(type(request)(**{name: of}))
    return made


# What is asked for


async def create_session(caller: Caller) -> Message:
    return session_service_pb2.CreateSessionRequest(title="one")


async def create_taken_session(caller: Caller) -> Message:
    return session_service_pb2.CreateSessionRequest(session_id=await caller.session())


async def in_session(caller: Caller) -> str:
    session = await caller.session(session_id="s")
    await caller.add(session, said("before"))
    return session


async def delete_session(caller: Caller) -> Message:
    await caller.session(session_id="kept")
    return session_service_pb2.DeleteSessionRequest(session=await in_session(caller))


async def add_messages(caller: Caller) -> Message:
    return session_service_pb2.AddMessagesRequest(session=await in_session(caller), messages=[said("one")])


async def record_usage(caller: Caller) -> Message:
    used = [caller.uri("memories/preferences/Tea.md")]
    return session_service_pb2.RecordUsageRequest(session=await in_session(caller), context_uris=used)


async def commit_session(caller: Caller) -> Message:
    session = await in_session(caller)
    await caller.add(session, said("again"))
    return session_service_pb2.CommitSessionRequest(session=session)


async def cancel_task(caller: Caller) -> Message:
    return TASK.CancelTaskRequest(task_id=(await caller.committed(session=await in_session(caller))).task_id)


async def cancelled(caller: Caller) -> str:
    request = await cancel_task(caller)
    await caller.tasks.CancelTask(request)
    return str(request.task_id)  # type: ignore[attr-defined]  # any of the messages


async def retry_task(caller: Caller) -> Message:
    return TASK.RetryTaskRequest(task_id=await cancelled(caller))


def put(content: str, base_version: int = 0) -> memory_service_pb2.MemoryMutation:
    fields = {"topic": value("Tea"), "content": value(content)}
    made = memory_service_pb2.PutMemory(memory_type="preferences", fields=fields)
    return memory_service_pb2.MemoryMutation(put=made, base_version=base_version)


async def write_memories(caller: Caller) -> Message:
    return memory_service_pb2.WriteMemoriesRequest(changes=[put("Likes tea.")])


async def delete_user(caller: Caller) -> Message:
    await in_session(caller)
    return memory_service_pb2.DeleteUserRequest(user=caller.user)


def without_its_session(request: Callable[[str], Message]) -> Prepare:
    async def made(caller: Caller) -> Message:
        return request("s")

    return made


# What happens in between


async def nothing_of_it_is_left(caller: Caller, answer: Any) -> None:
    request = session_service_pb2.DeleteSessionRequest(session=answer.session.session_id)
    await caller.sessions.DeleteSession(request)


async def session_made_anew(caller: Caller, _: Any) -> None:
    await in_session(caller)


async def session_committed(caller: Caller, _: Any) -> None:
    await caller.commit("s")


async def more_is_said(caller: Caller, _: Any) -> None:
    await caller.add("s", said("more"))


async def task_retried(caller: Caller, answer: Any) -> None:
    await caller.tasks.RetryTask(TASK.RetryTaskRequest(task_id=answer.task.task_id))


async def task_cancelled(caller: Caller, answer: Any) -> None:
    await caller.tasks.CancelTask(TASK.CancelTaskRequest(task_id=answer.task.task_id))


async def memory_changed(caller: Caller, _: Any) -> None:
    request = memory_service_pb2.WriteMemoriesRequest(changes=[put("Likes coffee.", base_version=1)])
    await caller.memories.WriteMemories(request)


async def on_a_version_that_is_to_come(caller: Caller) -> Message:
    return memory_service_pb2.WriteMemoriesRequest(changes=[put("Likes coffee.", base_version=1)])


async def memory_written(caller: Caller, _: Any) -> None:
    await caller.memories.WriteMemories(await write_memories(caller))


async def cancel_ended_task(caller: Caller) -> Message:
    return TASK.CancelTaskRequest(task_id=await cancelled(caller))


async def request_task_retried(caller: Caller, request: Any) -> None:
    await caller.tasks.RetryTask(TASK.RetryTaskRequest(task_id=request.task_id))


async def retry_open_task(caller: Caller) -> Message:
    return TASK.RetryTaskRequest(task_id=(await cancel_task(caller)).task_id)  # type: ignore[attr-defined]  # any of the messages


async def request_task_cancelled(caller: Caller, request: Any) -> None:
    await caller.tasks.CancelTask(TASK.CancelTaskRequest(task_id=request.task_id))


async def taken_session_deleted(caller: Caller, request: Any) -> None:
    await caller.sessions.DeleteSession(session_service_pb2.DeleteSessionRequest(session=request.session_id))


CASES = {
    "CreateSession": Case(
        create_session,
        nothing_of_it_is_left,
        lambda request: changed(request, title="two"),
        create_taken_session,
        taken_session_deleted,
    ),
    "DeleteSession": Case(
        delete_session,
        session_made_anew,
        lambda request: changed(request, session="kept"),
        without_its_session(lambda name: session_service_pb2.DeleteSessionRequest(session=name)),
        session_made_anew,
    ),
    "AddMessages": Case(
        add_messages,
        session_committed,
        lambda request: changed(request, messages=[said("two")]),
        without_its_session(lambda name: session_service_pb2.AddMessagesRequest(session=name, messages=[said("one")])),
        session_made_anew,
    ),
    "RecordUsage": Case(
        record_usage,
        session_committed,
        lambda request: changed(request, context_uris=["viking://user/memories/preferences/Cake.md"]),
        without_its_session(lambda name: session_service_pb2.RecordUsageRequest(session=name)),
        session_made_anew,
    ),
    "CommitSession": Case(
        commit_session,
        more_is_said,
        lambda request: changed(request, keep_recent_count=1),
        without_its_session(lambda name: session_service_pb2.CommitSessionRequest(session=name)),
        session_made_anew,
    ),
    "CancelTask": Case(
        cancel_task,
        task_retried,
        lambda request: changed(request, reason="another"),
        cancel_ended_task,
        request_task_retried,
    ),
    "RetryTask": Case(
        retry_task,
        task_cancelled,
        lambda request: changed(request, task_id="another"),
        retry_open_task,
        request_task_cancelled,
    ),
    "WriteMemories": Case(
        write_memories,
        memory_changed,
        lambda request: changed(request, changes=[put("Likes coffee.")]),
        on_a_version_that_is_to_come,
        memory_written,
    ),
    # Nobody may name another user, so there is no other body; and a user without anything is deleted without an error.
    "DeleteUser": Case(delete_user, session_made_anew),
}
