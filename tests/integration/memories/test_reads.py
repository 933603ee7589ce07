"""The tree, documents, versions and search, with the real embedder and the real index."""

import json
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import memory_service_pb2, session_service_pb2
from tests.support.callers import Caller, failure, policy, said, unique, used_tool
from tests.support.worker import Worker, delete, edit, value, write

SERVER_SETTINGS = {"RUNEKEEP_EMBEDDER": "minilm"}

MEMORY, PASSAGE = memory_service_pb2.FOUND_KIND_MEMORY, memory_service_pb2.FOUND_KIND_PASSAGE
FULL = memory_service_pb2.MEMORY_VIEW_FULL


async def apply(caller: Caller, channel: grpc.aio.Channel, *operations: pb.MemoryOperation, **commit: Any) -> Any:
    """The verdict and the commit of these operations."""
    messages = commit.pop("messages", ())
    committed = await caller.committed(*messages, policy=policy(peer=True, skills=True), **commit)
    async with Worker(channel) as worker:
        verdict = await worker.deliver((await worker.take()).lease, *operations, summary="They talked about pets")
        assert verdict.outcome == pb.JOB_OUTCOME_APPLIED
    return verdict, committed


@pytest.fixture
async def lived(caller: Caller, channel: grpc.aio.Channel) -> AsyncIterator[Caller]:
    """A caller with memories of several types, about the user and about a peer, and one session `s-1`."""
    session = await caller.session(policy(peer=True, skills=True), session_id="s-1")
    await apply(
        caller,
        channel,
        write("profile", content="# User profile\n- Keeps a diary."),
        write("preferences", topic="Tea", content="Drinks green tea at breakfast."),
        write("preferences", topic="Music", content="Listens to jazz while cooking."),
        write("entities", entity_name="Rex", entity_type="pet", content="A brown dog that fears thunder."),
        write("entities", entity_name="Acme", entity_type="organization", content="Employer of the user."),
        write("preferences", topic="Boats", content="Wants to sail to Greenland.", peer="anna"),
        write("session_skills", skill_name="walk-the-dog", steps="1. Take the leash"),
        session=session,
        messages=[
            said("My dog Rex is afraid of thunder"),
            said("I want a boat", peer="anna"),
            used_tool("c", "z" * 21000),
        ],
    )
    await caller.add(session, said("still here"))
    yield caller


# The tree


async def test_the_tree_of_a_space(lived: Caller) -> None:
    root = lived.uri("").rstrip("/")
    listing = await lived.listing(depth=16)
    assert listing.uri == root and not listing.truncated
    assert [entry.uri.removeprefix(root) for entry in listing.entries] == [
        "/memories",
        "/memories/entities",
        "/memories/entities/Acme.md",
        "/memories/entities/Rex.md",
        "/memories/preferences",
        "/memories/preferences/Music.md",
        "/memories/preferences/Tea.md",
        "/memories/profile.md",
        "/memories/tools",
        "/memories/tools/grep.md",
        "/peers",
        "/peers/anna",
        "/peers/anna/memories",
        "/peers/anna/memories/preferences",
        "/peers/anna/memories/preferences/Boats.md",
        "/sessions",
        "/sessions/s-1",
        "/sessions/s-1/history",
        "/sessions/s-1/history/archive_001",
        "/sessions/s-1/history/archive_001/memory_diff.json",
        "/sessions/s-1/history/archive_001/messages.jsonl",
        "/sessions/s-1/messages.jsonl",
        "/sessions/s-1/tools",
        "/sessions/s-1/tools/c",
        "/sessions/s-1/tools/c/output.txt",
        "/sessions/s-1/tools/c/tool.json",
        "/skills",
        "/skills/walk-the-dog.md",
    ]
    entries = {entry.uri.removeprefix(root): entry for entry in listing.entries}
    tea, preferences = entries["/memories/preferences/Tea.md"], entries["/memories/preferences"]
    assert (tea.abstract, tea.version) == ("Drinks green tea at breakfast.", 1)
    assert (tea.depth, tea.directory, tea.memory_type) == (3, False, "preferences")
    assert preferences.directory and preferences.abstract == (
        "2 memories: Music: Listens to jazz while cooking; Tea: Drinks green tea at breakfast"
    )


