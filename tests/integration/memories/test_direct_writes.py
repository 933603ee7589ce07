"""Memories written by their callers, on both stores: guarded by base versions, all or none, one revision."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import memory_service_pb2, session_service_pb2
from runekeep_common import failpoints
from tests.support.callers import CALLED, Caller, failure, policy, said, unique
from tests.support.changes import change, put, remove, written
from tests.support.server_process import ROOT, ServerProcess
from tests.support.worker import Worker, edit, write

pytestmark = pytest.mark.postgres_long

TEA = "viking://user/memories/preferences/Tea.md"
TOOL = "viking://user/memories/tools/grep.md"
GUIDE = "## Guidelines\nBe brief.\n### Good Cases\n-\n### Bad Cases\n-"


@pytest.fixture(scope="module")
def server_settings(either_store: dict[str, str]) -> dict[str, str]:
    return either_store


def tea(content: str, base: int = 0, **more: Any) -> Any:
    return put("preferences", base, topic="Tea", content=content, **more)


async def refused(caller: Caller, *changes: memory_service_pb2.MemoryMutation, request_id: str = "") -> Any:
    return await failure(written(caller, *changes, request_id=request_id))


async def everything(caller: Caller) -> Any:
    return await caller.listing(depth=16, show_hidden=True)


async def extracted(caller: Caller, channel: grpc.aio.Channel, *operations: pb.MemoryOperation) -> None:
    """A commit of five calls of `grep`, besides what was said."""
    await caller.committed(said("I like tea"), *[CALLED] * 5)
    async with Worker(channel) as worker:
        verdict = await worker.deliver((await worker.take()).lease, *operations)
        assert verdict.outcome == pb.JOB_OUTCOME_APPLIED


async def test_a_memory_that_is_put_can_be_read_found_and_seen_at_once(caller: Caller) -> None:
    answer = await written(caller, tea("Likes green tea."))
    (memory,) = answer.memories
    assert (memory.uri, memory.version, memory.revision) == (caller.uri("memories/preferences/Tea.md"), 1, 1)
    assert answer.revision == 1
    assert memory.fields["content"].string_value == "Likes green tea."
    assert (memory.abstract, memory.overview) == ("Likes green tea.",) * 2
    assert memory.extractor.engine == "caller" and not memory.sources
    assert memory == await caller.memory(TEA)
    found = (await caller.find("green tea", min_revision=answer.revision)).results
    assert [one.memory.uri for one in found] == [memory.uri]


async def test_a_put_on_a_version_replaces_every_field(caller: Caller, channel: grpc.aio.Channel) -> None:
    told = {"best_for": "Finding text.", "guidelines": GUIDE}
    await extracted(caller, channel, write("tools", tool_name="grep", abstract="Finds text", ranges=[(1, 1)], **told))
    before = await caller.memory(TOOL)
    assert before.sources and before.abstract == "Finds text" and before.fields["total_calls"].int64_value == 5
    answer = await written(caller, put("tools", 1, tool_name="grep", total_calls=2, success_count=1))
    memory = answer.memories[0]
    assert (memory.version, memory.revision) == (2, 2)
    fields = {name: field for name, field in memory.fields.items() if field.string_value or field.int64_value}
    assert set(fields) == {"tool_name", "total_calls", "success_count"}
    assert fields["total_calls"].int64_value == 2
    assert "Success rate: 50.0%" in memory.content
    assert memory.abstract != "Finds text", "the sentence about the old content is gone"
    assert not memory.sources and memory.extractor.engine == "caller"
    assert memory.create_time == before.create_time
    assert (await caller.memory(TOOL, version=1)).superseded_revision == 2


async def test_what_was_read_can_be_put_back_and_changes_nothing(caller: Caller) -> None:
    first = await written(caller, tea("Likes tea.", abstract="Tea", overview="# Tea"))
    read = await caller.memory(TEA)
    whole = memory_service_pb2.PutMemory(memory_type="preferences", fields=read.fields)
    again = await written(caller, memory_service_pb2.MemoryMutation(put=whole, base_version=1))
    assert again == first


async def test_an_edit_changes_what_it_names_and_nothing_else(caller: Caller, channel: grpc.aio.Channel) -> None:
    told = write("tools", tool_name="grep", best_for="one two\nthree", abstract="One or two.", ranges=[(1, 1)])
    await extracted(caller, channel, told)
    edited = change(TOOL, 1, best_for=[("one", "1"), ("three", "3")], total_calls=2, optional_params="-r")
    del edited.edit.patches[2]
    memory = (await written(caller, edited)).memories[0]
    assert memory.fields["best_for"].string_value == "1 two\n3"
    assert memory.fields["total_calls"].int64_value == 7
    assert memory.abstract == "grep: 1 two"
    assert len(memory.sources) == 6, "it still comes from what was said and called"
    assert memory.extractor.engine == "caller"
    kept = (await written(caller, change(TOOL, 2, abstract="One sentence."))).memories[0]
    assert (kept.abstract, kept.content) == ("One sentence.", memory.content)


async def test_a_delete_is_a_version_and_a_new_put_goes_on_from_it(caller: Caller) -> None:
    await written(caller, tea("Likes tea."))
    gone = await written(caller, remove(TEA, 1))
    assert (gone.memories[0].deleted, gone.memories[0].version, gone.revision) == (True, 2, 2)
    assert (await failure(caller.memory(TEA))).seen == ("NOT_FOUND", "RESOURCE_NOT_FOUND")
    assert (await caller.memory(TEA, version=1)).content == "Likes tea."
    assert not (await caller.find("tea", min_revision=2)).results
    assert (await refused(caller, remove(TEA, 1))).reason == "VERSION_MISMATCH"
    again = await written(caller, tea("Likes it again."))
    assert (again.memories[0].version, again.revision) == (3, 3)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (tea("x"), "is at version 2, and the change says that there is none"),
        (tea("x", 1), "is at version 2, not 1"),
        (tea("x", 3), "is at version 2, not 3"),
        (change(TEA, 1, content="x"), "is at version 2, not 1"),
        (remove(TEA, 1), "is at version 2, not 1"),
        (put("preferences", 1, topic="Coffee"), "now, and the change was made on version 1"),
        (change("viking://user/memories/preferences/Coffee.md", 1, content="x"), "There is no memory"),
    ],
)
async def test_another_version_than_the_current_one_is_refused(caller: Caller, wrong: Any, said: str) -> None:
    await written(caller, tea("one"))
    await written(caller, tea("two", 1))
    before = await everything(caller)
    failed = await refused(caller, put("preferences", topic="Bread"), wrong)
    assert failed.seen == ("ABORTED", "VERSION_MISMATCH")
    assert said in failed.message and "Read it again" in failed.message
    assert failed.resource[0] == "memory" and failed.resource[1] in failed.message
    assert await everything(caller) == before, "all or none"


async def test_many_changes_are_one_revision_in_their_order(caller: Caller) -> None:
    await written(caller, tea("one"), put("entities", entity_name="Rex", entity_type="pet"))
    rex = caller.uri("memories/entities/Rex.md")
    changes = (
        remove(rex, 1),
        put("profile", content="# User profile\n\nAnn."),
        tea("one", 1),
        put("cases", case_name="c"),
    )
    answer = await written(caller, *changes)
    assert answer.revision == 2
    assert [(one.uri.rsplit("/", 1)[1], one.version, one.revision) for one in answer.memories] == [
        ("Rex.md", 2, 2),
        ("profile.md", 1, 2),
        ("Tea.md", 1, 1),
        ("c.md", 1, 2),
    ]


async def test_nothing_changed_is_no_revision(caller: Caller) -> None:
    await written(caller, tea("one"))
    await written(caller, put("preferences", topic="Bread", content="two"))
    answer = await written(
        caller, tea("one", 1), change("viking://user/memories/preferences/Bread.md", 1, content="two")
    )
    assert answer.revision == 2 and [one.version for one in answer.memories] == [1, 1]
    failed = await refused(caller, tea("one", 1), put("preferences", topic="Bread", content="two"))
    assert failed.reason == "VERSION_MISMATCH", "what changes nothing is guarded too"


@pytest.mark.parametrize("second", [tea("two"), tea("two", 1), change(TEA, 1, content="two"), remove(TEA, 1)])
async def test_a_memory_that_is_named_twice_is_refused(caller: Caller, second: Any) -> None:
    await written(caller, tea("one"))
    before = await everything(caller)
    failed = await refused(caller, change(caller.uri("memories/preferences/Tea.md"), 1, content="three"), second)
    assert failed.seen == ("INVALID_ARGUMENT", "FIELD_INVALID") and failed.fields == ["changes[1]"]
    assert await everything(caller) == before


ODD_PEER = put("preferences", topic="x", peer="../ann")
BAD_GUIDE = put("tools", tool_name="x", guidelines="# Guide")
WRONG = [
    (put("nothing", content="x"), "put.memory_type", "is no memory type"),
    (put("preferences", topic="x", colour="red"), 'put.fields["colour"]', "is no field of preferences"),
    (put("preferences", content="x"), 'put.fields["topic"]', "names the memory"),
    (put("preferences", topic="x", content=7, abstract="a", overview="b\0"), "put.overview", "NUL"),
    (put("tools", tool_name="x", content="x"), 'put.fields["content"]', "template of tools"),
    (put("tools", tool_name="x", avg_time="3"), 'put.fields["avg_time"]', "never written"),
    (put("tools", tool_name="x", total_calls=1.5), 'put.fields["total_calls"]', "whole number"),
    (BAD_GUIDE, 'put.fields["guidelines"]', "lacks the heading"),
    (put("trajectories", trajectory_name="x", outcome="fine"), 'put.fields["outcome"]', "is one of"),
    (put("trajectories", trajectory_name="x", peer="anna"), "put.peer_id", "never about a peer"),
    (ODD_PEER, "put.peer_id", "is no id of a peer"),
    (change(TEA, 0, content="x"), "base_version", "is 0"),
    (remove(TEA, 0), "base_version", "is 0"),
    (change("viking://user/somebody/memories/profile.md", 1, content="x"), "edit.uri", "no URI of yours"),
    (remove("nonsense", 1), "delete.uri", "no URI of yours"),
    (change(TEA, 1, content=""), "edit.patches[0].value", "changes nothing"),
    (change(TEA, 1, topic="Coffee"), "edit.patches[0]", "first value"),
    (change(TEA, 1, topic=[("Tea", "Coffee")]), "edit.patches[0]", "takes no patch"),
    (change(TEA, 1, content="x", colour="red"), "edit.patches[1]", "is no field"),
]


@pytest.mark.parametrize(("wrong", "field", "said"), WRONG)
async def test_a_wrong_field_is_named_by_its_path(caller: Caller, wrong: Any, field: str, said: str) -> None:
    await written(caller, tea("Likes tea."))
    before = await everything(caller)
    failed = await refused(caller, put("profile", content="x"), wrong)
    assert failed.seen == ("INVALID_ARGUMENT", "FIELD_INVALID"), failed
    assert failed.fields == [f"changes[1].{field}"] and said in failed.message
    assert await everything(caller) == before


async def test_all_wrong_fields_of_a_request_are_named_at_once(caller: Caller) -> None:
    failed = await refused(caller, *(wrong for wrong, _, _ in WRONG[:6]), tea("fine"))
    assert failed.fields == [f"changes[{number}].{field}" for number, (_, field, _) in enumerate(WRONG[:6])]


async def test_a_field_named_twice_in_an_edit_is_refused(caller: Caller) -> None:
    await written(caller, tea("Likes tea."))
    twice = change(TEA, 1, content=[("tea", "coffee")])
    twice.edit.patches.add().CopyFrom(twice.edit.patches[0])
    failed = await refused(caller, twice)
    assert failed.fields == ["changes[0].edit.patches[1].field"]


@pytest.mark.parametrize(
    "forbidden",
    [
        put("session_skills", skill_name="walk-the-dog"),
        remove("viking://user/skills/walk-the-dog.md", 1),
        change("viking://user/sessions/s/messages.jsonl", 1, content="x"),
        remove("viking://session/s", 1),
        change("viking://user/memories/.abstract.md", 1, content="x"),
        remove("viking://user/memories/preferences/.overview.md", 1),
        remove("viking://user/peers/anna", 1),
        put("events", 1, event_name="Met Anna", content="In Oslo."),
    ],
)
async def test_what_no_caller_may_write_is_refused(caller: Caller, forbidden: Any) -> None:
    await written(caller, put("events", event_name="Met Anna", content="In Oslo"))
    before = await everything(caller)
    failed = await refused(caller, tea("x"), forbidden)
    assert failed.seen == ("FAILED_PRECONDITION", "WRITE_NOT_ALLOWED"), failed
    assert await everything(caller) == before


async def test_what_is_only_added_is_never_overwritten_but_may_be_corrected_and_deleted(caller: Caller) -> None:
    event = put("events", event_name="Met Anna", event_time="2026-03-01", content="In Oslo.")
    memory = (await written(caller, event)).memories[0]
    other = put("events", event_name="Met Anna", event_time="2026-03-01", content="In Rome.")
    assert (await refused(caller, other)).reason == "VERSION_MISMATCH"
    assert (await caller.memory(memory.uri)).content == "In Oslo."
    await written(caller, change(memory.uri, 1, content="In Bergen."))
    assert (await caller.memory(memory.uri)).content == "In Bergen."
    assert (await written(caller, remove(memory.uri, 2))).memories[0].deleted


@pytest.mark.parametrize("search", ["coffee", "e", ""])
async def test_a_replacement_that_does_not_apply_names_its_block(caller: Caller, search: str) -> None:
    await written(caller, tea("Likes green tea."))
    edited = change(TEA, 1, abstract="x", content=[("green", "black"), (search, "x")])
    failed = await refused(caller, put("profile", content="x"), edited)
    assert failed.seen == ("FAILED_PRECONDITION", "PATCH_NOT_APPLICABLE")
    assert "changes[1].edit.patches[1], on content of " in failed.message and "block 2" in failed.message
    assert (await caller.memory(TEA)).content == "Likes green tea."


async def test_the_agents_own_memories_and_those_of_peers_may_be_written(caller: Caller) -> None:
    steps = put("trajectories", trajectory_name="Ship it", outcome="success", content="1. Build")
    answer = await written(caller, steps, put("preferences", topic="Tea", content="Green.", peer="anna"))
    assert [one.uri for one in answer.memories] == [
        caller.uri("memories/trajectories/Ship it.md"),
        caller.uri("peers/anna/memories/preferences/Tea.md"),
    ]
    assert answer.memories[1].peer_id == "anna"
    again = await written(caller, change(answer.memories[1].uri, 1, content="Black."))
    assert (again.memories[0].peer_id, again.memories[0].content) == ("anna", "Black.")


async def test_a_profile_may_be_replaced_as_a_whole_and_emptied(caller: Caller) -> None:
    await written(caller, put("profile", content="# User profile\n\nAnn is a baker in Leeds with two cats."))
    failed = await refused(caller, change("viking://user/memories/profile.md", 1, content="Ann."))
    assert failed.fields == ["changes[0].edit.patches[0]"] and "must stay" in failed.message
    assert (await written(caller, put("profile", 1, content="Ann."))).memories[0].content == "Ann."
    assert (await written(caller, put("profile", 2))).memories[0].content == ""


async def test_of_twenty_writers_with_one_base_version_one_wins(caller: Caller) -> None:
    for base in range(3):
        tries = (written(caller, tea(f"{base} {number}", base)) for number in range(20))
        ended = await asyncio.gather(*tries, return_exceptions=True)
        (won,) = (one for one in ended if not isinstance(one, BaseException))
        for one in ended:
            if isinstance(one, BaseException):
                assert isinstance(one, grpc.aio.AioRpcError) and one.code() is grpc.StatusCode.ABORTED, one
        assert (won.revision, won.memories[0].version) == (base + 1, base + 1)
        assert await caller.memory(TEA) == won.memories[0]


async def test_writers_of_different_memories_all_get_through(caller: Caller) -> None:
    answers = await asyncio.gather(*(written(caller, put("preferences", topic=f"t{n}")) for n in range(20)))
    assert sorted(answer.revision for answer in answers) == list(range(1, 21))


async def test_a_request_id_gives_the_first_answer_again(caller: Caller) -> None:
    request_id = unique("r")
    first = await written(caller, tea("one"), request_id=request_id)
    assert await written(caller, tea("one"), request_id=request_id) == first
    await written(caller, tea("two", 1))
    assert await written(caller, tea("one"), request_id=request_id) == first
    failed = await refused(caller, tea("other"), request_id=request_id)
    assert failed.seen == ("INVALID_ARGUMENT", "REQUEST_ID_REUSED")
    assert (await caller.memory(TEA)).version == 2


async def test_one_request_sent_many_times_at_once_is_done_once(caller: Caller) -> None:
    request_id = unique("r")
    answers = await asyncio.gather(*(written(caller, tea("one"), request_id=request_id) for _ in range(10)))
    assert all(answer == answers[0] for answer in answers) and answers[0].revision == 1


async def test_a_commit_under_way_keeps_what_was_written_meanwhile(caller: Caller, channel: grpc.aio.Channel) -> None:
    await written(caller, tea("one\ntwo"), put("tools", tool_name="grep", total_calls=1))
    committed = await caller.committed(*[CALLED] * 5)
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        by_hand = (change(TEA, 1, content=[("one", "1")]), put("tools", 1, tool_name="grep", total_calls=10))
        await written(caller, *by_hand)
        verdict = await worker.deliver(lease, edit(TEA, content=[("two", "2")]))
        assert verdict.outcome == pb.JOB_OUTCOME_APPLIED
    memory = await caller.memory(TEA)
    assert (memory.content, memory.version, memory.extractor.engine) == ("1\n2", 3, "scripted")
    assert (await caller.memory(TOOL)).fields["total_calls"].int64_value == 15
    request = session_service_pb2.GetMemoryDiffRequest(archive_uri=committed.archive_uri)
    diff = (await caller.sessions.GetMemoryDiff(request)).diff
    changed = next(one for one in diff.updates if one.uri == memory.uri)
    assert (changed.before, changed.after, diff.revision) == ("1\ntwo", "1\n2", 3)


async def test_a_commit_whose_text_was_written_over_is_tried_again(caller: Caller, channel: grpc.aio.Channel) -> None:
    await written(caller, tea("one two"))
    await caller.committed(said("hello"))
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await written(caller, tea("three", 1))
        verdict = await worker.deliver(lease, edit(TEA, content=[("two", "2")]))
        assert verdict.outcome == pb.JOB_OUTCOME_REQUEUED
        lease = (await worker.take()).lease
        assert (await worker.deliver(lease, edit(TEA, content=[("three", "3")]))).outcome == pb.JOB_OUTCOME_APPLIED
    assert (await caller.memory(TEA)).content == "3"


async def test_a_policy_is_about_extraction_and_not_about_callers(caller: Caller) -> None:
    await caller.session(policy(self=False, types=["events"]))
    assert (await written(caller, tea("one"))).revision == 1


async def test_memories_too_large_for_an_answer_are_not_written(caller: Caller) -> None:
    failed = await refused(caller, tea("x" * 1_100_000))
    assert failed.seen == ("RESOURCE_EXHAUSTED", "TOO_LARGE")
    assert (await written(caller, tea("x" * 900_000))).revision == 1


Servers = Callable[..., ServerProcess]


async def test_a_write_that_is_killed_half_way_is_not_there_and_can_be_repeated(
    own_server: Servers, fresh_store: dict[str, str], tmp_path: Path
) -> None:
    log = tmp_path / "fired"
    armed = {"RUNEKEEP_FAILPOINT": f"{failpoints.APPLY_MID_OPERATIONS}:KILL:2", "RUNEKEEP_FAILPOINT_LOG": str(log)}
    changes = [put("preferences", topic=f"t{number}", content="x") for number in range(3)]
    process = own_server({**fresh_store, **armed})
    async with grpc.aio.insecure_channel(process.address) as channel:
        failed = await failure(written(Caller(channel, "ann"), *changes, request_id="r"))
        assert failed.code is grpc.StatusCode.UNAVAILABLE
    assert log.read_text().startswith(failpoints.APPLY_MID_OPERATIONS)
    process.discard()
    process = own_server(fresh_store)
    async with grpc.aio.insecure_channel(process.address) as channel:
        caller = Caller(channel, "ann")
        assert not [entry for entry in (await everything(caller)).entries if entry.memory_type]
        answer = await written(caller, *changes, request_id="r")
        assert [one.revision for one in answer.memories] == [1, 1, 1]
    process.stop()


TYPE = """
name: recipes
description: Dishes.
directory: "viking://user/{user_space}/memories/recipes"
filename_template: "{dish}.md"
fields:
  - {name: dish, type: string, description: Its name., merge_op: immutable}
  - {name: content, type: string, description: Steps.}
