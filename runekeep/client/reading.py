"""Answers of the server as the dicts that callers get (`results`)."""

from typing import Any, cast

from google.protobuf import struct_pb2
from google.protobuf.json_format import ParseDict

from runekeep.client.plain import enum_number, plain
from runekeep.client.results import AutoCommit, Found, MemoryDiff, Scalar, Task, TaskUpdate
from runekeep.v1 import common_pb2, memory_service_pb2, session_service_pb2, task_service_pb2


def policy_to_wire(policy: dict[str, Any] | None) -> common_pb2.MemoryPolicy | None:
    """Takes a policy in the form in which `SessionInfo` holds it: `{"self": {"enabled": bool}, "peer": {"enabled":
    bool}, "memory_types": {"names": [...]}, "session_skills": {"enabled": bool}}`.

    A key that is absent or None takes its default. `memory_types` may also be a plain list of names. Raises ValueError
    for another key or shape, so that a misspelt switch is reported.
    """
    if policy is None:
        return None
    wire = common_pb2.MemoryPolicy()
    fields = common_pb2.MemoryPolicy.DESCRIPTOR.fields_by_name
    for key, value in policy.items():
        if key not in fields:
            raise ValueError(f"memory_policy has no {key!r}; it has {', '.join(fields)}")
        if value is None:
            continue
        if key == "memory_types":
            names = value.get("names") if isinstance(value, dict) and len(value) == 1 else value
            if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
                raise ValueError(f'memory_policy[{key!r}] is {{"names": [...]}} or a list of names, not {value!r}')
            wire.memory_types.SetInParent()
            wire.memory_types.names.extend(names)
        elif isinstance(value, dict) and value.keys() == {"enabled"} and isinstance(value["enabled"], bool):
            getattr(wire, key).enabled = value["enabled"]
        else:
            raise ValueError(f'memory_policy[{key!r}] is {{"enabled": true or false}}, not {value!r}')
    return wire


def auto_commit_to_wire(rules: AutoCommit | None) -> session_service_pb2.AutoCommit | None:
    """Raises ValueError for another key: a misspelt bound must not pass silently."""
    if rules is None:
        return None
    unknown = set(rules) - set(AutoCommit.__annotations__)
    if unknown:
        raise ValueError(f"auto_commit has {', '.join(AutoCommit.__annotations__)}, not {', '.join(sorted(unknown))}")
    wire = session_service_pb2.AutoCommit(
        pending_tokens=rules.get("pending_tokens", 0),
        message_count=rules.get("message_count", 0),
        keep_recent_count=rules.get("keep_recent_count", 0),
    )
    idle = rules.get("idle")
    if idle:
        wire.idle.FromNanoseconds(round(idle * 1e9))
    return wire


def field_value(value: Scalar) -> common_pb2.FieldValue:
    match value:
        case bool():
            return common_pb2.FieldValue(bool_value=value)
        case int():
            return common_pb2.FieldValue(int64_value=value)
        case float():
            return common_pb2.FieldValue(float32_value=value)
        case str():
            return common_pb2.FieldValue(string_value=value)
    raise TypeError(f"a memory field is text, a number or a bool, not {type(value).__name__}")


def skill_to_wire(skill: dict[str, Any]) -> session_service_pb2.SkillUsage:
    """`{"uri": str, "input": any JSON, "output": str, "success": bool}`. Raises ValueError for another key."""
    unknown = set(skill) - {"uri", "input", "output", "success"}
    if unknown:
        raise ValueError(f"a used skill has uri, input, output and success, not {', '.join(sorted(unknown))}")
    wire = session_service_pb2.SkillUsage(
        uri=skill["uri"], output=skill.get("output", ""), success=skill.get("success", False)
    )
    if skill.get("input") is not None:
        wire.input.CopyFrom(ParseDict(skill["input"], struct_pb2.Value()))
    return wire


def view_number(view: str) -> memory_service_pb2.MemoryView.ValueType:
    return memory_service_pb2.MemoryView.ValueType(enum_number(memory_service_pb2.MemoryView, view))


def task(wire: task_service_pb2.Task) -> Task:
    found = plain(wire)
    # The seed documents call it "status"; the proto keeps "state" for the enum.
    found["status"] = found.pop("state")
    return cast(Task, found)


def task_update(wire: task_service_pb2.WatchTaskResponse) -> TaskUpdate | None:
    """None for a keep-alive."""
    match wire.WhichOneof("update"):
        case "snapshot":
            return {"kind": "snapshot", "task": task(wire.snapshot)}
        case "ended":
            return {"kind": "ended", "task": task(wire.ended)}
        case "event":
            return _task_event(wire.event)
    return None


def _task_event(event: task_service_pb2.TaskEvent) -> TaskUpdate:
    found = plain(event)
    names = {
        "state_change": ("state", "status"),
        "progress": ("progress",) * 2,
        "attempt_failed": ("attempt_failed", "error"),
    }
    happened = event.WhichOneof("event")
    update: dict[str, Any] = {key: found[key] for key in ("sequence", "event_time", "attempt")}
    if happened is None:
        raise ValueError("the server sent a task event of a kind that this client does not know; a newer client may")
    kind, key = names[happened]
    return cast(TaskUpdate, {"kind": kind, **update, key: found[happened]})


def found(wire: memory_service_pb2.FindMemoriesResponse) -> Found:
    answer = plain(wire)
    results = []
    for item in answer["results"]:
        kind = "memory" if "memory" in item else "passage"
        told = {"kind": kind, "score": item["score"], **item[kind], "detail": item["detail"]}
        results.append(told if kind == "passage" else {**told, "view": item["view"]})
    return cast(Found, {**answer, "results": results})


def memory_diff(wire: session_service_pb2.MemoryDiff) -> MemoryDiff:
    answer = plain(wire)

    def changes(name: str, **texts: str) -> list[dict[str, Any]]:
        kept = ("uri", "memory_type", "version", "reason", "message_ids", "shortened")
        return [
            {**{key: change[key] for key in kept}, **{key: change[source] for key, source in texts.items()}}
            for change in answer[name]
        ]

    return {
        "archive_uri": answer["archive_uri"],
        "extracted_at": answer["extract_time"],
        "operations": {
            "adds": changes("adds", after="after"),
            "updates": changes("updates", before="before", after="after"),
            "deletes": changes("deletes", deleted_content="before"),
        },
        "summary": {f"total_{name}": len(answer[name]) for name in ("adds", "updates", "deletes")},
        "revision": answer["revision"],
        "extractor": answer["extractor"],
    }
