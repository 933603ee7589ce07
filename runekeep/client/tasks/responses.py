"""Converts responses about tasks to what `results` declares."""

from typing import Any

from runekeep.client.tasks.results import (
    Task,
    TaskAttemptFailed,
    TaskEnded,
    TaskProgress,
    TaskSnapshot,
    TaskStateChange,
    TaskUpdate,
)
from runekeep.client.wire.proto_json import to_json
from runekeep.v1 import task_service_pb2


def task_from_wire(wire: task_service_pb2.Task) -> Task:
    return Task(_task_values(wire))


def task_update_from_wire(wire: task_service_pb2.WatchTaskResponse) -> TaskUpdate | None:
    """Returns an update of a task; None for a keep-alive."""
    match wire.WhichOneof("update"):
        case "snapshot":
            return TaskSnapshot({"kind": "snapshot", "task": _task_values(wire.snapshot)})
        case "ended":
            return TaskEnded({"kind": "ended", "task": _task_values(wire.ended)})
        case "event":
            return _task_event(wire.event)
    return None


def _task_values(wire: task_service_pb2.Task) -> dict[str, Any]:
    found: dict[str, Any] = to_json(wire)
    # The seed documents call it "status"; the proto keeps "state" for the enum.
    found["status"] = found.pop("state")
    return found


def _task_event(event: task_service_pb2.TaskEvent) -> TaskUpdate:
    found = to_json(event)
    common = {key: found[key] for key in ("sequence", "event_time", "attempt")}
    match event.WhichOneof("event"):
        case "state_change":
            return TaskStateChange({"kind": "state", **common, "status": found["state_change"]})
        case "progress":
            return TaskProgress({"kind": "progress", **common, "progress": found["progress"]})
        case "attempt_failed":
            return TaskAttemptFailed({"kind": "attempt_failed", **common, "error": found["attempt_failed"]})
    raise ValueError("the server sent a task event that this client does not know; upgrade the client")
