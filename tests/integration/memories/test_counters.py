"""Counters of tools and skills: what the records of a batch say, whatever a worker sends."""

from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from runekeep.v1 import common_pb2, session_service_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from tests.support.callers import CALLED, Caller, policy, said
from tests.support.changes import put, written
from tests.support.worker import Worker, delete, edit, write

pytestmark = pytest.mark.postgres_long

COMPLETED, ERROR = common_pb2.TOOL_STATUS_COMPLETED, common_pb2.TOOL_STATUS_ERROR
PENDING = common_pb2.TOOL_STATUS_PENDING
GREP, LS, DIG = "memories/tools/grep.md", "memories/tools/ls.md", "memories/skills/dig.md"


@pytest.fixture(scope="module")
def server_settings(either_store: dict[str, str]) -> dict[str, str]:
    return either_store


def called(name: str, status: Any, *, ms: int = 0, tokens: int = 0, skill: str = "", peer: str = "") -> Any:
    """A message that records one call; zero milliseconds and tokens are unknown."""
    tool = common_pb2.ToolPart(
        tool_name=name,
        skill_name=skill,
        status=status,
        total_tokens=tokens,
        duration=Duration(nanos=ms * 1_000_000) if ms else None,
    )
    return common_pb2.Message(role=common_pb2.ROLE_ASSISTANT, peer_id=peer, parts=[common_pb2.Part(tool=tool)])


async def result_of(channel: grpc.aio.Channel, caller: Caller, task_id: str, *operations: pb.MemoryOperation) -> Any:
    async with Worker(channel) as worker:
        verdict = await worker.deliver((await worker.take()).lease, *operations)
        assert verdict.outcome == pb.JOB_OUTCOME_APPLIED, verdict
    return (await caller.task(task_id)).result


async def counters(caller: Caller, path: str) -> dict[str, int]:
    """The counters that are not zero."""
    fields = (await caller.memory(caller.uri(path))).fields
    return {name: value.int64_value for name, value in fields.items() if value.int64_value}


async def test_a_worker_that_claims_numbers_and_names_changes_none(caller: Caller, channel: grpc.aio.Channel) -> None:
    batch = (called("grep", COMPLETED, ms=40, tokens=10), called("ls", ERROR))
    committed = await caller.committed(*batch, policy=policy(types=["tools", "skills"]))
    claims = (
        write("tools", tool_name="grep", total_calls=50, success_count=70, fail_count=3, best_for="Finding text."),
        write("tools", tool_name="web_search", total_calls=9, best_for="Nothing that was called."),
        write("skills", skill_name="dig", total_executions=4),
    )
    result = await result_of(channel, caller, committed.task_id, *claims)
    assert [(one.reason, one.memory_type, one.operation_index) for one in result.skipped] == [
        ("not_in_records", "tools", 1), ("not_in_records", "skills", 2),
    ]  # fmt: skip
    assert dict(result.memories_extracted) == {"tools": 2}
    assert await counters(caller, GREP) == {
        "total_calls": 1, "success_count": 1, "total_time_ms": 40, "total_tokens": 10,
    }  # fmt: skip
    assert await counters(caller, LS) == {
        "total_calls": 1, "fail_count": 1, "untimed_calls": 1, "unmetered_calls": 1,
    }  # fmt: skip
    grep, ls = await caller.memory(caller.uri(GREP)), await caller.memory(caller.uri(LS))
    assert "Success rate: 100.0% (1 successful, 0 failed)" in grep.content
    assert "Avg time: 40ms, Avg tokens: 10" in grep.content and "Best for: Finding text." in grep.content
    assert "Success rate: 0.0% (0 successful, 1 failed)" in ls.content
    assert "Avg time: unknown, Avg tokens: unknown" in ls.content
    assert [one.sequence for one in ls.sources] == [2]
    assert {one.name for one in (await caller.listing(caller.uri("memories/tools"))).entries} == {"grep.md", "ls.md"}


