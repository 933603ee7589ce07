"""Shapes of what the calls answer: plain dicts that `json.dumps` takes. Times are ISO 8601 strings in UTC."""

from typing import Any, Literal, TypedDict

TaskStatus = Literal["pending", "running", "completed", "failed", "cancelled"]
TaskKind = Literal["commit", "turn_fingerprint", "bucket_reconcile"]
Scalar = str | int | float | bool


class Summary(TypedDict):
    abstract: str
    overview: str


class AutoCommit(TypedDict, total=False):
    """When a session commits by itself: once its live messages have so many tokens, once there are so many, once
    nothing was added for `idle` seconds. `keep_recent_count` of the newest stay live. What is 0, None or left out plays
    no part."""

    pending_tokens: int
    message_count: int
    idle: float | None
    keep_recent_count: int


class SessionInfo(TypedDict):
    """`auto_commit` None: it never commits by itself."""

    uri: str
    session_id: str
    title: str
    memory_policy: dict[str, Any] | None
    compression_index: int
    live_message_count: int
    message_count: int
    summary: Summary | None
    create_time: str | None
    update_time: str | None
    auto_commit: AutoCommit | None
    live_tokens: int


class Archive(TypedDict):
    uri: str
    index: int
    messages: dict[str, int] | None
    state: Literal["pending", "done", "failed"]
    summary: Summary | None
    task_id: str
    revision: int
    create_time: str | None
    done_time: str | None


class AddedMessage(TypedDict):
    id: str
    sequence: int


class Added(TypedDict):
    """`auto_commit`: the commit that these messages made, see AutoCommit; None: they made none."""

    messages: list[AddedMessage]
    live_message_count: int
    auto_commit: "Commit | None"


class Used(TypedDict):
    contexts_used: int
    skills_used: int


class Commit(TypedDict):
    """`skipped` when there was nothing to archive: then the names are empty and `archived` is False."""

    status: Literal["accepted", "skipped"]
    task_id: str
    archive_uri: str
    archived: bool


class Extractor(TypedDict):
    engine: str
    model: str
    version: str


class LeftOut(TypedDict):
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
    "unparseable",
    "conflict",
    "out_of_budget",
    "given_up",
]


class TypeCounts(TypedDict):
    """Operations of one memory type: what they made of memories, and how many made nothing of any."""

    adds: int
    updates: int
    deletes: int
    unchanged: int
    skipped: int
    rejected: int


class TokenUsage(TypedDict):
    model: str
    phase: str
    calls: int
    input_tokens: int
    cache_write_tokens: int
    cache_read_tokens: int
    output_tokens: int


class CommitResult(TypedDict):
    """The last four outcomes are those of failed tasks; then nothing was applied, and `usage` still says the cost."""

    outcome: Outcome
    memories_extracted: dict[str, int]
    total_adds: int
    total_updates: int
    total_deletes: int
    unchanged: int
    skipped: list[LeftOut]
    rejected: list[LeftOut]
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


class TurnTaskResult(TypedDict):
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


class Progress(TypedDict):
    phase: str | None
    percent: int
    message: str
    waiting_for: str


class Failure(TypedDict):
    code: str
    reason: str
    message: str


class Task(TypedDict):
    """`error` is set once failed or cancelled, or after an attempt that failed.

    `result` (of a commit) and `turn_result` (of the others) are set once completed or failed. `archive_uri` is that of
    a commit, `turn_id` that of a fingerprint. `pending_passages` and `pending_memories`: what of a commit a search does
    not find in full yet, at the time of the answer; None for other tasks, and in a list. `waiting_for` names the part
    that an open task waits for because it is away, such as `index`; else it is empty.
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
    create_time: str | None
    start_time: str | None
    end_time: str | None
    last_event_sequence: int
    turn_id: str
    turn_result: TurnTaskResult | None
    shortened: bool
    pending_passages: int | None
    pending_memories: int | None
    waiting_for: str


class TaskUpdate(TypedDict, total=False):
    """`kind` says which of the others are there.

    snapshot, ended: `task`. state: `status`. progress: `progress`. attempt_failed: `error`. The last three also have
    `sequence`, `event_time` and `attempt`.
    """

    kind: Literal["snapshot", "state", "progress", "attempt_failed", "ended"]
    task: Task
    sequence: int
    event_time: str
    attempt: int
    status: TaskStatus
    progress: Progress
    error: Failure


class ModelCall(TypedDict):
    """`prompt_digest`: SHA-256 of the request; `answer` is empty where the server does not keep them."""

    phase: str
    model: str
    prompt_digest: str
    answer: str
    stop_reason: str


class ExtractionAttempt(TypedDict):
    """`failure` is None for an attempt that was applied. `type_digests`: SHA-256 of each type it could write."""

    number: int
    end_time: str | None
    extractor: Extractor | None
    base_revision: int
    type_digests: dict[str, str]
    calls: list[ModelCall]
    failure: Failure | None


class Usage(TypedDict):
    """The costliest first. `daily_token_budget` and `spent_today` are the account's; None: any number."""

    usage: list[TokenUsage]
    daily_token_budget: int | None
    spent_today: int


