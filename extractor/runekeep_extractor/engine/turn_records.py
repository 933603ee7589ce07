"""Converts turn memory between the contract's messages and the records of `runekeep_schemas.turns`."""

from typing import Any, Final

from google.protobuf.json_format import MessageToDict, ParseDict

from runekeep.v1 import turn_memory_service_pb2 as pb
from runekeep_schemas.turns.fingerprint import LISTS, SEVERITIES, Fingerprint, Query, Signal, plain
from runekeep_schemas.turns.summary import LISTS as SUMMARY_LISTS
from runekeep_schemas.turns.summary import TEXTS as SUMMARY_TEXTS
from runekeep_schemas.turns.summary import Summary

_SEVERITY_NUMBERS: Final = {
    name: pb.SignalSeverity.Value(f"SIGNAL_SEVERITY_{name.upper()}") for names in SEVERITIES.values() for name in names
}
_SEVERITIES: Final = {number: name for name, number in _SEVERITY_NUMBERS.items()}
_SCOPE_NUMBERS: Final = {
    "": pb.SIGNAL_SCOPE_UNSPECIFIED,
    "conversation": pb.SIGNAL_SCOPE_CONVERSATION,
    "objective": pb.SIGNAL_SCOPE_OBJECTIVE,
    "artifact": pb.SIGNAL_SCOPE_ARTIFACT,
    "thread": pb.SIGNAL_SCOPE_THREAD,
}
_SCOPES: Final = {number: name for name, number in _SCOPE_NUMBERS.items()}
_TARGET_NUMBERS: Final = {
    "": pb.CONTEXT_QUERY_TARGET_UNSPECIFIED,
    "user": pb.CONTEXT_QUERY_TARGET_USER,
    "assistant": pb.CONTEXT_QUERY_TARGET_ASSISTANT,
    "assistant_artifact": pb.CONTEXT_QUERY_TARGET_ASSISTANT_ARTIFACT,
}
_TARGETS: Final = {number: name for name, number in _TARGET_NUMBERS.items()}


def fingerprint_to_wire(fingerprint: Fingerprint) -> pb.TurnFingerprint:
    """Returns the contract's message. Omits the fields that the server sets (version, time)."""
    lists: dict[str, Any] = {name: [signal_to_wire(one) for one in getattr(fingerprint, name)] for name in LISTS}
    return pb.TurnFingerprint(
        turn_id=fingerprint.turn_id,
        objective=fingerprint.objective,
        topics=fingerprint.topics,
        **lists,
        ctx_retrieval_queries=[
            pb.ContextQuery(target=_TARGET_NUMBERS[one.where], query=one.query, reason=one.reason)
            for one in fingerprint.ctx_retrieval_queries
        ],
        conversation_title=fingerprint.conversation_title,
    )


def fingerprint_from_wire(message: pb.TurnFingerprint) -> Fingerprint:
    """Returns a fingerprint from a job's input. Unknown enum values of a newer server become empty."""
    lists = {name: tuple(signal_from_wire(name, one) for one in getattr(message, name)) for name in LISTS}
    return Fingerprint(
        turn_id=message.turn_id,
        objective=message.objective,
        topics=tuple(message.topics),
        **lists,
        ctx_retrieval_queries=tuple(
            Query(_TARGETS.get(one.target, ""), one.query, one.reason) for one in message.ctx_retrieval_queries
        ),
        made_at=message.made_time.ToMicroseconds() if message.HasField("made_time") else 0,
        conversation_title=message.conversation_title,
    )


def signal_to_wire(signal: Signal) -> pb.TurnSignal:
    wire = pb.TurnSignal(
        key=signal.key,
        severity=_SEVERITY_NUMBERS[signal.severity],
        scope=_SCOPE_NUMBERS[signal.scope],
        applies_to=signal.applies_to,
    )
    ParseDict(plain(signal.value), wire.value)
    return wire


def signal_from_wire(name: str, message: pb.TurnSignal) -> Signal:
    """Returns a signal of the list `name`."""
    severity = _SEVERITIES.get(message.severity, "")
    return Signal(
        key=message.key,
        value=_value(message),
        severity=severity if severity in SEVERITIES[name] else SEVERITIES[name][0],
        scope=_SCOPES.get(message.scope, ""),
        applies_to=message.applies_to,
    )


def summary_to_wire(summary: Summary) -> pb.TurnSummary:
    return pb.TurnSummary(**{name: getattr(summary, name) for name in (*SUMMARY_TEXTS, *SUMMARY_LISTS)})


def _value(message: pb.TurnSignal) -> Any:
    # An empty value is not valid JSON.
    held = message.value.WhichOneof("kind")
    return None if held in (None, "null_value") else plain(MessageToDict(message.value))
