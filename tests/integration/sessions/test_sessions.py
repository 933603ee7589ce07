"""Sessions, messages and commits, phase 1, over the wire."""

import json
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp

from runekeep.v1 import common_pb2, session_service_pb2, task_service_pb2
from tests.support.callers import TASK_ENDED, Caller, failure, policy, said, unique, used_tool
from tests.support.worker import Worker

SERVER_SETTINGS = {"RUNEKEEP_MAX_OPEN_COMMITS_PER_USER": "2"}


def get(session: str, auto_create: bool = False) -> session_service_pb2.GetSessionRequest:
    return session_service_pb2.GetSessionRequest(session=session, auto_create=auto_create)


def add(session: str, *messages: common_pb2.Message, request_id: str = "") -> session_service_pb2.AddMessagesRequest:
    return session_service_pb2.AddMessagesRequest(session=session, messages=messages, request_id=request_id)


def of(*parts: common_pb2.Part, create_time: Timestamp | None = None) -> common_pb2.Message:
    return common_pb2.Message(role=common_pb2.ROLE_USER, parts=parts, create_time=create_time)


def call_of(duration: Duration) -> common_pb2.Message:
    return of(common_pb2.Part(tool=common_pb2.ToolPart(tool_name="grep", duration=duration)))


async def all_messages(caller: Caller, session: str, **fields: Any) -> list[Any]:
    request = session_service_pb2.ListMessagesRequest(session=session, **fields)
    found = []
    while True:
        page = await caller.sessions.ListMessages(request)
        found += page.messages
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


async def test_a_new_session_is_read_by_id_and_by_every_form_of_its_uri(caller: Caller) -> None:
    made = (
        await caller.sessions.CreateSession(
            session_service_pb2.CreateSessionRequest(
                session_id="s-1", title="First", memory_policy=policy(peer=True, types=["events"])
            )
        )
    ).session
    assert (made.uri, made.session_id, made.title) == (caller.uri("sessions/s-1"), "s-1", "First")
    assert (made.live_message_count, made.message_count, made.compression_index) == (0, 0, 0)
    assert made.memory_policy.self.enabled and made.memory_policy.peer.enabled
    assert list(made.memory_policy.memory_types.names) == ["events"]
    for name in ("s-1", made.uri, "viking://user/sessions/s-1", "viking://session/s-1"):
        answer = await caller.sessions.GetSession(get(name))
        assert answer.session == made and not answer.created


async def test_a_session_without_an_id_gets_one(caller: Caller) -> None:
    assert await caller.session() != await caller.session()


async def test_an_id_that_is_taken(caller: Caller) -> None:
    await caller.session(session_id="s-1")
    failed = await failure(caller.sessions.CreateSession(session_service_pb2.CreateSessionRequest(session_id="s-1")))
    assert failed.seen == ("ALREADY_EXISTS", "RESOURCE_EXISTS") and failed.resource == ("session", "s-1")


async def test_a_session_that_is_not_there_is_made_only_when_asked_for(caller: Caller) -> None:
    failed = await failure(caller.sessions.GetSession(get("s-1")))
    assert failed.seen == ("NOT_FOUND", "RESOURCE_NOT_FOUND") and failed.resource == ("session", "s-1")
    assert (await caller.sessions.GetSession(get("s-1", auto_create=True))).created
    again = await caller.sessions.GetSession(get("s-1", auto_create=True))
    assert not again.created and again.session.memory_policy.self.enabled


@pytest.mark.parametrize("name", ["..", "a/b", "viking://user/memories", "viking://user/sessions/s/history", " "])
async def test_what_is_no_session_is_refused(caller: Caller, name: str) -> None:
    failed = await failure(caller.sessions.GetSession(get(name, auto_create=True)))
    assert failed.seen == ("INVALID_ARGUMENT", "FIELD_INVALID") and failed.fields == ["session"]


async def test_sessions_are_listed_latest_activity_first_page_by_page(caller: Caller) -> None:
    names = [await caller.session() for _ in range(5)]
    await caller.add(names[1], said("hello"))
    request = session_service_pb2.ListSessionsRequest(page_size=2)
    found = []
    while True:
        page = await caller.sessions.ListSessions(request)
        assert len(page.sessions) <= 2
        found += [session.session_id for session in page.sessions]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert found == [names[1], names[4], names[3], names[2], names[0]]


