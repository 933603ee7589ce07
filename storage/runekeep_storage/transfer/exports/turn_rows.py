"""Lines of turn memory: their text has exactly the stored form and agrees with the columns."""

from typing import Any, Literal

from pydantic import Field

from runekeep_schemas.turns.buckets import Bucket
from runekeep_schemas.turns.feedback import PREFIX, Reaction, artifact_name
from runekeep_schemas.turns.fingerprint import Fingerprint, promotion_text
from runekeep_schemas.turns.selection import Selection
from runekeep_schemas.turns.stored import (
    ACTIVE_SET,
    ASSISTANT_SIGNAL,
    BUCKET,
    FINGERPRINT,
    REACTION,
    bucket_tags,
    fingerprint_tags,
    reaction_tags,
)
from runekeep_schemas.turns.summary import Summary
from runekeep_storage.transfer.exports.values import (
    Digest,
    Json,
    Lenient,
    MaybeTurnId,
    Number,
    SessionId,
    Short,
    Strict,
    Text,
    Time,
    TurnId,
    Whole,
)


class _Summary(Strict):
    user_inquiry: Text = ""
    user_message_description: Text = ""
    assistant_answer: Text = ""
    delivered_to_user: Text = ""
    done: list[Text] = Field(default_factory=list)
    not_done: list[Text] = Field(default_factory=list)
    assumptions: list[Text] = Field(default_factory=list)
    risks: list[Text] = Field(default_factory=list)
    notes: Text = ""


assert set(_Summary.model_fields) == set(Summary.__slots__), "summaries have other members by now"


class TurnRow(Strict):
    session_id: SessionId
    turn_id: TurnId
    sequence: Number
    last_sequence: Number
    started_at: Time
    ended_at: Time
    summary: _Summary | None


class ArtifactRow(Strict):
    """`blob`: for a bucket, the SHA-256 of the whole."""

    session_id: SessionId
    kind: Literal["artifact:turn.fingerprint.v1", "artifact:turn.log.reaction", "conversation.active_set.v1",
                  "conversation.memory.bucket.v1"]  # fmt: skip
    name: Short
    turn_id: MaybeTurnId
    sequence: Whole
    text: Text
    blob: Digest | Literal[""]
    version: Whole
    origin: Literal["", "user", "machine"]
    reaction: Literal["", "ok", "not_ok", "neutral", "none"]
    said_at: Time
    updated_at: Time


class _Signal(Lenient):
    key: Text
    value: Json
    severity: Short
    scope: Short = ""
    applies_to: Short = ""


class _Query(Lenient):
    where: Short
    query: Text
    reason: Text = ""


class _Fingerprint(Lenient):
    turn_id: TurnId
    objective: Text
    topics: list[Text]
    assertions: list[_Signal]
    exceptions: list[_Signal]
    facts: list[_Signal]
    assistant_signals: list[_Signal]
    ctx_retrieval_queries: list[_Query]
    made_at: Short
    conversation_title: Text = ""


class _Reaction(Lenient):
    feedback_id: Short
    turn_id: TurnId
    reaction: Short
    text: Text
    origin: Short
    confidence: float
    from_turn_id: MaybeTurnId
    ts: Short


class _Selection(Lenient):
    local_memories_turn_ids: list[TurnId]
    turn_ids: list[TurnId]
    memory_bucket_ids: list[Short]
    current_turn_id: MaybeTurnId
    last_reconciled_ts: Short
    memory_version: Whole


class _Weighted(_Signal):
    weight: float
    last_seen_ts: Short
    support_turn_ids: list[TurnId]


class _Slice(Lenient):
    ts_from: Short
    ts_to: Short
    objective_hint: Text
    assertions: list[_Weighted]
    exceptions: list[_Weighted]
    facts: list[_Weighted]


class _Bucket(Lenient):
    bucket_id: Short
    name: Text
    short_desc: Text
    topic_centroid: list[Text]
    objective_text: Text
    enabled: bool
    timeline: list[_Slice]
    updated_at: Short


def tags_of(row: dict[str, Any]) -> dict[str, str]:
    """Returns the tags by which the artifact of a row is found, and the text that goes with each: with the tag of
    assistant signals these signals, with others nothing. Raises ValueError, or what invalid JSON raises, if the text is
    not in its form or contradicts the columns."""
    text, kind, promoted = row["text"], row["kind"], ""
    tags: tuple[str, ...]
    if kind == FINGERPRINT:
        _Fingerprint.model_validate_json(text)
        one = Fingerprint.from_text(text)
        same = (one.to_text(), one.turn_id, one.turn_id) == (text, row["name"], row["turn_id"])
        tags, promoted = fingerprint_tags(one), promotion_text(one.assistant_signals)
    elif kind == REACTION:
        _Reaction.model_validate_json(text.removeprefix(PREFIX))
        said = Reaction.from_text(text)
        same = (said.to_text(), artifact_name(said), said.turn_id, said.origin, said.reaction) == (
            text, row["name"], row["turn_id"], row["origin"], row["reaction"])  # fmt: skip
        tags = reaction_tags(said.turn_id, said.origin)
    elif kind == ACTIVE_SET:
        _Selection.model_validate_json(text)
        same = Selection.from_text(text).to_text() == text and not row["name"]
        tags = (ACTIVE_SET,)
    else:
        bucket = read_bucket(text)
        same = (bucket.to_text(), bucket.bucket_id) == (text, row["name"]) and bool(row["blob"])
        tags = bucket_tags(bucket.bucket_id)
    if not same or (kind != BUCKET and row["blob"]) or (kind != REACTION and row["origin"]):
        raise ValueError("the text of turn memory is not what its columns say")
    return {tag: promoted if tag == ASSISTANT_SIGNAL else "" for tag in tags}


def read_bucket(text: str) -> Bucket:
    """Parses a bucket in its stored form. Raises like `tags_of`."""
    _Bucket.model_validate_json(text)
    return Bucket.from_text(text)
