"""Whatever is sent, the answer is an answer: never INTERNAL, never UNKNOWN, and nothing is broken afterwards."""

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Value

from runekeep.contract import methods_for
from runekeep.v1 import (
    common_pb2,
    extractor_service_pb2,
    history_service_pb2,
    memory_service_pb2,
    method_options_pb2,
    session_service_pb2,
    space_service_pb2,
    task_service_pb2,
    turn_memory_service_pb2,
)
from runekeep.v1 import extractor_service_pb2 as pb
from tests.support.callers import OF_THE_CLIENT, STUBS, Caller, Failure, failure, policy, said, unique
from tests.support.changes import change, put
from tests.support.malformed import Malformed
from tests.support.turn_calls import submit, talk
from tests.support.turns import at, fingerprint, load, paged, signal
from tests.support.worker import StreamEnded, Worker, delete, edit, write

REQUESTS = 60
STREAMS = 15
NEVER = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)

TURN = turn_memory_service_pb2
METHODS = [
    method
    for method in methods_for(method_options_pb2.AUDIENCE_USERS, method_options_pb2.AUDIENCE_WORKERS)
    if not method.client_streaming
]


def whole_message() -> common_pb2.Message:
    """A message with everything in it."""
    message = common_pb2.Message(
        role=common_pb2.ROLE_USER, peer_id="anna", turn_id="t", speaker="Anna", parts=said("hello").parts
    )
    message.create_time.seconds = 1_700_000_000
    message.parts.add().image.CopyFrom(common_pb2.ImagePart(url="https://a.test/x.png", detail="low", caption="a cat"))
    message.parts.add().context.CopyFrom(
        common_pb2.ContextPart(uri="viking://user/memories/profile.md", abstract="who")
    )
    tool = common_pb2.ToolPart(tool_id="c", tool_name="grep", skill_name="dig", output="x" * 21_000, status=3)  # type: ignore[arg-type]  # numbers of enums
    tool.input.update({"a": {"b": [1, "c", None]}})
    tool.duration.seconds = 3
    message.parts.add().tool.CopyFrom(tool)
    return message


def whole_usage(session: str) -> session_service_pb2.RecordUsageRequest:
    skill = session_service_pb2.SkillUsage(uri="viking://user/skills/s.md", output="x", success=True)
    skill.input.struct_value.update({"a": [1, {"b": True}]})
    uris = ["viking://user/memories/profile.md"]
    return session_service_pb2.RecordUsageRequest(session=session, context_uris=uris, skills=[skill])


def whole_turn(session: str) -> turn_memory_service_pb2.SubmitTurnRequest:
    said_so = fingerprint(
        "Find tea",
        topics=["tea"],
        assertions=[signal("price", {"min": 1, "max": 5}, "must", "objective", "tea")],
        exceptions=[signal("kind", {"exclude": ["black", 1]})],
        facts=[signal("who", {"rule": "anna"}, "high")],
        assistant_signals=[signal("shop", {"options": ["a", "b"]}, "recommend")],
        ctx_retrieval_queries=[TURN.ContextQuery(target=TURN.CONTEXT_QUERY_TARGET_USER, query="tea", reason="x")],
        made_time=at(1_700_000_000),
        conversation_title="Tea",
    )
    summary = TURN.TurnSummary(user_inquiry="tea", done=["found"], risks=["cold"], notes="none")
    return TURN.SubmitTurnRequest(
        session=session, turn_id="t1", fingerprint=said_so, summary=summary, extract=True, assistant_signal_spec="all"
    )


def whole_rules() -> session_service_pb2.AutoCommit:
    rules = session_service_pb2.AutoCommit(pending_tokens=4000, message_count=40, keep_recent_count=4)
    rules.idle.FromSeconds(3600)
    return rules


