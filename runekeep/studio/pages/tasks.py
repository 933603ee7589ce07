"""Tasks: the list, one task live, its attempts, and to cancel or retry it."""

import asyncio
from collections.abc import AsyncGenerator

import grpc
from starlette.responses import Response, StreamingResponse

from runekeep import NotFoundError, RunekeepError
from runekeep.client.connection.connection import new_request_id
from runekeep.studio.http.visit import Visit
from runekeep.v1 import task_service_pb2

TASKS = 50
WATCH_SECONDS = 600.0
"""After so long the browser connects again, from the last event that it saw."""
RECONNECT_MILLISECONDS = 1000
STATES = ("pending", "running", "completed", "failed", "cancelled")


async def task_list(visit: Visit) -> Response:
    state = visit.query("state")
    states = [task_service_pb2.TaskState.Value(f"TASK_STATE_{state.upper()}")] if state in STATES else []
    request = task_service_pb2.ListTasksRequest(
        session=visit.query("session"), states=states, page_size=TASKS, page_token=visit.query("page")
    )
    answer = await visit.call(visit.stubs.tasks.ListTasks, request)
    return visit.render(
        "tasks.html",
        {"tasks": answer.tasks, "next": answer.next_page_token, "state": state, "states": STATES},
    )


async def task(visit: Visit) -> Response:
    task_id = visit.request.path_params["task"]
    found, attempts = await asyncio.gather(_task(visit, task_id), _attempts(visit, task_id))
    return visit.render("task.html", {"task": found, "attempts": attempts, "request_id": new_request_id()})


async def events(visit: Visit) -> Response:
    """The task's panel again with each event, and each event as a line, by server-sent events."""
    task_id = visit.request.path_params["task"]
    seen = visit.request.headers.get("last-event-id", "")
    after = int(seen) if seen.isascii() and seen.isdecimal() and len(seen) < 19 else 0
    # Raises before the stream begins if there is no such task.
    await _task(visit, task_id)
    return StreamingResponse(
        _stream(visit, task_id, after), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
    )


async def cancel(visit: Visit) -> Response:
    request = task_service_pb2.CancelTaskRequest(
        task_id=visit.request.path_params["task"],
        reason=visit.field("reason")[:500],
        request_id=visit.field("request_id"),
    )
    await visit.call(visit.stubs.tasks.CancelTask, request)
    return visit.redirect(f"/tasks/{request.task_id}")


async def retry(visit: Visit) -> Response:
    request = task_service_pb2.RetryTaskRequest(
        task_id=visit.request.path_params["task"], request_id=visit.field("request_id")
    )
    await visit.call(visit.stubs.tasks.RetryTask, request)
    return visit.redirect(f"/tasks/{request.task_id}")


async def _stream(visit: Visit, task_id: str, after: int) -> AsyncGenerator[str, None]:
    """Ends with the event `ended`, or without one when the server is away: then the browser comes back."""
    yield f"retry: {RECONNECT_MILLISECONDS}\n\n"
    request = task_service_pb2.WatchTaskRequest(task_id=task_id, after_sequence=after)
    stream = visit.stubs.tasks.WatchTask(request, metadata=visit.connection.stream_metadata, timeout=WATCH_SECONDS)
    try:
        async for update in stream:
            kind = update.WhichOneof("update")
            if kind is None:
                yield ": still here\n\n"
                continue
            found = await _task(visit, task_id) if kind == "event" else getattr(update, kind)
            yield _event("task", visit.text("task_panel.html", {"task": found}))
            if kind == "event":
                line = visit.text("task_event.html", {"event": update.event})
                yield _event("line", line, update.event.sequence)
            if kind == "ended":
                yield _event("ended", "")
                return
    except (grpc.aio.AioRpcError, RunekeepError):
        return
    finally:
        stream.cancel()


def _event(name: str, text: str, number: int | None = None) -> str:
    lines = "".join(f"data: {line}\n" for line in (text.splitlines() or [""]))
    known = f"id: {number}\n" if number is not None else ""
    return f"event: {name}\n{known}{lines}\n"


async def _task(visit: Visit, task_id: str) -> task_service_pb2.Task:
    answer = await visit.call(visit.stubs.tasks.GetTask, task_service_pb2.GetTaskRequest(task_id=task_id))
    found: task_service_pb2.Task = answer.task
    return found


async def _attempts(visit: Visit, task_id: str) -> list[task_service_pb2.ExtractionAttempt]:
    request = task_service_pb2.GetExtractionRecordRequest(task_id=task_id)
    try:
        answer = await visit.call(visit.stubs.tasks.GetExtractionRecord, request)
    except NotFoundError:
        # Records go with their session; the task stays.
        return []
    return list(answer.attempts)
