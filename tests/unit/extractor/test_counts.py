"""The counts that a worker sends besides what its engine made, for servers that do not count by themselves."""

from runekeep.v1 import common_pb2, extractor_service_pb2
from runekeep_extractor.engine.tool_counts import MAX_COUNTED, MAX_RANGES, counting_operations
from runekeep_schemas.type_files.registry import Registry
from tests.doubles.fixed_job import BREWS, FixedJob, message, wire_type


def called(sequence: int, tool: str = "search", peer_id: str = "", skill: str = "") -> common_pb2.Message:
    made = common_pb2.Message(sequence=sequence, role=common_pb2.ROLE_ASSISTANT, peer_id=peer_id)
    part = made.parts.add().tool
    part.tool_name, part.skill_name, part.status = tool, skill, common_pb2.TOOL_STATUS_COMPLETED
    part.duration.FromMilliseconds(5)
    return made


def counted(job: FixedJob) -> dict[tuple[str, str, str], dict[str, int]]:
    """Counters that are not zero, by type, owner and name."""
    found = {}
    for operation in counting_operations(job):
        fields = operation.write.fields
        (name,) = (value.string_value for value in fields.values() if value.HasField("string_value"))
        key = (operation.write.memory_type, operation.peer_id, name)
        assert key not in found
        found[key] = {name: value.int64_value for name, value in fields.items() if value.int64_value}
    return found


def test_each_tool_and_skill_is_counted_for_its_owner_as_the_server_counts_it() -> None:
    messages = [called(1, skill="dig"), called(2, peer_id="bo"), called(3, peer_id="stranger"), called(4)]
    job = FixedJob(messages, peers=["bo"])
    job.usage = extractor_service_pb2.UsageChunk()
    job.usage.skills.add(uri="viking://user/default/skills/dig.md", success=False)
    two = {"total_calls": 2, "success_count": 2, "total_time_ms": 10, "unmetered_calls": 2}
    assert counted(job) == {
        ("tools", "", "search"): two,
        ("skills", "", "dig"): {"total_executions": 2, "success_count": 1, "fail_count": 1},
        ("tools", "bo", "search"): {"total_calls": 1, "success_count": 1, "total_time_ms": 5, "unmetered_calls": 1},
    }
    (first, *_) = counting_operations(job)
    assert [(one.start_sequence, one.end_sequence) for one in first.ranges] == [(1, 1), (4, 4)]
    assert [key[1] for key in counted(FixedJob(messages, peers=["bo"], allow_self=False))] == ["bo"]


def test_a_server_of_the_release_before_gets_the_counters_that_it_knows() -> None:
    before = wire_type(Registry.load()["tools"])
    known = [
        field for field in before.fields if field.name not in ("pending_calls", "untimed_calls", "unmetered_calls")
    ]
    del before.fields[:]
    before.fields.extend(known)
    job = FixedJob([called(1)], long_term=("tools",), execution=())
    job.memory_types = [before]
    (operation,) = counting_operations(job)
    assert set(operation.write.fields) == {
        "tool_name", "total_calls", "success_count", "fail_count", "total_time_ms", "total_tokens",
    }  # fmt: skip


def test_a_sum_that_does_not_fit_stays_at_the_largest_number() -> None:
    messages = [called(1), called(2)]
    for one in messages:
        one.parts[0].tool.total_tokens = 2**62
    assert counted(FixedJob(messages))["tools", "", "search"]["total_tokens"] == 2**63 - 1


def test_nothing_is_counted_where_nothing_was_called_or_the_plan_leaves_it_out() -> None:
    assert not counting_operations(FixedJob([message(1, "I like tea.")]))
    assert not counting_operations(FixedJob([called(1, skill="dig")], long_term=("profile",)))
    job = FixedJob([called(1)], long_term=("profile",))
    job.memory_types.append(wire_type(BREWS))
    assert not counting_operations(job)


def test_the_counts_of_one_output_name_few_ranges_in_all() -> None:
    messages = [called(number, tool=f"tool-{number % 9}") for number in range(1, 9 * 100)]
    ranges = [len(one.ranges) for one in counting_operations(FixedJob(messages))]
    assert sum(ranges) <= MAX_RANGES and ranges[:2] == [100, 100] and ranges[-1] == 0, "none: the whole batch"


def test_an_output_has_room_for_more_than_counts() -> None:
    messages = [called(number, tool=f"tool-{number}") for number in range(1, MAX_COUNTED + 2)]
    assert len(counting_operations(FixedJob(messages))) == MAX_COUNTED