@pytest.mark.parametrize("show_hidden", [False, True])
async def test_every_document_that_a_listing_names_can_be_read(lived: Caller, show_hidden: bool) -> None:
    entries = (await lived.listing(depth=16, show_hidden=show_hidden)).entries
    documents = [entry for entry in entries if not entry.directory]
    for entry in documents:
        assert (await lived.read(entry.uri)).uri == entry.uri
        assert (
            await failure(lived.memories.ListDirectory(memory_service_pb2.ListDirectoryRequest(uri=entry.uri)))
        ).code is (grpc.StatusCode.NOT_FOUND)
    for entry in entries:
        if entry.directory:
            assert (await lived.listing(entry.uri)).uri == entry.uri
    hidden = [entry.uri for entry in documents if entry.name.startswith(".")]
    assert bool(hidden) == show_hidden
    if show_hidden:
        for path in ("memories/.abstract.md", "peers/anna/memories/.overview.md", "sessions/s-1/.abstract.md",
                     "sessions/s-1/history/archive_001/.done"):  # fmt: skip
            assert lived.uri(path) in hidden


async def test_depth_limit_and_abstracts_are_bounded(lived: Caller) -> None:
    flat = (await lived.listing(lived.uri("memories"))).entries
    assert [entry.name for entry in flat] == ["entities", "preferences", "profile.md", "tools"]
    two = (await lived.listing(lived.uri("memories"), depth=2, abstract_limit=5)).entries
    assert len(two) == 9 and max(len(entry.abstract) for entry in two) == 5
    cut = await lived.listing(lived.uri("memories"), depth=2, node_limit=3)
    assert [entry.uri for entry in cut.entries] == [entry.uri for entry in two[:3]] and cut.truncated
    assert not (await lived.listing(lived.uri("memories"), depth=2, node_limit=9)).truncated


async def test_places_that_are_empty_and_places_that_are_not(caller: Caller) -> None:
    for path in ("memories", "sessions", "peers", "skills", "memories/events", "peers/anna/memories"):
        assert list((await caller.listing(caller.uri(path))).entries) == []
    for path in ("memories/dreams", "memories/preferences/deep", "sessions/none", "sessions/none/history"):
        failed = await failure(
            caller.memories.ListDirectory(memory_service_pb2.ListDirectoryRequest(uri=caller.uri(path)))
        )
        assert failed.seen == ("NOT_FOUND", "RESOURCE_NOT_FOUND")


# Documents


async def test_a_document_is_read_by_lines(caller: Caller, channel: grpc.aio.Channel) -> None:
    lines = [f"line {number}" for number in range(10)]
    await apply(caller, channel, write("preferences", topic="Long", content="\n".join(lines)))
    uri = caller.uri("memories/preferences/Long.md")

    async def read(offset: int, limit: int) -> tuple[str, int]:
        document = await caller.read(uri, offset=offset, limit=limit)
        assert document.total_lines == 10
        return document.text, document.next_offset

    assert await read(0, -1) == ("\n".join(lines), 0)
    assert await read(0, 0) == ("\n".join(lines), 0)
    assert await read(0, 4) == ("\n".join(lines[:4]), 4)
    assert await read(4, 6) == ("\n".join(lines[4:]), 0)
    assert await read(8, 2**63 - 1) == ("\n".join(lines[8:]), 0)
    assert await read(10, 5) == ("", 0)
    assert await read(2**63 - 1, 5) == ("", 0)


async def test_a_long_document_comes_in_pieces(caller: Caller) -> None:
    session = await caller.session()
    for _ in range(3):
        await caller.add(session, *(said("x" * 100_000) for _ in range(5)))
    uri, offset, lines = caller.uri(f"sessions/{session}/messages.jsonl"), 0, []
    while True:
        piece = await caller.read(uri, offset=offset)
        assert len(piece.text.encode()) <= 1024 * 1024
        lines += piece.text.split("\n")
        if not (offset := piece.next_offset):
            break
    assert len(lines) == 15 and [json.loads(line)["sequence"] for line in lines] == list(range(1, 16))


