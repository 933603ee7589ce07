"""Rules and guards of the shipped types beyond the facts that they share with their sources."""

import pytest

from runekeep_schemas.memory_types.model import MAX_DELETES, DerivedFormat, MergeOp
from runekeep_schemas.session_skills import SESSION_SKILLS
from runekeep_schemas.type_files.registry import Registry

DELETES = {
    "profile": 0,
    "events": 5,
    "cases": 5,
    "tools": 2,
    "skills": 2,
    "trajectories": 2,
    "preferences": MAX_DELETES,
    "entities": MAX_DELETES,
    "plans": MAX_DELETES,
    "patterns": MAX_DELETES,
    "experiences": MAX_DELETES,
}


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.load()


def test_each_type_says_how_many_a_commit_may_delete_and_wants_evidence(registry: Registry) -> None:
    assert {type.name: type.max_deletes for type in registry} == DELETES
    assert all(type.delete_evidence for type in registry)
    assert all(type.enabled for type in registry)
    assert (SESSION_SKILLS.max_deletes, SESSION_SKILLS.delete_evidence) == (2, True)


def test_averages_and_rates_are_derived(registry: Registry) -> None:
    derived = {one.name: (one.of, one.per, one.format) for one in registry["tools"].derived}
    assert derived == {
        "success_rate": ("success_count", "total_calls", DerivedFormat.PERCENT),
        "avg_time": ("total_time_ms", "total_calls", DerivedFormat.DURATION_MS),
        "avg_tokens": ("total_tokens", "total_calls", DerivedFormat.NUMBER),
    }
    assert {one.name: (one.of, one.per) for one in registry["skills"].derived} == {
        "success_rate": ("success_count", "total_executions")
    }
    assert all(one.merge_op is MergeOp.AVG for type in registry for one in type.derived)


def test_only_the_profile_starts_with_a_value(registry: Registry) -> None:
    assert [type.name for type in registry if type.has_initial] == ["profile"]
    assert registry["profile"].field("content").keep_ratio == 0.5


def test_session_skills_are_an_output_of_their_own(registry: Registry) -> None:
    assert SESSION_SKILLS.name not in registry
    assert {field.name: field.merge_op for field in SESSION_SKILLS.fields} == {
        "skill_name": MergeOp.IMMUTABLE,
        "description": MergeOp.PATCH,
        "when_to_use": MergeOp.PATCH,
        "steps": MergeOp.PATCH,
        "pitfalls": MergeOp.PATCH,
    }
