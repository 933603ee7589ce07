"""WatchTask: every event once and in order, from wherever the watcher stands."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import grpc
from google.rpc import status_pb2

from runekeep import AsyncClient
from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import task_service_pb2
from tests.support.callers import Caller, failure, lasting
from tests.support.postgres import PostgresServer
from tests.support.server_process import ServerProcess
from tests.support.worker import Worker

Servers = Callable[..., ServerProcess]
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
    assert updates[0].snapshot.task_id == task_id
    assert lasting(updates[-1].ended) == lasting(await caller.task(task_id))
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
        assert updates[1:-1] == whole[1 + after : -1] and lasting(updates[-1].ended) == lasting(whole[-1].ended)
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


async def test_two_hundred_watchers_hear_every_event_once(own_server: Servers) -> None:
    """Those that began before it, in the middle of it and after its end, each behind another event, on few channels."""
    server = own_server()
    async with AsyncExitStack() as stack:
        channels = [await stack.enter_async_context(grpc.aio.insecure_channel(server.address)) for _ in range(4)]
        callers = [Caller(channel, "anna") for channel in channels]
        task_id = (await callers[0].committed()).task_id
        watching: list[tuple[int, asyncio.Task[list[Any]]]] = []

        def watch(many: int) -> None:
            for _ in range(many):
                number = len(watching)
                after = number % (len(LIVED) + 1)
                watching.append((after, asyncio.create_task(callers[number % 4].watch(task_id, after))))

        watch(120)
        async with Worker(channels[0]) as worker:
            job = await worker.take()
            await worker.progress(job.lease, task_service_pb2.TASK_PHASE_SUMMARY, 10)
            watch(40)
            await worker.progress(job.lease, task_service_pb2.TASK_PHASE_SUMMARY, 90, "almost")
            await worker.fail(job.lease, pb.FAILURE_CLASS_MODEL_UNAVAILABLE, status=status_pb2.Status(message="down"))
            job = await worker.take()
            await worker.progress(job.lease, task_service_pb2.TASK_PHASE_SUMMARY, 50)
            await worker.deliver(job.lease)
        watch(40)
        assert len(watching) == 200
        for after, one in watching:
            updates = await one
            assert told(updates) == LIVED[after:]
            assert [update.event.sequence for update in updates[1:-1]] == list(range(after + 1, len(LIVED) + 1))
    server.stop()


async def test_a_watcher_ahead_of_an_open_task_hears_of_what_comes_behind_it(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    """As one that comes back to a store restored from a backup: it misses neither what comes behind nor the end."""
    task_id = (await caller.committed()).task_id
    ahead, far = 4, 2**63 - 1
    watching = [asyncio.create_task(caller.watch(task_id, after)) for after in (ahead, far)]
    await lived(caller, channel, task_id)
    first, second = [await one for one in watching]
    assert told(first) == LIVED[ahead:]
    assert [update.WhichOneof("update") for update in second] == ["snapshot", "ended"]
    assert first[-1] == second[-1]


async def test_a_watch_tells_more_events_than_one_read_gives(caller: Caller, channel: grpc.aio.Channel) -> None:
    task_id = (await caller.committed()).task_id
    many = 1100
    async with Worker(channel) as worker:
        job = await worker.take()
        for number in range(many):
            await worker.progress(job.lease, task_service_pb2.TASK_PHASE_SUMMARY, 100 * number // many)
            if number % 100 == 99:
                # Answered in order of arrival: all of them are stored. Of so many at a time, for a disk may be slow.
                await worker.heartbeat(job.lease, sequence=number)
        watching = asyncio.create_task(caller.watch(task_id))
        await caller.reaches(task_id, task_service_pb2.TASK_STATE_RUNNING)
        await worker.deliver(job.lease)
    updates = await watching
    assert [update.event.sequence for update in updates[1:-1]] == list(range(1, many + 4))
    # And after the end, with which it must not stop before it has told all of them.
    assert (await caller.watch(task_id))[1:-1] == updates[1:-1]


async def test_a_watch_goes_on_at_the_server_that_comes_after_a_kill(own_server: Servers) -> None:
    """Whatever had been told before: from each event on, the rest comes, and none of it twice."""
    server = own_server()
    async with grpc.aio.insecure_channel(server.address) as channel:
        caller = Caller(channel, "anna")
        task_id = (await caller.committed()).task_id
        watches = [
            caller.tasks.WatchTask(task_service_pb2.WatchTaskRequest(task_id=task_id), timeout=None) for _ in range(5)
        ]
        async with Worker(channel) as worker:
            lease = (await worker.take()).lease
            await worker.progress(lease, task_service_pb2.TASK_PHASE_SUMMARY, 10)
            heard = []
            for number, watch in enumerate(watches):
                updates = aiter(watch)
                assert (await anext(updates)).HasField("snapshot")
                # Each has heard another number of the three events that there are.
                heard.append([(await anext(updates)).event.sequence for _ in range(min(number, 3))])
            server.kill()
    server.start()
    async with grpc.aio.insecure_channel(server.address) as channel:
        caller = Caller(channel, "anna")
        behind = [asyncio.create_task(caller.watch(task_id, len(seen))) for seen in heard]
        async with Worker(channel, resume=[lease]) as worker:
            await worker.progress(lease, task_service_pb2.TASK_PHASE_SUMMARY, 90)
            await worker.deliver(lease)
        for seen, watching in zip(heard, behind, strict=True):
            updates = await watching
            sequences = seen + [update.event.sequence for update in updates[1:-1]]
            assert sequences == [1, 2, 3, 4, 5]
            assert updates[-1].ended.state == task_service_pb2.TASK_STATE_COMPLETED
    server.stop()


async def test_the_client_follows_a_task_through_a_kill_of_its_server(own_server: Servers) -> None:
    server = own_server()
    address = server.address
    async with AsyncClient(address, account="acme", user="anna") as client:
        async with grpc.aio.insecure_channel(address) as channel:
            caller = Caller(channel, "anna")
            task_id = (await caller.committed()).task_id
            running = asyncio.Event()
            updates = []

            async def follow() -> None:
                async for update in client.watch_task(task_id):
                    updates.append(update)
                    if update["kind"] == "progress":
                        running.set()

            following = asyncio.create_task(follow())
            async with Worker(channel) as worker:
                lease = (await worker.take()).lease
                await worker.progress(lease, task_service_pb2.TASK_PHASE_SUMMARY, 10)
                await running.wait()
                server.kill()
        server.start(address)
        async with grpc.aio.insecure_channel(address) as channel, Worker(channel, resume=[lease]) as worker:
            await worker.progress(lease, task_service_pb2.TASK_PHASE_SUMMARY, 90)
            await worker.deliver(lease)
            await following
    kinds = [update["kind"] for update in updates]
    assert kinds == ["snapshot", "state", "state", "progress", "progress", "state", "ended"]
    assert [update["sequence"] for update in updates[1:-1]] == [1, 2, 3, 4, 5]
    assert updates[-1]["task"]["status"] == "completed"
    server.stop()


async def test_a_watch_goes_on_at_another_server_of_the_same_store(
    own_server: Servers, postgres_server: PostgresServer, index_url: str
) -> None:
    """From any event on, whichever of the two it was that wrote them."""
    name = postgres_server.create()
    environment = {"RUNEKEEP_STORE_URL": postgres_server.url(name), "RUNEKEEP_INDEX_URL": index_url}
    servers = [own_server(environment, data) for data in ("first", "second")]
    async with AsyncExitStack() as stack:
        channels = [await stack.enter_async_context(grpc.aio.insecure_channel(one.address)) for one in servers]
        here, there = (Caller(channel, "anna") for channel in channels)
        task_id = (await here.committed()).task_id
        behind = [asyncio.create_task(there.watch(task_id, after)) for after in range(len(LIVED) + 1)]
        await lived(here, channels[0], task_id)
        for after, watching in enumerate(behind):
            assert told(await watching) == LIVED[after:]
    for server in servers:
        server.stop()
    postgres_server.drop(name)