@pytest.mark.parametrize(
    ("alias", "path"),
    [
        ("viking://user/memories/preferences/Tea.md", "memories/preferences/Tea.md"),
        ("viking://agent/memories/preferences/Tea.md", "memories/preferences/Tea.md"),
        ("viking://agent/some-space/memories/preferences/Tea.md", "memories/preferences/Tea.md"),
        ("viking://user/peers/anna/memories/preferences/Boats.md", "peers/anna/memories/preferences/Boats.md"),
        ("viking://session/s-1/messages.jsonl", "sessions/s-1/messages.jsonl"),
        ("viking://user/sessions/s-1/messages.jsonl", "sessions/s-1/messages.jsonl"),
        ("viking://user/skills/walk-the-dog.md", "skills/walk-the-dog.md"),
        ("viking://agent/skills/walk-the-dog.md", "skills/walk-the-dog.md"),
        ("viking://agent/x/skills/walk-the-dog.md", "skills/walk-the-dog.md"),
        ("viking://user/memories/.abstract.md", "memories/.abstract.md"),
    ],
)
async def test_every_short_form_is_answered_in_the_canonical_one(lived: Caller, alias: str, path: str) -> None:
    document = await lived.read(alias)
    assert document.uri == lived.uri(path) and document.text == (await lived.read(lived.uri(path))).text


@pytest.mark.parametrize(
    "uri",
    [
        "viking://user/somebody-else/memories/preferences/Tea.md",
        "viking://user/memories/../memories/profile.md",
        "viking://user/memories//profile.md",
        "file:///etc/passwd",
        "preferences/Tea.md",
    ],
)
async def test_other_spaces_and_what_is_no_uri_are_refused_everywhere(caller: Caller, uri: str) -> None:
    m = memory_service_pb2
    for call, field in (
        (caller.memories.GetMemory(m.GetMemoryRequest(uri=uri)), "uri"),
        (caller.memories.ReadDocument(m.ReadDocumentRequest(uri=uri)), "uri"),
        (caller.memories.ListDirectory(m.ListDirectoryRequest(uri=uri)), "uri"),
        (caller.memories.ListMemoryVersions(m.ListMemoryVersionsRequest(uri=uri)), "uri"),
        (caller.memories.FindMemories(m.FindMemoriesRequest(query="x", target_uri=uri)), "target_uri"),
        (caller.sessions.GetMemoryDiff(session_service_pb2.GetMemoryDiffRequest(archive_uri=uri)), "archive_uri"),
    ):
        failed = await failure(call)
        assert failed.seen == ("INVALID_ARGUMENT", "FIELD_INVALID") and failed.fields == [field]


async def test_a_document_that_is_not_there(lived: Caller) -> None:
    for path in (
        "memories/preferences/None.md",
        "memories",
        "sessions/s-1/x.md",
        "sessions/s-1/history/archive_002/.done",
        "sessions/none/messages.jsonl",
        "sessions/s-1/tools/none/tool.json",
    ):
        failed = await failure(lived.memories.ReadDocument(memory_service_pb2.ReadDocumentRequest(uri=lived.uri(path))))
        assert failed.seen == ("NOT_FOUND", "RESOURCE_NOT_FOUND") and failed.resource[1]


# Memories


async def test_views_give_as_much_as_is_asked_for(lived: Caller) -> None:
    uri = lived.uri("memories/entities/Rex.md")
    full = await lived.memory(uri)
    assert full.fields["entity_type"].string_value == "pet" and full.content and full.overview and full.abstract
    overview = await lived.memory(uri, view=memory_service_pb2.MEMORY_VIEW_OVERVIEW)
    assert overview.overview and not overview.content and not overview.fields
    abstract = await lived.memory(uri, view=memory_service_pb2.MEMORY_VIEW_ABSTRACT)
    assert abstract.abstract and not abstract.overview and not abstract.content
    assert full.extractor.engine == "scripted" and full.revision == 1 and full.create_time == full.update_time


