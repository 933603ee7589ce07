"""Revisions, what differs between them, taking one back, and what came of a message; on both stores."""

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from runekeep.v1 import common_pb2, extractor_service_pb2, session_service_pb2
from runekeep.v1 import history_service_pb2 as pb
from runekeep_common import failpoints
from tests.support.callers import CALLED, Caller, failure, policy, said, unique, used_tool
from tests.support.changes import change, put, remove, written
from tests.support.server_process import ROOT, ServerProcess
from tests.support.worker import Worker, delete, edit, write

pytestmark = pytest.mark.postgres_long

TEA = "viking://user/memories/preferences/Tea.md"
BREAD = "viking://user/memories/preferences/Bread.md"
TOOL = "viking://user/memories/tools/grep.md"
Servers = Callable[..., ServerProcess]


@pytest.fixture(scope="module")
def server_settings(either_store: dict[str, str]) -> dict[str, str]:
    return either_store


def tea(content: str, base: int = 0, **more: Any) -> Any:
    return put("preferences", base, topic="Tea", content=content, **more)


def bread(content: str, base: int = 0) -> Any:
    return put("preferences", base, topic="Bread", content=content)


async def revisions(caller: Caller, **fields: Any) -> list[Any]:
    return list((await caller.history.ListRevisions(pb.ListRevisionsRequest(**fields))).revisions)


async def diff(caller: Caller, earlier: int = 0, later: int = 0, **fields: Any) -> Any:
    request = pb.DiffRevisionsRequest(**fields)
    if earlier:
        getattr(request, "from").revision = earlier
    if later:
        request.to.revision = later
    return await caller.history.DiffRevisions(request)


async def rollback(caller: Caller, revision: int = 0, archive: str = "", **fields: Any) -> Any:
    named: dict[str, Any] = {"archive_uri": archive} if archive else {"revision": revision}
    return await caller.history.RollbackRevision(pb.RollbackRevisionRequest(**named, **fields))


async def came_of(caller: Caller, session: str, message: str, **fields: Any) -> Any:
    request = pb.ListMessageMemoriesRequest(session=session, message_id=message, **fields)
    return await caller.history.ListMessageMemories(request)


async def committed(
    caller: Caller,
    channel: grpc.aio.Channel,
    *operations: extractor_service_pb2.MemoryOperation,
    types: Sequence[str] = ("preferences", "tools", "events"),
    messages: Sequence[common_pb2.Message] = (),
) -> Any:
    """A commit of one message, and of others, that makes these types alone: others may begin with a memory of their
    own."""
    made = await caller.committed(said("I like tea"), *messages, policy=policy(types=types))
    async with Worker(channel) as worker:
        verdict = await worker.deliver((await worker.take()).lease, *operations)
        assert verdict.outcome == extractor_service_pb2.JOB_OUTCOME_APPLIED, verdict
    return made


async def texts(caller: Caller) -> dict[str, str]:
    """Every memory as it reads."""
    entries = (await caller.listing(depth=16)).entries
    return {entry.uri: (await caller.read(entry.uri)).text for entry in entries if entry.memory_type}


def as_it_was(memory: Any) -> Any:
    """What a rollback brings back of a memory."""
    kept = type(memory)()
    kept.CopyFrom(memory)
    for name in ("version", "revision", "superseded_revision", "update_time", "extractor"):
        kept.ClearField(name)
    return kept


async def test_revisions_say_who_made_them_and_how_many_memories(caller: Caller, channel: grpc.aio.Channel) -> None:
    made = await committed(
        caller,
        channel,
        write("preferences", topic="Tea", content="Green."),
        messages=[CALLED],
    )
    await written(caller, tea("Black.", 1), bread("Rye."))
    await written(caller, remove(BREAD, 1))
    assert (await rollback(caller, 2, force=True)).revision == 4
    listed = await revisions(caller)
    assert [(one.number, one.adds, one.updates, one.deletes) for one in listed] == [
        (4, 0, 1, 0),
        (3, 0, 0, 1),
        (2, 1, 1, 0),
        (1, 2, 0, 0),
    ]
    assert [one.origin for one in listed] == [
        pb.REVISION_ORIGIN_ROLLBACK, pb.REVISION_ORIGIN_CALLER, pb.REVISION_ORIGIN_CALLER, pb.REVISION_ORIGIN_COMMIT,
    ]  # fmt: skip
    assert (listed[3].archive_uri, listed[3].task_id) == (made.archive_uri, made.task_id)
    assert not any(one.archive_uri or one.task_id for one in listed[:3])
    assert [one.rolled_back for one in listed] == [2, 0, 0, 0]
    assert [one.rolled_back_by for one in listed] == [0, 0, 4, 0]
    assert all(one.HasField("create_time") for one in listed)
    assert [one.number for one in await revisions(caller, uri=TEA)] == [4, 2, 1]
    assert [one.number for one in await revisions(caller, uri=BREAD)] == [3, 2]
    assert not await revisions(caller, uri="viking://user/memories/preferences/None.md")
    page = await caller.history.ListRevisions(pb.ListRevisionsRequest(page_size=3))
    rest = await caller.history.ListRevisions(pb.ListRevisionsRequest(page_size=3, page_token=page.next_page_token))
    assert [*page.revisions, *rest.revisions] == listed and not rest.next_page_token