class Memory(TypedDict):
    uri: str
    memory_type: str
    content: str
    fields: dict[str, Scalar]
    abstract: str
    overview: str
    version: int
    revision: int
    superseded_revision: int
    active_count: int
    peer_id: str
    sources: list[dict[str, Any]]
    extractor: Extractor | None
    create_time: str | None
    update_time: str | None
    deleted: bool
    event_time: str | None
    tags: list[str]
    shortened: bool


class Written(TypedDict):
    """The memories as they are now, in the order of the changes; a deleted one says `deleted`."""

    revision: int
    memories: list[Memory]


class DeletedUser(TypedDict):
    """What was deleted; memories without their older versions."""

    sessions: int
    memories: int
    cancelled_tasks: int


class DirectoryEntry(TypedDict):
    uri: str
    name: str
    directory: bool
    depth: int
    memory_type: str
    abstract: str
    version: int
    update_time: str | None


class Directory(TypedDict):
    uri: str
    entries: list[DirectoryEntry]
    truncated: bool


class GrepMatch(TypedDict):
    """A line, by its number from 0, and those before and after it."""

    uri: str
    line: int
    text: str
    before: list[str]
    after: list[str]


class ScorePart(TypedDict):
    """`value` was measured; `added` is what it added to the score."""

    name: str
    value: float
    added: float


class ScoreDetail(TypedDict):
    """Ranks from 1 and scores of the two kinds of search, 0 where that one did not find it; `parts` where it was
    asked to explain."""

    dense_rank: int
    dense_score: float
    sparse_rank: int
    sparse_score: float
    neighbours: float
    parts: list[ScorePart]


class FoundItem(TypedDict, total=False):
    """A memory or a passage: their own keys, and `kind`, `score` and `detail` beside them. `view` of a memory: how much
    of it is here, less than asked for where an answer had no room."""

    kind: Literal["memory", "passage"]
    score: float
    detail: ScoreDetail
    view: str
    shortened: bool
    uri: str
    memory_type: str
    abstract: str
    overview: str
    content: str
    fields: dict[str, Scalar]
    sources: list[dict[str, Any]]
    version: int
    peer_id: str
    session: str
    message_id: str
    sequence: int
    text: str
    event_time: str | None
    tags: list[str]
    create_time: str | None


class Found(TypedDict):
    results: list[FoundItem]
    revision: int
    latest_revision: int
    pending_passages: int
    degraded: list[str]
    passage_lag: str | None
    pending_memories: int


class DiffOperations(TypedDict):
    adds: list[dict[str, Any]]
    updates: list[dict[str, Any]]
    deletes: list[dict[str, Any]]


class MemoryDiff(TypedDict):
    """The keys of `memory_diff.json`, and what the server says beside them.

    An add has `after`, an update `before` and `after`, a delete `deleted_content`; each also has `uri`,
    `memory_type`, `version`, `reason`, `message_ids` and `shortened`: whether texts or ids are cut or left out.
    """

    archive_uri: str
    extracted_at: str | None
    operations: DiffOperations
    summary: dict[str, int]
    revision: int
    extractor: Extractor | None


class MemoryTypes(TypedDict):
    memory_types: list[dict[str, Any]]
    digest: str