async def test_versions_come_newest_first_page_by_page(caller: Caller, channel: grpc.aio.Channel) -> None:
    uri = caller.uri("memories/preferences/Tea.md")
    await apply(caller, channel, write("preferences", topic="Tea", content="1"))
    for number in range(2, 6):
        await apply(caller, channel, edit(uri, content=str(number)))
    request = memory_service_pb2.ListMemoryVersionsRequest(uri=uri, page_size=2)
    found = []
    while True:
        page = await caller.memories.ListMemoryVersions(request)
        found += page.memories
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert [(one.version, one.content, one.superseded_revision) for one in found] == [
        (5, "5", 0), (4, "4", 5), (3, "3", 4), (2, "2", 3), (1, "1", 2),
    ]  # fmt: skip
    assert {one.create_time.ToNanoseconds() for one in found} == {found[-1].update_time.ToNanoseconds()}
    assert (await caller.memory(uri, version=3)).content == "3"
    failed = await failure(caller.memories.GetMemory(memory_service_pb2.GetMemoryRequest(uri=uri, version=6)))
    assert failed.seen == ("NOT_FOUND", "RESOURCE_NOT_FOUND")


async def test_the_types_are_told(caller: Caller) -> None:
    answer = await caller.memories.ListMemoryTypes(memory_service_pb2.ListMemoryTypesRequest())
    types = {type.name: type for type in answer.memory_types}
    assert list(types) == sorted(types) and len(types) == 11 and len(answer.digest) == 64
    assert types["events"].operation_mode == memory_service_pb2.OPERATION_MODE_ADD_ONLY
    assert [name for name, type in types.items() if type.agent_only] == ["experiences", "trajectories"]


# Search


def names(answer: Any) -> list[str]:
    return [one.memory.uri.rpartition("/")[2] for one in answer.results if one.HasField("memory")]


async def test_search_finds_by_meaning_and_at_a_revision(lived: Caller) -> None:
    answer = await lived.find("storms frighten the animal", min_revision=1, kinds=[MEMORY])
    assert names(answer)[0] == "Rex.md" and not answer.degraded
    assert (answer.revision, answer.latest_revision) == (1, 1)
    first = answer.results[0]
    assert first.detail.dense_rank == 1 and first.detail.dense_score > 0.2
    assert not first.memory.content, "abstracts are what a search gives unless more is asked for"
    scores = [one.score for one in answer.results]
    assert scores == sorted(scores, reverse=True)
    full = await lived.find("brown dog", min_revision=1, view=FULL, kinds=[MEMORY], limit=1, memory_types=["entities"])
    assert len(full.results) == 1 and full.results[0].memory.fields["entity_type"].string_value == "pet"


async def test_search_can_be_narrowed(lived: Caller) -> None:
    everything = await lived.find("dog tea jazz boat", min_revision=1, limit=100)
    kinds = {one.WhichOneof("item") for one in everything.results}
    assert "memory" in kinds

    async def found(**fields: Any) -> set[str]:
        return set(
            names(await lived.find("dog tea jazz boat employer", min_revision=1, limit=100, kinds=[MEMORY], **fields))
        )

    assert await found(memory_types=["preferences"]) == {"Tea.md", "Music.md", "Boats.md"}
    assert await found(memory_types=["session_skills"]) == {"walk-the-dog.md"}
    assert await found(target_uri="viking://user/peers/anna") == {"Boats.md"}
    assert await found(target_uri="viking://user/memories/preferences") == {"Tea.md", "Music.md"}
    assert await found(target_uri=lived.uri("memories/preferences/Tea.md")) == {"Tea.md"}
    assert await found(target_uri="viking://user/memories/pref") == set()
    assert await found(filter={"entity_type": value("pet")}) == {"Rex.md"}
    assert await found(filter={"entity_type": value("pet"), "entity_name": value("Acme")}) == set()
    assert await found(filter={"none": value(1)}) == set()
    threshold = everything.results[0].score
    assert len((await lived.find("dog tea jazz boat", score_threshold=threshold + 1)).results) == 0
    failed = await failure(
        lived.memories.FindMemories(
            memory_service_pb2.FindMemoriesRequest(query="x", memory_types=["events", "dreams"])
        )
    )
    assert failed.fields == ["memory_types[1]"]