# Requests that are taken, to damage in one place: random ones seldom come past the door of these methods.
SOUND: dict[str, Callable[[str], Message]] = {
    "AddMessages": lambda session: session_service_pb2.AddMessagesRequest(
        session=session, messages=[whole_message(), said("and this")]
    ),
    "RecordUsage": whole_usage,
    "CreateSession": lambda session: session_service_pb2.CreateSessionRequest(
        title="x", memory_policy=policy(peer=True, types=["events"], skills=True), auto_commit=whole_rules()
    ),
    "UpdateSession": lambda session: session_service_pb2.UpdateSessionRequest(
        session=session, title="x", memory_policy=policy(), auto_commit=whole_rules(),
        update_mask={"paths": ["title", "memory_policy", "auto_commit"]},  # type: ignore[arg-type]  # as a dict
    ),
    "CommitSession": lambda session: session_service_pb2.CommitSessionRequest(
        session=session, memory_policy=policy(types=["events"]), keep_recent_count=1
    ),
    "FindMemories": lambda session: memory_service_pb2.FindMemoriesRequest(
        query="tea", target_uri="viking://user/memories", memory_types=["preferences"], kinds=[1], limit=5,  # type: ignore[list-item]  # numbers of enums
        score_threshold=0.1, view=3, filter={"topic": common_pb2.FieldValue(string_value="Tea")},  # type: ignore[arg-type]  # numbers of enums
    ),
    "ExplainSearch": lambda session: memory_service_pb2.ExplainSearchRequest(
        search=memory_service_pb2.FindMemoriesRequest(query="tea", memory_types=["preferences"], limit=5),
        uri="viking://user/memories/preferences/Tea.md",
    ),
    "FindForJob": lambda session: extractor_service_pb2.FindForJobRequest(
        find=memory_service_pb2.FindMemoriesRequest(query="tea", memory_types=["preferences"], limit=5)
    ),
    "ListForJob": lambda session: extractor_service_pb2.ListForJobRequest(
        list=memory_service_pb2.ListDirectoryRequest(uri="viking://user/memories", depth=2), memory_limit=9
    ),
    "ListRevisions": lambda session: history_service_pb2.ListRevisionsRequest(
        uri="viking://user/memories/preferences/Tea.md", page_size=5
    ),
    "DiffRevisions": lambda session: history_service_pb2.DiffRevisionsRequest(
        to=common_pb2.AsOf(revision=1), uri="viking://user/memories", page_size=5,
        **{"from": common_pb2.AsOf(time=at(1))},  # type: ignore[arg-type]  # no word for an argument
    ),
    "RollbackRevision": lambda session: history_service_pb2.RollbackRevisionRequest(revision=1, force=True),
    "RollbackSession": lambda session: history_service_pb2.RollbackSessionRequest(session=session, force=True),
    "ListMessageMemories": lambda session: history_service_pb2.ListMessageMemoriesRequest(
        session=session, message_id="m1", view=3, page_size=5  # type: ignore[arg-type]  # numbers of enums
    ),
    "Recall": lambda session: memory_service_pb2.RecallRequest(
        query="tea", session=session, token_budget=500, max_level=4, limit=5, memory_types=["preferences"],  # type: ignore[arg-type]  # numbers of enums
        quotas=[memory_service_pb2.RecallQuota(memory_type="passages", max_items=1, max_tokens=100)], repeat=True,
        kinds=[1, 2], peers=["anna", ""], tags=["x"], start_time=at(1), end_time=at(2_000_000_000), score_threshold=0.1,  # type: ignore[list-item]  # numbers of enums
    ),
    "GetSessionContext": lambda session: session_service_pb2.GetSessionContextRequest(session=session, token_budget=90),
    "WriteMemories": lambda session: memory_service_pb2.WriteMemoriesRequest(
        changes=[
            put("tools", tool_name=unique("t"), total_calls=3, best_for="x", peer="anna", abstract="a", overview="o"),
            change("viking://user/memories/preferences/Tea.md", 1, content=[("tea", "tea")], abstract="Likes tea."),
            put("events", event_name=unique("e"), event_time="2026", content="c"),
        ]
    ),
    "SubmitTurn": whole_turn,
    "ListTurns": lambda session: TURN.ListTurnsRequest(session=session, fingerprinted_only=True, page_size=2),
    "LoadTurnContext": lambda session: TURN.LoadTurnContextRequest(
        session=session, current_turn_id="t2", audience=2, last_turns=5, render=True,  # type: ignore[arg-type]  # numbers of enums
        ctx_retrieval_queries=[TURN.ContextQuery(query="tea"), TURN.ContextQuery(query="hello", target=1)],  # type: ignore[arg-type]  # numbers of enums
    ),
    "SetTurnSelection": lambda session: TURN.SetTurnSelectionRequest(
        session=session, selection=TURN.TurnSelection(turn_ids=["t"], memory_bucket_ids=["b"], current_turn_id="t2")
    ),
    "UpdateMemoryBucket": lambda session: TURN.UpdateMemoryBucketRequest(
        bucket=TURN.MemoryBucket(session=session, bucket_id="b", name="a", state=1), update_mask={"paths": ["name"]}  # type: ignore[arg-type]  # numbers of enums, a dict
    ),
    "ListAssistantSignals": lambda session: TURN.ListAssistantSignalsRequest(session=session, keys=["shop"]),
    "SubmitFeedback": lambda session: TURN.SubmitFeedbackRequest(
        session=session, match_queries=[TURN.ContextQuery(query="tea")],
        feedback=TURN.Feedback(text="cold", reaction=2, origin=2, confidence=0.9, from_turn_id="t2"),  # type: ignore[arg-type]  # numbers of enums
    ),
    "ClearFeedback": lambda session: TURN.ClearFeedbackRequest(session=session, turn_id="t1"),
    "ListFeedback": lambda session: TURN.ListFeedbackRequest(
        session=session, turn_ids=["t1"], start_time=at(1), end_time=at(2_000_000_000)
    ),
    "ListTurnArtifacts": lambda session: TURN.ListTurnArtifactsRequest(
        session=session, tags=["turn:t1", "artifact:turn.fingerprint.v1"]
    ),
    "ReadForJob": lambda session: pb.ReadForJobRequest(
        read=memory_service_pb2.ReadDocumentRequest(uri="viking://user/memories/preferences/Tea.md")
    ),
}  # fmt: skip


@pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{method.containing_service.name}.{method.name}")
async def test_malformed_requests_are_answered(caller: Caller, channel: grpc.aio.Channel, method: Any) -> None:
    committed = await caller.committed(said("hello"))
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await worker.deliver(lease, write("preferences", topic="Tea", content="Likes tea."))
        session = committed.archive_uri.split("/")[5]
        await caller.committed(said("hi"), session=session)
        lease = (await worker.take()).lease
        for turn in ("t1", "t2"):
            await talk(caller, session, turn, "hello, tea")
        await submit(caller, session, "t1", fingerprint=fingerprint("Find tea", assistant_signals=[signal("shop", 1)]))
        stub = STUBS.get(method.containing_service.name)
        call = getattr(getattr(caller, stub) if stub else worker.calls, method.name)
        tea = caller.uri("memories/preferences/Tea.md")
        likely = (session, committed.task_id, committed.archive_uri, tea, "tea", caller.user, "t1", "t2")
        malformed = Malformed(method.full_name, likely)
        codes = []
        for _ in range(REQUESTS):
            request: Any = malformed.message(method.input_type)
            if hasattr(request, "lease"):
                request.lease.CopyFrom(lease)
            if method.name == "WatchTask" and request.task_id == committed.task_id:
                request.after_sequence = min(request.after_sequence, 5)
            codes.append(await answered(call(request), request))
        sound = SOUND.get(method.name)
        for _ in range(REQUESTS if sound is not None else 0):
            assert sound is not None
            request = malformed.damaged(sound(session))
            if hasattr(request, "lease"):
                request.lease.CopyFrom(lease)
            codes.append(await answered(call(request), request))
        assert set(codes) - {grpc.StatusCode.INVALID_ARGUMENT}, "no request came further than the door"
    await everything_can_be_read(caller)
    # CopyUser may have made other users, each with a copy of the open commit.
    users = (await caller.spaces.ListUsers(space_service_pb2.ListUsersRequest(page_size=200))).users
    for one in users:
        await Caller(channel, one.user, caller.account).cancel_open()


async def answered(call: Any, request: Any) -> grpc.StatusCode:
    try:
        if hasattr(call, "__aiter__"):
            async for _ in call:
                pass
        else:
            await call
    except grpc.aio.AioRpcError as error:
        assert error.code() not in NEVER, f"{Failure(error)} for\n{request}"
        return error.code()
    return grpc.StatusCode.OK


async def everything_can_be_read(caller: Caller) -> None:
    """What was taken can be shown: nothing that was let in breaks a read later."""
    sessions = session_service_pb2
    found = (await caller.sessions.ListSessions(sessions.ListSessionsRequest(page_size=200))).sessions
    for session in found:
        scope = sessions.MESSAGE_SCOPE_ALL
        await caller.sessions.ListMessages(sessions.ListMessagesRequest(session=session.uri, scope=scope))
        await caller.sessions.ListArchives(sessions.ListArchivesRequest(session=session.uri))
        await caller.read(f"{session.uri}/messages.jsonl")
        await paged(caller.turns.ListTurns, TURN.ListTurnsRequest(session=session.uri, page_size=200), "turns")
        for audience in ("gate", "downstream", "final_answer"):
            await load(caller, session.uri, "t2", audience, last_turns=20, render=True)
    await caller.listing(depth=16, show_hidden=True)
    await caller.tasks.ListTasks(task_service_pb2.ListTasksRequest(page_size=200))
    await paged(caller.turns.ListFeedback, TURN.ListFeedbackRequest(page_size=200), "feedback")
    await paged(caller.turns.ListAssistantSignals, TURN.ListAssistantSignalsRequest(page_size=200), "turns")
    while (await caller.find("hello")).pending_passages:  # noqa: ASYNC110  # told to nobody
        await asyncio.sleep(0.02)