async def test_a_user_without_anything_has_no_revisions(caller: Caller) -> None:
    assert not await revisions(caller)
    empty = await diff(caller)
    assert not empty.changes and (empty.from_revision, empty.to_revision) == (0, 0)
    assert (await failure(rollback(caller, 1))).seen == ("NOT_FOUND", "RESOURCE_NOT_FOUND")


async def test_the_days_count_messages_and_versions(caller: Caller, callers: Callable[..., Caller]) -> None:
    session = await caller.session()
    await caller.add(session, said("one"), said("two"))
    await caller.commit(session)
    await caller.add(session, said("three"))
    await written(caller, tea("green"), bread("rye"))
    await written(caller, remove(TEA, 1))
    for days, who, expected in ((0, caller, (3, 3)), (2, caller, (3, 3)), (2, callers(), (0, 0))):
        answer = await who.history.GetActivity(pb.GetActivityRequest(days=days))
        assert (len(answer.days), answer.incomplete) == (days or 30, False)
        # At midnight a test may stand on two days.
        found = answer.days[-2:]
        assert (sum(one.messages for one in found), sum(one.memory_versions for one in found)) == expected
        assert answer.days[-1].day.seconds - answer.days[0].day.seconds == 86_400 * (len(answer.days) - 1)


async def test_a_diff_says_what_is_different_and_not_what_happened_in_between(caller: Caller) -> None:
    await written(caller, tea("one"), bread("Rye."))
    await written(caller, tea("two", 1), put("tools", tool_name="grep", total_calls=1))
    await written(caller, tea("one", 2), remove(BREAD, 1))
    found = await diff(caller, 1, 3)
    tool = (await caller.read(TOOL)).text
    assert "MEMORY_FIELDS" in tool
    assert [(one.uri, one.memory_type, one.before, one.after, one.version) for one in found.changes] == [
        (caller.uri("memories/preferences/Bread.md"), "preferences", "Rye.", "", 2),
        (caller.uri("memories/tools/grep.md"), "tools", "", tool, 1),
    ]
    assert (found.from_revision, found.to_revision) == (1, 3)
    assert [one.uri.rsplit("/")[-1] for one in (await diff(caller, 1)).changes] == ["Bread.md", "grep.md"]
    assert {one.uri: one.after for one in (await diff(caller)).changes} == await texts(caller)
    below = await diff(caller, 1, 2, uri="viking://user/memories/preferences")
    assert [(one.before, one.after, one.version) for one in below.changes] == [("one", "two", 2)]
    assert [one.after for one in (await diff(caller, 1, 2, uri=TEA)).changes] == ["two"]
    assert not (await diff(caller, 1, 2, uri="viking://user/memories/prefer")).changes
    assert not (await diff(caller, 2, 2)).changes


async def test_another_abstract_is_a_difference(caller: Caller) -> None:
    await written(caller, tea("one", abstract="Tea"))
    await written(caller, change(TEA, 1, abstract="About tea"))
    (only,) = (await diff(caller, 1, 2)).changes
    assert (only.before, only.after, only.version) == ("one", "one", 2)


