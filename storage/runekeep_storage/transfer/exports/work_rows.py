"""Lines of work: tasks as their callers see them, and jobs that are not done."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from runekeep_schemas.turns.checks import QUERY_LENGTH
from runekeep_schemas.turns.fingerprint import MAX_QUERIES, TARGETS
from runekeep_storage.jobs.spending import COUNTERS
from runekeep_storage.transfer.exports.values import (
    Index,
    MaybeTurnId,
    Number,
    PeerId,
    Revision,
    SessionId,
    Short,
    Small,
    Strict,
    TaskId,
    Text,
    Time,
    TurnId,
    TypeName,
    Whole,
    checked,
)

MAX_PRIORITY: Final = 100
"""Maximum absolute priority that a caller may give a commit."""
AHEAD: Final = 1000
"""Priority of fingerprint jobs, see `runekeep_storage.turns.jobs`."""


_Counted = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""A counter as a worker may report it: only its type bounds it in the contract."""
_Told = Annotated[int, Field(ge=0, lt=2**63)]


class Extractor(Strict):
    """The extractor that produced something."""

    engine: Short = ""
    model: Short = ""
    version: Short = ""


class CommitPlan(Strict):
    allow_self: bool
    allowed_peer_ids: list[PeerId]
    long_term_types: list[TypeName]
    execution_types: list[TypeName]
    session_skills: bool
    summarize: bool
    review: Literal["", "destructive", "all"] = ""


def _check_query(value: list[str]) -> None:
    """Checks where, query and reason against the bounds of the contract: a server that runs the job relies on them."""
    where, query, reason = value
    if where not in ("", *TARGETS) or not 0 < len(query) <= QUERY_LENGTH or len(reason) > QUERY_LENGTH:
        raise ValueError("is no query")


_Query = Annotated[list[str], checked(_check_query)]


class _TurnPlan(Strict):
    turn_id: TurnId
    assistant_signal_spec: Text
    extract_selection: bool = False
    extract_feedback: bool = False
    ctx_retrieval_queries: Annotated[list[_Query], Field(max_length=MAX_QUERIES)] = Field(default_factory=list)


class Empty(Strict):
    """An object without members."""


class JobRow(Strict):
    """A job that is not done. Jobs of one lane run one after the other; `lane_sequence` counts them from 1."""

    lane: Short
    lane_sequence: Number
    job_id: TaskId
    kind: Literal["commit", "turn_fingerprint", "bucket_reconcile"]
    session_id: SessionId
    archive_index: Index
    plan: CommitPlan | _TurnPlan | Empty
    priority: Annotated[int, Field(ge=-MAX_PRIORITY, le=AHEAD)]
    state: Literal["pending", "failed", "cancelled"]


class _Failure(Strict):
    class_: Annotated[Short, Field(alias="class")]
    message: Text
    waiting_for: Short = ""


class _Progress(Strict):
    phase: Annotated[int, Field(ge=0, le=1000)]
    percent: Annotated[int, Field(ge=0, le=100)]
    message: Short
    waiting_for: Short = ""


class _LeftOut(Strict):
    reason: Short
    memory_type: Short = ""
    uri: Short = ""
    message: Short = ""
    operation_index: Annotated[int, Field(ge=-1, lt=2**31)] = 0


class _TypeCounts(Strict):
    adds: Whole = 0
    updates: Whole = 0
    deletes: Whole = 0
    unchanged: Whole = 0
    skipped: Whole = 0
    rejected: Whole = 0
    held: Whole = 0


class _Result(Strict):
    outcome: Literal[
        "applied", "nothing_to_extract", "partly_rejected", "unparseable", "conflict", "out_of_budget", "given_up", ""
    ] = ""
    nothing_applied: bool = False
    held_for_review: Whole = 0
    memories_extracted: dict[str, Whole] = Field(default_factory=dict)
    total_adds: Whole = 0
    total_updates: Whole = 0
    total_deletes: Whole = 0
    unchanged: Whole = 0
    skipped: list[_LeftOut] = Field(default_factory=list)
    rejected: list[_LeftOut] = Field(default_factory=list)
    left_out_omitted: Whole = 0
    dropped_items: _Told = 0
    counts_by_type: dict[str, _TypeCounts] = Field(default_factory=dict)
    extractor: Extractor = Extractor()
    duplicates: _Told = 0
    skipped_rules: dict[str, Whole] = Field(default_factory=dict)
    secrets_withheld: Small = 0
    revision: Revision = 0
    active_count_updated: Whole = 0
    fingerprints: Small = 0
    buckets_changed: Small = 0
    buckets_added: Small = 0
    buckets_disabled: Small = 0
    turns_left: Small = 0
    selection_stored: bool = False
    feedback: Small = 0


class _Cost(Strict):
    model: Short
    phase: Short
    calls: _Counted
    input_tokens: _Counted
    cache_write_tokens: _Counted
    cache_read_tokens: _Counted
    output_tokens: _Counted


assert set(_Cost.model_fields) == {"model", "phase", *COUNTERS}, "costs have other counters by now"


class _Spent(Strict):
    earlier: list[_Cost] = Field(default_factory=list)
    token: Whole = 0
    attempt: list[_Cost] = Field(default_factory=list)


class TaskRow(Strict):
    task_id: TaskId
    kind: Literal["commit", "turn_fingerprint", "bucket_reconcile"]
    session_id: SessionId
    archive_index: Index
    turn_id: MaybeTurnId
    state: Literal["pending", "completed", "failed", "cancelled"]
    attempt: Small
    lost_leases: Small
    progress: _Progress | None
    result: _Result | None
    error: _Failure | None
    usage: _Spent
    created_at: Time
    started_at: Time
    ended_at: Time


def lane_of(kind: str, session_id: str, turn_id: str) -> str:
    """Returns the lane of a job, as `runekeep_storage.turns.jobs` and `runekeep_storage.jobs.jobs` define it: turns run
    in parallel, all other jobs of a user one after the other."""
    return f"turn:{session_id}:{turn_id}" if kind == "turn_fingerprint" else "commits"


def check_job(row: dict[str, Any]) -> None:
    """Raises ValueError, or what invalid JSON raises, for members that contradict each other."""
    _PLANS[row["kind"]].model_validate(row["plan"])
    _check_kind(row)
    if row["lane"] != lane_of(row["kind"], row["session_id"], row["plan"].get("turn_id", "")):
        raise ValueError("a job of that kind has another lane")
    priority = row["priority"]
    if abs(priority) > MAX_PRIORITY if row["kind"] == "commit" else priority not in _PRIORITIES[row["kind"]]:
        raise ValueError("a job of that kind has another priority")


def check_task(row: dict[str, Any]) -> None:
    """Raises like `check_job`."""
    _check_kind(row)
    if row["kind"] == "commit" and row["result"] is not None and not row["result"].get("outcome"):
        raise ValueError("the result of a commit has an outcome")


def _check_kind(row: dict[str, Any]) -> None:
    if (row["kind"] == "commit") != bool(row["archive_index"]):
        raise ValueError("a commit has an archive, and nothing else has one")


_PRIORITIES: Final[Mapping[str, tuple[int, ...]]] = {"turn_fingerprint": (0, AHEAD), "bucket_reconcile": (0,)}
_PLANS: Final[Mapping[str, type[Strict]]] = {
    "commit": CommitPlan,
    "turn_fingerprint": _TurnPlan,
    "bucket_reconcile": Empty,
}