async def test_a_revision_that_does_not_exist_is_not_waited_for(lived: Caller) -> None:
    request = memory_service_pb2.FindMemoriesRequest(query="dog", min_revision=2)
    failed = await failure(lived.memories.FindMemories(request))
    assert failed.seen == ("INVALID_ARGUMENT", "FIELD_INVALID") and failed.fields == ["min_revision"]


async def test_what_is_deleted_or_superseded_is_not_found(caller: Caller, channel: grpc.aio.Channel) -> None:
    tea, music = (caller.uri(f"memories/preferences/{name}.md") for name in ("Tea", "Music"))
    await apply(
        caller,
        channel,
        write("preferences", topic="Tea", content="Drinks camomile."),
        write("preferences", topic="Music", content="Jazz."),
    )
    await apply(caller, channel, edit(tea, content="Drinks espresso."), delete(music))
    answer = await caller.find("camomile jazz espresso", min_revision=2, kinds=[MEMORY], view=FULL)
    assert [one.memory.content for one in answer.results if one.memory.uri == tea] == ["Drinks espresso."]
    assert music not in [one.memory.uri for one in answer.results]
    before = await caller.memory(tea, version=1)
    assert before.content == "Drinks camomile." and before.superseded_revision == 2


async def found_passages(caller: Caller, query: str) -> list[Any]:
    """Passages, once all that was archived can be searched."""
    while True:
        answer = await caller.find(query, kinds=[PASSAGE])
        if not answer.pending_passages:
            return [one.passage for one in answer.results]


async def test_archived_talk_is_found_before_anybody_extracts_it(caller: Caller) -> None:
    word = unique("quokka")
    session = await caller.session()
    await caller.add(session, said(f"We saw a {word} on the island", id="m-1"), said("It was sunny", id="m-2"))
    assert await found_passages(caller, word) == []
    committed = await caller.commit(session)
    passage = (await found_passages(caller, f"{word} island"))[0]
    assert (passage.message_id, passage.sequence) == ("m-1", 1) and word in passage.text
    assert passage.uri == f"{committed.archive_uri}/messages.jsonl"
    assert passage.session == caller.uri(f"sessions/{session}")
    narrowed = await caller.find(word, target_uri=f"viking://session/{session}")
    assert narrowed.results[0].passage == passage
    await caller.sessions.DeleteSession(session_service_pb2.DeleteSessionRequest(session=session))
    assert await found_passages(caller, word) == []


async def test_odd_times_do_not_stop_the_index(caller: Caller) -> None:
    """A time at the ends of the calendar once broke the passages of everybody behind it."""
    session = await caller.session()
    for number, seconds in enumerate((0, 1, 253_402_300_798)):
        message = said(f"gnu {number}")
        message.create_time.CopyFrom(Timestamp(seconds=seconds, nanos=999_999_999))
        await caller.add(session, message)
    await caller.commit(session)
    assert len(await found_passages(caller, "gnu")) == 3


async def test_reads_of_a_job_lay_new_rows_over_the_index(caller: Caller, channel: grpc.aio.Channel) -> None:
    """A worker that begins right after a commit sees it, whether or not the index has it."""
    async with Worker(channel) as worker:
        for number in range(1, 4):
            await caller.committed()
            lease = (await worker.take()).lease
            found = await worker.calls.FindForJob(
                pb.FindForJobRequest(
                    lease=lease, find=memory_service_pb2.FindMemoriesRequest(query="walrus", kinds=[MEMORY])
                )
            )
            seen = [one for one in names(found.found) if one.startswith("Walrus")]
            assert sorted(seen) == [f"Walrus {n}.md" for n in range(1, number)]
            await worker.deliver(lease, write("preferences", topic=f"Walrus {number}", content="Likes the walrus."))


async def test_vectors_of_a_job_are_of_length_one(caller: Caller, channel: grpc.aio.Channel) -> None:
    await caller.committed()
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        answer = await worker.calls.EmbedForJob(pb.EmbedForJobRequest(lease=lease, texts=["one", "", "x" * 8192]))
        assert answer.model and [len(one.values) for one in answer.embeddings] == [384] * 3
        assert all(abs(sum(x * x for x in one.values) - 1) < 1e-3 for one in answer.embeddings)
