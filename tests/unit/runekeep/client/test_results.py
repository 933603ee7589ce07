"""Results of the Python client: attributes of the types that their classes declare, `to_dict()`, and mappings."""

import copy
import json
import pickle
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.rpc import status_pb2

from runekeep.client import admin, asks, history, proposals
from runekeep.client.memories import results as memories
from runekeep.client.memories.responses import search_explanation_from_wire, search_results_from_wire
from runekeep.client.sessions import results as sessions
from runekeep.client.sessions.responses import memory_diff_from_wire
from runekeep.client.spaces import results as spaces
from runekeep.client.spaces import transfer
from runekeep.client.tasks import results as tasks
from runekeep.client.tasks.responses import task_from_wire, task_update_from_wire
from runekeep.client.turns import results as turns
from runekeep.client.wire.proto_json import to_json
from runekeep.client.wire.result import Result
from runekeep.client.wire.values import Extractor
from runekeep.v1 import admin_service_pb2 as admin_pb2
from runekeep.v1 import history_service_pb2 as history_pb2
from runekeep.v1 import memory_service_pb2 as memory_pb2
from runekeep.v1 import proposal_service_pb2 as proposal_pb2
from runekeep.v1 import session_service_pb2 as session_pb2
from runekeep.v1 import space_service_pb2 as space_pb2
from runekeep.v1 import task_service_pb2 as task_pb2
from runekeep.v1 import turn_memory_service_pb2 as turn_pb2

WHOLE = (
    (admin.Account, admin_pb2.Account),
    (admin.AuditEvent, admin_pb2.AuditEvent),
    (admin.EmbedderChange, admin_pb2.EmbedderChange),
    (admin.NewApiKey, admin_pb2.CreateApiKeyResponse),
    (admin.ServerStatus, admin_pb2.GetServerStatusResponse),
    (history.Activity, history_pb2.GetActivityResponse),
    (history.Revision, history_pb2.Revision),
    (memories.DirectoryEntry, memory_pb2.DirectoryEntry),
    (memories.GrepMatch, memory_pb2.GrepMatch),
    (memories.Memory, memory_pb2.Memory),
    (memories.MemoryTypes, memory_pb2.ListMemoryTypesResponse),
    (memories.RecallResult, memory_pb2.RecallResponse),
    (memories.WrittenMemories, memory_pb2.WriteMemoriesResponse),
    (proposals.AcceptResult, proposal_pb2.AcceptProposalResponse),
    (proposals.Proposal, proposal_pb2.Proposal),
    (sessions.AddedMessages, session_pb2.AddMessagesResponse),
    (sessions.Archive, session_pb2.Archive),
    (sessions.Commit, session_pb2.CommitSessionResponse),
    (sessions.RecordedUsage, session_pb2.RecordUsageResponse),
    (sessions.SessionInfo, session_pb2.Session),
    (spaces.DeletedUser, memory_pb2.DeleteUserResponse),
    (spaces.Erasure, space_pb2.Erasure),
    (transfer.ImportResult, space_pb2.ImportSpaceResponse),
    (tasks.ExtractionAttempt, task_pb2.ExtractionAttempt),
    (tasks.Usage, task_pb2.GetUsageResponse),
    (turns.AssistantSignals, turn_pb2.AssistantSignals),
    (turns.Feedback, turn_pb2.Feedback),
    (turns.FeedbackCounts, turn_pb2.FeedbackCounts),
    (turns.MemoryBucket, turn_pb2.MemoryBucket),
    (turns.SelectedTurns, turn_pb2.SetTurnSelectionResponse),
    (turns.SubmittedTurn, turn_pb2.SubmitTurnResponse),
    (turns.Turn, turn_pb2.Turn),
    (turns.TurnArtifact, turn_pb2.TurnArtifact),
    (turns.TurnContext, turn_pb2.LoadTurnContextResponse),
)
"""Results that are a message of the contract as it is."""