async def test_a_page_token_of_another_list_is_refused(caller: Caller) -> None:
    for _ in range(2):
        await caller.session()
    page = await caller.sessions.ListSessions(session_service_pb2.ListSessionsRequest(page_size=1))
    failed = await failure(caller.tasks.ListTasks(task_service_pb2.ListTasksRequest(page_token=page.next_page_token)))
    assert failed.seen == ("INVALID_ARGUMENT", "FIELD_INVALID") and failed.fields == ["page_token"]


async def test_messages_keep_their_order_over_calls_and_pages(caller: Caller) -> None:
    session = await caller.session()
    first = await caller.add(session, said("one"), said("two", role=common_pb2.ROLE_ASSISTANT))
    second = await caller.add(session, said("three", peer="anna"))
    assert [one.sequence for one in (*first.messages, *second.messages)] == [1, 2, 3]
    assert (first.live_message_count, second.live_message_count) == (2, 3)
    found = await all_messages(caller, session, page_size=2)
    assert [message.parts[0].text.text for message in found] == ["one", "two", "three"]
    assert [message.role for message in found] == [1, 2, 1]
    assert all(message.id.startswith("msg_") for message in found) and found[2].peer_id == "anna"
    later = await all_messages(caller, session, page_size=1, start_sequence=2)
    assert [message.sequence for message in later] == [2, 3]
    archive = await caller.commit(session)
    assert await all_messages(caller, archive.archive_uri, start_sequence=3) == found[2:]
    assert await all_messages(caller, archive.archive_uri, start_sequence=4) == []


async def test_every_kind_of_part_comes_back_as_it_was(caller: Caller) -> None:
    session = await caller.session()
    arguments = Struct()
    arguments.update({"query": "naïve", "deep": {"list": [1, 2.5, None, True]}})
    tool = common_pb2.ToolPart(
        tool_id="call-1", tool_name="search", skill_name="research", input=arguments, output="found",
        status=common_pb2.TOOL_STATUS_ERROR, total_tokens=7,
    )  # fmt: skip
    tool.duration.FromMilliseconds(1500)
    message = common_pb2.Message(
        id="m-1", role=common_pb2.ROLE_ASSISTANT, turn_id="t-1", speaker="Ada",
        create_time=Timestamp(seconds=1_700_000_000),
        parts=[
            common_pb2.Part(text=common_pb2.TextPart(text="  look \n")),
            common_pb2.Part(image=common_pb2.ImagePart(url="https://a.test/x.png", detail="low", caption="a cat")),
            common_pb2.Part(context=common_pb2.ContextPart(uri="viking://user/memories/profile.md", abstract="who")),
            common_pb2.Part(tool=tool),
        ],
    )  # fmt: skip
    await caller.add(session, message)
    (found,) = await all_messages(caller, session)
    message.sequence = 1
    assert found == message


async def test_a_message_that_is_sent_again_is_there_once(caller: Caller) -> None:
    session = await caller.session()
    await caller.add(session, said("one", id="m-1"))
    answer = await caller.add(session, said("one", id="m-1"), said("two", id="m-2"))
    assert [(one.id, one.sequence) for one in answer.messages] == [("m-1", 1), ("m-2", 2)]
    assert answer.live_message_count == 2
    other = await failure(caller.sessions.AddMessages(add(session, said("new", id="m-3"), said("changed", id="m-1"))))
    assert other.seen == ("ALREADY_EXISTS", "RESOURCE_EXISTS") and other.resource == ("message", "m-1")
    assert [message.id for message in await all_messages(caller, session)] == ["m-1", "m-2"]


async def test_a_large_output_without_a_call_id_can_be_sent_again(caller: Caller) -> None:
    session = await caller.session()
    message = used_tool("", "x" * 30_000, id="m-1")
    await caller.add(session, message)
    again = await caller.add(session, message)
    assert [one.sequence for one in again.messages] == [1]


