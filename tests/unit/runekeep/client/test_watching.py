"""Following a task over broken streams."""

import grpc
import pytest

import runekeep
from runekeep import AsyncClient, Client
from runekeep.v1 import task_service_pb2
from tests.unit.runekeep.server_double import HOLD, Refusal, ServerDouble

AWAY = Refusal(grpc.StatusCode.UNAVAILABLE)
RUNNING = task_service_pb2.TASK_STATE_RUNNING


def snapshot() -> task_service_pb2.WatchTaskResponse:
    return task_service_pb2.WatchTaskResponse(snapshot=task_service_pb2.Task(task_id="t1", state=1))


def ended(state: int = 3) -> task_service_pb2.WatchTaskResponse:
    return task_service_pb2.WatchTaskResponse(ended=task_service_pb2.Task(task_id="t1", state=state))


def progress(sequence: int, percent: int) -> task_service_pb2.WatchTaskResponse:
    event = task_service_pb2.TaskEvent(
        sequence=sequence, progress=task_service_pb2.TaskProgress(phase=4, percent=percent), attempt=1
    )
    return task_service_pb2.WatchTaskResponse(event=event)


def state(sequence: int) -> task_service_pb2.WatchTaskResponse:
    return task_service_pb2.WatchTaskResponse(
        event=task_service_pb2.TaskEvent(sequence=sequence, state_change=RUNNING, attempt=1)
    )


KEEP_ALIVE = task_service_pb2.WatchTaskResponse()


async def test_a_broken_stream_goes_on_after_the_last_event_seen(server: ServerDouble) -> None:
    server.script(
        "WatchTask",
        [snapshot(), state(1), progress(2, 10), AWAY],
        [AWAY],
        # Ends without the end of the task, as a draining server may.
        [snapshot(), KEEP_ALIVE, progress(2, 10), progress(3, 60)],
        [snapshot(), progress(4, 100), ended()],
    )
    async with AsyncClient(server.address) as client:
        updates = [update async for update in client.watch_task("t1")]
    assert [update["kind"] for update in updates] == ["snapshot", "state", "progress", "progress", "progress", "ended"]
    assert [update["sequence"] for update in updates[1:-1]] == [1, 2, 3, 4]
    assert updates[1]["status"] == "running"
    assert updates[2]["progress"] == {"phase": "long_term", "percent": 10, "message": "", "waiting_for": ""}
    assert updates[-1]["task"]["status"] == "completed"
    assert [request.after_sequence for request in server.requests("WatchTask")] == [0, 2, 2, 3]


async def test_an_error_that_no_repeat_mends_ends_the_watch(server: ServerDouble) -> None:
    server.script("WatchTask", [snapshot(), Refusal(grpc.StatusCode.NOT_FOUND, "RESOURCE_NOT_FOUND")])
    async with AsyncClient(server.address) as client:
        with pytest.raises(runekeep.NotFoundError):
            _ = [update async for update in client.watch_task("t1")]
    assert len(server.requests("WatchTask")) == 1


async def test_waiting_gives_the_task_as_it_ended_whatever_its_status(server: ServerDouble) -> None:
    server.script("WatchTask", [snapshot(), ended(4)])
    async with AsyncClient(server.address) as client:
        assert (await client.wait_task("t1", timeout=60))["status"] == "failed"


async def test_waiting_ends_with_its_timeout_and_leaves_no_stream(server: ServerDouble) -> None:
    server.script("WatchTask", [snapshot(), HOLD])
    async with AsyncClient(server.address) as client:
        with pytest.raises(TimeoutError) as caught:
            await client.wait_task("t1", timeout=0.2)
        assert isinstance(caught.value, runekeep.DeadlineExceededError)
    assert server.ended.wait(30)


def test_a_blocking_watch_that_is_left_early_ends_its_stream(server: ServerDouble) -> None:
    server.script("WatchTask", [snapshot(), HOLD])
    with Client(server.address) as client:
        for update in client.watch_task("t1"):
            assert update["kind"] == "snapshot"
            break
        assert server.ended.wait(30)