def fill(message: Message, **chosen: str) -> Any:
    """Sets every field of a message; of a oneof the field that `chosen` names, else the last."""
    for field in message.DESCRIPTOR.fields:
        oneof = field.containing_oneof
        if oneof is not None and chosen.get(oneof.name, field.name) != field.name:
            continue
        of_message = field.message_type
        if field.is_repeated and of_message is not None and of_message.GetOptions().map_entry:
            _fill_map(getattr(message, field.name), of_message.fields_by_name["value"])
        elif of_message is not None:
            inner = getattr(message, field.name)
            _fill_value(inner.add() if field.is_repeated else inner, **chosen)
        elif field.is_repeated:
            getattr(message, field.name).append(_scalar(field))
        else:
            setattr(message, field.name, _scalar(field))
    return message


def _fill_map(entries: Any, value: FieldDescriptor) -> None:
    if value.message_type is None:
        entries["key"] = _scalar(value)
    else:
        _fill_value(entries["key"])


def _fill_value(message: Any, **chosen: str) -> None:
    match message.DESCRIPTOR.full_name:
        case "google.protobuf.Timestamp":
            message.FromJsonString("2026-11-28T05:35:00.123456Z")
        case "google.protobuf.Duration":
            message.FromNanoseconds(1_500_000_000)
        case "google.protobuf.Value":
            message.string_value = "text"
        case "google.protobuf.Struct":
            message["key"] = "text"
        case "google.rpc.Status":
            message.CopyFrom(status_pb2.Status(code=14, message="away"))
        case _:
            fill(message, **chosen)


def _scalar(field: FieldDescriptor) -> Any:
    if field.enum_type is not None:
        return field.enum_type.values[1].number
    return {field.CPPTYPE_STRING: "text", field.CPPTYPE_BOOL: True}.get(field.cpp_type, 1)


def results() -> Iterator[Any]:
    """Yields a result of each kind that a method returns, made of a message with every field."""
    for of, message in WHOLE:
        yield pytest.param(lambda of=of, message=message: of(to_json(fill(message()))), id=of.__name__)
    for kind in ("memory", "passage"):
        found = memory_pb2.FindMemoriesResponse()
        explained = memory_pb2.ExplainSearchResponse()
        yield pytest.param(lambda m=found, k=kind: search_results_from_wire(fill(m, item=k)), id=f"found {kind}")
        yield pytest.param(lambda m=explained, k=kind: search_explanation_from_wire(fill(m, item=k)), id=f"why {kind}")
    for update in ("snapshot", "ended"):
        watched = task_pb2.WatchTaskResponse()
        yield pytest.param(lambda m=watched, u=update: task_update_from_wire(fill(m, update=u)), id=update)
    for event in ("state_change", "progress", "attempt_failed"):
        watched = task_pb2.WatchTaskResponse()
        yield pytest.param(lambda m=watched, e=event: task_update_from_wire(fill(m, update="event", event=e)), id=event)
    for event in ("progress", "statement", "result"):
        asked = memory_pb2.AskMemoryResponse()
        yield pytest.param(lambda m=asked, e=event: asks.read_update(fill(m, event=e)), id=f"ask {event}")
    yield pytest.param(lambda: task_from_wire(fill(task_pb2.Task())), id="Task")
    yield pytest.param(lambda: memory_diff_from_wire(fill(session_pb2.MemoryDiff())), id="MemoryDiff")


