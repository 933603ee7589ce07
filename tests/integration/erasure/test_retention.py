"""Ended tasks are forgotten by a server that runs, with a store whose clock is set back for it."""

import asyncio
import sqlite3
from collections.abc import Callable

import grpc

from runekeep.v1 import session_service_pb2, task_service_pb2
from tests.support.callers import Caller, failure, said
from tests.support.server_process import ServerProcess
from tests.support.worker import Worker, write

Servers = Callable[..., ServerProcess]
MISSING = ("NOT_FOUND", "RESOURCE_NOT_FOUND")


async def test_a_month_after_its_end_a_task_is_gone_and_what_it_made_is_there(own_server: Servers) -> None:
    server = own_server()
    async with grpc.aio.insecure_channel(server.address) as channel:
        caller = Caller(channel, "anna")
        old = await caller.committed(said("I drink tea"))
        async with Worker(channel) as worker:
            await worker.deliver((await worker.take()).lease, write("preferences", topic="Tea", content="Likes tea."))
        young, waiting = await caller.committed(), await caller.committed()
        await caller.tasks.CancelTask(task_service_pb2.CancelTaskRequest(task_id=young.task_id))
        diff = session_service_pb2.GetMemoryDiffRequest(archive_uri=old.archive_uri)
        before = await caller.sessions.GetMemoryDiff(diff)
    server.stop()
    with sqlite3.connect(server.data_dir / "runekeep.db") as store:
        # The one that waits has not ended: it stays, whatever its age.
        aged = store.execute(
            "UPDATE tasks SET created_at = created_at - ?1,"
            " ended_at = CASE WHEN ended_at > 0 THEN ended_at - ?1 ELSE 0 END WHERE task_id <> ?2",
            (31 * 86_400 * 1_000_000, young.task_id),
        )
        assert aged.rowcount == 2
    store.close()

    server.start()
    async with grpc.aio.insecure_channel(server.address) as channel:
        caller = Caller(channel, "anna")
        get = task_service_pb2.GetTaskRequest(task_id=old.task_id)
        async with asyncio.timeout(20):
            # The first sweep of a server comes soon after its start.
            every = task_service_pb2.ListTasksRequest()
            while len((await caller.tasks.ListTasks(every)).tasks) > 2:  # noqa: ASYNC110  # told to nobody
                await asyncio.sleep(0.02)
        for call in (
            caller.tasks.GetTask(get),
            caller.tasks.WatchTask(task_service_pb2.WatchTaskRequest(task_id=old.task_id)),
            caller.tasks.RetryTask(task_service_pb2.RetryTaskRequest(task_id=old.task_id)),
        ):
            assert (await failure(call)).seen == MISSING
        assert (await caller.task(young.task_id)).state == task_service_pb2.TASK_STATE_CANCELLED
        assert (await caller.task(waiting.task_id)).state == task_service_pb2.TASK_STATE_PENDING
        assert await caller.sessions.GetMemoryDiff(diff) == before
        memory = await caller.memory(caller.uri("memories/preferences/Tea.md"))
        assert (memory.content, memory.version) == ("Likes tea.", 1)
    server.stop()
