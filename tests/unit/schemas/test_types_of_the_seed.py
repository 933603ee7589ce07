"""The shipped types against the facts of the pages they come from: names, types, merge operations, templates.

`FACTS` is committed, so the comparison works in a lone checkout. Where the pages lie beside the checkout they are read
too, and held against both: neither a slip in the table nor a change of a page passes unseen.
"""

import re
from dataclasses import dataclass
from dataclasses import field as member
from pathlib import Path

import pytest

from runekeep_schemas.memory_types.model import MemoryType, OperationMode
from runekeep_schemas.session_skills import SESSION_SKILLS
from runekeep_schemas.type_files.registry import Registry

SHARED = Path(__file__).parents[4] / "shared"
SEED = SHARED / "seeds" / "memory-templating-design.md"
MODEL = SHARED / "design" / "memory-model.md"
USER, AGENT = "viking://user/{user_space}/memories", "viking://agent/{agent_space}/memories"


@dataclass
class Facts:
    """A type as a page gives it: fields as (type, merge operation) by name, lines of the content template."""

    directory: str
    filename_template: str
    fields: dict[str, tuple[str, str]] = member(default_factory=dict)
    template: list[str] = member(default_factory=list)


def fields_of(text: str) -> dict[str, tuple[str, str]]:
    """`name type merge_op` a line."""
    return {name: (type, merge_op) for name, type, merge_op in map(str.split, text.strip().splitlines())}


NAMED = "string immutable"
GUIDE = """
    best_for string patch
    common_failures string patch
    recommendation string patch
    guidelines string patch
"""
RATE = "- Success rate: {success_rate}% ({success_count} successful, {fail_count} failed)"
FACTS = {
    "profile": Facts(USER, "profile.md", fields_of("content string patch")),
    "preferences": Facts(f"{USER}/preferences", "{topic}.md", fields_of(f"topic {NAMED}\ncontent string patch")),
    "entities": Facts(
        f"{USER}/entities",
        "{entity_name}.md",
        # The page says no operation for the second, and patch is what holds then.
        fields_of(f"entity_name {NAMED}\nentity_type string patch\ncontent string patch"),
    ),
    "events": Facts(
        f"{USER}/events",
        "{event_time}_{event_name}.md",
        fields_of(f"event_name {NAMED}\nevent_time {NAMED}\ncontent string patch"),
    ),
    "cases": Facts(
        f"{AGENT}/cases",
        "{case_name}.md",
        fields_of(f"case_name {NAMED}\nproblem string patch\nsolution string patch\ncontent string patch"),
    ),
    "patterns": Facts(
        f"{AGENT}/patterns",
        "{pattern_name}.md",
        fields_of(f"pattern_name {NAMED}\npattern_type string patch\ncontent string patch"),
    ),
    "tools": Facts(
        f"{AGENT}/tools",
        "{tool_name}.md",
        fields_of(
            f"""
    tool_name {NAMED}
    static_desc string patch
    total_calls int64 sum
    success_count int64 sum
    fail_count int64 sum
    total_time_ms int64 sum
    total_tokens int64 sum
    optimal_params string patch{GUIDE}"""
        ),
        [
            "Tool: {tool_name}",
            "Static Description:",
            '"{static_desc}"',
            "Tool Memory Context:",
            "Based on {total_calls} historical calls:",
            RATE,
            "- Avg time: {avg_time}, Avg tokens: {avg_tokens}",
            "- Best for: {best_for}",
            "- Optimal params: {optimal_params}",
            "- Common failures: {common_failures}",
            "- Recommendation: {recommendation}",
            "{guidelines}",
        ],
    ),
    "skills": Facts(
        f"{AGENT}/skills",
        "{skill_name}.md",
        fields_of(
            f"""
    skill_name {NAMED}
    total_executions int64 sum
    success_count int64 sum
    fail_count int64 sum
    recommended_flow string patch
    key_dependencies string patch{GUIDE}"""
        ),
        [
            "Skill: {skill_name}",
            "Skill Memory Context:",
            "Based on {total_executions} historical executions:",
            RATE,
            "- Best for: {best_for}",
            "- Recommended flow: {recommended_flow}",
            "- Key dependencies: {key_dependencies}",
            "- Common failures: {common_failures}",
            "- Recommendation: {recommendation}",
            "{guidelines}",
        ],
    ),
}
EXECUTION = {
    "trajectories": Facts(
        f"{AGENT}/trajectories",
        "{trajectory_name}.md",
        fields_of(
            f"""
    trajectory_name {NAMED}
    outcome {NAMED}
    task_query {NAMED}
    retrieval_anchor {NAMED}
    content string patch"""
        ),
    ),
    "experiences": Facts(
        f"{AGENT}/experiences",
        "{experience_name}.md",
        fields_of(f"experience_name {NAMED}\ncontent string replace\nsupersedes string replace"),
    ),
}
BEYOND_THE_SEED = {"pending_calls", "untimed_calls", "unmetered_calls"}
"""Counters of `tools` for what the seed does not tell apart: calls without a result, and unknown amounts."""
HEADINGS = ("## Guidelines", "### Good Cases", "### Bad Cases")


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.load()


