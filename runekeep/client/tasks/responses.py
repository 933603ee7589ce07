"""Converts responses about tasks to the shapes in `results`."""

from typing import Any, cast

from runekeep.client.tasks.results import Task, TaskUpdate
from runekeep.client.wire.proto_json import to_json
from runekeep.v1 import task_service_pb2


def task_from_wire(wire: task_service_pb2.Task) -> Task:
    found = to_json(wire)
    # The seed documents call it "status"; the proto keeps "state" for the enum.
    found["status"] = found.pop("state")
    return cast(Task, found)


def task_update_from_wire(wire: task_service_pb2.WatchTaskResponse) -> TaskUpdate | None:
    """Returns an update of a task; None for a keep-alive."""
    match wire.WhichOneof("update"):
        case "snapshot":
            return {"kind": "snapshot", "task": task_from_wire(wire.snapshot)}
        case "ended":
            return {"kind": "ended", "task": task_from_wire(wire.ended)}
        case "event":
            return _task_event(wire.event)
    return None


def _task_event(event: task_service_pb2.TaskEvent) -> TaskUpdate:
    found = to_json(event)
    names = {
        "state_change": ("state", "status"),
        "progress": ("progress",) * 2,
        "attempt_failed": ("attempt_failed", "error"),
    }
    kind_of_event = event.WhichOneof("event")
    update: dict[str, Any] = {key: found[key] for key in ("sequence", "event_time", "attempt")}
    if kind_of_event is None:
        raise ValueError("the server sent a task event that this client does not know; upgrade the client")
    kind, key = names[kind_of_event]
    return cast(TaskUpdate, {"kind": kind, **update, key: found[kind_of_event]})
