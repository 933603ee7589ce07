"""Follows a task over broken streams."""

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator
from contextlib import aclosing

import grpc

from runekeep.client.connection.connection import Connection, is_transient
from runekeep.client.connection.errors import DeadlineExceededError, RunekeepError, UnavailableError
from runekeep.client.tasks.responses import task_from_wire, task_update_from_wire
from runekeep.client.tasks.results import Task, TaskUpdate
from runekeep.v1 import task_service_pb2

SILENCE_SECONDS = 45.0
"""Three missed keep-alives of the server: the stream is dead, whatever the socket says."""
GIVE_UP_SECONDS = 60.0
"""How long the server may be away at a time."""
_CLOSE_SECONDS = 1.0
_FIRST_PAUSE_SECONDS = 0.02
_MAX_PAUSE_SECONDS = 2.0
_SEARCHABLE_SECONDS = 10.0
"""How long a wait goes on for the index after a commit has ended."""


async def watch(connection: Connection, task_id: str, after_sequence: int = 0) -> AsyncGenerator[TaskUpdate, None]:
    """Yields a snapshot, every event after `after_sequence` once and in order, and the task as it ended.

    If the stream breaks, it resumes after the last event. Raises UnavailableError if the server stays away for
    GIVE_UP_SECONDS, and every other error of the server at once.
    """
    clock = asyncio.get_running_loop().time
    last, snapshot_seen = after_sequence, False
    heard, pause = clock(), 0.0
    while True:
        request = task_service_pb2.WatchTaskRequest(task_id=task_id, after_sequence=last)
        stream = connection.stubs.tasks.WatchTask(request, metadata=connection.stream_metadata)
        broken: RunekeepError
        try:
            while True:
                async with asyncio.timeout(SILENCE_SECONDS):
                    response = await stream.read()
                if not isinstance(response, task_service_pb2.WatchTaskResponse):
                    broken = UnavailableError("the server ended the stream before the task", code="UNAVAILABLE")
                    break
                heard, pause = clock(), 0.0
                update = task_update_from_wire(response)
                if update is None:
                    continue
                if update.kind == "snapshot":
                    if snapshot_seen:
                        continue
                    snapshot_seen = True
                elif update.kind == "ended":
                    # Let the server close the stream, so that it does not log a cancelled call.
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_CLOSE_SECONDS):
                            await stream.code()
                    yield update
                    return
                elif update.sequence <= last:
                    continue
                else:
                    last = update.sequence
                yield update
        except TimeoutError:
            broken = UnavailableError("the server stopped sending", code="UNAVAILABLE")
        except grpc.aio.AioRpcError as error:
            broken = connection.failure(error)
            if not is_transient(broken):
                raise broken from error
        finally:
            stream.cancel()
        pause = min(max(pause * 2, 0.1, broken.retry_after or 0.0), _MAX_PAUSE_SECONDS)
        if clock() + pause - heard > GIVE_UP_SECONDS:
            raise broken
        await asyncio.sleep(pause)


async def wait_task(connection: Connection, task_id: str, timeout: float | None) -> Task:
    """Returns the task once it has ended, with any status, and a search finds its memories.

    Raises DeadlineExceededError if it has not ended after `timeout` seconds. The wait for the search ends then too, or
    after _SEARCHABLE_SECONDS, so that an index that is away holds nobody up. `pending_memories` says what a search
    still misses.
    """
    clock = asyncio.get_running_loop().time
    end = math.inf if timeout is None else clock() + timeout
    try:
        async with asyncio.timeout(timeout), aclosing(watch(connection, task_id)) as updates:
            task = await anext(update.task async for update in updates if update.kind == "ended")
    except TimeoutError as error:
        message = f"task {task_id} has not ended within {timeout} s"
        raise DeadlineExceededError(message, code="DEADLINE_EXCEEDED") from error
    end, pause = min(end, clock() + _SEARCHABLE_SECONDS), _FIRST_PAUSE_SECONDS
    while task.pending_memories and clock() + pause < end:
        await asyncio.sleep(pause)
        pause = min(pause * 2, _MAX_PAUSE_SECONDS / 4)
        request = task_service_pb2.GetTaskRequest(task_id=task_id)
        try:
            response = await connection.call(connection.stubs.tasks.GetTask, request)
        except UnavailableError:
            break  # The end of the task is known, and that is what was asked for.
        task = task_from_wire(response.task)
    return task
