"""TaskService: background work as callers see it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import grpc

from runekeep.v1 import task_service_pb2 as pb
from runekeep.v1 import task_service_pb2_grpc
from runekeep_server.identity import caller_space
from runekeep_server.protocol.answer_sizes import DEFAULT_SIZES, AnswerSizes
from runekeep_server.protocol.errors import buckets_disabled, invalid, unavailable
from runekeep_server.protocol.idempotency import mutate
from runekeep_server.protocol.pagination import cut_page, open_page
from runekeep_server.protocol.truncation import shorten
from runekeep_server.tasks.prices import Price, set_cost
from runekeep_server.tasks.watchers import Watchers
from runekeep_server.wire import extractions as wire_extractions
from runekeep_server.wire import tasks as wire
from runekeep_server.wire.basics import microseconds, session_id
from runekeep_storage.accounts import accounts
from runekeep_storage.database import Space, Tx
from runekeep_storage.jobs import extraction_records, jobs, tasks, token_usage
from runekeep_storage.jobs.extraction_records import KEPT
from runekeep_storage.records import Job, Task
from runekeep_storage.search import backlog as search_backlog
from runekeep_storage.search.backlog import TaskBacklog
from runekeep_storage.sessions import sessions
from runekeep_storage.store import Store

KEEP_ALIVE_SECONDS = 15.0

Context = grpc.aio.ServicerContext[Any, Any]


class TaskService(task_service_pb2_grpc.TaskServiceServicer):
    """`cancelled` notifies the worker (best effort). `queued` wakes the dispatcher. A daily budget of 0 means no limit.
    `buckets_enabled`: if False, no bucket job is queued again. `prices`: by model."""

    def __init__(
        self,
        store: Store,
        watchers: Watchers,
        *,
        account_daily_token_budget: int,
        buckets_enabled: bool,
        cancelled: Callable[[Job, str], None],
        queued: Callable[[], None],
        prices: Mapping[str, Price],
        sizes: AnswerSizes = DEFAULT_SIZES,
    ) -> None:
        self._database = store.database
        self._finder = store.finder
        self._watchers = watchers
        self._daily_budget = account_daily_token_budget
        self._buckets_enabled = buckets_enabled
        self._cancelled = cancelled
        self._queued = queued
        self._prices = prices
        self._sizes = sizes

    async def GetTask(self, request: pb.GetTaskRequest, context: Context) -> pb.GetTaskResponse:
        space = caller_space()
        task, backlog = await self._database.read(
            _task_with_backlog, space, request.task_id, self._finder.types_with_vectors
        )
        return pb.GetTaskResponse(task=self._shown(space, task, backlog))

    async def ListTasks(self, request: pb.ListTasksRequest, context: Context) -> pb.ListTasksResponse:
        space = caller_space()
        page = open_page(request, (int, str))
        after: Any = page.after
        session = session_id("session", request.session, space.user) if request.session else ""
        for number, state in enumerate(request.states):
            # Dropping it would widen the list: no state means all of them.
            if state not in wire.STATE_NAMES:
                raise invalid(f"states[{number}]", "is no state of a task", "Leave it out")
        states = [wire.STATE_NAMES[state] for state in request.states]
        found = await self._database.read(tasks.page, space, session, states, after, page.size + 1)
        rows = [self._shown(space, task) for task in found]
        keys = [(task.created_at, task.task_id) for task in found]
        shown, token = cut_page(request, rows, keys, page.size, self._sizes.page)
        return pb.ListTasksResponse(tasks=shown, next_page_token=token)

    async def WatchTask(self, request: pb.WatchTaskRequest, context: Context) -> AsyncIterator[pb.WatchTaskResponse]:
        space = caller_space()
        loop = asyncio.get_running_loop()
        seen = request.after_sequence
        with self._watchers.watching(space, request.task_id) as watch:
            quiet_since, is_first = loop.time(), True
            while True:
                watch.look()
                task, events = await self._database.read(tasks.events_after, space, request.task_id, seen)
                watch.found(task.last_event)
                if is_first:
                    yield pb.WatchTaskResponse(snapshot=await self._with_backlog(space, task))
                    quiet_since, is_first = loop.time(), False
                for event in events:
                    seen = event.sequence
                    yield pb.WatchTaskResponse(event=wire.event(event))
                    quiet_since = loop.time()
                if seen < task.last_event:
                    # One read does not return all new events.
                    continue
                if task.ended:
                    yield pb.WatchTaskResponse(ended=await self._with_backlog(space, task))
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
            task = await tasks.get(tx, space, request.task_id)
            if task.kind == jobs.BUCKET_RECONCILE and not self._buckets_enabled:
                raise buckets_disabled()
            await jobs.retry(tx, space, request.task_id)
            return pb.RetryTaskResponse(task=await self._task(tx, space, request.task_id))

        answer = await mutate(self._database, space, request, pb.RetryTaskResponse, work)
        self._watchers.changed(request.task_id)
        self._queued()
        return answer

    async def GetExtractionRecord(
        self, request: pb.GetExtractionRecordRequest, context: Context
    ) -> pb.GetExtractionRecordResponse:
        records = await self._database.read(extraction_records.of_task, caller_space(), request.task_id)

        def answer() -> pb.GetExtractionRecordResponse:
            attempts = [wire_extractions.attempt(record) for record in records]
            for attempt in attempts:
                # Only for servers with small answers. If all attempts fit, none is cut.
                shorten(attempt, self._sizes.record // KEPT)
            return pb.GetExtractionRecordResponse(attempts=attempts)

        return await asyncio.to_thread(answer)

    async def GetUsage(self, request: pb.GetUsageRequest, context: Context) -> pb.GetUsageResponse:
        space = caller_space()
        of_session = request.scope == pb.USAGE_SCOPE_SESSION
        if of_session != bool(request.session_id):
            raise invalid("session_id", "goes with USAGE_SCOPE_SESSION, which needs it", "Give both or neither")
        session = session_id("session_id", request.session_id, space.user) if of_session else ""
        since = _day(request) if request.HasField("start_time") else 0

        async def read(tx: Tx, space: Space) -> tuple[list[dict[str, Any]], int, int]:
            if session:
                await sessions.get(tx, space, session)
            user = "" if request.scope == pb.USAGE_SCOPE_ACCOUNT else space.user
            spent_today = await token_usage.spent_today(tx, space.account)
            daily = await accounts.daily_tokens(tx, space.account, self._daily_budget)
            return await token_usage.totals(tx, space.account, user, session, since), spent_today, daily

        entries, spent_today, daily = await self._database.read(read, space)
        usage = wire_extractions.usage(entries, self._sizes.page)
        for entry in usage:
            set_cost(entry, self._prices)
        return pb.GetUsageResponse(
            usage=usage,
            daily_token_budget=daily or None,
            spent_today=spent_today,
        )

    async def _task(self, tx: Tx, space: Space, task_id: str) -> pb.Task:
        return self._shown(space, await tasks.get(tx, space, task_id))

    async def _with_backlog(self, space: Space, task: Task) -> pb.Task:
        backlog = await self._database.read(search_backlog.of_task, space, task, self._finder.types_with_vectors)
        return self._shown(space, task, backlog)

    def _shown(self, space: Space, task: Task, backlog: TaskBacklog | None = None) -> pb.Task:
        shown = wire.task(space.user, task, backlog)
        shorten(shown, self._sizes.record)
        return shown


async def _task_with_backlog(tx: Tx, space: Space, task_id: str, known_types: str) -> tuple[Task, TaskBacklog]:
    task = await tasks.get(tx, space, task_id)
    return task, await search_backlog.of_task(tx, space, task, known_types)


def _day(request: pb.GetUsageRequest) -> int:
    try:
        return token_usage.day_of(microseconds(request.start_time))
    except ValueError as error:
        raise invalid("start_time", "is no valid time", "Leave it empty for all days") from error
