"""Counts from records: of calls, with and without results, and of runs that callers recorded."""

from runekeep_schemas.documents.counters import (
    SELF,
    Call,
    SkillRun,
    counted_fields,
    counter_values,
    join_records,
    skill_name,
    tally_batch,
)
from runekeep_schemas.memory_types.model import MergeOp
from runekeep_schemas.type_files.registry import Registry


def call(
    sequence: int,
    status: str = "completed",
    *,
    tool: str = "search",
    id: str = "",
    ms: int = 0,
    tokens: int = 0,
    skill: str = "",
    owner: str = SELF,
) -> Call:
    return Call(owner, sequence, id, tool, skill, status, ms, tokens)


def counted(calls: list[Call], *runs: SkillRun) -> dict[tuple[str, str, str], dict[str, str | int]]:
    """The counters that are not zero, by type, owner and name."""
    found = {}
    for key, tally in tally_batch(join_records(calls), runs).items():
        type = Registry.load()[key[0]]
        sums = [field.name for field in type.fields if field.merge_op is MergeOp.SUM]
        values = counter_values(key, tally, counted_fields(type.name, type.filename_template, sums))
        assert values[type.key_fields[0]] == key[2]
        found[key] = {name: value for name, value in values.items() if value and name not in type.key_fields}
    return found


def test_ends_durations_and_tokens_are_counted_and_what_is_unknown_apart() -> None:
    calls = [
        call(1, id="a", ms=1500, tokens=120),
        call(1, "error", id="b", ms=300),
        call(2, ms=1, tokens=7),
        call(2),
        call(2, "running", tool="read file", id="c"),
        call(3, "pending", id="d"),
    ]
    assert counted(calls) == {
        ("tools", SELF, "search"): {
            "total_calls": 4,
            "success_count": 3,
            "fail_count": 1,
            "pending_calls": 1,
            "total_time_ms": 1801,
            "untimed_calls": 1,
            "total_tokens": 127,
            "unmetered_calls": 2,
        },
        ("tools", SELF, "read file"): {"pending_calls": 1},
    }


def test_a_call_recorded_twice_is_one_call() -> None:
    calls = [
        call(1, "pending", id="a"),
        call(2, "running", id="a"),
        call(3, id="a", ms=20, tokens=5),
        # The id is used again, by a call that has a result of its own.
        call(4, "error", id="a", ms=1, tokens=1),
        # Begun by another peer it is another call.
        call(5, "pending", id="a", owner="bo"),
    ]
    assert counted(calls) == {
        ("tools", SELF, "search"): {
            "total_calls": 2,
            "success_count": 1,
            "fail_count": 1,
            "total_time_ms": 21,
            "total_tokens": 6,
        },
        ("tools", "bo", "search"): {"pending_calls": 1},
    }


def test_a_result_in_a_message_of_another_ends_the_call_of_whoever_made_it() -> None:
    calls = [
        call(1, "pending", id="a", owner="bo"),
        call(2, "pending", id="a", owner="ann"),
        call(3, id="a", ms=20, tokens=5, owner="ann"),
        call(4, "error", id="a", ms=1, tokens=1),
        call(5, "pending", id="b", owner="bo"),
        call(6, "pending", id="b", owner="ann"),
    ]
    assert counted(calls) == {
        ("tools", "ann", "search"): {
            "total_calls": 1, "success_count": 1, "pending_calls": 1, "total_time_ms": 20, "total_tokens": 5,
        },
        ("tools", "bo", "search"): {
            "total_calls": 1, "fail_count": 1, "pending_calls": 1, "total_time_ms": 1, "total_tokens": 1,
        },
    }  # fmt: skip


def test_skills_count_from_calls_and_from_recorded_runs() -> None:
    runs = (
        SkillRun("viking://user/default/skills/code-search.md", success=False),
        SkillRun("viking://user/skills/make_slides/", success=True),
        SkillRun("", success=True),
    )
    found = counted([call(1, tool="run", skill="code-search", ms=1, tokens=1, owner=SELF)], *runs)
    del found["tools", SELF, "run"]
    assert found == {
        ("skills", SELF, "code-search"): {"total_executions": 2, "success_count": 1, "fail_count": 1},
        ("skills", SELF, "make_slides"): {"total_executions": 1, "success_count": 1},
    }


def test_the_messages_of_the_records_are_known() -> None:
    (tally,) = tally_batch(join_records([call(n) for n in (2, 3, 7)]), ()).values()
    assert tally.sequences == {2, 3, 7}


def test_a_type_of_another_shape_is_not_counted() -> None:
    sums = ("total_calls", "likes")
    assert counted_fields("tools", "{tool_name}.md", sums) == {"total_calls"}
    assert not counted_fields("tools", "{name}.md", sums)
    assert not counted_fields("recipes", "{tool_name}.md", sums)


def test_a_skill_is_named_by_the_last_segment_of_its_uri() -> None:
    assert skill_name("viking://user/u/skills/code-search.md") == "code-search"
    assert skill_name("viking://user/skills/code-search/") == "code-search"
