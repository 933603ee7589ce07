"""WatchTask: every event once and in order, from wherever the watcher stands."""

import asyncio
from typing import Any

import grpc
from google.rpc import status_pb2

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import task_service_pb2
from tests.support.callers import Caller, failure
from tests.support.worker import Worker

LIVED = ["pending", "running", 10, 90, "attempt_failed", "pending", "running", 50, "completed"]


async def lived(caller: Caller, channel: grpc.aio.Channel, task_id: str) -> None:
    """A life with one attempt that fails and one that is applied."""
    phase = task_service_pb2.TASK_PHASE_SUMMARY
    async with Worker(channel) as worker:
        job = await worker.take()
        assert job.task_id == task_id
        await worker.progress(job.lease, phase, 10)
        await worker.progress(job.lease, phase, 90, "almost")
        await worker.fail(job.lease, pb.FAILURE_CLASS_MODEL_UNAVAILABLE, status=status_pb2.Status(message="down"))
        job = await worker.take()
        await worker.progress(job.lease, phase, 50)
        await worker.deliver(job.lease)


def told(updates: list[Any]) -> list[Any]:
    words = []
    for update in updates:
        event = update.event
        match event.WhichOneof("event") if update.WhichOneof("update") == "event" else None:
            case "state_change":
                words.append(task_service_pb2.TaskState.Name(event.state_change).removeprefix("TASK_STATE_").lower())
            case "progress":
                words.append(event.progress.percent)
            case "attempt_failed":
                words.append("attempt_failed")
    return words


async def test_a_watch_tells_a_life_from_beginning_to_end(caller: Caller, channel: grpc.aio.Channel) -> None:
    task_id = (await caller.committed()).task_id
    watching = asyncio.create_task(caller.watch(task_id))
    await lived(caller, channel, task_id)
    updates = await watching
    assert updates[0].snapshot.task_id == task_id and updates[-1].ended == await caller.task(task_id)
    assert updates[-1].ended.state == task_service_pb2.TASK_STATE_COMPLETED
    events = [update.event for update in updates[1:-1]]
    assert [event.sequence for event in events] == list(range(1, len(events) + 1)), "without gaps"
    assert told(updates) == LIVED
    assert [event.attempt for event in events] == [0, 1, 1, 1, 1, 1, 2, 2, 2]
    assert events[4].attempt_failed.message == "model_unavailable: down"


async def test_a_broken_watch_goes_on_behind_the_last_event_seen(caller: Caller, channel: grpc.aio.Channel) -> None:
    task_id = (await caller.committed()).task_id
    await lived(caller, channel, task_id)
    whole = await caller.watch(task_id)
    for after in range(len(LIVED) + 1):
        updates = await caller.watch(task_id, after)
        assert updates[1:-1] == whole[1 + after : -1] and updates[-1] == whole[-1]
    beyond = await caller.watch(task_id, 2**63 - 1)
    assert [update.WhichOneof("update") for update in beyond] == ["snapshot", "ended"]


async def test_many_watchers_hear_the_same(caller: Caller, channel: grpc.aio.Channel) -> None:
    task_id = (await caller.committed()).task_id
    watching = [asyncio.create_task(caller.watch(task_id)) for _ in range(30)]
    await lived(caller, channel, task_id)
    for updates in await asyncio.gather(*watching):
        assert told(updates) == LIVED


async def test_a_watcher_hears_of_a_cancel_and_of_a_second_life(caller: Caller, channel: grpc.aio.Channel) -> None:
    task_id = (await caller.committed()).task_id
    watching = asyncio.create_task(caller.watch(task_id))
    await caller.tasks.CancelTask(task_service_pb2.CancelTaskRequest(task_id=task_id))
    assert told(await watching) == ["pending", "cancelled"]
    await caller.tasks.RetryTask(task_service_pb2.RetryTaskRequest(task_id=task_id))
    watching = asyncio.create_task(caller.watch(task_id, 2))
    async with Worker(channel) as worker:
        await worker.deliver((await worker.take()).lease)
    assert told(await watching) == ["pending", "running", "completed"]


async def test_a_watch_that_is_cancelled_leaves_the_task_alone(caller: Caller, channel: grpc.aio.Channel) -> None:
    task_id = (await caller.committed()).task_id
    watch = caller.tasks.WatchTask(task_service_pb2.WatchTaskRequest(task_id=task_id))
    async for _ in watch:
        break
    watch.cancel()
    await lived(caller, channel, task_id)
    assert (await caller.task(task_id)).state == task_service_pb2.TASK_STATE_COMPLETED


async def test_a_task_that_is_not_there(caller: Caller) -> None:
    failed = await failure(caller.tasks.WatchTask(task_service_pb2.WatchTaskRequest(task_id="none")))
    assert failed.seen == ("NOT_FOUND", "RESOURCE_NOT_FOUND") and failed.resource == ("task", "none")
