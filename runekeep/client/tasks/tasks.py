"""Tasks of a user: state, progress, cancelling, and what they cost."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime

from runekeep.client.blocking import blocking, blocking_iter
from runekeep.client.connection.connection import Connection, new_request_id
from runekeep.client.tasks.responses import task_from_wire
from runekeep.client.tasks.results import ExtractionAttempt, Task, TaskStatus, TaskUpdate, Usage
from runekeep.client.tasks.watch import wait_task, watch
from runekeep.client.wire.arguments import require_list
from runekeep.client.wire.proto_json import enum_number, to_json
from runekeep.v1 import task_service_pb2

_PAGE = 200


class UserTasks:
    """The tasks of a user; every AsyncClient is this too."""

    _connection: Connection

    async def get_task(self, task_id: str) -> Task:
        """Returns a task: its `status`, and once it has ended its `result`, or `turn_result` of a task about turns.

        ```python
        print(client.get_task(session.commit().task_id).status)
        ```
        """
        request = task_service_pb2.GetTaskRequest(task_id=task_id)
        response = await self._connection.call(self._connection.stubs.tasks.GetTask, request)
        return task_from_wire(response.task)

    async def list_tasks(self, session: str = "", states: Sequence[TaskStatus] = ()) -> AsyncGenerator[Task, None]:
        """Lists the user's tasks, newest first: of one session, or in some states, if given.

        ```python
        for task in client.list_tasks(states=["failed"]):
            print(task.task_id, task.error)
        ```
        """
        numbers = [enum_number(task_service_pb2.TaskState, state) for state in require_list(states, "states")]
        request = task_service_pb2.ListTasksRequest(
            session=session,
            states=[task_service_pb2.TaskState.ValueType(number) for number in numbers],
            page_size=_PAGE,
        )
        async for page in self._connection.pages(self._connection.stubs.tasks.ListTasks, request):
            for task in page.tasks:
                yield task_from_wire(task)

    async def watch_task(self, task_id: str, after_sequence: int = 0) -> AsyncGenerator[TaskUpdate, None]:
        """Follows a task to its end. Yields a snapshot, each event after `after_sequence` once, and the ended task.

        If the stream breaks, it resumes after the last event.

        ```python
        for update in client.watch_task(session.commit().task_id):
            if update.kind == "progress":
                print(update.progress.percent, update.progress.message)
        ```
        """
        async with aclosing(watch(self._connection, task_id, after_sequence)) as updates:
            async for update in updates:
                yield update

    async def wait_task(self, task_id: str, timeout: float | None = None) -> Task:
        """Returns the task once it has ended, with any status, and a search finds the memories that it wrote.

        Raises DeadlineExceededError if it has not ended after `timeout` seconds. The wait for the search ends ten
        seconds after the task, or at `timeout`: `pending_memories` says what a search misses then.

        ```python
        task = client.wait_task(session.commit().task_id, timeout=60)
        if task.result:
            print(task.result.total_adds)
        ```
        """
        return await wait_task(self._connection, task_id, timeout)

    async def cancel_task(self, task_id: str, reason: str = "", *, request_id: str | None = None) -> Task:
        """Cancels an open task. Its result is never applied. Raises FailedPreconditionError if it has ended.

        ```python
        client.cancel_task(session.commit().task_id, "no longer needed")
        ```
        """
        request = task_service_pb2.CancelTaskRequest(
            task_id=task_id, reason=reason, request_id=request_id or new_request_id()
        )
        response = await self._connection.call(self._connection.stubs.tasks.CancelTask, request)
        return task_from_wire(response.task)

    async def retry_task(self, task_id: str, *, request_id: str | None = None) -> Task:
        """Queues a failed or cancelled task again. Raises FailedPreconditionError for others.

        ```python
        for task in client.list_tasks(states=["failed"]):
            client.retry_task(task.task_id)
        ```
        """
        request = task_service_pb2.RetryTaskRequest(task_id=task_id, request_id=request_id or new_request_id())
        response = await self._connection.call(self._connection.stubs.tasks.RetryTask, request)
        return task_from_wire(response.task)

    async def extraction_record(self, task_id: str) -> list[ExtractionAttempt]:
        """Returns the newest attempts at a task, oldest first: models, digests of prompts, raw answers.

        Raises NotFoundError if the session is deleted.

        ```python
        for attempt in client.extraction_record(session.commit().task_id):
            print(attempt.number, [call.model for call in attempt.calls])
        ```
        """
        request = task_service_pb2.GetExtractionRecordRequest(task_id=task_id)
        response = await self._connection.call(self._connection.stubs.tasks.GetExtractionRecord, request)
        return [ExtractionAttempt(to_json(attempt)) for attempt in response.attempts]

    async def usage(self, session: str = "", *, account: bool = False, start_time: datetime | None = None) -> Usage:
        """Returns the tokens that models used, by phase and model: of the user, of one session, or of the account.

        `start_time`: from the UTC day of that time on. Raises NotFoundError for an unknown session.

        ```python
        for used in client.usage().usage:
            print(used.model, used.phase, used.input_tokens, used.cost_usd)
        ```
        """
        if session and account:
            raise ValueError("give session or account, not both")
        scope = "session" if session else "account" if account else ""
        request = task_service_pb2.GetUsageRequest(session_id=session)
        if scope:
            number = enum_number(task_service_pb2.UsageScope, scope)
            request.scope = task_service_pb2.UsageScope.ValueType(number)
        if start_time is not None:
            request.start_time.FromDatetime(start_time)
        response = await self._connection.call(self._connection.stubs.tasks.GetUsage, request)
        return Usage(to_json(response))


class BlockingUserTasks:
    """Blocking versions of the methods of UserTasks; a base of Client."""

    get_task = blocking(UserTasks.get_task)
    list_tasks = blocking_iter(UserTasks.list_tasks)
    watch_task = blocking_iter(UserTasks.watch_task)
    wait_task = blocking(UserTasks.wait_task)
    cancel_task = blocking(UserTasks.cancel_task)
    retry_task = blocking(UserTasks.retry_task)
    extraction_record = blocking(UserTasks.extraction_record)
    usage = blocking(UserTasks.usage)