async def test_a_diff_takes_times_and_refuses_what_is_no_way_forward(caller: Caller) -> None:
    await written(caller, tea("one"))
    await written(caller, tea("two", 1))
    request = pb.DiffRevisionsRequest()
    second, first = await revisions(caller)
    getattr(request, "from").time.CopyFrom(first.create_time)
    request.to.time.CopyFrom(second.create_time)
    found = await caller.history.DiffRevisions(request)
    assert (found.from_revision, found.to_revision) == (1, 2) and len(found.changes) == 1
    for earlier, later, field in ((2, 1, "to"), (3, 0, "from.revision"), (1, 3, "to.revision")):
        failed = await failure(diff(caller, earlier, later))
        assert failed.seen == ("INVALID_ARGUMENT", "FIELD_INVALID") and failed.fields == [field]


async def test_the_pages_of_a_diff_are_of_the_same_revisions(caller: Caller) -> None:
    await written(caller, *(put("preferences", topic=f"t{n}", content="x") for n in range(5)))
    page = await diff(caller, page_size=2)
    await written(caller, *(remove(one.uri, 1) for one in (await diff(caller)).changes))
    seen = list(page.changes)
    while page.next_page_token:
        page = await diff(caller, page_size=2, page_token=page.next_page_token)
        assert (page.from_revision, page.to_revision) == (0, 1)
        seen += page.changes
    assert [one.uri.rsplit("/", 1)[1] for one in seen] == [f"t{n}.md" for n in range(5)]


async def test_a_commit_is_taken_back_to_the_letter(caller: Caller, channel: grpc.aio.Channel) -> None:
    first = (
        write("preferences", topic="Tea", content="Green.", ranges=[(1, 1)], abstract="Tea, green"),
        write("tools", tool_name="grep", best_for="Text.", ranges=[(1, 1)]),
    )
    await committed(caller, channel, *first, messages=[CALLED] * 3)
    files = await texts(caller)
    before = {uri: await caller.memory(uri) for uri in files}
    made = await committed(
        caller, channel,
        delete(TEA), write("events", event_name="Move", content="Moved.", event_time="2024-05-01", ranges=[(1, 1)]),
        messages=[CALLED] * 2,
    )  # fmt: skip
    assert len(await texts(caller)) == 2
    preview = await rollback(caller, archive=made.archive_uri, preview=True)
    assert preview.revision == 0 and not preview.conflicts
    answer = await rollback(caller, archive=made.archive_uri)
    assert (answer.revision, answer.changes) == (3, preview.changes)
    by_name = {one.uri.rsplit("/", 1)[1]: one for one in answer.changes}
    assert by_name["Tea.md"].before == "" and by_name["Tea.md"].after == "Green." and by_name["Tea.md"].version == 3
    assert await texts(caller) == files
    for uri, memory in before.items():
        again = await caller.memory(uri)
        assert as_it_was(again) == as_it_was(memory)
        assert (again.extractor.engine, again.revision, again.version) == ("rollback", 3, 3)
        assert again.sources and again.create_time == memory.create_time
    found = (await caller.find("green tea", min_revision=3, memory_types=["preferences"])).results
    assert [one.memory.version for one in found] == [3]

    back = await rollback(caller, 3)
    assert back.revision == 4 and len(await texts(caller)) == 2
    assert (await caller.memory(TOOL)).fields["total_calls"].int64_value == 5
    assert (await rollback(caller, 4)).revision == 5 and await texts(caller) == files


async def test_later_changes_of_the_same_memories_stand_in_the_way_unless_forced(caller: Caller) -> None:
    await written(caller, tea("one"), bread("Rye."))
    await written(caller, tea("two", 1), bread("Wheat.", 1), put("preferences", topic="Jam", content="Plum."))
    await written(caller, tea("three", 2))
    await written(caller, remove(TEA, 3), put("preferences", topic="Milk", content="Oat."))
    uri = caller.uri("memories/preferences/Tea.md")
    before = await texts(caller)
    failed = await failure(rollback(caller, 2))
    assert failed.seen == ("FAILED_PRECONDITION", "ROLLBACK_CONFLICT")
    assert failed.preconditions == {uri: "changed by revisions 3, 4"}
    assert f"`{uri}` was changed after revision 2, by revisions 3, 4." in failed.message
    preview = await rollback(caller, 2, preview=True)
    assert [(one.uri, list(one.revisions)) for one in preview.conflicts] == [(uri, [3, 4])]
    assert await texts(caller) == before and len(await revisions(caller)) == 4
    forced = await rollback(caller, 2, force=True)
    assert (forced.changes, forced.conflicts, forced.revision) == (preview.changes, preview.conflicts, 5)
    names = {uri.rsplit("/", 1)[1]: text for uri, text in (await texts(caller)).items()}
    assert names == {"Bread.md": "Rye.", "Milk.md": "Oat.", "Tea.md": "one"}


