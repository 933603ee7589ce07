"""Commits, phase 2: one transaction, one revision, exactly once, on every driver."""

import json
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runekeep_storage.database import Database, Row, Space, Tx
from runekeep_storage.errors import LeaseLost, NotFound, VersionConflict
from runekeep_storage.indexing import outbox
from runekeep_storage.indexing.outbox import GRACE
from runekeep_storage.indexing.points import memory_point
from runekeep_storage.jobs import jobs, tasks
from runekeep_storage.memories import apply, memories
from runekeep_storage.records import LeaseId, MemoryWrite, Usage
from runekeep_storage.sessions import archives, sessions
from runekeep_storage.spaces import spaces
from tests.support.storage.databases import (
    ANN,
    BOB,
    CAT,
    Clock,
    claim,
    commit,
    prepared,
    queue,
    revise,
    talk,
    uri,
    write,
)

MEMORIES = "viking://user/ann/memories"


async def everything(tx: Tx) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table that a commit may touch."""
    tables = (
        "accounts",
        "spaces",
        "archives",
        "tasks",
        "task_events",
        "jobs",
        "commits",
        "memories",
        "active_counts",
        "outbox",
    )
    return {table: [tuple(row) for row in await tx.fetch(f"SELECT * FROM {table}")] for table in tables}


async def outbox_rows(tx: Tx) -> list[Row]:
    return await tx.fetch("SELECT * FROM outbox ORDER BY account, user_id, revision, number")


async def commit_rows(tx: Tx, space: Space) -> list[tuple[int, str]]:
    rows = await tx.fetch(
        "SELECT revision, job_id FROM commits WHERE account = $1 AND user_id = $2 ORDER BY revision",
        *(space.account, space.user),
    )
    return [(row["revision"], row["job_id"]) for row in rows]


async def test_one_commit_changes_everything_at_once(database: Database, clock: Clock) -> None:
    await talk(database, ANN, "s", "I drink tea")
    used = [
        Usage("context", uri(ANN, "tea")),
        Usage("skill", "viking://user/ann/skills/brew.md"),
        Usage("context", uri(ANN, "tea")),
    ]
    await database.write(sessions.record_usage, ANN, "s", used)
    await commit(database, ANN, "s", "t1")
    job = await claim(database)
    clock.advance(3)

    applied = await database.write(apply.apply, ANN, prepared(job.lease, [write(ANN, "tea", 0, 1, "drinks tea")]))

    assert (applied.revision, applied.again, applied.job.job_id) == (1, False, "t1")
    memory = await database.read(memories.get, ANN, uri(ANN, "tea"))
    assert (memory.version, memory.content, memory.rev_from, memory.rev_to, memory.active_count) == (
        1,
        "drinks tea",
        1,
        0,
        1,
    )
    assert (memory.created_at, memory.extractor) == (clock.now, '{"name":"test"}')
    archive = await database.read(archives.get, ANN, "s", 1)
    assert (archive.state, archive.abstract, archive.revision, archive.done_at) == (
        "done",
        "what was said",
        1,
        clock.now,
    )
    assert archive.diff == '{"operations":{}}'
    task = await database.read(tasks.get, ANN, "t1")
    assert (task.state, task.ended_at) == ("completed", clock.now)
    told = {"outcome": "applied", "revision": 1, "active_count_updated": 2, "fingerprints": 0}
    assert json.loads(task.result) == told
    assert await database.read(commit_rows, ANN) == [(1, "t1")]
    assert await database.read(spaces.revisions, ANN) == (1, 0)
    (row,) = await database.read_global(outbox_rows)
    assert (row["op"], row["uri"], row["version"], row["due_at"]) == ("upsert", uri(ANN, "tea"), 1, 0)


async def test_the_same_output_twice_is_applied_once(database: Database) -> None:
    await queue(database, ANN, "t1")
    job = await claim(database)
    output = prepared(job.lease, [write(ANN, "tea", 0, 1, "tea")])
    first = await database.write(apply.apply, ANN, output)
    before = await database.read_global(everything)

    second = await database.write(apply.apply, ANN, output)

    assert (first.revision, first.again, second.revision, second.again) == (1, False, 1, True)
    assert (await database.read_global(apply.applied_before, job.lease, "out")) is not None
    assert await database.read_global(everything) == before


async def test_any_other_output_finds_the_lease_lost(database: Database) -> None:
    await queue(database, ANN, "t1")
    job = await claim(database)
    await database.write(apply.apply, ANN, prepared(job.lease))
    before = await database.read_global(everything)

    writes = [write(ANN, "tea", 0, 1, "tea")]
    for other in (
        prepared(job.lease, writes, "another output"),
        prepared(LeaseId("t1", job.token + 1), writes),
        prepared(LeaseId("t1", job.token - 1), writes),
        prepared(LeaseId("nothing", 1), writes),
    ):
        with pytest.raises(LeaseLost):
            await database.write(apply.apply, ANN, other)

    assert await database.read_global(everything) == before


async def test_an_output_of_a_lease_that_was_given_away_is_refused_though_the_job_succeeded(database: Database) -> None:
    await queue(database, ANN, "t1")
    slow = await claim(database)
    await database.write_global(jobs.requeue, slow, None, delay=0, counts=None)
    await database.write(apply.apply, ANN, prepared((await claim(database)).lease, output_id="out"))

    with pytest.raises(LeaseLost):
        await database.write(apply.apply, ANN, prepared(slow.lease, output_id="out"))
    assert await database.read(commit_rows, ANN) == [(1, "t1")]


CONFLICTS = {
    "made meanwhile": write(ANN, "tea", 0, 1),
    "changed meanwhile": write(ANN, "tea", 1, 2),
    "deleted meanwhile": write(ANN, "gone", 1, 2),
    "made anew over a delete without its number": write(ANN, "gone", 0, 1),
    "never there": write(ANN, "new", 1, 2),
    "a number left out": write(ANN, "tea", 2, 4),
}


@pytest.mark.parametrize("name", CONFLICTS)
async def test_a_conflict_changes_nothing(database: Database, name: str) -> None:
    await revise(database, ANN, "t1", write(ANN, "tea", 0, 1, "tea"), write(ANN, "gone", 0, 1, "soon gone"))
    await revise(database, ANN, "t2", write(ANN, "tea", 1, 2, "green tea"), write(ANN, "gone", 1, 2, deleted=True))
    await queue(database, ANN, "t3")
    job = await claim(database)
    before = await database.read_global(everything)

    with pytest.raises(VersionConflict) as refused:
        await database.write(apply.apply, ANN, prepared(job.lease, [write(ANN, "fine", 0, 1, "fine"), CONFLICTS[name]]))

    assert refused.value.uri == CONFLICTS[name].uri
    assert await database.read_global(everything) == before
    # The lease is still held: the same job prepares again on what is there now.
    again = [write(ANN, "tea", 2, 3, "black tea"), write(ANN, "gone", 0, 3, "back")]
    assert (await database.write(apply.apply, ANN, prepared(job.lease, again))).revision == 3


async def test_one_memory_twice_in_a_commit_is_refused_whole(database: Database) -> None:
    await queue(database, ANN, "t1")
    job = await claim(database)
    before = await database.read_global(everything)

    with pytest.raises(Exception):  # noqa: B017 (each driver has its own error for a broken key)
        await database.write(
            apply.apply, ANN, prepared(job.lease, [write(ANN, "tea", 0, 1, "a"), write(ANN, "tea", 0, 1, "b")])
        )

    assert await database.read_global(everything) == before


async def test_versions_stay_and_a_delete_is_one(database: Database, clock: Clock) -> None:
    started = clock.now
    for number, change in enumerate(
        (
            write(ANN, "tea", 0, 1, "tea"),
            write(ANN, "tea", 1, 2, "green tea"),
            write(ANN, "tea", 2, 3, deleted=True),
            write(ANN, "tea", 0, 4, "tea again"),
        ),
        1,
    ):
        assert (await revise(database, ANN, f"t{number}", change)).revision == number
        clock.advance(60)

    versions = (await database.read(memories.versions_page, ANN, uri(ANN, "tea"), memories.LATEST, 10, 2**40))[0]
    assert [(one.version, one.content, one.deleted, one.rev_from, one.rev_to) for one in versions] == [
        (4, "tea again", False, 4, 0),
        (3, "", True, 3, 3),
        (2, "green tea", False, 2, 3),
        (1, "tea", False, 1, 2),
    ]
    assert versions[2].created_at == started
    assert versions[0].created_at == started + 180 * 1_000_000
    assert (await database.read(memories.versions_page, ANN, uri(ANN, "tea"), 3, 1, 2**40))[0] == [versions[2]]
    assert (await database.read(memories.get, ANN, uri(ANN, "tea"), version=2)).content == "green tea"
    assert (await database.read(memories.get, ANN, uri(ANN, "tea"), version=3)).deleted
    for absent in ({"version": 5}, {"revision": 3}, {"revision": 0}):
        with pytest.raises(NotFound):
            await database.read(memories.get, ANN, uri(ANN, "tea"), **absent)
    with pytest.raises(NotFound):
        (await database.read(memories.versions_page, ANN, uri(ANN, "coffee"), memories.LATEST, 10, 2**40))[0]
    assert await database.read(memories.newest_version, ANN, uri(ANN, "tea")) == 4


async def test_the_index_is_told_what_came_and_later_what_goes(database: Database, clock: Clock) -> None:
    await revise(database, ANN, "t1", write(ANN, "tea", 0, 1, "tea"), write(ANN, "milk", 0, 1, "milk"))
    await revise(database, ANN, "t2", write(ANN, "tea", 1, 2, "green tea"), write(ANN, "milk", 1, 2, deleted=True))

    newest, due = await database.read(outbox.due, ANN, 100)
    assert newest == 2
    assert [(one.revision, one.op, one.uri, one.version) for one in due] == [
        (1, "upsert", uri(ANN, "tea"), 1),
        (1, "upsert", uri(ANN, "milk"), 1),
        (2, "upsert", uri(ANN, "tea"), 2),
    ]
    clock.advance(2 * GRACE / 1_000_000)
    late = (await database.read(outbox.due, ANN, 100))[1]
    assert late == due, "until the watermark passes, searches read at the versions that go"
    await database.write(outbox.done, ANN, due, newest)
    assert (await database.read(outbox.due, ANN, 100))[1] == []
    clock.advance(GRACE / 1_000_000)
    _, due = await database.read(outbox.due, ANN, 100)
    assert [one.point_id for one in due if one.op == "delete"] == [
        memory_point(ANN, uri(ANN, "tea"), 1),
        memory_point(ANN, uri(ANN, "milk"), 1),
    ]


async def test_a_mark_never_moves_back(database: Database) -> None:
    for number in range(1, 4):
        await revise(database, ANN, f"t{number}", write(ANN, f"m{number}", 0, 1, "x"))
    _, due = await database.read(outbox.due, ANN, 100)

    await database.write(outbox.done, ANN, due, 3)
    await database.write(outbox.done, ANN, due[:1], 1)

    assert await database.read(spaces.revisions, ANN) == (3, 3)
    assert await database.read(outbox.due, ANN, 100) == (3, [])
    assert await database.read_global(outbox.waiting_spaces, "") == ([], outbox.FIRST)


async def test_uses_are_counted_once_a_commit(database: Database) -> None:
    await revise(database, ANN, "t1", write(ANN, "tea", 0, 1, "tea"))
    for task_id in ("t2", "t3"):
        await talk(database, ANN, "s", f"more {task_id}")
        await database.write(sessions.record_usage, ANN, "s", [Usage("context", uri(ANN, "tea"))] * 3)
        await commit(database, ANN, "s", task_id)
        output = prepared((await claim(database)).lease)
        await database.write(apply.apply, ANN, output)
        await database.write(apply.apply, ANN, output)

    assert (await database.read(memories.get, ANN, uri(ANN, "tea"))).active_count == 2


async def test_a_commit_with_nothing_is_a_revision_too(database: Database) -> None:
    applied = await revise(database, ANN, "t1")

    assert applied.revision == 1
    assert await database.read(commit_rows, ANN) == [(1, "t1")]
    assert await database.read_global(outbox.waiting_spaces, "") == ([ANN], outbox.FIRST)


async def test_spaces_count_and_keep_for_themselves(database: Database) -> None:
    for space in (ANN, BOB, CAT):
        await revise(database, space, f"{space.user}-1", write(space, "tea", 0, 1, f"{space.user} drinks tea"))
    await revise(database, BOB, "bob-2", write(BOB, "tea", 1, 2, deleted=True))

    assert [(await database.read(spaces.revisions, space))[0] for space in (ANN, BOB, CAT)] == [1, 2, 1]
    assert (await database.read(memories.get, ANN, uri(ANN, "tea"))).content == "ann drinks tea"
    for space, other in ((BOB, ANN), (CAT, ANN), (ANN, CAT)):
        with pytest.raises(NotFound):
            await database.read(memories.get, space, uri(other, "tea"))
        assert await database.read(memories.listing, space, f"viking://user/{other.user}/memories") == []
    # Even the very same URI is another memory in another account.
    assert await database.read(memories.alive, CAT, [(uri(ANN, "tea"), 1)], 9) == {}


async def test_a_listing_is_cut_at_slashes(database: Database) -> None:
    names = ["tea", "tea-pot", "tea/green", "tea0", "tea.", "zoo"]
    await revise(database, ANN, "t1", *(write(ANN, name, 0, 1, name) for name in names))

    inside = await database.read(memories.listing, ANN, f"{MEMORIES}/preferences/tea")
    assert [one.uri for one in inside] == [uri(ANN, "tea/green")]
    everything = await database.read(memories.listing, ANN, MEMORIES)
    assert [one.uri for one in everything] == sorted(uri(ANN, name) for name in names)
    assert everything[0].memory_type == "preferences"


NAMES = ("a", "b", "c", "d")
_NUMBERS = count(1)
CHANGES = st.lists(
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["write", "delete"]), max_size=4), min_size=1, max_size=12
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CHANGES)
async def test_every_revision_can_be_read_exactly_as_it_was(database: Database, commits: list[dict[str, str]]) -> None:
    # A space for each example, beside those of the others.
    await _check_history(database, Space("acme", f"ann-{next(_NUMBERS)}"), commits)


async def _check_history(database: Database, space: Space, commits: list[dict[str, str]]) -> None:
    alive: dict[str, tuple[int, str]] = {}
    newest = dict.fromkeys(NAMES, 0)
    history = [dict(alive)]
    for number, changes in enumerate(commits, 1):
        writes: list[MemoryWrite] = []
        for name, change in changes.items():
            base = alive[name][0] if name in alive else 0
            if change == "delete" and not base:
                continue
            newest[name] += 1
            content = f"{name} of commit {number}"
            writes.append(write(space, name, base, newest[name], content, deleted=change == "delete"))
            if change == "delete":
                del alive[name]
            else:
                alive[name] = newest[name], content
        assert (await revise(database, space, f"{space.user}-t{number}", *writes)).revision == number
        history.append(dict(alive))

    for revision, model in enumerate(history):
        listed = await database.read(memories.listing, space, f"viking://user/{space.user}/memories", revision)
        assert [(one.uri, one.version) for one in listed] == [
            (uri(space, name), model[name][0]) for name in sorted(model)
        ]
        for name in NAMES:
            if name in model:
                memory = await database.read(memories.get, space, uri(space, name), revision=revision)
                assert (memory.version, memory.content) == model[name]
            else:
                with pytest.raises(NotFound):
                    await database.read(memories.get, space, uri(space, name), revision=revision)
        keys = [(uri(space, name), version) for name in NAMES for version in range(1, newest[name] + 1)]
        found = await database.read(memories.alive, space, keys, revision)
        assert set(found) == {(uri(space, name), version) for name, (version, _) in model.items()}
        for indexed in (-1, len(history) // 2, len(history) - 1):
            there = history[indexed] if indexed >= 0 else {}
            beside = await database.read(memories.beside_index, space, indexed, revision, 1000, "")
            assert {(memory.uri, memory.version) for memory, _, _ in beside} == {
                (uri(space, name), version)
                for name, (version, content) in model.items()
                if there.get(name) != (version, content)
            }
