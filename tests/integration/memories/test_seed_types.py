"""The type files of the page they come from serve as an operator's own types, to the letter."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from runekeep.v1 import common_pb2, memory_service_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from tests.support.callers import Caller, policy, said
from tests.support.seed_types import PAGE, seed_memory, seed_type
from tests.support.server_process import ServerProcess
from tests.support.worker import Worker, write

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason=f"{PAGE} is not there")

NAMES = ("profile", "preferences", "entities", "events", "cases", "patterns", "tools", "skills")
Servers = Callable[..., ServerProcess]

DISHES = """\
name: dishes
description: A dish that the user cooks.
directory: "viking://user/{user_space}/memories/dishes"
filename_template: "{dish}.md"
fields:
  - name: dish
    type: string
    description: What it is called.
    merge_op: immutable
  - name: abstract
    type: string
    description: The dish in one sentence, with its taste.
  - name: overview
    type: string
    description: Its ingredients as a list.
  - name: content
    type: string
    description: How it is cooked.
"""


@pytest.fixture
def types(tmp_path: Path) -> Path:
    directory = tmp_path / "types"
    directory.mkdir()
    for name in NAMES:
        (directory / f"{name}.yaml").write_text(seed_type(name), encoding="utf-8")
    (directory / "dishes.yaml").write_text(DISHES)
    return directory


def test_every_line_of_the_files_is_a_line_of_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8").split("\n")
    lines = [line.strip() for name in NAMES for line in seed_type(name).splitlines()]
    assert len(lines) > 250 and set(lines) <= {line.strip() for line in page}


def searches(completed: int, failed: int) -> list[common_pb2.Message]:
    """Messages of a search each that took 1.2 seconds and 1,500 tokens."""
    status = [common_pb2.TOOL_STATUS_COMPLETED] * completed + [common_pb2.TOOL_STATUS_ERROR] * failed
    tools = (
        common_pb2.ToolPart(
            tool_name="web_search",
            status=one,
            duration=Duration(seconds=1, nanos=200_000_000),
            total_tokens=1500,
            skill_name="create_presentation" if number < 2 else "",
        )
        for number, one in enumerate(status)
    )
    return [common_pb2.Message(role=common_pb2.ROLE_ASSISTANT, parts=[common_pb2.Part(tool=tool)]) for tool in tools]


async def apply(caller: Caller, channel: grpc.aio.Channel, *operations: pb.MemoryOperation, messages: Any = ()) -> Any:
    committed = await caller.committed(*messages, policy=policy())
    async with Worker(channel) as worker:
        verdict = await worker.deliver((await worker.take()).lease, *operations)
    assert verdict.outcome == pb.JOB_OUTCOME_APPLIED, verdict
    return (await caller.task(committed.task_id)).result


async def test_a_commit_makes_the_memories_that_the_page_shows(own_server: Servers, types: Path) -> None:
    process = own_server({"RUNEKEEP_TYPES_DIRS": str(types)})
    async with grpc.aio.insecure_channel(process.address) as channel:
        caller = Caller(channel, "ann")
        answer = await caller.memories.ListMemoryTypes(memory_service_pb2.ListMemoryTypesRequest())
        served = {type.name: type for type in answer.memory_types}
        assert all(
            f"description: |\n  {served[name].description.splitlines()[0]}\n" in seed_type(name) for name in NAMES
        )

        lines, shown = seed_memory()
        fields = json.loads(shown)
        advice = {name: value for name, value in fields.items() if isinstance(value, str)}
        event = {"event_name": "Started the project", "content": "We began."}
        result = await apply(
            caller,
            channel,
            write("tools", **advice),
            write("skills", skill_name="create_presentation", best_for="Slides."),
            write("events", **event),
            write("events", **event, event_time="2026-03-17"),
            write("events", **{**event, "content": "We began again."}),
            messages=searches(92, 8),
        )
        assert not result.rejected and not result.skipped
        extracted = dict(result.memories_extracted)
        assert extracted == {"tools": 1, "skills": 1, "events": 3}
        text = (await caller.read("viking://agent/memories/tools/web_search.md")).text
        content, _, comment = text.partition("\n\n<!-- MEMORY_FIELDS\n")
        assert [line for line in content.splitlines() if line] == lines
        kept = json.loads(comment.removesuffix("\n-->"))
        assert kept == {**fields, "untimed_calls": 0, "unmetered_calls": 0}
        skill = (await caller.read("viking://agent/memories/skills/create_presentation.md")).text
        assert "Based on 2 historical executions:\n- Success rate: 100.0% (2 successful, 0 failed)\n" in skill
        names = [one.name for one in (await caller.listing(caller.uri("memories/events"))).entries]
        assert names[0] == "2026-03-17_Started the project.md" and names[1] == "Started the project.md"
        assert len(names) == 3, "two events of one name are two memories"

        # What is not known is not shown as nothing.
        unknown = common_pb2.ToolPart(tool_name="ls", status=common_pb2.TOOL_STATUS_COMPLETED)
        pending = common_pb2.ToolPart(tool_name="wait", status=common_pb2.TOOL_STATUS_RUNNING)
        parts = [common_pb2.Part(tool=unknown), common_pb2.Part(tool=pending)]
        await apply(caller, channel, messages=[common_pb2.Message(role=common_pb2.ROLE_ASSISTANT, parts=parts)])
        content = (await caller.memory("viking://user/memories/tools/ls.md")).content
        assert "100.0% (1 successful, 0 failed)" in content and "Avg time: unknown, Avg tokens: unknown" in content
        entries = (await caller.listing(caller.uri("memories/tools"))).entries
        assert {one.name for one in entries} == {"ls.md", "web_search.md"}, "the page has no counter of pending calls"
    process.stop()


async def test_fields_called_abstract_and_overview_are_the_views(own_server: Servers, types: Path) -> None:
    process = own_server({"RUNEKEEP_TYPES_DIRS": str(types)})
    async with grpc.aio.insecure_channel(process.address) as channel:
        caller = Caller(channel, "ann")
        uri = caller.uri("memories/dishes/Soup.md")
        fields = {"dish": "Soup", "content": "Boil it."}
        first = write("dishes", **fields)
        first.write.fields["abstract"].string_value = "A salty soup."
        first.write.fields["overview"].string_value = "- salt\n- water"
        await apply(caller, channel, first, messages=[said("I cook soup.")])
        memory = await caller.memory(uri)
        assert (memory.abstract, memory.overview, memory.content) == ("A salty soup.", "- salt\n- water", "Boil it.")
        assert (await caller.read(uri)).text == "Boil it."

        # Other content: the views were of the old one. The same content again changes nothing.
        for _ in range(2):
            await apply(
                caller, channel, write("dishes", dish="Soup", content="Fry it in butter."), messages=[said("x")]
            )
        memory = await caller.memory(uri)
        assert (memory.abstract, memory.version) == ("Soup: Fry it in butter.", 2)
        listed = (await caller.listing(caller.uri("memories/dishes"))).entries
        assert [one.abstract for one in listed] == ["Soup: Fry it in butter."]
    process.stop()