"""


async def test_memories_of_a_type_that_is_gone_can_be_deleted(
    own_server: Servers, fresh_store: dict[str, str], tmp_path: Path
) -> None:
    types = tmp_path / "types"
    types.mkdir()
    (types / "recipes.yaml").write_text(TYPE)
    process = own_server({**fresh_store, "RUNEKEEP_TYPES_DIRS": str(types)})
    async with grpc.aio.insecure_channel(process.address) as channel:
        uri = (await written(Caller(channel, "ann"), put("recipes", dish="Soup", content="Boil."))).memories[0].uri
    process.stop()
    process = own_server(fresh_store)
    async with grpc.aio.insecure_channel(process.address) as channel:
        caller = Caller(channel, "ann")
        failed = await refused(caller, change(uri, 1, content="Fry."))
        assert failed.seen == ("FAILED_PRECONDITION", "WRITE_NOT_ALLOWED")
        assert (await written(caller, remove(uri, 1))).memories[0].deleted
    process.stop()


async def test_a_write_that_is_repeated_after_its_type_is_gone_gets_its_first_answer(
    own_server: Servers, fresh_store: dict[str, str], tmp_path: Path
) -> None:
    types = tmp_path / "types"
    types.mkdir()
    (types / "recipes.yaml").write_text(TYPE)
    soup = put("recipes", dish="Soup", content="Boil.")
    process = own_server({**fresh_store, "RUNEKEEP_TYPES_DIRS": str(types)})
    async with grpc.aio.insecure_channel(process.address) as channel:
        first = await written(Caller(channel, "ann"), soup, request_id="r")
    process.stop()
    process = own_server(fresh_store)
    async with grpc.aio.insecure_channel(process.address) as channel:
        caller = Caller(channel, "ann")
        assert await written(caller, soup, request_id="r") == first
        # Anew it cannot be done, nor can anything else under that request_id.
        assert (await refused(caller, soup)).seen == ("INVALID_ARGUMENT", "FIELD_INVALID")
        other = put("recipes", dish="Stew", content="Boil.")
        assert (await refused(caller, other, request_id="r")).seen == ("INVALID_ARGUMENT", "REQUEST_ID_REUSED")
    process.stop()


def test_the_program_of_the_guide_runs_as_it_stands(server: ServerProcess) -> None:
    guide = (ROOT / "docs" / "guides" / "correcting.md").read_text()
    found = re.search(r"<!-- example: writing.py -->\n```python\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    assert found
    program = found[1].replace("127.0.0.1:7433", server.address)
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    user = "viking://user/robin/memories"
    told = [f"{user}/preferences/Tea.md 1", "VERSION_MISMATCH", f"{user}/entities/Rex.md"]
    assert ran.stdout.splitlines() == told
