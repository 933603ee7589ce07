"""What takes many rows takes few statements, each of which is an exchange on PostgreSQL; and does to each row what one
by itself would do to it. On every driver."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import pytest

from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.errors import LeaseLost, VersionConflict
from runekeep_storage.indexing import outbox, passages, rows, stale_points
from runekeep_storage.indexing.embedder_change import Models
from runekeep_storage.indexing.outbox import Entry
from runekeep_storage.indexing.points import memory_point, passage_point
from runekeep_storage.indexing.space_embedders import SpaceEmbedders
from runekeep_storage.jobs import jobs
from runekeep_storage.memories import memories, revisions
from runekeep_storage.memories.apply import apply
from runekeep_storage.memories.revisions import BY_HAND
from runekeep_storage.records import LeaseId, MemoryWrite, MessageRun
from runekeep_storage.relay.relay import Relay
from runekeep_storage.sessions import sessions
from runekeep_storage.spaces import spaces, watermarks
from tests.support.storage.databases import (
    ANN,
    BOB,
    CAT,
    TERMS,
    Clock,
    claim,
    commit,
    prepared,
    queue,
    talk,
    uri,
    write,
)
from tests.support.storage.search import Search
from tests.support.storage.statements import Statements

P = ParamSpec("P")
T = TypeVar("T")
MANY = 37
"""More than two statements take."""


async def counted(
    database: Database, work: Callable[Concatenate[Tx, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
) -> tuple[T, int]:
    """What it gives, and the statements that it took."""

    async def run(tx: Tx) -> tuple[T, int]:
        counting: Any = Statements(tx)
        return await work(counting, *args, **kwargs), counting.number

    return await database.write_global(run)


async def made(database: Database, *writes: MemoryWrite) -> int:
    """Statements of a revision."""
    await database.write(spaces.ensure, ANN)
    _, number = await counted(database, revisions.make, ANN, writes, "{}", BY_HAND)
    return number


async def test_a_revision_of_many_memories_takes_few_statements(database: Database) -> None:
    said = MessageRun("s", "m1", 1, 2), MessageRun("s", "m4", 4, 4)
    one = await made(database, write(ANN, "one", 0, 1, "x", origins=said))
    many = await made(database, *(write(ANN, f"n{number}", 0, 1, "x", origins=said) for number in range(MANY)))
    assert (one, many) == (8, 3 + 4 + 1 + 5 + 3 + 3), (
        "checks, versions, origins of two runs each, outbox; the revision and where vectors go"
    )
    more = await made(database, *(write(ANN, f"n{number}", 1, 2, "y", origins=said) for number in range(MANY)))
    assert more == many + 3 + 2, "their bases end, and their points are to leave"


async def test_each_version_of_a_large_revision_is_what_it_would_be_by_itself(database: Database, clock: Clock) -> None:
    await made(database, *(write(ANN, f"n{number}", 0, 1, "old") for number in range(MANY)))
    born = clock.now
    clock.advance(5)
    writes = [
        write(
            ANN,
            f"n{number}",
            1,
            2,
            f"new {number}",
            deleted=number % 3 == 0,
            origins=(MessageRun("s", f"m{number}", number, number),),
        )
        for number in range(MANY)
    ]
    writes += [write(ANN, f"fresh{number}", 0, 1, f"fresh {number}", created_at=number) for number in range(MANY)]

    await made(database, *writes)

    for number in range(MANY):
        of_name = uri(ANN, f"n{number}")
        (newest,), _ = await database.read(memories.versions_page, ANN, of_name, memories.LATEST, 1, 2**40)
        gone = number % 3 == 0
        assert (newest.version, newest.content, newest.deleted) == (2, f"new {number}", gone)
        assert (newest.rev_from, newest.rev_to) == (2, 2 if gone else 0)
        assert (newest.created_at, newest.updated_at) == (born, clock.now)
        fresh = await database.read(memories.get, ANN, uri(ANN, f"fresh{number}"))
        assert (fresh.content, fresh.created_at) == (f"fresh {number}", number or clock.now)
        old = await database.read(memories.get, ANN, uri(ANN, f"n{number}"), version=1)
        assert (old.rev_from, old.rev_to) == (1, 2)
    entries = (await database.read_global(all_entries))[MANY:]
    assert [entry.number for entry in entries] == list(range(MANY + 1, MANY + 1 + len(entries)))
    wanted: list[tuple[str, ...]] = []
    for one in writes:
        if one.base_version:
            wanted.append(("delete", memory_point(ANN, one.uri, 1)))
        if not one.deleted:
            wanted.append(("upsert", one.uri))
    assert [(entry.op, entry.point_id or entry.uri) for entry in entries] == wanted
    named = await database.read_global(sources)
    assert named == sorted((f"m{number}", uri(ANN, f"n{number}"), 2) for number in range(MANY))


async def all_entries(tx: Tx) -> list[Entry]:
    found = await tx.fetch(
        "SELECT op, uri, version, point_id, revision, number FROM outbox WHERE account = $1 AND user_id = $2"
        " ORDER BY number",
        ANN.account,
        ANN.user,
    )
    return [Entry(**dict(row)) for row in found]


async def sources(tx: Tx) -> list[tuple[str, str, int]]:
    found = await tx.fetch("SELECT message_id, uri, version FROM memory_sources WHERE account = $1", ANN.account)
    return sorted((row["message_id"], row["uri"], row["version"]) for row in found)


@pytest.mark.parametrize(("base", "version"), [(0, 1), (1, 3), (2, 3)])
async def test_one_of_many_that_is_not_at_its_base_stops_all(database: Database, base: int, version: int) -> None:
    await made(database, write(ANN, "there", 0, 1, "x"))
    writes = [write(ANN, f"n{number}", 0, 1, "x") for number in range(MANY)]
    writes[30] = write(ANN, "there", base, version, "y")

    with pytest.raises(VersionConflict) as conflict:
        await made(database, *writes)

    assert conflict.value.uri == uri(ANN, "there")
    assert await database.read(spaces.revisions, ANN) == (1, 0)
    assert len(await database.read(memories.listing, ANN, "viking://user/ann/memories")) == 1


async def test_a_name_whose_memory_was_deleted_goes_on_with_its_versions(database: Database) -> None:
    await made(database, write(ANN, "tea", 0, 1, "x"))
    await made(database, write(ANN, "tea", 1, 2, deleted=True))
    with pytest.raises(VersionConflict):
        await made(database, write(ANN, "tea", 0, 1, "y"))
    await made(database, write(ANN, "tea", 0, 3, "y"))
    for revision, there in ((1, 1), (2, None), (3, 3), (memories.LATEST, 3)):
        found, newest = await database.read(memories.with_newest_version, ANN, uri(ANN, "tea"), revision)
        assert (found.version if found else None, newest) == (there, 3)
    assert await database.read(memories.with_newest_version, BOB, uri(ANN, "tea")) == (None, 0)


async def test_current_memories_are_read_as_one_by_one(database: Database) -> None:
    names = [f"n{number}" for number in range(MANY)]
    await made(database, *(write(ANN, name, 0, 1, "x") for name in names))
    await made(database, write(ANN, "n1", 1, 2, "y"), write(ANN, "n2", 1, 2, deleted=True))
    wanted = [uri(ANN, name) for name in [*names, "never"]]
    for space in (ANN, BOB):
        found, number = await counted(database, memories.current_with_newest_versions, space, wanted)
        assert number == (5 if space == ANN else 3), "versions, 16 at a time; and the memories, 32 at a time"
        for one in wanted:
            assert found[one] == await database.read(memories.with_newest_version, space, one)


async def test_passages_of_an_archive_take_few_statements_and_each_comes_once(database: Database) -> None:
    await talk(database, ANN, "s", *(f"kettle {number}" for number in range(MANY)))
    await commit(database, ANN, "s", "t1")
    (archive,) = await database.read(passages.waiting, ANN)
    messages = await database.read(sessions.messages_between, ANN, "s", 1, MANY)
    made = [(one, b"vector", b"") for one in passages.of_messages(archive, messages)]
    # Of another server, which had no vectors.
    early = [(one, None, words) for one, _, words in made[5:25]]
    await database.write(passages.store, ANN, "", archive, early, "m", whole=False)

    _, number = await counted(database, passages.store, ANN, "", archive, made, "m", whole=True)

    # To join the index, which is none; the mark; where vectors go; what is erased; passages; the number and the entries
    # of the outbox.
    assert number <= 2 + 1 + 1 + 1 + 3 + 1 + 2
    again = [entry for entry in await database.read_global(all_entries) if entry.op == "passage"]
    assert [entry.version for entry in again] == list(range(6, 26)), "those that were there already"
    keys = [("s", sequence) for sequence in range(0, MANY + 3)]
    points = await database.read(rows.passage_points, ANN, keys, Models("m"))
    assert [point.sequence for point in points] == list(range(1, MANY + 1))
    assert [point.sequence for point in points if point.dense is None] == list(range(6, 26))
    assert await database.read(rows.passage_points, BOB, keys, Models("m")) == []


async def test_many_points_are_read_and_looked_at_again_in_few_statements(database: Database) -> None:
    await made(database, *(write(ANN, f"n{number}", 0, 1, f"old {number}") for number in range(MANY)))
    await made(database, *(write(ANN, f"n{number}", 1, 2, "new") for number in range(0, MANY, 2)))
    keys = [(uri(ANN, f"n{number}"), version) for number in reversed(range(MANY)) for version in (1, 2)]

    points, number = await counted(database, rows.memory_points, ANN, keys, Models("m"))

    there = [key for key in keys if key[1] == 1 or int(key[0].rpartition("/n")[2][:-3]) % 2 == 0]
    assert [(point.uri, point.version) for point in points] == there, "in the order that they were asked for"
    assert number == -(-len(keys) // 16)
    await talk(database, ANN, "s", "kettle")
    await commit(database, ANN, "s", "t1")
    (archive,) = await database.read(passages.waiting, ANN)
    (passage,) = passages.of_messages(archive, await database.read(sessions.messages_between, ANN, "s", 1, 1))
    await database.write(passages.store, ANN, "", archive, [(passage, None, b"")], "m", whole=True)
    points += await database.read(rows.passage_points, ANN, [("s", 1)], Models("m"))

    async def corrected(tx: Tx) -> list[Entry]:
        counting: Any = Statements(tx)
        found = await stale_points.find_stale(counting, ANN, points, Models("m"), superseded=True)
        assert counting.number == -(-len(there) // 16) + 2
        return found

    # Of superseded versions alone: the others are as they were.
    superseded = [point.id for point in points if point.version == 1 and (point.uri, 2) in there]
    assert [entry.point_id for entry in await database.write_global(corrected)] == superseded
    await database.write_global(erase_all)
    assert {entry.point_id for entry in await database.write_global(corrected)} == {point.id for point in points}
    assert points[-1].id == passage_point(ANN, "t1", 1)


async def erase_all(tx: Tx) -> None:
    for table in ("memories", "passages"):
        await tx.execute(f"DELETE FROM {table} WHERE account = $1 AND user_id = $2", ANN.account, ANN.user)


async def test_many_entries_are_done_in_few_statements_and_those_that_were_gone_are_told(database: Database) -> None:
    await made(database, *(write(ANN, f"n{number}", 0, 1, "x") for number in range(MANY)))
    await database.write(outbox.add, ANN, 0, [Entry("delete", point_id=f"p{number}") for number in range(MANY)])
    await database.write(outbox.add, BOB, 1, [Entry("upsert", uri=f"u{number}", version=1) for number in range(MANY)])
    newest, due = await database.read(outbox.due, ANN, 1000)
    assert (newest, [entry.number for entry in due]) == (1, list(range(1, 2 * MANY + 1)))
    assert (await database.read(outbox.due, ANN, MANY + 2))[1] == due[: MANY + 2]
    assert (await database.read(outbox.due, ANN, MANY - 2))[1] == due[: MANY - 2]
    await database.write(outbox.done, ANN, due[10:20], 0)

    gone, number = await counted(database, outbox.done, ANN, due[:64], 1)

    assert gone == due[10:20]
    assert number == 4 + 3, "and the watermark"
    assert await database.write(outbox.done, ANN, due, 1) == due[:64], "of more each by its key"
    assert await database.read(outbox.due, ANN, 1000) == (1, [])
    assert len(await database.read(counts, BOB)) == MANY, "numbers of another user are others"


async def counts(tx: Tx, space: Space) -> list[int]:
    found = await tx.fetch("SELECT number FROM outbox WHERE account = $1 AND user_id = $2", space.account, space.user)
    return [row["number"] for row in found]


async def test_leases_of_an_account_are_renewed_together_those_alone_that_are_held(
    database: Database, clock: Clock
) -> None:
    for number in range(MANY):
        await queue(database, Space("acme", f"user{number}"), f"t{number}")
    held = [await claim(database) for _ in range(MANY)]
    lost = held[7]
    await database.write_global(jobs.requeue, lost, None, delay=0, counts=None)
    assert (await claim(database)).job_id == lost.job_id
    asked = [(job.user, job.lease) for job in held]
    # Of a later attempt, of another user's job, and of none.
    asked += [("user3", LeaseId("t3", 2)), ("user4", held[5].lease), ("nobody", LeaseId("none", 1))]
    clock.advance(9)

    renewed, number = await counted(database, jobs.renew_all, "acme", asked, TERMS)

    # Each part is read before it is written: a lease that the caller may not use changes nothing.
    assert number == 6
    assert set(renewed) == {job.lease for job in held if job is not lost}
    assert all(job.job_id == lease.job_id for lease, job in renewed.items())
    clock.advance(2)
    assert [job.job_id for job in await database.read_global(jobs.expired)] == [lost.job_id], (
        "its later lease was not named"
    )
    clock.advance(57)
    assert len(await database.read_global(jobs.expired)) == 1
    clock.advance(2)
    assert len(await database.read_global(jobs.expired)) == MANY
    assert await database.write_in_account(jobs.renew_all, "other", asked, TERMS) == {}
    for job in (held[0], held[1]):
        with pytest.raises(LeaseLost):
            await database.write(jobs.renew, CAT, job.lease, TERMS)
    with pytest.raises(LeaseLost):
        await database.write(jobs.renew, jobs.space_of(lost), lost.lease, TERMS)


async def test_a_commit_has_nobody_look_for_spaces_that_the_index_lacks(
    search: Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    looked = asyncio.Event()
    elsewhere = watermarks.elsewhere

    async def counted(*args: Any) -> Any:
        nonlocal looks
        looks += 1
        looked.set()
        return await elsewhere(*args)

    async def holds(points: int) -> None:
        async with asyncio.timeout(30):
            while await search.index.count(ANN.account, ANN.user) != points:  # noqa: ASYNC110  # of another process
                await asyncio.sleep(0.01)

    monkeypatch.setattr(watermarks, "elsewhere", counted)
    database, embedder = search.database, search.embedder
    relay = Relay(
        database,
        search.attachment,
        SpaceEmbedders(database, search.attachment, embedder),
        search.registry,
        poll_seconds=3600,
        check_seconds=3600,
    )
    relay.start()
    try:
        async with asyncio.timeout(30):
            await looked.wait()
        await talk(database, ANN, "s", "a tin kettle")
        await commit(database, ANN, "s", "t1")
        relay.heard(watermarks.ARCHIVED)
        await holds(1)
        job = await claim(database)
        await database.write(apply, ANN, prepared(job.lease, [write(ANN, "tea", 0, 1, "tea")]))
        relay.heard(watermarks.ADDED)
        await holds(2)
        assert looks == 1
        looked.clear()
        relay.wake()
        async with asyncio.timeout(30):
            await looked.wait()
    finally:
        await relay.stop()