async def test_what_an_ordinary_client_cannot_take_is_left_out_of_the_answer(caller: Caller) -> None:
    names = [f"t{number:02d}" for number in range(32)]
    for base, letter in enumerate("ab"):
        await written(caller, *(put("preferences", base, topic=name, content=letter * 60_000) for name in names))
    done = await rollback(caller, 2)
    assert done.ByteSize() < 4 * 1024 * 1024 and done.revision == 3 and done.texts_omitted
    assert len(done.changes) == 32 and done.changes[0].after == "a" * 60_000 and not done.changes[-1].after
    assert set((await texts(caller)).values()) == {"a" * 60_000}


async def test_a_rollback_of_what_a_preview_showed(caller: Caller) -> None:
    await written(caller, tea("one"))
    await written(caller, tea("two", 1))
    seen = await rollback(caller, 2, preview=True)
    await written(caller, bread("Rye."))
    failed = await failure(rollback(caller, 2, expected_revision=seen.newest_revision))
    assert failed.seen == ("ABORTED", "VERSION_MISMATCH") and "revision is 3, not 2" in failed.message
    assert (await rollback(caller, 2, expected_revision=3)).revision == 4


async def test_many_conflicts_still_make_an_error_that_arrives(caller: Caller) -> None:
    names = [f"{number:03d} {'ö' * 60}" for number in range(100)]
    await written(caller, *(put("preferences", topic=name, content="one") for name in names))
    await written(caller, *(put("preferences", 1, topic=name, content="two") for name in names))
    failed = await failure(rollback(caller, 1))
    assert failed.seen == ("FAILED_PRECONDITION", "ROLLBACK_CONFLICT")
    assert 1 < len(failed.preconditions) < 100 and "99 other memories" in failed.message
    assert len((await rollback(caller, 1, preview=True)).conflicts) == 100


async def test_what_later_revisions_took_back_themselves_is_no_conflict(caller: Caller) -> None:
    await written(caller, tea("one"))
    await written(caller, tea("two", 1))
    await written(caller, tea("three", 2))
    assert (await rollback(caller, 3)).revision == 4
    assert (await rollback(caller, 2)).revision == 5
    assert (await caller.memory(TEA)).content == "one"
    assert (await rollback(caller, 1)).revision == 6
    assert not await texts(caller)


async def test_where_all_is_as_before_nothing_is_done(caller: Caller) -> None:
    await written(caller, tea("one"), bread("Rye."))
    await written(caller, tea("two", 1))
    await written(caller, tea("one", 2))
    answer = await rollback(caller, 2)
    assert answer.revision == 0 and not answer.changes and not answer.conflicts
    assert len(await revisions(caller)) == 3


async def test_rules_about_writes_do_not_hinder_a_rollback(caller: Caller, channel: grpc.aio.Channel) -> None:
    """Profiles grow alone, events are only added, a commit may delete few: all of that is about new words."""
    await written(caller, put("profile", content="# User profile\n\nAnn."))
    events = [write("events", event_name=f"e{n}", content=f"Thing {n} happened.", ranges=[(1, 1)]) for n in range(8)]
    grown = "# User profile\n\nAnn.\n\n" + "Lives in Ghent. " * 60
    made = await committed(
        caller, channel, *events, write("profile", content=grown, ranges=[(1, 1)]), types=("events", "profile")
    )
    assert len(await texts(caller)) == 9
    assert len((await rollback(caller, archive=made.archive_uri)).changes) == 9
    assert list((await texts(caller)).values()) == ["# User profile\n\nAnn."]


async def test_only_a_finished_commit_can_be_taken_back(caller: Caller) -> None:
    made = await caller.committed(said("hello"))
    failed = await failure(rollback(caller, archive=made.archive_uri))
    assert failed.seen == ("FAILED_PRECONDITION", "COMMIT_NOT_FINISHED")
    missing = made.archive_uri.replace("archive_001", "archive_002")
    assert (await failure(rollback(caller, archive=missing))).seen == ("NOT_FOUND", "RESOURCE_NOT_FOUND")
    failed = await failure(rollback(caller, archive="viking://user/memories"))
    assert failed.fields == ["archive_uri"]


