"""How the client calls, repeats, and reports what went wrong."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import grpc
import pytest
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2

import runekeep
from runekeep import AsyncClient, Client, ContextPart, ImagePart, Message, TextPart, ToolPart
from runekeep.client.sessions.messages import message_from_wire, message_to_wire, split_calls
from runekeep.v1 import memory_service_pb2, session_service_pb2, task_service_pb2
from tests.unit.runekeep.server_double import Refusal, ServerDouble

AWAY = Refusal(grpc.StatusCode.UNAVAILABLE, "DEPENDENCY_UNAVAILABLE")
STOPPING = Refusal(grpc.StatusCode.CANCELLED, "")


def added(*ids: str) -> session_service_pb2.AddMessagesResponse:
    return session_service_pb2.AddMessagesResponse(
        messages=[session_service_pb2.AddedMessage(id=name, sequence=n) for n, name in enumerate(ids, 1)],
        live_message_count=len(ids),
    )


async def test_a_mutation_is_repeated_with_the_same_request_id(server: ServerDouble) -> None:
    server.script("AddMessages", AWAY, STOPPING, added("m1"))
    async with AsyncClient(server.address) as client:
        answer = await client.session("chat_001").add_message("user", [TextPart("Good morning.")])
    assert answer == {"id": "m1", "sequence": 1}
    requests = server.requests("AddMessages")
    assert len(requests) == 3
    assert len({request.request_id for request in requests}) == 1
    assert requests[0].request_id


async def test_two_mutations_have_two_request_ids_unless_the_caller_names_one(server: ServerDouble) -> None:
    server.script("CommitSession", session_service_pb2.CommitSessionResponse(status=2))
    async with AsyncClient(server.address) as client:
        session = client.session("chat_001")
        for request_id in (None, None, "mine"):
            assert (await session.commit(request_id=request_id))["status"] == "skipped"
    ids = [request.request_id for request in server.requests("CommitSession")]
    assert len(set(ids)) == 3
    assert ids[2] == "mine"


async def test_it_gives_up_and_says_so_when_the_server_stays_away(server: ServerDouble) -> None:
    server.script("GetTask", AWAY)
    # More than all its attempts take: a deadline that is over in the middle of one is another error.
    async with AsyncClient(server.address, timeout=60) as client:
        with pytest.raises(runekeep.UnavailableError) as caught:
            await client.get_task("t1")
    assert caught.value.reason == "DEPENDENCY_UNAVAILABLE"
    assert len(server.requests("GetTask")) > 1


async def test_every_call_has_a_deadline_and_the_identity(server: ServerDouble) -> None:
    async with AsyncClient(server.address, account="acme", user="ann") as client:
        await client.get_task("t1")
        await client.ls()
        await client.find("anything")
    for call in server.calls:
        assert call.metadata["x-runekeep-account"] == "acme"
        assert call.metadata["x-runekeep-user"] == "ann"
        assert call.seconds_left is not None and call.seconds_left < 60


async def test_address_and_identity_come_from_the_environment(
    server: ServerDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNEKEEP_ADDRESS", server.address)
    monkeypatch.setenv("RUNEKEEP_USER", "ben")
    async with AsyncClient() as client:
        await client.get_task("t1")
    assert server.calls[0].metadata["x-runekeep-user"] == "ben"
    assert "x-runekeep-account" not in server.calls[0].metadata


async def test_a_missing_session_is_not_found_with_its_reason(server: ServerDouble) -> None:
    resource = error_details_pb2.ResourceInfo(resource_type="session", resource_name="viking://session/nope")
    refusal = Refusal(grpc.StatusCode.NOT_FOUND, "RESOURCE_NOT_FOUND", "there is no such session", (resource,))
    server.script("GetSession", refusal)
    async with AsyncClient(server.address) as client:
        with pytest.raises(runekeep.NotFoundError) as caught:
            await client.get_session("nope")
    error = caught.value
    assert (error.code, error.reason, error.message) == ("NOT_FOUND", "RESOURCE_NOT_FOUND", "there is no such session")
    assert error.resource == "viking://session/nope"
    assert error.metadata == {"error_id": "e1"}
    assert not server.requests("GetSession")[0].auto_create


async def test_refused_fields_and_the_time_to_come_again_are_decoded(server: ServerDouble) -> None:
    violation = error_details_pb2.BadRequest.FieldViolation(field="messages[0].id", description="has a slash")
    bad_request = error_details_pb2.BadRequest(field_violations=[violation])
    retry = error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=1, nanos=500_000_000))
    server.script("AddMessages", Refusal(grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID", details=(bad_request,)))
    server.script("CommitSession", Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, "COMMIT_BACKLOG_FULL", details=(retry,)))
    async with AsyncClient(server.address) as client:
        session = client.session("s")
        with pytest.raises(runekeep.InvalidArgumentError, match="has a slash") as caught:
            await session.add_message("user", [TextPart("x")], message_id="a/b")
        assert caught.value.violations == (runekeep.FieldViolation("messages[0].id", "has a slash"),)
        with pytest.raises(runekeep.ResourceExhaustedError) as full:
            await session.commit()
        assert full.value.retry_after == 1.5
    assert len(server.requests("AddMessages")) == len(server.requests("CommitSession")) == 1


async def test_a_session_is_made_once_before_its_first_use(server: ServerDouble) -> None:
    server.script("AddMessages", added("m1"))
    async with AsyncClient(server.address) as client:
        session = client.session("chat_001")
        assert not server.calls
        await asyncio.gather(*(session.add_message("user", [TextPart("x")]) for _ in range(5)))
        await session.used(contexts=["viking://user/memories/profile.md"])
    created = server.requests("GetSession")
    assert [request.auto_create for request in created] == [True]
    assert len(server.requests("AddMessages")) == 5


async def test_used_and_policy_go_out_as_the_seed_writes_them(server: ServerDouble) -> None:
    async with AsyncClient(server.address) as client:
        session = client.session("s")
        skill = {"uri": "viking://user/skills/code-search", "input": {"q": 3}, "output": "3 files", "success": True}
        await session.used(contexts=["viking://user/memories/profile.md"], skill=skill)
        policy = {"self": {"enabled": True}, "peer": {"enabled": False}, "memory_types": ["profile"]}
        await session.commit(policy, keep_recent_count=2)
        await session.commit({"memory_types": None})
        with pytest.raises(ValueError, match="peers"):
            await session.commit({"peers": {"enabled": True}})
    used = server.requests("RecordUsage")[0]
    assert list(used.context_uris) == ["viking://user/memories/profile.md"]
    assert used.skills[0].success and used.skills[0].input.struct_value.fields["q"].number_value == 3
    first, second = server.requests("CommitSession")
    assert first.memory_policy.self.enabled and first.memory_policy.HasField("peer")
    assert not first.memory_policy.peer.enabled
    assert list(first.memory_policy.memory_types.names) == ["profile"]
    assert first.keep_recent_count == 2
    assert not second.memory_policy.HasField("memory_types")


def test_a_message_goes_to_the_wire_and_back_unchanged() -> None:
    message = Message(
        role="assistant",
        parts=[
            TextPart("Line\u2028separator, and 你好"),
            ImagePart("https://example.com/a.png", "low", "a desk"),
            ContextPart("viking://user/memories/profile.md", "who"),
            ToolPart("c1", "search", "code-search", {"q": "x", "n": 3, "deep": {"on": True}}, "ok", "error", 12.5, 7),
        ],
        id="m-1",
        created_at=datetime(2026, 3, 2, 9, 30, 0, 123456, tzinfo=UTC),
        peer_id="ines",
        turn_id="t1",
        speaker="Ines",
    )
    assert message_from_wire(message_to_wire(message)) == message


def test_messages_are_split_into_calls_by_their_number_and_size() -> None:
    def lengths(*sizes: int) -> list[int]:
        messages = [Message("user", [TextPart("x" * size)]) for size in sizes]
        calls = list(split_calls(messages))
        assert [message for call in calls for message in call] == messages
        return [len(call) for call in calls]

    assert lengths() == []
    assert lengths(*[1] * 250) == [100, 100, 50]
    assert lengths(*[300_000] * 4) == [3, 1]
    assert lengths(1, 2_000_000, 1) == [1, 1, 1]


def test_a_role_or_status_that_does_not_exist_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="user, assistant"):
        message_to_wire(Message("system", [TextPart("x")]))  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ValueError, match="completed"):
        message_to_wire(Message("user", [ToolPart("c", "t", status="done")]))  # type: ignore[arg-type]  # wrong on purpose


async def test_lists_follow_their_pages(server: ServerDouble) -> None:
    pages = [
        session_service_pb2.ListSessionsResponse(
            sessions=[session_service_pb2.Session(session_id=name)], next_page_token=token
        )
        for name, token in (("a", "next"), ("b", ""))
    ]
    server.script("ListSessions", *pages)
    async with AsyncClient(server.address) as client:
        assert [session["session_id"] async for session in client.list_sessions()] == ["a", "b"]
    assert [request.page_token for request in server.requests("ListSessions")] == ["", "next"]


async def test_a_long_document_is_read_in_pieces(server: ServerDouble) -> None:
    server.script(
        "ReadDocument",
        memory_service_pb2.ReadDocumentResponse(text="one\n", total_lines=4, next_offset=2),
        memory_service_pb2.ReadDocumentResponse(text="three\nfour", total_lines=4),
    )
    async with AsyncClient(server.address) as client:
        assert await client.read("viking://user/memories/profile.md") == "one\n\nthree\nfour"
    assert [(request.offset, request.limit) for request in server.requests("ReadDocument")] == [(0, -1), (2, -1)]


async def test_a_line_that_was_cut_is_read_by_characters(server: ServerDouble) -> None:
    long = "é" * 600_000
    server.script(
        "ReadDocument",
        memory_service_pb2.ReadDocumentResponse(text="one", total_lines=3, next_offset=1),
        memory_service_pb2.ReadDocumentResponse(
            text=long[:400_000], total_lines=3, next_offset=2, next_character=400_004
        ),
        memory_service_pb2.ReadDocumentResponse(text=long[:100_000], total_lines=3, next_offset=500_004),
        memory_service_pb2.ReadDocumentResponse(text=f"{long[:100_000]}\nthree", total_lines=3),
    )
    async with AsyncClient(server.address) as client:
        assert await client.read("viking://user/memories/profile.md", 0, 2) == f"one\n{long}"
    ranges = [request.characters.start for request in server.requests("ReadDocument")[2:]]
    assert ranges == [400_004, 500_004]


async def test_the_past_and_ranges_are_asked_for(server: ServerDouble) -> None:
    when = datetime(2026, 5, 1, 12, tzinfo=UTC)
    match = memory_service_pb2.GrepMatch(uri="viking://x", line=1, text="x", before=["y"])
    server.script("ReadDocument", memory_service_pb2.ReadDocumentResponse(text="x", next_offset=8))
    server.script("ListDirectory", memory_service_pb2.ListDirectoryResponse(entries=[{"abstract": "x"}]))
    server.script(
        "GrepDocuments",
        memory_service_pb2.GrepDocumentsResponse(next_page_token="next"),
        memory_service_pb2.GrepDocumentsResponse(matches=[match]),
    )
    async with AsyncClient(server.address) as client:
        await client.read("viking://x", characters=(7, 1), as_of=when)
        assert (await client.tree(output="original", as_of=3))["entries"][0]["abstract"] == ""
        assert (await client.ls(as_of=3))["entries"][0]["abstract"] == "x"
        found = [match async for match in client.grep("x", as_of=when)]
        with pytest.raises(ValueError):
            await client.read("viking://x", 1, characters=(0, 1))
        with pytest.raises(ValueError):
            await client.ls(output="other")  # type: ignore[arg-type]  # refused
    assert found == [{"uri": "viking://x", "line": 1, "text": "x", "before": ["y"], "after": []}]
    read = server.requests("ReadDocument")[0]
    assert (read.characters.start, read.characters.length, read.as_of.time.seconds) == (7, 1, int(when.timestamp()))
    assert [request.as_of.revision for request in server.requests("ListDirectory")] == [3, 3]
    asked = server.requests("GrepDocuments")
    assert [request.page_token for request in asked] == ["", "next"] and asked[1].as_of == read.as_of


async def test_a_task_is_told_in_the_words_of_the_seed(server: ServerDouble) -> None:
    result = task_service_pb2.CommitResult(outcome=1, memories_extracted={"profile": 2, "events": 1}, revision=7)
    task = task_service_pb2.Task(task_id="t1", state=3, result=result, attempt=2, lost_leases=1)
    server.script("GetTask", task_service_pb2.GetTaskResponse(task=task))
    async with AsyncClient(server.address) as client:
        told = await client.get_task("t1")
    assert told["status"] == "completed"
    assert told["lost_leases"] == 1
    assert told["error"] is None
    assert told["result"] is not None
    assert sum(told["result"]["memories_extracted"].values()) == 3
    assert told["result"]["outcome"] == "applied"


async def test_results_of_a_search_are_flat(server: ServerDouble) -> None:
    found = memory_service_pb2.FindMemoriesResponse(
        results=[
            {
                "memory": {"uri": "viking://user/u/memories/entities/Redis.md"},
                "score": 0.7,
                "detail": {"dense_rank": 1},
            },
            {"passage": {"message_id": "D1-3", "text": "Ann (8 May 2023): hello"}, "score": 0.5},
        ],
        revision=3,
    )
    server.script("FindMemories", found)
    async with AsyncClient(server.address) as client:
        answer = await client.find("redis", filter={"entity_type": "system", "year": 3, "on": True}, kinds=["memory"])
    assert [(item["kind"], item["score"]) for item in answer["results"]] == [("memory", 0.7), ("passage", 0.5)]
    assert answer["results"][1]["message_id"] == "D1-3"
    request = server.requests("FindMemories")[0]
    assert request.filter["year"].int64_value == 3
    assert request.filter["on"].WhichOneof("kind") == "bool_value"
    assert not request.HasField("score_threshold")


async def test_a_diff_has_the_keys_of_memory_diff_json(server: ServerDouble) -> None:
    diff = session_service_pb2.MemoryDiff(
        archive_uri="viking://user/u/sessions/s/history/archive_001",
        updates=[{"uri": "viking://user/u/memories/profile.md", "memory_type": "profile", "before": "a", "after": "b"}],
        deletes=[{"uri": "viking://user/u/memories/entities/Old.md", "memory_type": "entities", "before": "gone"}],
    )
    diff.extract_time.FromJsonString("2026-04-21T10:00:00Z")
    server.script("GetMemoryDiff", session_service_pb2.GetMemoryDiffResponse(diff=diff))
    async with AsyncClient(server.address) as client:
        told = await client.memory_diff(diff.archive_uri)
    assert told["extracted_at"] == "2026-04-21T10:00:00Z"
    assert told["summary"] == {"total_adds": 0, "total_updates": 1, "total_deletes": 1}
    update, delete = told["operations"]["updates"][0], told["operations"]["deletes"][0]
    assert (update["before"], update["after"]) == ("a", "b")
    assert delete["deleted_content"] == "gone" and "before" not in delete


async def test_changes_by_hand_go_out_in_their_order_with_their_base_versions(server: ServerDouble) -> None:
    memory = memory_service_pb2.Memory(uri="viking://user/u/memories/preferences/Tea.md", version=2)
    server.script("WriteMemories", memory_service_pb2.WriteMemoriesResponse(revision=3, memories=[memory]))
    changes = [
        runekeep.PutMemory("tools", {"tool_name": "grep", "total_calls": 2, "x": True, "y": 0.5}, 4, overview="o"),
        runekeep.EditMemory("viking://a", {"content": [runekeep.Replace("a", "b", 7)], "total_calls": 1}, 5),
        runekeep.EditMemory("viking://b", {"content": runekeep.Replace("a", "b"), "abstract": "c"}, 6),
        runekeep.DeleteMemory("viking://c", 7),
    ]
    async with AsyncClient(server.address) as client:
        written = await client.write_memories(changes, request_id="mine")
        assert (await client.delete_memory("viking://c", base_version=1))["version"] == 2
    assert (written["revision"], written["memories"][0]["uri"]) == (3, memory.uri)
    sent, alone = server.requests("WriteMemories")
    assert sent.request_id == "mine" and alone.request_id and len(alone.changes) == 1
    put, edit, other, delete = sent.changes
    assert [change.base_version for change in sent.changes] == [4, 5, 6, 7]
    kinds = {name: value.WhichOneof("kind") for name, value in put.put.fields.items()}
    assert kinds == {"tool_name": "string_value", "total_calls": "int64_value", "x": "bool_value", "y": "float32_value"}
    assert (put.put.memory_type, put.put.overview) == ("tools", "o")
    block = edit.edit.patches[0].search_replace.blocks[0]
    assert (block.search, block.replace, block.start_line) == ("a", "b", 7)
    assert edit.edit.patches[1].value.int64_value == 1
    assert [patch.WhichOneof("change") for patch in other.edit.patches] == ["search_replace", "value"]
    assert delete.delete.uri == "viking://c"


def test_the_blocking_face_serves_many_threads(server: ServerDouble) -> None:
    server.script("AddMessages", added("m1"))
    with Client(server.address) as client, ThreadPoolExecutor(8) as threads:
        sessions = [client.session(f"s{n}") for n in range(8)]
        answers = list(threads.map(lambda session: session.add_message("user", [TextPart("x")]), sessions))
    assert [answer["id"] for answer in answers] == ["m1"] * 8
    assert {request.session for request in server.requests("AddMessages")} == {f"s{n}" for n in range(8)}


def test_the_blocking_face_raises_the_same_errors(server: ServerDouble) -> None:
    server.script("GetSession", Refusal(grpc.StatusCode.NOT_FOUND, "RESOURCE_NOT_FOUND"))
    with Client(server.address) as client, pytest.raises(runekeep.NotFoundError):
        client.get_session("nope")


def test_the_blocking_face_has_every_method_of_the_other() -> None:
    for behind, face in ((AsyncClient, Client), (runekeep.AsyncSession, runekeep.Session)):
        public = {name for name in vars(behind) if not name.startswith("_")}
        assert public <= set(dir(face)), public - set(dir(face))
        for name in public - {"address", "session_id"}:
            assert getattr(face, name).__doc__ == getattr(behind, name).__doc__


async def test_the_blocking_face_may_be_used_where_another_loop_runs(server: ServerDouble) -> None:
    with Client(server.address) as client:
        assert client.get_task("t1")["task_id"] == ""