def seed_types(page: str) -> dict[str, Facts]:
    """The YAML examples of the page. Its indentation is lost, so they are read line by line, not as YAML."""
    found: dict[str, Facts] = {}
    facts: Facts | None = None
    name = ""
    in_template = False
    for line in map(str.strip, page.splitlines()):
        key, colon, value = line.partition(": ")
        value = value.strip('"')
        if re.fullmatch(r"[a-z]+\.yaml", line):
            facts = found[line.removesuffix(".yaml")] = Facts("", "")
        elif facts is None:
            continue
        elif line.startswith("Memory File Storage Format Example"):
            facts = None
        elif line == "fields:":
            in_template = False
        elif line == "content_template: |":
            in_template = True
        elif in_template:
            facts.template.append(line)
        elif colon and key in ("directory", "filename_template"):
            setattr(facts, key, value)
        elif key == "- name":
            name = value
            facts.fields[name] = ("string", "patch")
        elif colon and key == "type" and name:
            facts.fields[name] = (value, facts.fields[name][1])
        elif colon and key == "merge_op" and name:
            facts.fields[name] = (facts.fields[name][0], value)
    return found


def facts_of(type: MemoryType) -> Facts:
    template = (type.content_template or "").splitlines()
    return Facts(
        type.directory,
        type.filename_template,
        {
            field.name: (field.type.value, field.merge_op.value)
            for field in type.fields
            if field.name not in BEYOND_THE_SEED
        },
        [line for line in template if line and "{pending_calls}" not in line],
    )


@pytest.mark.parametrize("name", [*FACTS, *EXECUTION])
def test_each_type_has_every_fact(registry: Registry, name: str) -> None:
    assert facts_of(registry[name]) == (FACTS | EXECUTION)[name]


def test_the_only_other_type_is_plans(registry: Registry) -> None:
    assert set(registry.names()) == FACTS.keys() | EXECUTION.keys() | {"plans"}


@pytest.mark.skipif(not SEED.exists(), reason="the seed is not beside this checkout")
def test_the_facts_are_those_of_the_seed(registry: Registry) -> None:
    page = SEED.read_text()
    found = seed_types(page)
    assert found == FACTS
    assert {name: facts_of(registry[name]) for name in found} == found
    for heading in HEADINGS:
        assert f'- "{heading}" - ' in page


@pytest.mark.skipif(not MODEL.exists(), reason="the design is not beside this checkout")
def test_execution_types_are_those_of_the_model(registry: Registry) -> None:
    page = " ".join(MODEL.read_text().split())
    told = re.search(r"Trajectories: (.*?)\. Experiences: (.*?)\. Tool names", page)
    assert told, "the model does not name the fields of the execution types any more"
    for type, text in zip(("trajectories", "experiences"), told.groups(), strict=True):
        names = re.findall(r"\w+", re.sub(r"\(.*?\)", "", text))
        assert names == [field.name for field in registry[type].fields]
    outcomes = re.search(r"outcome \((.*?)\)", told[1])
    assert outcomes is not None
    assert registry["trajectories"].field("outcome").choices == tuple(outcomes[1].split(", "))
    skills = re.search(r"skills/\{skill_name\}\.md` with (.*?)\. Off by default", page)
    assert skills is not None
    named = [name for name in re.findall(r"\w+", re.sub(r"\(.*?\)", "", skills[1])) if name != "and"]
    assert named == [field.name for field in SESSION_SKILLS.fields]


def test_what_the_seed_says_of_types_beyond_their_fields(registry: Registry) -> None:
    """Which may be merged, which are only added, whose guide has which headings."""
    mergeable = {type.name for type in registry.long_term() if type.mergeable}
    assert mergeable == FACTS.keys() - {"events", "cases"} | {"plans"}
    assert registry["trajectories"].operation_mode is OperationMode.ADD_ONLY
    assert [type.name for type in registry.execution()] == ["experiences", "trajectories"]
    for name in ("tools", "skills"):
        guide = registry[name].field("guidelines")
        assert guide.required_headings == HEADINGS
        assert all(heading in guide.description for heading in HEADINGS)


@pytest.mark.parametrize(
    ("type", "field", "words"),
    [
        ("cases", "case_name", '"Problem → Solution"'),
        ("patterns", "pattern_name", '"Process name: Step description"'),
        ("experiences", "content", '"## Situation"'),
        ("experiences", "content", '"## Approach"'),
        ("experiences", "content", '"## Reflect"'),
        ("profile", "content", '"# User profile"'),
    ],
)
def test_names_and_headings_are_asked_for_as_they_must_be(
    registry: Registry, type: str, field: str, words: str
) -> None:
    assert words in registry[type].field(field).description


def test_descriptions_are_our_own(registry: Registry) -> None:
    """Of the seed facts carry over, sentences do not: no six words in a row but its names and headings."""
    if not SEED.exists():
        pytest.skip("the seed is not beside this checkout")
    seed = _runs(SEED.read_text())
    for type in registry:
        for text in (type.description, *(field.description for field in type.fields)):
            copied = _runs(re.sub(r'"[^"]*"', " | ", text)) & seed
            assert not copied, f"{type.name}: {copied}"


def _runs(text: str, length: int = 6) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+|\|", text.lower())
    return {
        run for at in range(len(words)) if "|" not in (run := tuple(words[at : at + length])) and len(run) == length
    }