async def test_a_commit_under_way_is_merged_with_what_was_taken_back(caller: Caller, channel: grpc.aio.Channel) -> None:
    await written(caller, tea("one\ntwo"), put("tools", tool_name="grep", total_calls=1))
    await written(caller, tea("1\ntwo", 1), put("tools", 1, tool_name="grep", total_calls=100), bread("Rye."))
    await caller.committed(*[CALLED] * 5, policy=policy(types=["preferences", "tools"]))
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        assert (await rollback(caller, 2)).revision == 3
        verdict = await worker.deliver(lease, edit(TEA, content=[("two", "2")]))
        assert verdict.outcome == extractor_service_pb2.JOB_OUTCOME_APPLIED
    assert (await caller.memory(TEA)).content == "one\n2"
    assert (await caller.memory(TOOL)).fields["total_calls"].int64_value == 6
    assert len(await texts(caller)) == 2, "what was taken back stays so"


async def test_a_commit_whose_text_was_taken_back_is_tried_again(caller: Caller, channel: grpc.aio.Channel) -> None:
    await written(caller, tea("one"))
    await written(caller, tea("two", 1))
    await caller.committed(said("hello"))
    async with Worker(channel) as worker:
        lease = (await worker.take()).lease
        await rollback(caller, 2)
        verdict = await worker.deliver(lease, edit(TEA, content=[("two", "2")]))
        assert verdict.outcome == extractor_service_pb2.JOB_OUTCOME_REQUEUED
        lease = (await worker.take()).lease
        verdict = await worker.deliver(lease, edit(TEA, content=[("one", "1")]))
        assert verdict.outcome == extractor_service_pb2.JOB_OUTCOME_APPLIED
    assert (await caller.memory(TEA)).content == "1"


async def test_a_rollback_that_is_sent_again_is_done_once(caller: Caller) -> None:
    await written(caller, tea("one"))
    await written(caller, tea("two", 1))
    request_id = unique("r")
    # What is only shown takes no id.
    assert (await rollback(caller, 2, preview=True, request_id=request_id)).revision == 0
    first = await rollback(caller, 2, request_id=request_id)
    assert first.revision == 3
    await written(caller, tea("three", 3))
    # Anew it would be refused.
    assert await rollback(caller, 2, request_id=request_id) == first
    assert (await failure(rollback(caller, 1, request_id=request_id))).reason == "REQUEST_ID_REUSED"
    assert (await caller.memory(TEA)).content == "three"


async def test_a_rollback_that_is_killed_half_way_is_not_there_and_can_be_repeated(
    own_server: Servers, fresh_store: dict[str, str], tmp_path: Path
) -> None:
    log = tmp_path / "fired"
    process = own_server(fresh_store)
    async with grpc.aio.insecure_channel(process.address) as channel:
        caller = Caller(channel, "ann")
        await written(caller, *(put("preferences", topic=f"t{number}", content="x") for number in range(3)))
        before = await texts(caller)
    process.stop()
    armed = {"RUNEKEEP_FAILPOINT": f"{failpoints.APPLY_MID_OPERATIONS}:KILL:2", "RUNEKEEP_FAILPOINT_LOG": str(log)}
    process = own_server({**fresh_store, **armed})
    async with grpc.aio.insecure_channel(process.address) as channel:
        failed = await failure(rollback(Caller(channel, "ann"), 1, request_id="r"))
        assert failed.code is grpc.StatusCode.UNAVAILABLE
    assert log.read_text().startswith(failpoints.APPLY_MID_OPERATIONS)
    process.discard()
    process = own_server(fresh_store)
    async with grpc.aio.insecure_channel(process.address) as channel:
        caller = Caller(channel, "ann")
        assert await texts(caller) == before
        assert (await rollback(caller, 1, request_id="r")).revision == 2
        assert not await texts(caller)
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