def conforms(value: Any, hint: Any) -> bool:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(conforms(value, one) for one in arguments)
    if origin is Literal:
        return value in arguments
    if origin is list:
        return isinstance(value, list) and all(conforms(item, arguments[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict) and all(conforms(item, arguments[1]) for item in value.values())
    if hint is float:
        return type(value) in (int, float)
    return hint is Any or (value is None if hint is NoneType else type(value) is hint)


def problems(result: Result, where: str) -> Iterator[str]:
    """Yields where a result and the results in it are not as their classes declare them."""
    hints = {name: hint for name, hint in get_type_hints(type(result)).items() if not name.startswith("_")}
    partial = isinstance(result, memories.SearchResult | sessions.DiffEntry)
    if not (set(result) <= set(hints) if partial else set(result) == set(hints)):
        yield f"{where}: {sorted(set(result) ^ set(hints))}"
    for name, hint in hints.items():
        value = getattr(result, name)
        if not conforms(value, hint):
            yield f"{where}.{name}: {value!r} is not {hint}"
        for inner in value if isinstance(value, list) else value.values() if type(value) is dict else [value]:
            if isinstance(inner, Result):
                yield from problems(inner, f"{where}.{name}")


@pytest.mark.parametrize("make", [*results()])
def test_attributes_are_those_of_the_contract_and_have_the_declared_types(make: Callable[[], Result]) -> None:
    result = make()
    assert [*problems(result, type(result).__name__)] == []
    assert json.loads(json.dumps(result.to_dict())) == result.to_dict() == result


def all_results(of: type[Result] = Result) -> Iterator[type[Result]]:
    for one in of.__subclasses__():
        yield one
        yield from all_results(one)


@pytest.mark.parametrize("of", [*all_results()])
def test_no_attribute_has_the_name_of_a_method(of: type[Result]) -> None:
    assert not get_type_hints(of).keys() & {name for name in dir(Result) if not name.startswith("_")}
    assert of.__doc__ != Result.__doc__


MEMORY = memories.Memory(
    {
        "uri": "viking://user/robin/memories/profile.md",
        "create_time": "2026-11-28T05:35:00.123456Z",
        "sources": [{"session": "s", "message_id": "m", "sequence": 1}],
        "tags": ["home"],
        "extractor": None,
    }
)


def test_attributes_are_typed_and_absent_ones_are_empty() -> None:
    assert MEMORY.create_time == datetime(2026, 11, 28, 5, 35, 0, 123456, tzinfo=UTC)
    assert MEMORY.sources[0].message_id == "m"
    assert (MEMORY.content, MEMORY.version, MEMORY.deleted, MEMORY.fields) == ("", 0, False, {})
    assert MEMORY.update_time is MEMORY.extractor is None
    assert sessions.MemoryDiff({}).operations.adds == []


def test_a_result_is_a_mapping_of_the_values_in_to_dict() -> None:
    assert MEMORY["create_time"] == "2026-11-28T05:35:00.123456Z"
    assert MEMORY.get("content", "none") == "none" and "tags" in MEMORY and len(MEMORY) == 5
    assert MEMORY == {**MEMORY} == MEMORY.to_dict()
    assert memories.Memory({"uri": "other"}) != MEMORY
    match MEMORY:
        case {"uri": uri}:
            assert uri == MEMORY.uri


def test_what_to_dict_returns_is_a_copy() -> None:
    copied = MEMORY.to_dict()
    copied["sources"][0]["sequence"] = 2
    copied["tags"].append("work")
    assert MEMORY.sources[0].sequence == 1 and MEMORY["tags"] == ["home"]


@pytest.mark.parametrize("twin", [copy.deepcopy, copy.copy, lambda one: pickle.loads(pickle.dumps(one))])
def test_results_can_be_copied_and_pickled(twin: Callable[[Result], Any]) -> None:
    other = twin(MEMORY)
    assert other == MEMORY and other.sources == MEMORY.sources and type(other) is memories.Memory


def test_a_misspelt_attribute_names_the_right_one() -> None:
    with pytest.raises(AttributeError, match=r"^Memory has no attribute 'verison'; did you mean 'version'\?$"):
        _ = MEMORY.verison  # type: ignore[attr-defined]
    assert not hasattr(MEMORY, "_repr_html_")


def test_a_result_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="read-only"):
        MEMORY.version = 2


def test_the_repr_shows_what_is_not_empty_and_shortens_it() -> None:
    assert repr(Extractor({"engine": "offline", "model": "", "version": "1"})) == (
        "Extractor(engine='offline', version='1')"
    )
    shown = repr(memories.RecallResult({"text": "x" * 10_000, "entries": [{"uri": "viking://user"}] * 100}))
    assert shown.startswith("RecallResult(text='xxx") and len(shown) < 500
    assert "entries=[RecallEntry(uri='viking://user')" in shown


def test_the_attributes_are_listed_for_completion() -> None:
    assert {"uri", "version", "to_dict"} <= set(dir(MEMORY))
