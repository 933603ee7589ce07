"""What calls about tasks return."""

from datetime import datetime
from typing import Literal

from runekeep.client.wire.result import Result
from runekeep.client.wire.values import Extractor

TaskStatus = Literal["pending", "running", "completed", "failed", "cancelled"]
TaskKind = Literal["commit", "turn_fingerprint", "bucket_reconcile"]


class LeftOutOperation(Result):
    """An operation that was skipped or rejected. `operation_index`: its place in the output from 0; -1: none."""

    reason: str
    memory_type: str
    uri: str
    message: str
    operation_index: int


Outcome = Literal[
    "applied",
    "nothing_to_extract",
    "partly_rejected",
    "nothing_applied",
    "held_for_review",
    "unparseable",
    "conflict",
    "out_of_budget",
    "given_up",
]


class TypeCounts(Result):
    """Operations of one memory type, counted by their effect: memories added, updated or deleted, and operations that
    changed nothing, were skipped or were rejected."""

    adds: int
    updates: int
    deletes: int
    unchanged: int
    skipped: int
    rejected: int
    held: int


class TokenUsage(Result):
    """What one model used in one phase."""

    model: str
    phase: str
    calls: int
    input_tokens: int
    cache_write_tokens: int
    cache_read_tokens: int
    output_tokens: int
    cost_usd: float | None
    """Only in results of `usage` and `ask`; None if the price of the model is unknown."""


class CommitResult(Result):
    """`unparseable`, `conflict`, `out_of_budget` and `given_up` are outcomes of failed tasks: nothing was applied, but
    `usage` counts the cost."""

    outcome: Outcome
    memories_extracted: dict[str, int]
    total_adds: int
    total_updates: int
    total_deletes: int
    unchanged: int
    skipped: list[LeftOutOperation]
    rejected: list[LeftOutOperation]
    dropped_items: int
    active_count_updated: int
    revision: int
    extractor: Extractor | None
    usage: list[TokenUsage]
    counts_by_type: dict[str, TypeCounts]
    duplicates: int
    secrets_withheld: int
    fingerprints: int
    skipped_rules: dict[str, int]
    left_out_omitted: int
    held_for_review: int


class TurnTaskResult(Result):
    """Of a task about turns. A failed one has `usage` alone beside zeros: it still says the cost."""

    fingerprints: int
    buckets_changed: int
    buckets_added: int
    buckets_disabled: int
    turns_left: int
    dropped_items: int
    extractor: Extractor | None
    usage: list[TokenUsage]
    selection_stored: bool
    feedback: int


class Progress(Result):
    """`waiting_for`: the part that is away and that the attempt waits for; empty: none."""

    phase: str | None
    percent: int
    message: str
    waiting_for: str


class Failure(Result):
    """`code`: of gRPC, such as `UNAVAILABLE`; `reason`: a stable word."""

    code: str
    reason: str
    message: str


class Task(Result):
    """`error` is set once failed or cancelled, or after an attempt that failed.

    `result` (of a commit) and `turn_result` (of the others) are set once completed or failed. `archive_uri` is that of
    a commit, `turn_id` that of a fingerprint. `pending_passages` and `pending_memories`: what of a commit a search does
    not find in full yet, at the time of the answer; None for other tasks, and in a list. `waiting_for` names the part
    that an open task waits for because it is away, such as `index`; else it is empty. `usage`: what the ended attempts
    of an open task have cost; an ended task has it in its result.
    """

    task_id: str
    kind: TaskKind
    status: TaskStatus
    session: str
    archive_uri: str
    attempt: int
    lost_leases: int
    progress: Progress | None
    result: CommitResult | None
    error: Failure | None
    create_time: datetime | None
    start_time: datetime | None
    end_time: datetime | None
    last_event_sequence: int
    turn_id: str
    turn_result: TurnTaskResult | None
    shortened: bool
    pending_passages: int | None
    pending_memories: int | None
    waiting_for: str
    usage: list[TokenUsage]


class TaskSnapshot(Result):
    """The task as it is when the watching begins."""

    kind: Literal["snapshot"]
    task: Task


class TaskStateChange(Result):
    """The task has a new status."""

    kind: Literal["state"]
    sequence: int
    event_time: datetime
    attempt: int
    status: TaskStatus


class TaskProgress(Result):
    """An attempt goes on."""

    kind: Literal["progress"]
    sequence: int
    event_time: datetime
    attempt: int
    progress: Progress


class TaskAttemptFailed(Result):
    """An attempt failed, and another one follows."""

    kind: Literal["attempt_failed"]
    sequence: int
    event_time: datetime
    attempt: int
    error: Failure


class TaskEnded(Result):
    """The task as it ended: the last update."""

    kind: Literal["ended"]
    task: Task


TaskUpdate = TaskSnapshot | TaskStateChange | TaskProgress | TaskAttemptFailed | TaskEnded
"""`kind` says which one it is."""


class ModelCall(Result):
    """`prompt_digest`: SHA-256 of the request; `answer` is empty if the server does not store answers."""

    phase: str
    model: str
    prompt_digest: str
    answer: str
    stop_reason: str


class ExtractionAttempt(Result):
    """`failure` is None for an attempt that was applied. `type_digests`: SHA-256 of each type it could write.
    `shortened`: it is larger than a response may be, so answers are cut."""

    number: int
    end_time: datetime | None
    extractor: Extractor | None
    base_revision: int
    type_digests: dict[str, str]
    calls: list[ModelCall]
    failure: Failure | None
    shortened: bool


class Usage(Result):
    """The costliest first. `daily_token_budget` and `spent_today` are the account's; None: any number."""

    usage: list[TokenUsage]
    daily_token_budget: int | None
    spent_today: int
