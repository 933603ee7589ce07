"""Documents over the wire: every short form of a URI on every call, ranges, outputs of tools, states of the past."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from runekeep.v1 import common_pb2, memory_service_pb2, session_service_pb2, task_service_pb2
from runekeep_schemas.documents.uris import canonicalize
from tests.support.callers import Caller, failure, policy, said, used_tool
from tests.support.changes import change, put, remove, written
from tests.support.worker import Worker, write

m = memory_service_pb2
OUTPUT = "first line\n" + "é" * 1_200_000 + "\nlast line with a needle"
"""More bytes than an answer holds, and more than a request of grep's ordinary clients takes whole."""


@pytest.fixture
async def lived(caller: Caller, channel: grpc.aio.Channel) -> AsyncIterator[Caller]:
    """A caller with a session `s-1` that is archived once and lives on, memories and a skill."""
    session = await caller.session(policy(peer=True, skills=True), session_id="s-1")
    await caller.add(session, said("I like tea"), used_tool("call-1", OUTPUT[: 2 * 1024 * 1024 // 2 - 100]))
    await caller.commit(session)
    async with Worker(channel) as worker:
        await worker.deliver(
            (await worker.take()).lease,
            write("preferences", topic="Tea", content="Drinks green tea.\nEvery day."),
            write("session_skills", skill_name="walk", steps="1. Take the leash"),
            summary="They talked about tea",
        )
    await caller.add(session, said("still here, with tea"))
    await caller.searchable()
    yield caller


ALIASES = {
    "memories": ("viking://user/memories", "viking://agent/memories", "viking://agent/space-1/memories"),
    "skills": ("viking://user/skills", "viking://agent/skills", "viking://agent/space-1/skills"),
    "sessions/s-1": ("viking://user/sessions/s-1", "viking://session/s-1"),
}


def named(uri: str, **fields: Any) -> dict[str, Any]:
    return {"uri": uri, **fields}


# Call, request, field, path of what it is given; places of memories, of skills and of sessions apart.
CALLS: dict[str, tuple[Callable[..., Message], str, tuple[str, ...]]] = {
    "memories.GetMemory": (m.GetMemoryRequest, "uri", ("memories/preferences/Tea.md", "skills/walk.md")),
    "memories.ReadDocument": (
        m.ReadDocumentRequest,
        "uri",
        ("memories/preferences/Tea.md", "memories/.overview.md", "skills/walk.md", "sessions/s-1/messages.jsonl"),
    ),
    "memories.ListDirectory": (m.ListDirectoryRequest, "uri", ("memories", "skills", "sessions/s-1")),
    "memories.GlobDocuments": (
        lambda uri: m.GlobDocumentsRequest(pattern="**", uri=uri),
        "uri",
        ("memories", "skills", "sessions/s-1", "sessions/s-1/history"),
    ),
    "memories.GrepDocuments": (
        lambda uri: m.GrepDocumentsRequest(pattern="e", uri=uri),
        "uri",
        ("memories", "skills", "sessions/s-1", "memories/preferences/Tea.md"),
    ),
    "memories.ListMemoryVersions": (
        m.ListMemoryVersionsRequest, "uri", ("memories/preferences/Tea.md", "skills/walk.md"),
    ),
    "memories.FindMemories": (
        lambda uri: m.FindMemoriesRequest(query="tea", target_uri=uri, min_revision=1),
        "target_uri",
        ("memories", "skills", "sessions/s-1"),
    ),
    "memories.Recall": (
        lambda uri: m.RecallRequest(query="tea", target_uri=uri, min_revision=1),
        "target_uri",
        ("memories", "skills", "sessions/s-1"),
    ),
    "sessions.GetSession": (
        lambda uri: session_service_pb2.GetSessionRequest(session=uri), "session", ("sessions/s-1",),
    ),
    "sessions.ListArchives": (
        lambda uri: session_service_pb2.ListArchivesRequest(session=uri), "session", ("sessions/s-1",),
    ),
    "sessions.GetSessionContext": (
        lambda uri: session_service_pb2.GetSessionContextRequest(session=uri), "session", ("sessions/s-1",),
    ),
    "tasks.ListTasks": (lambda uri: task_service_pb2.ListTasksRequest(session=uri), "session", ("sessions/s-1",)),
    "sessions.ListMessages": (
        lambda uri: session_service_pb2.ListMessagesRequest(session=uri), "session", ("sessions/s-1",),
    ),
    "sessions.GetMemoryDiff": (
        lambda uri: session_service_pb2.GetMemoryDiffRequest(archive_uri=uri),
        "archive_uri",
        ("sessions/s-1/history/archive_001",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
async def test_every_short_form_is_taken_where_the_canonical_one_is(lived: Caller, call: str) -> None:
    make, field, paths = CALLS[call]
    service, method = call.split(".")

    async def answered(uri: str) -> Message:
        request = make(uri=uri) if isinstance(make, type) else make(uri)
        assert getattr(request, field) == uri
        return await getattr(getattr(lived, service), method)(request)

    for path in paths:
        expected = await answered(lived.uri(path))
        assert expected.ByteSize()
        place = next(place for place in ALIASES if path.startswith(place))
        for alias in ALIASES[place]:
            short = alias + path.removeprefix(place)
            assert canonicalize(short, lived.user) == lived.uri(path)
            assert await answered(short) == expected, short


async def test_every_short_form_can_be_written_by(lived: Caller) -> None:
    s = session_service_pb2
    for version, alias in enumerate(ALIASES["memories"], 1):
        uri = f"{alias}/preferences/Tea.md"
        answer = await written(lived, change(uri, version, content=f"text {version}"))
        assert answer.memories[0].uri == lived.uri("memories/preferences/Tea.md")
        await lived.sessions.RecordUsage(s.RecordUsageRequest(session="s-1", context_uris=[uri]))
    for alias in ALIASES["sessions/s-1"]:
        added = await lived.sessions.AddMessages(s.AddMessagesRequest(session=alias, messages=[said("more")]))
        assert added.messages[0].sequence > 3
        committed = await lived.sessions.CommitSession(s.CommitSessionRequest(session=alias))
        assert committed.archive_uri.startswith(lived.uri("sessions/s-1/history/"))
    removed = await written(lived, remove("viking://agent/memories/preferences/Tea.md", 4))
    assert removed.memories[0].deleted
    await lived.sessions.DeleteSession(s.DeleteSessionRequest(session="viking://session/s-1"))
    assert (await failure(lived.listing(lived.uri("sessions/s-1")))).seen == ("NOT_FOUND", "RESOURCE_NOT_FOUND")


async def test_every_place_of_a_uri_in_a_read_takes_the_root(lived: Caller) -> None:
    root = lived.uri("").rstrip("/")
    for uri in ("", "viking://", "viking://user", "viking://agent", root):
        assert (await lived.listing(uri)).uri == root
        assert (await lived.memories.GlobDocuments(m.GlobDocumentsRequest(pattern="*", uri=uri))).uri == root
        assert (await lived.memories.GrepDocuments(m.GrepDocumentsRequest(pattern="tea", uri=uri))).matches


async def test_the_output_of_a_tool_is_read_by_range_and_without_its_frame(lived: Caller) -> None:
    whole = OUTPUT[: 2 * 1024 * 1024 // 2 - 100]
    folder = lived.uri("sessions/s-1/tools/call-1")
    assert [one.name for one in (await lived.listing(folder)).entries] == ["output.txt", "tool.json"]
    parts, start = [], 0
    while True:
        part = await lived.read(f"{folder}/output.txt", characters=m.CharacterRange(start=start))
        assert len(part.text.encode()) <= 1024 * 1024 and part.total_characters == len(whole)
        parts.append(part.text)
        if not (start := part.next_offset):
            break
    assert "".join(parts) == whole and len(parts) == 2
    middle = await lived.read(f"{folder}/output.txt", characters=m.CharacterRange(start=5, length=7))
    assert (middle.text, middle.next_offset, middle.total_lines) == (whole[5:12], 12, 2)
    framed = await lived.read(f"{folder}/tool.json", characters=m.CharacterRange(length=60))
    assert framed.text.startswith('{\n  "tool_id": "call-1",\n  "tool_name": "grep",\n')
    # By lines a long one is cut, and the answer says where it goes on.
    first = await lived.read(f"{folder}/output.txt", limit=1)
    assert (first.text, first.next_offset, first.next_character) == ("first line", 1, 0)
    second = await lived.read(f"{folder}/output.txt", offset=1)
    assert len(second.text.encode()) <= 1024 * 1024 and second.next_offset == 0
    rest = await lived.read(f"{folder}/output.txt", characters=m.CharacterRange(start=second.next_character))
    assert f"first line\n{second.text}{rest.text}" == whole and rest.text


@pytest.mark.parametrize("lines", [{"offset": 1}, {"limit": 1}, {"limit": -1}])
async def test_a_range_of_characters_does_not_go_with_lines(lived: Caller, lines: dict[str, int]) -> None:
    request = m.ReadDocumentRequest(uri="viking://user/memories/profile.md", characters=m.CharacterRange(), **lines)
    failed = await failure(lived.memories.ReadDocument(request))
    assert failed.seen == ("INVALID_ARGUMENT", "FIELD_INVALID") and failed.fields == ["characters"]


async def test_messages_diffs_and_outputs_are_searched(lived: Caller) -> None:
    async def found(pattern: str, **fields: Any) -> list[tuple[str, int]]:
        answer = await lived.memories.GrepDocuments(m.GrepDocumentsRequest(pattern=pattern, **fields))
        return [(one.uri.removeprefix(lived.uri("")), one.line) for one in answer.matches]

    assert await found("still here") == [("sessions/s-1/messages.jsonl", 0)]
    assert await found("I like tea") == [("sessions/s-1/history/archive_001/messages.jsonl", 0)]
    assert await found("first line", uri="viking://session/s-1/tools") == [("sessions/s-1/tools/call-1/output.txt", 0)]
    diff = "sessions/s-1/history/archive_001/memory_diff.json"
    assert {uri for uri, _ in await found("GREEN TEA", ignore_case=True)} == {"memories/preferences/Tea.md", diff}
    assert await found("They talked") == []
    assert await found("^They talked", regex=True, show_hidden=True) == [
        ("sessions/s-1/.abstract.md", 0), ("sessions/s-1/history/archive_001/.abstract.md", 0),
    ]  # fmt: skip
    line = json.loads((await lived.read("viking://session/s-1/messages.jsonl", limit=1)).text)
    assert line["parts"][0]["text"] == "still here, with tea"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"pattern": "(", "regex": True}, "pattern"),
        ({"pattern": "a\nb"}, "pattern"),
        ({"pattern": "a", "glob": "a//b"}, "glob"),
        ({"pattern": "a", "page_token": "x"}, "page_token"),
        ({"pattern": "a", "as_of": common_pb2.AsOf(revision=99)}, "as_of.revision"),
        ({"pattern": "a", "uri": "viking://user/someone/memories"}, "uri"),
    ],
)
async def test_a_search_that_cannot_be_made_is_refused(lived: Caller, fields: dict[str, Any], field: str) -> None:
    failed = await failure(lived.memories.GrepDocuments(m.GrepDocumentsRequest(**fields)))
    assert failed.seen == ("INVALID_ARGUMENT", "FIELD_INVALID") and failed.fields == [field]


async def test_the_past_is_read_by_revision_and_by_time(caller: Caller) -> None:
    uri = caller.uri("memories/preferences/Tea.md")
    await written(caller, put("preferences", topic="Tea", content="Green."))
    first = await caller.memory(uri)
    await written(caller, change(uri, 1, content="Black."))
    await written(caller, remove(uri, 2))
    for as_of in (common_pb2.AsOf(revision=1), common_pb2.AsOf(time=first.update_time)):
        assert (await caller.read(uri, as_of=as_of)).text == "Green."
        assert (await caller.memory(uri, as_of=as_of)).version == 1
        assert uri in {one.uri for one in (await caller.listing(depth=9, as_of=as_of)).entries}
    assert (await caller.read(uri, as_of=common_pb2.AsOf(revision=2))).text == "Black."
    for call in (
        caller.memories.ReadDocument(m.ReadDocumentRequest(uri=uri, as_of=common_pb2.AsOf(revision=3))),
        caller.memories.GetMemory(m.GetMemoryRequest(uri=uri, as_of=common_pb2.AsOf(revision=3))),
    ):
        assert (await failure(call)).seen == ("NOT_FOUND", "RESOURCE_NOT_FOUND")
    both = m.GetMemoryRequest(uri=uri, version=1, as_of=common_pb2.AsOf(revision=1))
    assert (await failure(caller.memories.GetMemory(both))).fields == ["as_of"]