async def test_a_request_id_gives_the_first_answer_again(caller: Caller) -> None:
    session = await caller.session()
    request = add(session, said("one"), request_id="r-1")
    first = await caller.sessions.AddMessages(request)
    assert await caller.sessions.AddMessages(request) == first
    assert len(await all_messages(caller, session)) == 1
    request.messages[0].parts[0].text.text = "two"
    failed = await failure(caller.sessions.AddMessages(request))
    assert failed.seen == ("INVALID_ARGUMENT", "REQUEST_ID_REUSED") and failed.fields == ["request_id"]


async def test_a_commit_that_is_sent_again_archives_nothing_new(caller: Caller) -> None:
    session = await caller.session()
    await caller.add(session, said("one"))
    first = await caller.commit(session, request_id="r-1")
    await caller.add(session, said("two"))
    assert await caller.commit(session, request_id="r-1") == first
    assert (await caller.sessions.GetSession(get(session))).session.live_message_count == 1


@pytest.mark.parametrize(
    ("message", "path"),
    [
        (of(), "messages[1].parts"),
        (of(common_pb2.Part()), "messages[1].parts[0].part"),
        (common_pb2.Message(parts=said("x").parts), "messages[1].role"),
        (of(common_pb2.Part(tool=common_pb2.ToolPart(tool_id="t"))), "messages[1].parts[0].tool.tool_name"),
        (
            of(common_pb2.Part(image=common_pb2.ImagePart(url="u", detail="huge"))),
            "messages[1].parts[0].image.detail",
        ),
        (of(*said("x").parts, create_time=Timestamp(seconds=2**60)), "messages[1].create_time"),
        (of(*said("x").parts, create_time=Timestamp(seconds=1, nanos=2_000_000_000)), "messages[1].create_time"),
        (call_of(Duration(seconds=2**60)), "messages[1].parts[0].tool.duration"),
        (call_of(Duration(seconds=1, nanos=-1)), "messages[1].parts[0].tool.duration"),
    ],
)
async def test_a_bad_message_is_named_by_its_path(caller: Caller, message: common_pb2.Message, path: str) -> None:
    session = await caller.session()
    failed = await failure(caller.sessions.AddMessages(add(session, said("good"), message)))
    assert failed.seen == ("INVALID_ARGUMENT", "FIELD_INVALID") and failed.fields == [path]
    assert await all_messages(caller, session) == []


async def test_a_large_tool_output_is_kept_apart_and_put_back_for_extraction(caller: Caller, channel: Any) -> None:
    whole = "".join(f"line {number} é\n" for number in range(5000))
    session = await caller.session()
    await caller.add(session, used_tool("call-1", whole), used_tool("call-2", "short"))
    large, small = await all_messages(caller, session)
    kept = large.parts[0].tool
    assert kept.stored_output_length == len(whole) and kept.output == whole[:20_000]
    assert small.parts[0].tool.stored_output_length == 0
    document = await caller.read(f"viking://session/{session}/tools/call-1/tool.json")
    assert document.uri == caller.uri(f"sessions/{session}/tools/call-1/tool.json")
    assert json.loads(document.text)["output"] == whole
    await caller.commit(session)
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        assert [tool.output for tool in await input_tools(worker, lease)] == [whole, "short"]


async def test_two_calls_of_one_id_keep_their_own_outputs(caller: Caller, channel: Any) -> None:
    """Agent runtimes number their calls anew in each turn."""
    outputs = ["a" * 25_000, "a" * 24_999 + "b"]
    session = await caller.session()
    for output in outputs:
        await caller.add(session, used_tool("call-1", output))
    await caller.commit(session)
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        assert [tool.output for tool in await input_tools(worker, lease)] == outputs


@pytest.mark.parametrize("tool_id", ["../../x", "a/b", ".", "call\u2028id", "ü" * 128])
async def test_a_call_id_that_is_no_file_name_has_a_document_that_a_listing_names(caller: Caller, tool_id: str) -> None:
    session = await caller.session()
    await caller.add(session, used_tool(tool_id, "y" * 25_000))
    assert (await all_messages(caller, session))[0].parts[0].tool.tool_id == tool_id
    listing = await caller.listing(caller.uri(f"sessions/{session}/tools"), depth=2)
    output, document = [entry.uri for entry in listing.entries if not entry.directory]
    assert json.loads((await caller.read(document)).text)["output"] == "y" * 25_000
    assert (await caller.read(output)).text == "y" * 25_000


