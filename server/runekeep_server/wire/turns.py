"""Converts turns, fingerprints, summaries, reactions, selections and buckets."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value
from google.protobuf.timestamp_pb2 import Timestamp

from runekeep.v1 import common_pb2
from runekeep.v1 import turn_memory_service_pb2 as pb
from runekeep_schemas.documents.uris import bucket_uri, session_uri
from runekeep_schemas.turns import summary as summaries
from runekeep_schemas.turns.buckets import KINDS, Bucket, Slice, WeightedSignal
from runekeep_schemas.turns.feedback import Reaction
from runekeep_schemas.turns.fingerprint import (
    LISTS,
    SEVERITIES,
    VERSION,
    Fingerprint,
    Promotion,
    Query,
    Signal,
    normal_key,
    plain,
)
from runekeep_schemas.turns.selection import Selection
from runekeep_schemas.turns.stored import BUCKET
from runekeep_schemas.turns.summary import Summary
from runekeep_server.protocol.errors import invalid
from runekeep_server.wire.basics import microseconds, timestamp
from runekeep_storage.records import Artifact, Turn
from runekeep_storage.turns.feedback import Counts, Said

_SEVERITY_NUMBERS = {
    name: pb.SignalSeverity.Value(f"SIGNAL_SEVERITY_{name.upper()}") for names in SEVERITIES.values() for name in names
}
_SEVERITIES = {number: name for name, number in _SEVERITY_NUMBERS.items()}
_SCOPES = {
    pb.SIGNAL_SCOPE_UNSPECIFIED: "",
    pb.SIGNAL_SCOPE_CONVERSATION: "conversation",
    pb.SIGNAL_SCOPE_OBJECTIVE: "objective",
    pb.SIGNAL_SCOPE_ARTIFACT: "artifact",
    pb.SIGNAL_SCOPE_THREAD: "thread",
}
_SCOPE_NUMBERS = {name: number for number, name in _SCOPES.items()}
_TARGETS = {
    pb.CONTEXT_QUERY_TARGET_UNSPECIFIED: "",
    pb.CONTEXT_QUERY_TARGET_USER: "user",
    pb.CONTEXT_QUERY_TARGET_ASSISTANT: "assistant",
    pb.CONTEXT_QUERY_TARGET_ASSISTANT_ARTIFACT: "assistant_artifact",
}
_TARGET_NUMBERS = {name: number for number, name in _TARGETS.items()}
_REACTIONS = {
    pb.REACTION_UNSPECIFIED: "none",
    pb.REACTION_OK: "ok",
    pb.REACTION_NOT_OK: "not_ok",
    pb.REACTION_NEUTRAL: "neutral",
}
_REACTION_NUMBERS = {name: number for number, name in _REACTIONS.items()}
_ORIGINS = {pb.FEEDBACK_ORIGIN_USER: "user", pb.FEEDBACK_ORIGIN_MACHINE: "machine"}
_ORIGIN_NUMBERS = {name: number for number, name in _ORIGINS.items()}
_MAX_VALUE_BYTES = 8 * 1024
"""Maximum bytes of a value on the wire. A value of 1 KiB JSON, which is the limit, never takes as much."""
_BUCKET_STATES = {True: pb.BUCKET_STATE_ENABLED, False: pb.BUCKET_STATE_DISABLED}


# Fingerprints


def fingerprint_from_wire(field: str, message: pb.TurnFingerprint) -> Fingerprint:
    """Returns the fingerprint in `field` of a request. A severity that is not given is its list's default.

    Raises ApiError for a value without a kind, a value that is far too large, and an invalid time.
    `runekeep_schemas.turns.checks` finds all other errors.
    """
    lists = {
        name: tuple(
            _signal(f"{field}.{name}[{number}]", one, SEVERITIES[name][0])
            for number, one in enumerate(getattr(message, name))
        )
        for name in LISTS
    }
    return Fingerprint(
        turn_id=message.turn_id,
        objective=message.objective,
        topics=tuple(message.topics),
        **lists,
        ctx_retrieval_queries=tuple(map(query_from_wire, message.ctx_retrieval_queries)),
        made_at=time_from_wire(f"{field}.made_time", message.made_time) if message.HasField("made_time") else 0,
        conversation_title=message.conversation_title,
    )


def fingerprint_to_wire(fingerprint: Fingerprint) -> pb.TurnFingerprint:
    return pb.TurnFingerprint(
        version=VERSION,
        turn_id=fingerprint.turn_id,
        objective=fingerprint.objective,
        topics=fingerprint.topics,
        **{name: [signal_to_wire(one) for one in getattr(fingerprint, name)] for name in LISTS},
        ctx_retrieval_queries=[query_to_wire(one) for one in fingerprint.ctx_retrieval_queries],
        made_time=timestamp(fingerprint.made_at),
        conversation_title=fingerprint.conversation_title,
    )


def without_signals(fingerprint: Fingerprint) -> Fingerprint:
    """Returns the fingerprint as all audiences but the final answer may see it."""
    return replace(fingerprint, assistant_signals=())


def signal_to_wire(signal: Signal) -> pb.TurnSignal:
    wire = pb.TurnSignal()
    _write_signal(wire, signal)
    return wire


def _write_signal(wire: pb.TurnSignal, signal: Signal) -> None:
    wire.key, wire.severity = signal.key, _SEVERITY_NUMBERS[signal.severity]
    if signal.scope:
        wire.scope = _SCOPE_NUMBERS[signal.scope]
    if signal.applies_to:
        wire.applies_to = signal.applies_to
    match signal.value:
        case str():
            wire.value.string_value = signal.value
        case bool():
            wire.value.bool_value = signal.value
        case int() | float():
            wire.value.number_value = signal.value
        case _:
            ParseDict(signal.value, wire.value)


def query_from_wire(message: pb.ContextQuery) -> Query:
    return Query(_TARGETS[message.target], message.query, message.reason)


def query_to_wire(query: Query) -> pb.ContextQuery:
    return pb.ContextQuery(target=_TARGET_NUMBERS[query.where], query=query.query, reason=query.reason)


def time_from_wire(field: str, stamp: Timestamp) -> int:
    """Returns microseconds. Raises ApiError."""
    try:
        return microseconds(stamp)
    except ValueError as error:
        raise invalid(field, "is no valid time", "Leave it empty when it is not known") from error


def _signal(field: str, message: pb.TurnSignal, severity: str) -> Signal:
    if message.value.ByteSize() > _MAX_VALUE_BYTES:
        raise invalid(f"{field}.value", "takes more than 1 KiB as JSON", "Say it in fewer words")
    return Signal(
        key=message.key,
        value=_plain(f"{field}.value", message.value),
        severity=_SEVERITIES.get(message.severity, severity),
        scope=_SCOPES[message.scope],
        applies_to=message.applies_to,
    )


def _plain(field: str, value: Value) -> Any:
    """Returns the JSON value. Raises ApiError for a value without a kind."""
    match value.WhichOneof("kind"):
        case "null_value":
            return None
        case "number_value":
            return plain(value.number_value)
        case "struct_value":
            # A protobuf map has no order. The only form with two keys reads as min, max.
            fields = sorted(value.struct_value.fields.items(), reverse=True)
            return {name: _plain(f"{field}.{name}", one) for name, one in fields}
        case "list_value":
            return [_plain(f"{field}[{number}]", one) for number, one in enumerate(value.list_value.values)]
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
    raise invalid(field, "holds nothing", "Send a value, or null_value for none")


# Turns


def summary_from_wire(message: pb.TurnSummary) -> Summary:
    body: dict[str, Any] = {name: getattr(message, name) for name in summaries.TEXTS}
    body |= {name: tuple(getattr(message, name)) for name in summaries.LISTS}
    return Summary(**body)


def summary_to_wire(summary: Summary) -> pb.TurnSummary:
    return pb.TurnSummary(**{name: getattr(summary, name) for name in (*summaries.TEXTS, *summaries.LISTS)})


def turn_to_wire(user: str, turn: Turn, fingerprint: Fingerprint | None, summary: Summary | None) -> pb.Turn:
    return pb.Turn(
        session=session_uri(user, turn.session_id),
        turn_id=turn.turn_id,
        messages=common_pb2.MessageRange(start_sequence=turn.sequence, end_sequence=turn.last_sequence),
        fingerprint=fingerprint_to_wire(fingerprint) if fingerprint is not None else None,
        summary=summary_to_wire(summary) if summary is not None and not summary.is_empty else None,
        start_time=timestamp(turn.started_at),
        end_time=timestamp(turn.ended_at),
    )


def unknown_turn_to_wire(user: str, session_id: str, turn_id: str) -> pb.Turn:
    """Returns a turn without messages."""
    return pb.Turn(session=session_uri(user, session_id), turn_id=turn_id)


class PromotionRows(Protocol):
    """The field of an answer that contains promotions."""

    def add(self) -> pb.AssistantSignals: ...


def write_promotions(
    rows: PromotionRows, user: str, promoted: Sequence[tuple[str, Promotion]], keys: Collection[str] = ()
) -> None:
    """Adds promotions, given with their sessions: signals with these keys, or all if there are no keys."""
    sessions = _session_uris(user, (name for name, _ in promoted))
    for name, promotion in promoted:
        # In place and field by field: there may be hundreds, and copying messages takes as long as building them.
        row = rows.add()
        row.session, row.turn_id, signals = sessions[name], promotion.turn_id, row.signals
        row.made_time.FromMicroseconds(promotion.made_at)
        for one in promotion.signals:
            if not keys or normal_key(one.key) in keys:
                _write_signal(signals.add(), one)


def _session_uris(user: str, names: Iterable[str]) -> dict[str, str]:
    """Returns URIs by session name: hundreds of rows may belong to a few sessions."""
    return {name: session_uri(user, name) for name in set(names)}


def artifact_to_wire(user: str, artifact: Artifact) -> pb.TurnArtifact:
    return pb.TurnArtifact(
        name=artifact.kind,
        session=session_uri(user, artifact.session_id),
        turn_id=artifact.turn_id,
        text=artifact.text,
        tags=artifact.tags,
        hosted_uri=bucket_uri(user, artifact.session_id, artifact.name) if artifact.kind == BUCKET else "",
        said_time=timestamp(artifact.said_at),
        update_time=timestamp(artifact.updated_at),
    )


# Reactions


def reaction_from_wire(message: pb.Feedback, feedback_id: str) -> Reaction:
    """Returns a reaction. Ignores fields that the server sets; the store sets the time."""
    return Reaction(
        feedback_id=feedback_id,
        turn_id=message.turn_id,
        reaction=_REACTIONS[message.reaction],
        text=message.text,
        origin=_ORIGINS[message.origin],
        confidence=message.confidence,
        from_turn_id=message.from_turn_id,
        created_at=0,
    )


def feedback_to_wire(user: str, said: Sequence[Said]) -> list[pb.Feedback]:
    sessions = _session_uris(user, (one.session_id for one in said))
    rows = []
    for one in said:
        reaction = one.reaction
        row = pb.Feedback(
            feedback_id=reaction.feedback_id,
            session=sessions[one.session_id],
            turn_id=reaction.turn_id,
            reaction=_REACTION_NUMBERS[reaction.reaction],
            text=reaction.text,
            origin=_ORIGIN_NUMBERS[reaction.origin],
            confidence=reaction.confidence,
            from_turn_id=reaction.from_turn_id,
            objective=one.objective,
        )
        row.create_time.FromMicroseconds(reaction.created_at)
        rows.append(row)
    return rows


def counts_to_wire(counts: Counts) -> pb.FeedbackCounts:
    return pb.FeedbackCounts(
        total=counts.total,
        user=counts.user,
        machine=counts.machine,
        ok=counts.ok,
        not_ok=counts.not_ok,
        neutral=counts.neutral,
    )


# Selections


def selection_from_wire(message: pb.TurnSelection) -> Selection:
    """Returns the requested selection; see `runekeep_schemas.turns.selection.choose`."""
    return Selection(
        local_memories_turn_ids=tuple(message.local_memories_turn_ids),
        turn_ids=tuple(message.turn_ids),
        memory_bucket_ids=tuple(message.memory_bucket_ids),
        current_turn_id=message.current_turn_id,
    )


def selection_to_wire(selection: Selection) -> pb.TurnSelection:
    return pb.TurnSelection(
        local_memories_turn_ids=selection.local_memories_turn_ids,
        turn_ids=selection.turn_ids,
        memory_bucket_ids=selection.memory_bucket_ids,
        current_turn_id=selection.current_turn_id,
        last_reconciled_time=timestamp(selection.last_reconciled_at),
    )


# Buckets


def bucket_from_wire(field: str, message: pb.MemoryBucket) -> Bucket:
    """Returns the bucket in `field`. Only the state DISABLED is read. Raises ApiError."""
    return Bucket(
        bucket_id=message.bucket_id,
        name=message.name,
        short_desc=message.short_desc,
        topic_centroid=tuple(message.topic_centroid),
        objective_text=message.objective_text,
        enabled=message.state != pb.BUCKET_STATE_DISABLED,
        timeline=tuple(_slice(f"{field}.timeline[{place}]", one) for place, one in enumerate(message.timeline)),
    )


def bucket_to_wire(user: str, session_id: str, bucket: Bucket) -> pb.MemoryBucket:
    return pb.MemoryBucket(
        bucket_id=bucket.bucket_id,
        session=session_uri(user, session_id),
        state=_BUCKET_STATES[bucket.enabled],
        name=bucket.name,
        short_desc=bucket.short_desc,
        topic_centroid=bucket.topic_centroid,
        objective_text=bucket.objective_text,
        timeline=map(slice_to_wire, bucket.timeline),
        update_time=timestamp(bucket.updated_at),
        hosted_uri=bucket_uri(user, session_id, bucket.bucket_id),
    )


def _slice(field: str, message: pb.TimelineSlice) -> Slice:
    kinds = {
        kind: tuple(
            _weighted(f"{field}.{kind}[{place}]", one, SEVERITIES[kind][0])
            for place, one in enumerate(getattr(message, kind))
        )
        for kind in KINDS
    }
    return Slice(
        from_at=time_from_wire(f"{field}.start_time", message.start_time),
        to_at=time_from_wire(f"{field}.end_time", message.end_time),
        objective_hint=message.objective_hint,
        **kinds,
    )


def _weighted(field: str, message: pb.BucketSignal, severity: str) -> WeightedSignal:
    return WeightedSignal(
        signal=_signal(f"{field}.signal", message.signal, severity),
        weight=message.weight,
        last_seen_at=time_from_wire(f"{field}.last_seen_time", message.last_seen_time),
        support_turn_ids=tuple(message.support_turn_ids),
    )


def slice_to_wire(part: Slice) -> pb.TimelineSlice:
    return pb.TimelineSlice(
        start_time=timestamp(part.from_at),
        end_time=timestamp(part.to_at),
        objective_hint=part.objective_hint,
        **{kind: map(_weighted_to_wire, getattr(part, kind)) for kind in KINDS},
    )


def _weighted_to_wire(one: WeightedSignal) -> pb.BucketSignal:
    return pb.BucketSignal(
        signal=signal_to_wire(one.signal),
        weight=one.weight,
        last_seen_time=timestamp(one.last_seen_at),
        support_turn_ids=one.support_turn_ids,
    )
