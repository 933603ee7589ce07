"""Converts what callers say about turns to messages of the contract.

Dictionaries may have any key that the server returns. An unknown key raises a ValueError that names the place, so that
a misspelt key is reported.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

from google.protobuf import struct_pb2, timestamp_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import ParseDict

from runekeep.client.wire.arguments import require_list
from runekeep.client.wire.proto_json import enum_number, to_json
from runekeep.v1 import turn_memory_service_pb2 as wire

Query: TypeAlias = str | Mapping[str, Any]
"""Key phrases, or `{"query", "target", "reason"}` with `target` user, assistant or assistant_artifact."""

_SEVERITIES = {
    "assertions": ("must", "prefer", "allow"),
    "exceptions": ("avoid", "do_not"),
    "facts": ("high", "medium", "low"),
    "assistant_signals": ("mention", "recommend", "strong_promote"),
}
_TEXT = FieldDescriptor.TYPE_STRING


def fingerprint_to_wire(fingerprint: Mapping[str, Any]) -> wire.TurnFingerprint:
    """Keys of TurnFingerprint; `made_time` is a datetime or ISO 8601."""
    made = wire.TurnFingerprint()
    _fill(made, fingerprint, "fingerprint", (*_SEVERITIES, "ctx_retrieval_queries", "made_time"))
    for name, severities in _SEVERITIES.items():
        for place, signal in _items(fingerprint, name, "fingerprint"):
            getattr(made, name).append(_signal(signal, place, severities))
    for place, query in _items(fingerprint, "ctx_retrieval_queries", "fingerprint"):
        made.ctx_retrieval_queries.append(_query(query, place))
    if fingerprint.get("made_time") is not None:
        made.made_time.CopyFrom(_time(fingerprint["made_time"], "fingerprint.made_time"))
    return made


def summary_to_wire(summary: Mapping[str, Any]) -> wire.TurnSummary:
    """Keys of TurnSummary."""
    made = wire.TurnSummary()
    _fill(made, summary, "summary", ())
    return made


def queries_to_wire(queries: Sequence[Query], where: str = "queries") -> list[wire.ContextQuery]:
    if isinstance(queries, Mapping):
        raise ValueError(f"{where} is a list; put brackets around a single value")
    return [_query(query, f"{where}[{index}]") for index, query in enumerate(require_list(queries, where))]


def audience_number(word: str) -> wire.ContextAudience.ValueType:
    return wire.ContextAudience.ValueType(_enum_number(wire.ContextAudience, word, "audience"))


def reaction_number(word: str | None) -> wire.Reaction.ValueType:
    """None, and `none` as the text of the sections has it: text alone."""
    if word in (None, "none"):
        return wire.REACTION_UNSPECIFIED
    return wire.Reaction.ValueType(_enum_number(wire.Reaction, word, "reaction"))


def origin_number(word: str) -> wire.FeedbackOrigin.ValueType:
    return wire.FeedbackOrigin.ValueType(_enum_number(wire.FeedbackOrigin, word, "origin"))


def _signal(signal: Any, place: str, severities: Sequence[str]) -> wire.TurnSignal:
    made = wire.TurnSignal()
    _fill(made, signal, place, ("value", "severity", "scope"))
    if "key" not in signal or "value" not in signal:
        raise ValueError(f"{place} has no {'value' if 'key' in signal else 'key'}")
    made.value.CopyFrom(_json(signal["value"], f"{place}.value"))
    if severity := signal.get("severity"):
        if severity not in severities:
            raise ValueError(f"{place}.severity: {severity!r} is none of {', '.join(severities)}")
        made.severity = wire.SignalSeverity.ValueType(enum_number(wire.SignalSeverity, severity))
    if signal.get("scope"):
        made.scope = wire.SignalScope.ValueType(_enum_number(wire.SignalScope, signal["scope"], f"{place}.scope"))
    return made


def _query(query: Any, place: str) -> wire.ContextQuery:
    if isinstance(query, str):
        return wire.ContextQuery(query=query)
    made = wire.ContextQuery()
    _fill(made, query, place, ("target",))
    if "query" not in query:
        raise ValueError(f"{place} has no query")
    if query.get("target"):
        number = _enum_number(wire.ContextQueryTarget, query["target"], f"{place}.target")
        made.target = wire.ContextQueryTarget.ValueType(number)
    return made


def _fill(made: Any, given: Any, place: str, others: Sequence[str]) -> None:
    """Puts texts and lists of texts into a message; `others` are the keys that the caller of this puts there."""
    if not isinstance(given, Mapping):
        raise ValueError(f"{place} is a dict, not {type(given).__name__}")
    descriptor: Descriptor = made.DESCRIPTOR
    known = [field.name for field in descriptor.fields]
    for name, value in given.items():
        if name not in known:
            raise ValueError(f"{place} has no {name!r}; it has {', '.join(known)}")
        if name in others or value is None:
            continue
        field = descriptor.fields_by_name[name]
        if field.is_repeated:
            getattr(made, name).extend(_text(item, where) for where, item in _items(given, name, place))
        elif field.type == _TEXT:
            setattr(made, name, _text(value, f"{place}.{name}"))


def _items(given: Mapping[str, Any], name: str, place: str) -> list[tuple[str, Any]]:
    """The entries of a list with the place of each; none where it is left out."""
    value = given.get(name)
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise ValueError(f"{place}.{name} is a list, not {type(value).__name__}")
    return [(f"{place}.{name}[{index}]", item) for index, item in enumerate(value)]


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{place} is text, not {type(value).__name__}")
    return value


def _json(value: Any, place: str) -> struct_pb2.Value:
    try:
        given = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{place} is nothing that JSON can hold: {error}") from error
    try:
        made = ParseDict(given, struct_pb2.Value())
    except OverflowError as error:
        raise ValueError(f"{place} holds a number that is too large; give it as text") from error
    if to_json(made) != given:
        raise ValueError(f"{place} holds a number that would be rounded on its way; give it as text")
    return made


def _enum_number(enum: Any, word: Any, place: str) -> int:
    try:
        return enum_number(enum, word)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error


def _time(moment: Any, place: str) -> timestamp_pb2.Timestamp:
    stamp = timestamp_pb2.Timestamp()
    if isinstance(moment, datetime):
        stamp.FromDatetime(moment.astimezone(UTC))
        return stamp
    try:
        stamp.FromJsonString(moment)
    except (TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{place} is a datetime or ISO 8601 with its zone, not {moment!r}") from error
    return stamp