async def input_tools(worker: Worker, lease: Any) -> list[Any]:
    from runekeep.v1 import extractor_service_pb2 as pb

    found = []
    async for piece in worker.calls.GetJobInput(pb.GetJobInputRequest(lease=lease)):
        found += [part.tool for message in piece.messages.messages for part in message.parts]
    return found


async def test_odd_line_separators_keep_one_message_on_one_line(caller: Caller) -> None:
    odd = "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg\rh\ni"
    session = await caller.session()
    await caller.add(session, said(odd), said("next"))
    document = await caller.read(caller.uri(f"sessions/{session}/messages.jsonl"))
    assert document.total_lines == 2
    lines = document.text.splitlines()
    assert [json.loads(line)["parts"][0]["text"] for line in lines] == [odd, "next"]


async def test_an_empty_document_has_no_lines(caller: Caller) -> None:
    session = await caller.session()
    document = await caller.read(caller.uri(f"sessions/{session}/messages.jsonl"))
    assert (document.text, document.total_lines, document.next_offset) == ("", 0, 0)


async def test_a_commit_archives_the_live_messages(caller: Caller) -> None:
    session = await caller.session()
    await caller.add(session, said("one"), said("two"))
    answer = await caller.commit(session)
    assert answer.status == session_service_pb2.COMMIT_STATUS_ACCEPTED and answer.archived
    assert answer.archive_uri == caller.uri(f"sessions/{session}/history/archive_001")
    after = (await caller.sessions.GetSession(get(session))).session
    assert (after.live_message_count, after.message_count, after.compression_index) == (0, 2, 1)
    assert await all_messages(caller, session) == []
    for name in (answer.archive_uri, session):
        scope = session_service_pb2.MESSAGE_SCOPE_ALL
        assert [one.sequence for one in await all_messages(caller, name, scope=scope)] == [1, 2]
    (archive,) = (await caller.sessions.ListArchives(session_service_pb2.ListArchivesRequest(session=session))).archives
    assert (archive.uri, archive.index, archive.state) == (
        answer.archive_uri, 1, session_service_pb2.ARCHIVE_STATE_PENDING,
    )  # fmt: skip
    assert (archive.messages.start_sequence, archive.messages.end_sequence) == (1, 2)
    request = session_service_pb2.GetMemoryDiffRequest(archive_uri=answer.archive_uri)
    failed = await failure(caller.sessions.GetMemoryDiff(request))
    assert failed.seen == ("FAILED_PRECONDITION", "COMMIT_NOT_FINISHED")


async def test_a_commit_of_nothing_is_skipped(caller: Caller) -> None:
    session = await caller.session()
    await caller.add(session, said("one"))
    for keep in (1, 2, 2**31 - 1):
        answer = await caller.commit(session, keep_recent_count=keep)
        assert answer == session_service_pb2.CommitSessionResponse(status=session_service_pb2.COMMIT_STATUS_SKIPPED)
    assert len(await all_messages(caller, session)) == 1


async def test_recent_messages_can_stay_live(caller: Caller) -> None:
    session = await caller.session()
    await caller.add(session, *(said(str(number)) for number in range(5)))
    answer = await caller.commit(session, keep_recent_count=2)
    assert [one.sequence for one in await all_messages(caller, answer.archive_uri)] == [1, 2, 3]
    assert [one.sequence for one in await all_messages(caller, session)] == [4, 5]


async def test_a_type_that_is_unknown_is_refused_at_creation_and_at_commit(caller: Caller) -> None:
    wrong = policy(types=["events", "dreams"])
    request = session_service_pb2.CreateSessionRequest(memory_policy=wrong)
    refused = await failure(caller.sessions.CreateSession(request))
    session = await caller.session()
    await caller.add(session, said("one"))
    at_commit = await failure(
        caller.sessions.CommitSession(session_service_pb2.CommitSessionRequest(session=session, memory_policy=wrong))
    )
    for failed in (refused, at_commit):
        assert failed.seen == ("INVALID_ARGUMENT", "FIELD_INVALID") and "dreams" in failed.message
    assert len(await all_messages(caller, session)) == 1


