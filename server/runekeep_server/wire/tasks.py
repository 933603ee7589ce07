"""Converts tasks, their events and results."""

import json
from collections.abc import Mapping
from typing import Any

from google.rpc import code_pb2, status_pb2

from runekeep.v1 import common_pb2, task_service_pb2
from runekeep_schemas.documents.uris import archive_uri, session_uri
from runekeep_server.wire.basics import timestamp
from runekeep_storage.jobs import jobs
from runekeep_storage.jobs.spending import COUNTERS, added
from runekeep_storage.records import Task, TaskEvent
from runekeep_storage.search.backlog import TaskBacklog

KINDS = {
    jobs.COMMIT: task_service_pb2.TASK_KIND_COMMIT,
    jobs.TURN_FINGERPRINT: task_service_pb2.TASK_KIND_TURN_FINGERPRINT,
    jobs.BUCKET_RECONCILE: task_service_pb2.TASK_KIND_BUCKET_RECONCILE,
    jobs.ASK: task_service_pb2.TASK_KIND_ASK,
}
"""All kinds of jobs."""
REQUIRED_KINDS = [kind for name, kind in KINDS.items() if name != jobs.ASK]
"""The kinds of jobs that every worker must support."""
_STATES = {
    "pending": task_service_pb2.TASK_STATE_PENDING,
    "running": task_service_pb2.TASK_STATE_RUNNING,
    "completed": task_service_pb2.TASK_STATE_COMPLETED,
    "failed": task_service_pb2.TASK_STATE_FAILED,
    "cancelled": task_service_pb2.TASK_STATE_CANCELLED,
}
STATE_NAMES = {number: name for name, number in _STATES.items()}
_OUTCOMES = {
    "applied": task_service_pb2.COMMIT_OUTCOME_APPLIED,
    "nothing_to_extract": task_service_pb2.COMMIT_OUTCOME_NOTHING_TO_EXTRACT,
    "partly_rejected": task_service_pb2.COMMIT_OUTCOME_PARTLY_REJECTED,
    "unparseable": task_service_pb2.COMMIT_OUTCOME_UNPARSEABLE,
    "conflict": task_service_pb2.COMMIT_OUTCOME_CONFLICT,
    "out_of_budget": task_service_pb2.COMMIT_OUTCOME_OUT_OF_BUDGET,
    "given_up": task_service_pb2.COMMIT_OUTCOME_GIVEN_UP,
}
_NUMBERS = (
    "memories_extracted",
    "total_adds",
    "total_updates",
    "total_deletes",
    "unchanged",
    "dropped_items",
    "active_count_updated",
    "revision",
    "duplicates",
    "secrets_withheld",
    "fingerprints",
    "left_out_omitted",
    "held_for_review",
)
_TURN_RESULT_FIELDS = (
    "fingerprints",
    "buckets_changed",
    "buckets_added",
    "buckets_disabled",
    "turns_left",
    "dropped_items",
    "selection_stored",
    "feedback",
)


def task(user: str, record: Task, backlog: TaskBacklog | None = None) -> task_service_pb2.Task:
    """`backlog`: None if it was not read."""
    wire = task_service_pb2.Task(
        task_id=record.task_id,
        kind=KINDS[record.kind],
        state=_STATES[record.state],
        session=session_uri(user, record.session_id),
        attempt=record.attempt,
        lost_leases=record.lost_leases,
        create_time=timestamp(record.created_at),
        start_time=timestamp(record.started_at),
        end_time=timestamp(record.ended_at),
        last_event_sequence=record.last_event,
        turn_id=record.turn_id,
    )
    commit = record.kind == jobs.COMMIT
    if commit:
        wire.archive_uri = archive_uri(user, record.session_id, record.archive_index)
        if backlog is not None:
            wire.pending_passages, wire.pending_memories = backlog.passages, backlog.memories
    if record.progress:
        wire.progress.CopyFrom(progress(json.loads(record.progress)))
    if record.result:
        body, spent = json.loads(record.result), json.loads(record.usage)
        if commit:
            wire.result.CopyFrom(result(body, spent))
        else:
            wire.turn_result.CopyFrom(turn_result(body, spent))
    elif record.state in ("pending", "running"):
        wire.usage.extend(usage(json.loads(record.usage)))
    if record.error:
        wire.error.CopyFrom(failure(json.loads(record.error)))
    # The progress of a running attempt says what it waits for. Between two attempts the last failure does.
    told = {"running": record.progress, "pending": record.error}.get(record.state)
    if told:
        wire.waiting_for = json.loads(told).get(jobs.WAITING_FOR, "")
    return wire


