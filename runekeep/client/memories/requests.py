"""Converts what callers say about memories to messages of the contract."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, TypedDict, Unpack

from runekeep.client.wire.arguments import Moment, ViewName, as_of_to_wire, require_list, time_to_wire
from runekeep.client.wire.proto_json import enum_number
from runekeep.client.wire.values import Scalar
from runekeep.v1 import common_pb2, memory_service_pb2


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


def view_number(view: str) -> memory_service_pb2.MemoryView.ValueType:
    return memory_service_pb2.MemoryView.ValueType(enum_number(memory_service_pb2.MemoryView, view))


class SearchOptions(TypedDict, total=False):
    """The arguments of `find` besides the query."""

    target_uri: str
    limit: int
    score_threshold: float | None
    filter: Mapping[str, Scalar] | None
    memory_types: Sequence[str]
    kinds: Sequence[Literal["memory", "passage"]]
    view: ViewName
    min_revision: int
    peers: Sequence[str]
    tags: Sequence[str]
    sessions: Sequence[str]
    start_time: datetime | None
    end_time: datetime | None
    as_of: Moment | None
    explain: bool
    min_relevance: float | None


def find_request(query: str, **options: Unpack[SearchOptions]) -> memory_service_pb2.FindMemoriesRequest:
    """Returns the request of a search. Raises TypeError or ValueError for an argument of a wrong form."""
    kinds = require_list(options.get("kinds", ()), "kinds")
    numbers = [enum_number(memory_service_pb2.FoundKind, kind) for kind in kinds]
    return memory_service_pb2.FindMemoriesRequest(
        query=query,
        target_uri=options.get("target_uri", ""),
        memory_types=require_list(options.get("memory_types", ()), "memory_types"),
        kinds=[memory_service_pb2.FoundKind.ValueType(number) for number in numbers],
        limit=options.get("limit", 10),
        score_threshold=options.get("score_threshold"),
        view=view_number(options.get("view", "abstract")),
        min_revision=options.get("min_revision", 0),
        filter={name: field_value(value) for name, value in (options.get("filter") or {}).items()},
        peers=require_list(options.get("peers", ()), "peers"),
        tags=require_list(options.get("tags", ()), "tags"),
        sessions=require_list(options.get("sessions", ()), "sessions"),
        start_time=time_to_wire(options.get("start_time"), "start_time"),
        end_time=time_to_wire(options.get("end_time"), "end_time"),
        as_of=as_of_to_wire(options.get("as_of")),
        explain=options.get("explain", False),
        min_relevance=options.get("min_relevance"),
    )
