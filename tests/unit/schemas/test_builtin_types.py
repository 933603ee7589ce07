"""The shipped YAML against the field tables of the design page it follows, copied by hand."""

from dataclasses import dataclass

import pytest

from schemas.registry import Registry
from schemas.session_skills import SESSION_SKILLS
from schemas.types import DerivedFormat, FieldType, MergeOp, OperationMode

PATCH, REPLACE, SUM, FIXED = MergeOp.PATCH, MergeOp.REPLACE, MergeOp.SUM, MergeOp.IMMUTABLE
TEXT, INT = FieldType.STRING, FieldType.INT64
USER, AGENT = "viking://user/{user_space}/memories", "viking://agent/{agent_space}/memories"


@dataclass(frozen=True)
class Expected:
    directory: str
    filename: str
    fields: dict[str, tuple[FieldType, MergeOp]]
    template: bool = False
    add_only: bool = False
    agent_only: bool = False


GUIDE = {
    "best_for": (TEXT, PATCH),
    "common_failures": (TEXT, PATCH),
    "recommendation": (TEXT, PATCH),
    "guidelines": (TEXT, PATCH),
}

EXPECTED = {
    "profile": Expected(USER, "profile.md", {"content": (TEXT, PATCH)}),
    "preferences": Expected(f"{USER}/preferences", "{topic}.md", {"topic": (TEXT, FIXED), "content": (TEXT, PATCH)}),
    "entities": Expected(
        f"{USER}/entities",
        "{entity_name}.md",
        {"entity_name": (TEXT, FIXED), "entity_type": (TEXT, PATCH), "content": (TEXT, PATCH)},
    ),
    "events": Expected(
        f"{USER}/events",
        "{event_time}_{event_name}.md",
        {"event_name": (TEXT, FIXED), "event_time": (TEXT, FIXED), "content": (TEXT, PATCH)},
        add_only=True,
    ),
    "cases": Expected(
        f"{AGENT}/cases",
        "{case_name}.md",
        {
            "case_name": (TEXT, FIXED),
            "problem": (TEXT, PATCH),
            "solution": (TEXT, PATCH),
            "content": (TEXT, PATCH),
        },
        add_only=True,
    ),
    "patterns": Expected(
        f"{AGENT}/patterns",
        "{pattern_name}.md",
        {"pattern_name": (TEXT, FIXED), "pattern_type": (TEXT, PATCH), "content": (TEXT, PATCH)},
    ),
    "tools": Expected(
        f"{AGENT}/tools",
        "{tool_name}.md",
        {
            "tool_name": (TEXT, FIXED),
            "static_desc": (TEXT, PATCH),
            "total_calls": (INT, SUM),
            "success_count": (INT, SUM),
            "fail_count": (INT, SUM),
            "total_time_ms": (INT, SUM),
            "total_tokens": (INT, SUM),
            "optimal_params": (TEXT, PATCH),
            **GUIDE,
        },
        template=True,
    ),
    "skills": Expected(
        f"{AGENT}/skills",
        "{skill_name}.md",
        {
            "skill_name": (TEXT, FIXED),
            "total_executions": (INT, SUM),
            "success_count": (INT, SUM),
            "fail_count": (INT, SUM),
            "recommended_flow": (TEXT, PATCH),
            "key_dependencies": (TEXT, PATCH),
            **GUIDE,
        },
        template=True,
    ),
    "trajectories": Expected(
        f"{AGENT}/trajectories",
        "{trajectory_name}.md",
        {
            "trajectory_name": (TEXT, FIXED),
            "outcome": (TEXT, FIXED),
            "task_query": (TEXT, FIXED),
            "retrieval_anchor": (TEXT, FIXED),
            "content": (TEXT, PATCH),
        },
        add_only=True,
        agent_only=True,
    ),
    "experiences": Expected(
        f"{AGENT}/experiences",
        "{experience_name}.md",
        {"experience_name": (TEXT, FIXED), "content": (TEXT, REPLACE), "supersedes": (TEXT, REPLACE)},
        agent_only=True,
    ),
}


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.load()


def test_exactly_the_ten_types_are_shipped(registry: Registry) -> None:
    assert registry.names() == tuple(sorted(EXPECTED))


@pytest.mark.parametrize("name", EXPECTED)
def test_type_is_as_designed(registry: Registry, name: str) -> None:
    type, expected = registry[name], EXPECTED[name]
    assert {field.name: (field.type, field.merge_op) for field in type.fields} == expected.fields
    assert type.directory == expected.directory
    assert type.filename_template == expected.filename
    assert (type.content_template is not None) == expected.template
    assert (type.operation_mode is OperationMode.ADD_ONLY) == expected.add_only
    assert type.mergeable != expected.add_only
    assert type.agent_only == expected.agent_only
    assert type.enabled


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


def test_outcomes_are_the_five_known_ones(registry: Registry) -> None:
    outcomes = registry["trajectories"].field("outcome").choices
    assert outcomes == ("success", "failure", "partial", "unfinished", "unknown")


@pytest.mark.parametrize("name", ["tools", "skills"])
def test_guidelines_have_their_headings(registry: Registry, name: str) -> None:
    headings = registry[name].field("guidelines").required_headings
    assert headings == ("## Guidelines", "### Good Cases", "### Bad Cases")


def test_descriptions_stay_lean(registry: Registry) -> None:
    words = sum(
        len(text.split()) for type in registry for text in (type.description, *(f.description for f in type.fields))
    )
    assert 500 < words < 1400


def test_session_skills_are_an_output_of_their_own(registry: Registry) -> None:
    assert SESSION_SKILLS.name not in registry
    assert {field.name: field.merge_op for field in SESSION_SKILLS.fields} == {
        "skill_name": FIXED,
        "description": PATCH,
        "when_to_use": PATCH,
        "steps": PATCH,
        "pitfalls": PATCH,
    }
