"""TaskService: background work as its caller sees it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from runekeep.v1 import task_service_pb2 as pb
from runekeep.v1 import task_service_pb2_grpc
from server.errors import invalid, unavailable
from server.identity import caller_space
from server.mutations import mutate
from server.pages import next_token, open_page
from server.watchers import Watchers
from server.wire import tasks as wire
from server.wire.basics import session_id
from storage import jobs, tasks
from storage.database import Space, Tx
from storage.records import Job
from storage.store import Store

KEEP_ALIVE_SECONDS = 15.0

Context = grpc.aio.ServicerContext[Any, Any]


class TaskService(task_service_pb2_grpc.TaskServiceServicer):
    """`cancelled` tells the worker, best effort; `queued` wakes the dispatcher."""

    def __init__(
        self,
        store: Store,
        watchers: Watchers,
        *,
        cancelled: Callable[[Job, str], None],
        queued: Callable[[], None],
    ) -> None:
        self._database = store.database
        self._watchers = watchers
        self._cancelled = cancelled
        self._queued = queued

    async def GetTask(self, request: pb.GetTaskRequest, context: Context) -> pb.GetTaskResponse:
        space = caller_space()
        task = await self._database.read(tasks.get, space, request.task_id)
        return pb.GetTaskResponse(task=wire.task(space.user, task))

    async def ListTasks(self, request: pb.ListTasksRequest, context: Context) -> pb.ListTasksResponse:
        space = caller_space()
        page = open_page(request, (int, str))
        after: Any = page.after
        session = session_id("session", request.session, space.user) if request.session else ""
        for number, state in enumerate(request.states):
            # Left out, it would widen the list: no state means all of them.
            if state not in wire.STATE_NAMES:
                raise invalid(f"states[{number}]", "is no state of a task", "Leave it out")
        states = [wire.STATE_NAMES[state] for state in request.states]
        found = await self._database.read(tasks.page, space, session, states, after, page.size + 1)
        token = ""
        if len(found) > page.size:
            last = found[page.size - 1]
            token = next_token(request, (last.created_at, last.task_id))
        shown = [wire.task(space.user, task) for task in found[: page.size]]
        return pb.ListTasksResponse(tasks=shown, next_page_token=token)

    async def WatchTask(self, request: pb.WatchTaskRequest, context: Context) -> AsyncIterator[pb.WatchTaskResponse]:
        space = caller_space()
        loop = asyncio.get_running_loop()
        seen = request.after_sequence
        with self._watchers.watching(space, request.task_id) as watch:
            task = await self._database.read(tasks.get, space, request.task_id)
            yield pb.WatchTaskResponse(snapshot=wire.task(space.user, task))
            quiet_since = loop.time()
            while True:
                watch.news.clear()
                task, events = await self._database.read(tasks.events_after, space, request.task_id, seen)
                watch.last = task.last_event
                for event in events:
                    seen = event.sequence
                    yield pb.WatchTaskResponse(event=wire.event(event))
                    quiet_since = loop.time()
                if seen < task.last_event:
                    # There are more than one read gives.
                    continue
                if task.ended:
                    yield pb.WatchTaskResponse(ended=wire.task(space.user, task))
                    return
                if self._watchers.draining:
                    raise unavailable("server", "This server is going down")
                if loop.time() - quiet_since >= KEEP_ALIVE_SECONDS:
                    yield pb.WatchTaskResponse()
                    quiet_since = loop.time()
                await self._watchers.wait(watch, quiet_since + KEEP_ALIVE_SECONDS - loop.time())

    async def CancelTask(self, request: pb.CancelTaskRequest, context: Context) -> pb.CancelTaskResponse:
        space = caller_space()
        ended: list[Job] = []

        async def work(tx: Tx) -> pb.CancelTaskResponse:
            ended[:] = [await jobs.cancel(tx, space, request.task_id, request.reason)]
            return pb.CancelTaskResponse(task=await self._task(tx, space, request.task_id))

        answer = await mutate(self._database, space, request, pb.CancelTaskResponse, work)
        for job in ended:
            self._cancelled(job, request.reason)
        self._watchers.changed(request.task_id)
        self._queued()
        return answer

    async def RetryTask(self, request: pb.RetryTaskRequest, context: Context) -> pb.RetryTaskResponse:
        space = caller_space()

        async def work(tx: Tx) -> pb.RetryTaskResponse:
            await jobs.retry(tx, space, request.task_id)
            return pb.RetryTaskResponse(task=await self._task(tx, space, request.task_id))

        answer = await mutate(self._database, space, request, pb.RetryTaskResponse, work)
        self._watchers.changed(request.task_id)
        self._queued()
        return answer

    async def _task(self, tx: Tx, space: Space, task_id: str) -> pb.Task:
        return wire.task(space.user, await tasks.get(tx, space, task_id))
