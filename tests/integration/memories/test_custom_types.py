"""Directories of an operator's own: types that come to the built-in ones, replace them, or are refused at start."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import memory_service_pb2
from tests.support.callers import Caller, failure, policy, said
from tests.support.server_process import ROOT, ServerProcess
from tests.support.worker import Worker, edit, write

EXIT_SECONDS = 60.0

RECIPES = """\
name: recipes
description: A dish that the user cooks.
directory: "viking://user/{user_space}/memories/recipes"
filename_template: "{dish}.md"
max_deletes: 1
delete_evidence: false
fields:
  - name: dish
    description: What it is called.
    merge_op: immutable
  - name: times
    type: int64
    description: Times it was cooked.
    merge_op: sum
  - name: content
    description: Numbered steps.
"""
PERSONA = """\
name: persona
description: How the agent speaks.
directory: "viking://user/{user_space}/memories"
filename_template: "persona.md"
fields:
  - name: content
    description: Manners.
    initial: "# Persona\\nSpeaks plainly."
"""
PREFERENCES = """\
name: preferences
description: What the user likes, by subject.
directory: "viking://user/{user_space}/memories/likes"
filename_template: "{subject}.md"
fields:
  - name: subject
    description: One word.
    merge_op: immutable
  - name: content
    description: What is liked.
"""

Servers = Callable[..., ServerProcess]


@pytest.fixture
def types(tmp_path: Path) -> Path:
    """A directory that adds recipes, replaces preferences and switches patterns off."""
    directory = tmp_path / "types"
    directory.mkdir()
    (directory / "recipes.yaml").write_text(RECIPES)
    (directory / "likes.yml").write_text(PREFERENCES)
    patterns = (ROOT / "schemas" / "runekeep_schemas" / "builtin" / "patterns.yaml").read_text()
    (directory / "patterns.yaml").write_text(patterns + "enabled: false\n")
    return directory


async def test_a_directory_adds_replaces_and_switches_off(own_server: Servers, types: Path) -> None:
    process = own_server({"RUNEKEEP_TYPES_DIRS": str(types)})
    async with grpc.aio.insecure_channel(process.address) as channel:
        caller = Caller(channel, "ann")
        answer = await caller.memories.ListMemoryTypes(memory_service_pb2.ListMemoryTypesRequest())
        served = {type.name: type for type in answer.memory_types}
        assert len(served) == 12
        assert served["recipes"].max_deletes == 1
        assert served["recipes"].filename_template == "{dish}.md"
        assert [field.name for field in served["preferences"].fields] == ["subject", "content"]
        assert served["preferences"].max_deletes == 10
        assert not served["patterns"].enabled
        assert served["profile"].max_deletes == 0

        committed = await caller.committed(said("I cook lentil soup."))
        async with Worker(channel) as worker:
            assignment = await worker.take()
            wanted = set(assignment.plan.long_term_types)
            assert "recipes" in wanted and "preferences" in wanted and "patterns" not in wanted
            given = [
                type
                async for part in worker.calls.GetJobInput(pb.GetJobInputRequest(lease=assignment.lease))
                for type in part.memory_types.memory_types
            ]
            assert {type.name: type.max_deletes for type in given}["recipes"] == 1
            verdict = await worker.deliver(
                assignment.lease,
                write("recipes", dish="Lentil soup", content="1. Boil."),
                write("preferences", subject="Soup", content="Likes it hot."),
            )
            assert verdict.outcome == pb.JOB_OUTCOME_APPLIED
        extracted = (await caller.task(committed.task_id)).result.memories_extracted
        assert (extracted["recipes"], extracted["preferences"]) == (1, 1)
        assert (await caller.read(caller.uri("memories/recipes/Lentil soup.md"))).text == "1. Boil."
        assert (await caller.read(caller.uri("memories/likes/Soup.md"))).text == "Likes it hot."

        await _count_up(caller, channel)
        await caller.session(policy(types=["recipes"]))
        unknown = await failure(caller.session(policy(types=["recipes", "dreams"])))
        assert unknown.seen == ("INVALID_ARGUMENT", "FIELD_INVALID")
    process.stop()


async def _count_up(caller: Caller, channel: grpc.aio.Channel) -> None:
    """Counters of an operator's own type are the extractor's: they add up, and never shrink nor overflow."""
    uri = caller.uri("memories/recipes/Lentil soup.md")
    once = write("recipes", dish="Lentil soup", times=1)
    wrong = (
        write("recipes", dish="Lentil soup", times=-1), edit(uri, times=-1), edit(uri, times=2**63 - 1),
        edit(uri, times=1.5),
    )  # fmt: skip
    committed = await caller.committed(said("Again, and again."))
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        verdict = await worker.deliver(lease, once, once, edit(uri, times=3), *wrong)
        assert verdict.outcome == pb.JOB_OUTCOME_NEEDS_REPAIR
        assert [(one.operation_index, one.reason) for one in verdict.refused] == [
            (number, "field_invalid") for number in range(3, 7)
        ]
        await worker.deliver(lease, once, once, edit(uri, times=3))
    memory = await caller.memory(uri)
    assert (memory.fields["times"].int64_value, memory.version) == (5, 2)
    assert (await caller.task(committed.task_id)).result.total_updates == 1


async def test_a_type_with_something_to_begin_with_begins_where_the_user_may_be_written_about(
    own_server: Servers, tmp_path: Path
) -> None:
    (tmp_path / "persona.yaml").write_text(PERSONA)
    process = own_server({"RUNEKEEP_TYPES_DIRS": str(tmp_path)})
    async with grpc.aio.insecure_channel(process.address) as channel, Worker(channel) as worker:
        for user, allowed, expected in (
            ("ann", policy(), ["persona.md"]),
            ("bob", policy(self=False, peer=True), []),
            ("cat", policy(types=["events"]), []),
        ):
            caller = Caller(channel, user)
            committed = await caller.committed(said("Hello"), said("Hi", peer="dan"), policy=allowed)
            await worker.deliver((await worker.take()).lease)
            assert [one.name for one in (await caller.listing("viking://user/memories")).entries] == expected
            assert dict((await caller.task(committed.task_id)).result.memories_extracted) == {}
        assert (await Caller(channel, "ann").read("viking://user/memories/persona.md")).text.endswith("Speaks plainly.")
    process.stop()


BAD = {
    "merge operation": ("    merge_op: immutable", "    merge_op: add", 10, "merge_op: input should be"),
    "number of deletes": ("max_deletes: 1", "max_deletes: -1", 5, "max_deletes: input should be greater than"),
    "no YAML": ("fields:", "fields: [", 8, "this is no YAML"),
    "a file of another type": ('memories/recipes"', 'memories/preferences"', 3, "shares the directory of preferences"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused_at_start_with_its_name_line_and_reason(tmp_path: Path, case: str) -> None:
    right, wrong, line, reason = BAD[case]
    assert RECIPES.count(right) == 1
    file = tmp_path / "types" / "recipes.yaml"
    file.parent.mkdir()
    file.write_text(RECIPES.replace(right, wrong))
    ended = subprocess.run(
        [sys.executable, "-m", "runekeep_server", "--address", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")],
        cwd=ROOT,
        env={**os.environ, "RUNEKEEP_EMBEDDER": "none", "RUNEKEEP_TYPES_DIRS": str(file.parent)},
        capture_output=True,
        text=True,
        timeout=EXIT_SECONDS,
        check=False,
    )
    assert ended.returncode != 0
    assert "The server cannot start" in ended.stderr
    assert f"{file}:{line}: " in ended.stderr and reason in ended.stderr
    assert "serving" not in ended.stdout