def event(record: TaskEvent) -> task_service_pb2.TaskEvent:
    wire = task_service_pb2.TaskEvent(
        sequence=record.sequence, event_time=timestamp(record.created_at), attempt=record.attempt
    )
    body = json.loads(record.body)
    match record.kind:
        case "state":
            wire.state_change = _STATES[body["state"]]
        case "progress":
            wire.progress.CopyFrom(progress(body))
        case _:
            wire.attempt_failed.CopyFrom(failure(body))
    return wire


def progress(body: dict[str, Any]) -> task_service_pb2.TaskProgress:
    return task_service_pb2.TaskProgress(
        phase=body["phase"],
        percent=body["percent"],
        message=body["message"],
        waiting_for=body.get(jobs.WAITING_FOR, ""),
    )


def failure(body: dict[str, Any]) -> status_pb2.Status:
    """Returns the last failure of a task. The message begins with the class of the failure."""
    code = code_pb2.CANCELLED if body["class"] == "cancelled" else code_pb2.ABORTED
    return status_pb2.Status(code=code, message=f"{body['class']}: {body['message']}")


def usage_json(usage: common_pb2.TokenUsage) -> dict[str, Any]:
    return {"model": usage.model, "phase": usage.phase, **{name: getattr(usage, name) for name in COUNTERS}}


def left_out(entry: dict[str, Any]) -> task_service_pb2.LeftOut:
    return task_service_pb2.LeftOut(**entry)


def result(body: dict[str, Any], spent: dict[str, Any]) -> task_service_pb2.CommitResult:
    """Returns the result of a commit. `body` of a failed task contains little more than the outcome. `spent`: as
    `runekeep_storage.jobs.tasks.spent` stores it."""
    counts = body.get("counts_by_type", {})
    return task_service_pb2.CommitResult(
        outcome=commit_outcome(body),
        skipped=[left_out(entry) for entry in body.get("skipped", ())],
        rejected=[left_out(entry) for entry in body.get("rejected", ())],
        extractor=extractor(body),
        usage=usage(spent),
        counts_by_type={name: task_service_pb2.TypeCounts(**of_type) for name, of_type in counts.items()},
        skipped_rules=body.get("skipped_rules", {}),
        **{name: body[name] for name in _NUMBERS if name in body},
    )


def commit_outcome(body: Mapping[str, Any]) -> task_service_pb2.CommitOutcome.ValueType:
    """Returns the outcome of a commit from the result that `runekeep_server.apply.result` made."""
    if body.get("nothing_applied"):
        return task_service_pb2.COMMIT_OUTCOME_NOTHING_APPLIED
    if body.get("held_for_review") and body["outcome"] == "applied":
        return task_service_pb2.COMMIT_OUTCOME_HELD_FOR_REVIEW
    return _OUTCOMES[body["outcome"]]


def turn_result(body: dict[str, Any], spent: dict[str, Any]) -> task_service_pb2.TurnTaskResult:
    """Like `result`, for tasks about turns, which have no outcome."""
    return task_service_pb2.TurnTaskResult(
        extractor=extractor(body),
        usage=usage(spent),
        **{name: body[name] for name in _TURN_RESULT_FIELDS if name in body},
    )


def extractor(body: dict[str, Any]) -> common_pb2.ExtractorInfo | None:
    return common_pb2.ExtractorInfo(**body["extractor"]) if "extractor" in body else None


def usage(spent: dict[str, Any]) -> list[common_pb2.TokenUsage]:
    """Returns what all attempts have cost. `spent`: as `runekeep_storage.jobs.tasks.spent` stores it."""
    entries = added([*spent.get("earlier", ()), *spent.get("attempt", ())])
    return [common_pb2.TokenUsage(**entry) for entry in entries]
