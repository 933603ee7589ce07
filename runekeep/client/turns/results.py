"""What calls about turns return."""

from datetime import datetime
from typing import Any, Literal

from runekeep.client.wire.result import Result
from runekeep.client.wire.values import MessageRange

Severity = Literal[
    "must", "prefer", "allow",
    "avoid", "do_not",
    "high", "medium", "low",
    "mention", "recommend", "strong_promote",
]  # fmt: skip
"""Of assertions, of exceptions, of facts, of assistant signals."""
Reach = Literal["conversation", "objective", "artifact", "thread"]
QueryTarget = Literal["user", "assistant", "assistant_artifact"]
AudienceName = Literal["gate", "reconciler", "downstream", "final_answer"]
OriginName = Literal["user", "machine"]
ReactionName = Literal["ok", "not_ok", "neutral"]


class TurnSignal(Result):
    """`value` is text, a number, a bool, None, or one of {min, max}, {options}, {exclude}, {rule}."""

    key: str
    value: Any
    severity: Severity | None
    scope: Reach | None
    applies_to: str


class ContextQuery(Result):
    """`target` None: in everything."""

    target: QueryTarget | None
    query: str
    reason: str


class TurnFingerprint(Result):
    """What a turn said, in short. `made_time`: when the fingerprint was made."""

    version: str
    turn_id: str
    objective: str
    topics: list[str]
    assertions: list[TurnSignal]
    exceptions: list[TurnSignal]
    facts: list[TurnSignal]
    assistant_signals: list[TurnSignal]
    ctx_retrieval_queries: list[ContextQuery]
    made_time: datetime | None
    conversation_title: str


class TurnSummary(Result):
    """What was asked, answered and done in a turn."""

    user_inquiry: str
    user_message_description: str
    assistant_answer: str
    delivered_to_user: str
    done: list[str]
    not_done: list[str]
    assumptions: list[str]
    risks: list[str]
    notes: str


class Turn(Result):
    """`fingerprint` and `summary` are None while nobody has made them."""

    session: str
    turn_id: str
    messages: MessageRange | None
    fingerprint: TurnFingerprint | None
    summary: TurnSummary | None
    start_time: datetime | None
    end_time: datetime | None


class SubmittedTurn(Result):
    """`task_id` is empty where no task was asked for."""

    turn: Turn
    task_id: str


class CandidateTurn(Result):
    """A turn and why it is shown: `recent`, `selected`, or found by `matched_queries`; `score`: the best of these."""

    turn: Turn | None
    compressed_view: str
    recent: bool
    selected: bool
    matched_queries: list[str]
    score: float


class Feedback(Result):
    """`reaction` None: text alone."""

    feedback_id: str
    session: str
    turn_id: str
    reaction: ReactionName | None
    text: str
    origin: OriginName
    confidence: float
    from_turn_id: str
    create_time: datetime | None
    objective: str


class FeedbackCounts(Result):
    """`neutral` counts text without a reaction too."""

    total: int
    user: int
    machine: int
    ok: int
    not_ok: int
    neutral: int


class FeedbackList(Result):
    """Newest first; `counts` are of everything that matches, however much of it is listed."""

    feedback: list[Feedback]
    counts: FeedbackCounts


class AssistantSignals(Result):
    """What the assistant promoted in a turn."""

    session: str
    turn_id: str
    made_time: datetime | None
    signals: list[TurnSignal]


class BucketSignal(Result):
    """A signal of a bucket, and the turns that support it."""

    signal: TurnSignal
    weight: float
    last_seen_time: datetime | None
    support_turn_ids: list[str]


class TimelineSlice(Result):
    """What a bucket holds of one span of time."""

    start_time: datetime | None
    end_time: datetime | None
    objective_hint: str
    assertions: list[BucketSignal]
    exceptions: list[BucketSignal]
    facts: list[BucketSignal]


class MemoryBucket(Result):
    """`timeline`: oldest slice first; in a TurnContext the last slice alone, with at most 4 signals of a kind."""

    bucket_id: str
    session: str
    state: Literal["enabled", "disabled"]
    name: str
    short_desc: str
    topic_centroid: list[str]
    objective_text: str
    timeline: list[TimelineSlice]
    update_time: datetime | None
    hosted_uri: str


class MemoryBuckets(Result):
    """`last_covered_time`: up to where turns are folded into buckets; None: none were."""

    buckets: list[MemoryBucket]
    last_covered_time: datetime | None


class TurnSelection(Result):
    """What was chosen for a turn."""

    local_memories_turn_ids: list[str]
    turn_ids: list[str]
    memory_bucket_ids: list[str]
    current_turn_id: str
    last_reconciled_time: datetime | None


class SelectedTurns(Result):
    """`selection` as it is stored, and what was `dropped` of it: not offered, ambiguous, or one too many."""

    selection: TurnSelection
    dropped: list[str]


class RenderedSection(Result):
    """`text` begins with the header."""

    header: str
    text: str


class TurnContext(Result):
    """What one agent sees before it acts. `sections` and `text` are empty unless they were rendered.

    `candidates` and `turn_memories`: newest turn first. `selection`: what was chosen last, None when nothing ever was.
    `offer` is opaque; `select_turns` passes it along. Turns that `unanswered_queries` would have found may be missing.
    `shortened`: it is larger than a response may be, so texts and lists are cut.
    """

    current: CandidateTurn | None
    candidates: list[CandidateTurn]
    turn_memories: list[TurnFingerprint]
    feedback: list[Feedback]
    assistant_signals: list[AssistantSignals]
    buckets: list[MemoryBucket]
    selection: TurnSelection | None
    delta_count: int
    offer: str
    sections: list[RenderedSection]
    text: str
    unanswered_queries: list[str]
    shortened: bool


class TurnArtifact(Result):
    """`text` is JSON; of a reaction it stands behind the prefix `[turn.log.reaction]`."""

    name: str
    session: str
    turn_id: str
    text: str
    tags: list[str]
    hosted_uri: str
    said_time: datetime | None
    update_time: datetime | None
