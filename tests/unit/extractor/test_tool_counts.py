from extractor.offline import OfflineEngine
from extractor.offline.tools import skill_name
from runekeep.v1 import common_pb2, extractor_service_pb2
from tests.doubles.fixed_job import FixedJob, message
from tests.unit.extractor.embedding_job import EmbeddingJob

PENDING, RUNNING = common_pb2.TOOL_STATUS_PENDING, common_pb2.TOOL_STATUS_RUNNING
COMPLETED, ERROR = common_pb2.TOOL_STATUS_COMPLETED, common_pb2.TOOL_STATUS_ERROR


def called(sequence, *calls, peer_id="") -> common_pb2.Message:
    """An agent's message of tool calls: (tool, status, milliseconds, tokens, call id, skill)."""
    made = common_pb2.Message(sequence=sequence, role=common_pb2.ROLE_ASSISTANT, peer_id=peer_id)
    for tool, status, milliseconds, tokens, call_id, skill in calls:
        part = made.parts.add().tool
        part.tool_name, part.status, part.total_tokens = tool, status, tokens
        part.tool_id, part.skill_name = call_id, skill
        part.duration.FromMilliseconds(milliseconds)
    return made


async def counted(job: FixedJob) -> dict[tuple[str, str, str], dict[str, int]]:
    output = await OfflineEngine().extract(job)
    found = {}
    for operation in output.operations:
        fields = operation.write.fields
        name = fields["tool_name" if operation.write.memory_type == "tools" else "skill_name"].string_value
        key = (operation.write.memory_type, operation.peer_id, name)
        assert key not in found
        found[key] = {name: value.int64_value for name, value in fields.items() if value.HasField("int64_value")}
    return found


async def test_calls_are_counted_exactly():
    job = EmbeddingJob(
        [
            called(1, ("search", COMPLETED, 1500, 120, "a", ""), ("search", ERROR, 300, 7, "b", "")),
            called(2, ("search", COMPLETED, 1, 0, "", ""), ("read file", RUNNING, 0, 0, "c", "")),
        ]
    )
    assert await counted(job) == {
        ("tools", "", "search"): {
            "total_calls": 3,
            "success_count": 2,
            "fail_count": 1,
            "total_time_ms": 1801,
            "total_tokens": 127,
        },
        ("tools", "", "read file"): {
            "total_calls": 1,
            "success_count": 0,
            "fail_count": 1,
            "total_time_ms": 0,
            "total_tokens": 0,
        },
    }


async def test_a_call_recorded_twice_is_one_call():
    job = EmbeddingJob(
        [
            called(1, ("search", PENDING, 0, 0, "a", "")),
            called(2, ("search", RUNNING, 0, 0, "a", "")),
            called(3, ("search", COMPLETED, 20, 5, "a", "")),
            # The id is used again, by a call that has a result of its own.
            called(4, ("search", ERROR, 1, 0, "a", "")),
        ]
    )
    (counts,) = (await counted(job)).values()
    assert counts == {
        "total_calls": 2,
        "success_count": 1,
        "fail_count": 1,
        "total_time_ms": 21,
        "total_tokens": 5,
    }


async def test_skills_count_from_calls_and_from_recorded_usage():
    job = EmbeddingJob([called(1, ("run", COMPLETED, 1, 1, "", "code-search"))], long_term=("skills",))
    job.usage = extractor_service_pb2.UsageChunk()
    job.usage.skills.add(uri="viking://user/default/skills/code-search.md", success=False)
    job.usage.skills.add(uri="viking://user/default/skills/make_slides", success=True)
    assert await counted(job) == {
        ("skills", "", "code-search"): {"total_executions": 2, "success_count": 1, "fail_count": 1},
        ("skills", "", "make_slides"): {"total_executions": 1, "success_count": 1, "fail_count": 0},
    }


async def test_counts_go_to_their_owner_and_to_nobody_else():
    messages = [
        called(1, ("search", COMPLETED, 1, 1, "", "")),
        called(2, ("search", ERROR, 2, 2, "", ""), peer_id="bo"),
        called(3, ("search", ERROR, 3, 3, "", ""), peer_id="stranger"),
    ]
    both = await counted(EmbeddingJob(messages, peers=["bo"], long_term=("tools",)))
    assert {key[1]: counts["total_time_ms"] for key, counts in both.items()} == {"": 1, "bo": 2}
    peer_only = await counted(EmbeddingJob(messages, peers=["bo"], allow_self=False, long_term=("tools",)))
    assert [key[1] for key in peer_only] == ["bo"]


async def test_ranges_hold_the_messages_of_the_calls():
    job = EmbeddingJob(
        [called(n, ("search", COMPLETED, 1, 1, "", "")) for n in (2, 3, 7)] + [message(4, "Good.")],
        long_term=("tools",),
    )
    (operation,) = (await OfflineEngine().extract(job)).operations
    assert [(r.start_sequence, r.end_sequence) for r in operation.ranges] == [(2, 3), (7, 7)]


async def test_types_that_are_not_planned_are_not_written():
    job = EmbeddingJob([called(1, ("search", COMPLETED, 1, 1, "", "skill"))], long_term=("profile",))
    assert (await OfflineEngine().extract(job)).operations == []


def test_a_skill_is_named_by_the_last_segment_of_its_uri():
    assert skill_name("viking://user/u/skills/code-search.md") == "code-search"
    assert skill_name("viking://user/skills/code-search/") == "code-search"