async def test_malformed_messages_end_the_work_stream_and_nothing_else(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    committed = await caller.committed()
    malformed = Malformed("Work", (committed.task_id, "tea", "preferences"))
    for _ in range(STREAMS):
        async with Worker(channel) as worker:
            lease = (await worker.take()).lease
            await worker.heartbeat(lease)
            try:
                for _ in range(5):
                    request = malformed.message(pb.WorkRequest.DESCRIPTOR)
                    kind = request.WhichOneof("message")
                    if kind in ("output", "complete", "progress"):
                        getattr(request, kind).lease.CopyFrom(lease)
                    if kind not in (None, "complete", "fail", "release"):
                        await worker.send(**{kind: getattr(request, kind)})
                await worker.heartbeat(lease, sequence=2**40)
                assert (await worker.release(lease)).outcome == pb.JOB_OUTCOME_REQUEUED
            except StreamEnded as ended:
                assert ended.failure is not None
                assert ended.failure.code not in NEVER or ended.failure.message == OF_THE_CLIENT, ended
        async with Worker(channel, resume=[lease]) as worker:
            if worker.welcome.resumed[0].status == pb.LEASE_STATUS_HELD:
                await worker.release(lease)
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        assert (await worker.deliver(lease)).outcome == pb.JOB_OUTCOME_APPLIED
    assert (await caller.task(committed.task_id)).state == task_service_pb2.TASK_STATE_COMPLETED


async def test_malformed_operations_are_refused_one_by_one(caller: Caller, channel: grpc.aio.Channel) -> None:
    """What passes the contract but makes no sense costs itself alone."""
    sound = write("preferences", topic="Tea", content="Likes tea.")
    malformed = Malformed("operations", ("preferences", caller.uri("memories/preferences/Tea.md"), "content", "tools"))
    change = edit(caller.uri("memories/preferences/Tea.md"), content=[("tea", "coffee")], ranges=[(1, 1)])
    deletion = delete(caller.uri("memories/preferences/Tea.md"), ranges=[(1, 1)])
    applied = 0
    while applied < 10:
        committed = await caller.committed()
        operations: list[Any] = [malformed.message(pb.MemoryOperation.DESCRIPTOR)]
        operations += [malformed.damaged(one) for one in (sound, change, deletion)]
        items = [pb.OutputItem(operation=operation) for operation in (sound, *operations)]
        async with Worker(channel) as worker:
            lease = (await worker.take()).lease
            await worker.send(output=pb.OutputChunk(lease=lease, output_id="first", items=items))
            verdict = await worker.complete(lease, "first", 1)
            if verdict.outcome == pb.JOB_OUTCOME_REQUEUED:
                # An operation breaks the contract: its attempt is over, and the worker's stream is not.
                await caller.cancel_open()
                continue
            if verdict.outcome == pb.JOB_OUTCOME_NEEDS_REPAIR:
                verdict = await worker.deliver(lease, sound, *operations)
            assert verdict.outcome == pb.JOB_OUTCOME_APPLIED, verdict
            applied += 1
        result = (await caller.task(committed.task_id)).result
        assert all(one.reason and one.operation_index > 0 for one in (*result.rejected, *result.skipped))
    await everything_can_be_read(caller)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
async def test_numbers_that_json_does_not_have_are_refused_by_path(caller: Caller, number: float) -> None:
    session = await caller.session()
    tool = common_pb2.ToolPart(tool_name="t")
    tool.input.fields["x"].list_value.values.add().number_value = number
    message = common_pb2.Message(role=common_pb2.ROLE_USER, parts=[common_pb2.Part(tool=tool)])
    skill = session_service_pb2.SkillUsage(uri="viking://user/skills/s.md", input=Value(number_value=number))
    for call, field in (
        (
            caller.sessions.AddMessages(session_service_pb2.AddMessagesRequest(session=session, messages=[message])),
            "messages[0].parts[0].tool.input",
        ),
        (
            caller.sessions.RecordUsage(session_service_pb2.RecordUsageRequest(session=session, skills=[skill])),
            "skills[0].input",
        ),
    ):
        failed = await failure(call)
        assert failed.seen == ("INVALID_ARGUMENT", "FIELD_INVALID") and failed.fields == [field]


async def test_a_forged_page_token_is_refused(caller: Caller) -> None:
    for _ in range(2):
        await caller.session()
    request = session_service_pb2.ListSessionsRequest(page_size=1)
    token = (await caller.sessions.ListSessions(request)).next_page_token
    digest, *_ = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    for key in ([10**30, "s"], [2**63 - 1, "s"], [True, "s"], [1], [1, "s", 2], ["1", "s"]):
        forged = base64.urlsafe_b64encode(json.dumps([digest, *key]).encode()).decode()
        request.page_token = forged
        failed = await failure(caller.sessions.ListSessions(request))
        assert failed.seen == ("INVALID_ARGUMENT", "FIELD_INVALID") and failed.fields == ["page_token"]