async def test_counts_add_up_over_commits_and_averages_are_over_what_is_known(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    only = policy(types=["tools"])
    first = await caller.committed(called("grep", COMPLETED, ms=100), called("grep", COMPLETED), policy=only)
    await result_of(channel, caller, first.task_id)
    second = await caller.committed(called("grep", ERROR, ms=300), called("grep", PENDING), policy=only)
    uri = caller.uri(GREP)
    again = write("tools", tool_name="grep", total_calls=1, best_for="Text.")
    advice = edit(uri, total_calls=900, recommendation="Quote the pattern.")
    result = await result_of(channel, caller, second.task_id, again, advice, edit(uri, success_count=5))
    assert (result.total_adds, result.total_updates, result.unchanged) == (0, 1, 1)
    memory = await caller.memory(uri)
    assert await counters(caller, GREP) == {
        "total_calls": 3, "success_count": 2, "fail_count": 1, "pending_calls": 1,
        "total_time_ms": 400, "untimed_calls": 1, "unmetered_calls": 3,
    }  # fmt: skip
    assert "Based on 3 historical calls" in memory.content and "Without a result: 1" in memory.content
    assert "Avg time: 200ms, Avg tokens: unknown" in memory.content
    assert "Recommendation: Quote the pattern." in memory.content and memory.version == 2


async def test_a_call_that_ends_in_a_later_batch_counts_once(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await caller.session(policy(types=["tools"]))
    for status in (PENDING, COMPLETED):
        message = called("grep", status, ms=5)
        message.parts[0].tool.tool_id = "call-1"
        committed = await caller.committed(message, session=session)
        await result_of(channel, caller, committed.task_id)
    found = await counters(caller, GREP)
    assert (found["total_calls"], found["success_count"], found["pending_calls"]) == (1, 1, 1)


async def test_a_result_in_a_message_of_the_user_ends_the_call_of_a_peer(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    batch = (called("grep", PENDING, peer="bo"), called("grep", COMPLETED), called("grep", COMPLETED))
    for message in batch:
        message.parts[0].tool.tool_id = "call-1"
    committed = await caller.committed(*batch, policy=policy(peer=True, types=["tools"]))
    await result_of(channel, caller, committed.task_id)
    once = {"total_calls": 1, "success_count": 1, "untimed_calls": 1, "unmetered_calls": 1}
    assert await counters(caller, f"peers/bo/{GREP}") == once
    assert await counters(caller, GREP) == once, "an id that is used again"


async def test_recorded_runs_and_calls_of_a_skill_are_counted(caller: Caller, channel: grpc.aio.Channel) -> None:
    session = await caller.session(policy(types=["skills"]))
    runs = [
        session_service_pb2.SkillUsage(uri="viking://user/skills/dig.md", success=success, output="dug")
        for success in (True, False)
    ]
    await caller.sessions.RecordUsage(session_service_pb2.RecordUsageRequest(session=session, skills=runs))
    committed = await caller.committed(called("run", COMPLETED, skill="dig"), session=session)
    await result_of(channel, caller, committed.task_id, write("skills", skill_name="dig", best_for="Holes."))
    assert await counters(caller, DIG) == {"total_executions": 3, "success_count": 2, "fail_count": 1}
    content = (await caller.memory(caller.uri(DIG))).content
    assert "Success rate: 66.7% (2 successful, 1 failed)" in content and "Best for: Holes." in content


async def test_counts_go_to_whose_message_records_them_as_far_as_the_policy_lets_them(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    batch = (CALLED, called("grep", ERROR, peer="bo"))
    peers = policy(self=False, peer=True, types=["tools"])
    committed = await caller.committed(*batch, policy=peers)
    await result_of(channel, caller, committed.task_id)
    assert (await counters(caller, f"peers/bo/{GREP}"))["fail_count"] == 1
    assert not (await caller.listing(caller.uri("memories"))).entries

    committed = await caller.committed(*batch, policy=policy(types=["preferences"]))
    result = await result_of(channel, caller, committed.task_id)
    assert result.total_adds == 0, "the policy leaves tools out"


async def test_a_memory_that_is_deleted_begins_anew_with_the_calls_of_the_batch(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    only = policy(types=["tools"])
    for operations in ((), (delete(caller.uri(GREP), ranges=[(1, 1)]),)):
        committed = await caller.committed(said("forget about grep"), CALLED, CALLED, policy=only)
        await result_of(channel, caller, committed.task_id, *operations)
        assert (await counters(caller, GREP))["total_calls"] == 2


async def test_a_count_that_does_not_fit_costs_no_commit(caller: Caller, channel: grpc.aio.Channel) -> None:
    most = 2**63 - 1
    await written(caller, put("tools", tool_name="grep", total_calls=most - 1))
    batch = [called("grep", COMPLETED, tokens=2**62), called("grep", COMPLETED, tokens=2**62)]
    committed = await caller.committed(*batch, policy=policy(types=["tools", "preferences"]))
    note = write("preferences", topic="Tea", content="Green.")
    result = await result_of(channel, caller, committed.task_id, note)
    assert dict(result.memories_extracted) == {"preferences": 1, "tools": 1} and not result.skipped
    assert (await counters(caller, GREP)) == {
        "total_calls": most, "success_count": 2, "untimed_calls": 2, "total_tokens": most,
    }  # fmt: skip


async def test_a_count_that_a_worker_sends_is_never_sent_back_for_repair(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    """A model did not make it, and would be paid for mending it."""
    committed = await caller.committed(CALLED, policy=policy(types=["tools"]))
    result = await result_of(channel, caller, committed.task_id, write("tools", tool_name="g\0", total_calls=1))
    assert [(one.reason, one.operation_index) for one in result.skipped] == [("field_invalid", 0)]
    assert dict(result.memories_extracted) == {"tools": 1} and not result.rejected


async def test_a_name_that_is_a_secret_gets_no_memory(caller: Caller, channel: grpc.aio.Channel) -> None:
    key = "sk-ant-api03-" + "A1b2" * 20
    committed = await caller.committed(called(key, COMPLETED), CALLED, policy=policy(types=["tools"]))
    await result_of(channel, caller, committed.task_id)
    entries = (await caller.listing(caller.uri("memories/tools"))).entries
    assert [one.name for one in entries] == ["grep.md"]


async def test_of_very_many_tools_those_with_the_most_calls_are_counted(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    parts = [called(f"tool-{number}", COMPLETED).parts[0] for number in (*range(1001), 1000)]
    batch = [
        common_pb2.Message(role=common_pb2.ROLE_ASSISTANT, parts=parts[first : first + 50])
        for first in range(0, len(parts), 50)
    ]
    committed = await caller.committed(*batch, policy=policy(types=["tools"]))
    result = await result_of(channel, caller, committed.task_id)
    assert dict(result.memories_extracted) == {"tools": 1000}
    assert [(one.reason, one.message.split()[0]) for one in result.skipped] == [("too_many_names", "1")]
    assert (await counters(caller, "memories/tools/tool-1000.md"))["total_calls"] == 2