async def test_memories_of_a_type_that_is_gone_are_taken_back(
    own_server: Servers, fresh_store: dict[str, str], tmp_path: Path
) -> None:
    types = tmp_path / "types"
    types.mkdir()
    (types / "recipes.yaml").write_text(TYPE)
    process = own_server({**fresh_store, "RUNEKEEP_TYPES_DIRS": str(types)})
    async with grpc.aio.insecure_channel(process.address) as channel:
        caller = Caller(channel, "ann")
        uri = (await written(caller, put("recipes", dish="Soup", content="Boil."))).memories[0].uri
        await written(caller, change(uri, 1, content="Fry."))
    process.stop()
    process = own_server(fresh_store)
    async with grpc.aio.insecure_channel(process.address) as channel:
        caller = Caller(channel, "ann")
        (changed,) = (await rollback(caller, 2)).changes
        assert (changed.memory_type, changed.before, changed.after) == ("recipes", "Fry.", "Boil.")
        assert (await caller.memory(uri)).fields["content"].string_value == "Boil."
    process.stop()


async def test_a_message_names_what_came_of_it_and_each_memory_its_messages(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    session = await caller.session()
    await caller.add(session, said("I like tea", id="m1"), said("and rye bread", id="m2"), said("hello", id="m3"))
    await caller.commit(session)
    operations = (
        write("preferences", topic="Tea", content="Likes it.", ranges=[(1, 1)]),
        write("preferences", topic="Bread", content="Rye.", ranges=[(1, 2)]),
    )
    async with Worker(channel) as worker:
        verdict = await worker.deliver((await worker.take()).lease, *operations)
        assert verdict.outcome == extractor_service_pb2.JOB_OUTCOME_APPLIED
    of_first = await came_of(caller, session, "m1", page_size=1)
    rest = await came_of(caller, session, "m1", page_size=1, page_token=of_first.next_page_token)
    assert [one.uri.rsplit("/", 1)[1] for one in (*of_first.memories, *rest.memories)] == ["Bread.md", "Tea.md"]
    assert not rest.next_page_token
    whole = (await came_of(caller, caller.uri(f"sessions/{session}"), "m2", view=3)).memories
    assert [one.message_id for one in whole[0].sources] == ["m1", "m2"]
    assert whole[0] == await caller.memory(BREAD)
    assert not (await came_of(caller, session, "m3")).memories

    # Of what goes on, the newest version that still names the message; of what was put anew, the one before.
    await written(caller, change(BREAD, 1, content="Rye and wheat."), tea("Coffee.", 1))
    await written(caller, change(BREAD, 2, content="Rye, wheat and oats."))
    named = {one.uri.rsplit("/", 1)[1]: one for one in (await came_of(caller, session, "m1")).memories}
    assert (named["Bread.md"].version, named["Tea.md"].version) == (3, 1)
    assert named["Tea.md"].superseded_revision == 2 and not named["Tea.md"].content
    await written(caller, remove(BREAD, 3))
    assert [one.version for one in (await came_of(caller, session, "m2")).memories] == [3]

    for missing in (came_of(caller, session, "m4"), came_of(caller, session, "%"), came_of(caller, "none", "m1")):
        assert (await failure(missing)).seen == ("NOT_FOUND", "RESOURCE_NOT_FOUND")
    await caller.sessions.DeleteSession(session_service_pb2.DeleteSessionRequest(session=session))
    assert (await failure(came_of(caller, session, "m1"))).resource == ("session", session)


async def test_of_very_many_messages_each_still_names_what_came_of_it(
    caller: Caller, channel: grpc.aio.Channel
) -> None:
    """A memory names some hundreds of messages, of a tool that is called all the time the newest ones."""
    session = await caller.session()
    for first, count in ((1, 100), (101, 256)):
        for batch in range(first, first + count, 64):
            upto = min(batch + 64, first + count)
            await caller.add(session, *(used_tool("c", "again", id=f"m{number}") for number in range(batch, upto)))
        await caller.commit(session)
        async with Worker(channel) as worker:
            verdict = await worker.deliver((await worker.take()).lease)
            assert verdict.outcome == extractor_service_pb2.JOB_OUTCOME_APPLIED
    memory = await caller.memory(TOOL)
    assert len(memory.sources) == 256 and memory.sources[0].message_id == "m101"
    assert [one.version for one in (await came_of(caller, session, "m7")).memories] == [1]
    assert [one.version for one in (await came_of(caller, session, "m107")).memories] == [2]


def test_the_program_of_the_guide_runs_as_it_stands(server: ServerProcess) -> None:
    guide = (ROOT / "docs" / "guides" / "correcting.md").read_text()
    found = re.search(r"<!-- example: history.py -->\n```python\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    assert found
    program = found[1].replace("127.0.0.1:7433", server.address)
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == re.findall(r"# (.*)$", found[1], re.MULTILINE)