async def test_a_full_backlog_refuses_commits_and_archives_nothing(caller: Caller) -> None:
    session = await caller.session()
    for _ in range(2):
        await caller.committed(session=session)
    await caller.add(session, said("three"))
    failed = await failure(caller.sessions.CommitSession(session_service_pb2.CommitSessionRequest(session=session)))
    assert failed.seen == ("RESOURCE_EXHAUSTED", "COMMIT_BACKLOG_FULL")
    assert failed.retry_seconds is not None and failed.retry_seconds > 0
    after = (await caller.sessions.GetSession(get(session))).session
    assert (after.live_message_count, after.compression_index) == (1, 2)
    await caller.cancel_open()
    assert (await caller.commit(session)).archived


async def test_a_deleted_session_takes_its_open_commit_along(caller: Caller, channel: Any) -> None:
    committed = await caller.committed(said("one"))
    session = committed.archive_uri.split("/")[5]
    other = await caller.committed(said("other"))
    async with Worker(channel) as worker:
        await worker.ready(2)
        assignment = await worker.assignment()
        assert assignment.task_id == committed.task_id
        request = session_service_pb2.DeleteSessionRequest(session=session, request_id="r-1")
        answer = await caller.sessions.DeleteSession(request)
        assert answer.cancelled_tasks == 1
        assert (await worker.next("cancel")).lease == assignment.lease
        # The lane is free at once.
        assert (await worker.assignment()).task_id == other.task_id
    assert await caller.sessions.DeleteSession(request) == answer
    assert (await caller.task(committed.task_id)).state == task_service_pb2.TASK_STATE_CANCELLED
    for call in (
        caller.sessions.GetSession(get(session)),
        caller.sessions.ListMessages(session_service_pb2.ListMessagesRequest(session=committed.archive_uri)),
        caller.read(f"{committed.archive_uri}/messages.jsonl"),
        caller.tasks.RetryTask(task_service_pb2.RetryTaskRequest(task_id=committed.task_id)),
    ):
        assert (await failure(call)).seen == ("NOT_FOUND", "RESOURCE_NOT_FOUND")


async def test_usage_is_counted_until_the_next_commit(caller: Caller) -> None:
    session = await caller.session()

    def usage(*uris: str) -> session_service_pb2.RecordUsageRequest:
        skill = session_service_pb2.SkillUsage(uri="viking://user/skills/code-search.md", output="3", success=True)
        skill.input.string_value = "config"
        return session_service_pb2.RecordUsageRequest(session=session, context_uris=uris, skills=[skill])

    first = await caller.sessions.RecordUsage(usage("viking://user/memories/profile.md"))
    second = await caller.sessions.RecordUsage(usage())
    assert (first.contexts_used, first.skills_used) == (1, 1)
    assert (second.contexts_used, second.skills_used) == (1, 2)
    await caller.committed(session=session)
    third = await caller.sessions.RecordUsage(usage())
    assert (third.contexts_used, third.skills_used) == (0, 1)
    failed = await failure(caller.sessions.RecordUsage(usage("viking://user/somebody-else/memories/profile.md")))
    assert failed.seen == ("INVALID_ARGUMENT", "FIELD_INVALID") and failed.fields == ["context_uris[0]"]


async def test_tasks_are_listed_newest_first_and_by_session_and_state(callers: Any) -> None:
    caller: Caller = callers()
    first = await caller.committed()
    second = await caller.committed()
    cancel = task_service_pb2.CancelTaskRequest(task_id=first.task_id, reason="not needed")
    cancelled = (await caller.tasks.CancelTask(cancel)).task
    assert cancelled.state == task_service_pb2.TASK_STATE_CANCELLED and "not needed" in cancelled.error.message

    async def listed(**fields: Any) -> list[str]:
        found = await caller.tasks.ListTasks(task_service_pb2.ListTasksRequest(**fields))
        return [task.task_id for task in found.tasks]

    assert await listed() == [second.task_id, first.task_id]
    assert await listed(states=TASK_ENDED) == [first.task_id]
    assert await listed(session=second.archive_uri.rpartition("/history")[0]) == [second.task_id]
    assert await listed(session=unique("none")) == []
    failed = await failure(caller.tasks.ListTasks(task_service_pb2.ListTasksRequest(states=[99])))  # type: ignore[list-item]  # wrong on purpose
    assert failed.fields == ["states[0]"]
