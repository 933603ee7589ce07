"""Sessions and users that are deleted: what goes, what stays, and that nothing comes back late."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from runekeep_common.tokens import BYTES_A_TOKEN
from runekeep_schemas.type_files.registry import Registry
from runekeep_storage.blobs.blobs import FolderBlobs
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.drivers.common.idempotent_requests import DELETE_USER
from runekeep_storage.erasure.cleanup import Cleaner
from runekeep_storage.erasure.deletion import DeletedUser, delete_session, delete_user
from runekeep_storage.errors import LeaseLost, NotFound, RequestReused
from runekeep_storage.index.base import IndexPoint, VectorIndex
from runekeep_storage.index.edge import EdgeIndex
from runekeep_storage.indexing import passages, rows
from runekeep_storage.indexing.embedder_change import Models
from runekeep_storage.indexing.points import passage_point
from runekeep_storage.jobs import claiming, jobs, repairs, tasks
from runekeep_storage.memories import apply, memories
from runekeep_storage.records import Session
from runekeep_storage.relay import missing_vectors
from runekeep_storage.sessions import sessions
from runekeep_storage.spaces import pending_deletions
from runekeep_storage.tables import SLICE
from tests.support.storage import search as searches
from tests.support.storage.databases import ANN, BOB, TERMS, Clock, claim, commit, prepared, queue, talk, uri, write
from tests.support.storage.deletions import (
    OTHERS,
    STAYS,
    TURN_TABLES,
    answer,
    done,
    dump,
    fill,
    held,
    index_passages,
    live_a_little,
    slices_of,
)
from tests.support.storage.search import GRACE_SECONDS, Search, said, wordless
from tests.support.storage.statements import Noted


async def test_nothing_of_a_deleted_user_stays_but_what_keeps_others_right(database: Database) -> None:
    for space in (ANN, *OTHERS):
        await live_a_little(database, space)
        await answer(database, space, "AddMessages", "r1")
    await talk(database, ANN, "t", "five")
    await commit(database, ANN, "t", "leased")
    await talk(database, ANN, "t", "six")
    await commit(database, ANN, "t", "pending")
    await claim(database)
    before = {space: await dump(database, space) for space in OTHERS}
    assert {"spaces", "sessions", "messages", "recalled", "usages", "tool_outputs", "archives", "passages"} < set(
        before[BOB]
    )
    assert {"memories", "active_counts", "commits", "jobs", "tasks", "task_events"} < set(before[BOB])
    assert set(TURN_TABLES) < set(before[BOB])
    (space_before,) = (await dump(database, ANN))["spaces"]

    gone = await database.write(delete_user, ANN, "over")

    assert (gone.sessions, gone.memories) == (2, 1)
    assert {job.job_id for job in gone.cancelled} == {"leased", "pending"}
    left = await dump(database, ANN)
    assert set(left) <= STAYS
    (space_after,) = left["spaces"]
    assert space_after["revision"] > space_before["revision"], "points and watermarks depend on it"
    assert {row["op"] for row in left["outbox"]} <= {"delete", "delete_passages"}
    assert {space: await dump(database, space) for space in OTHERS} == before
    assert await database.write(delete_user, Space("acme", "nobody"), "") == DeletedUser(0, 0, [])
    assert await dump(database, Space("acme", "nobody")) == {}


async def test_accounts_count_their_ready_jobs_rightly_after_a_deletion(database: Database) -> None:
    for number in range(3):
        await queue(database, ANN, f"ann-{number}")
        await queue(database, BOB, f"bob-{number}")
    assert (await claim(database)).user == "ann"

    await database.write(delete_user, ANN, "")
    await database.write(delete_session, BOB, "s-bob-0", "")

    async def ready(tx: Tx) -> tuple[int, int]:
        account = await tx.fetchrow("SELECT ready_jobs FROM accounts WHERE account = 'acme'")
        counted = await tx.fetchrow("SELECT COUNT(*) AS n FROM jobs WHERE account = 'acme' AND is_ready = 1")
        assert account is not None and counted is not None
        return account["ready_jobs"], counted["n"]

    assert await database.read_global(ready) == (1, 1)
    assert [(await claim(database)).job_id, await database.write_global(claiming.claim, "w", TERMS)] == ["bob-1", None]


async def test_a_worker_of_a_deleted_user_can_do_nothing_more(database: Database) -> None:
    await queue(database, ANN, "t1")
    job = await claim(database)

    await database.write(delete_user, ANN, "")

    late: list[Callable[[], Awaitable[Any]]] = [
        lambda: database.write(apply.apply, ANN, prepared(job.lease, [write(ANN, "tea", 0, 1, "late tea")])),
        lambda: database.write(jobs.renew, jobs.space_of(job), job.lease, TERMS),
        lambda: database.read_global(jobs.held, job.lease),
        lambda: database.write(repairs.ask, ANN, job.lease, {}),
    ]
    for say in late:
        with pytest.raises(LeaseLost):
            await say()
    with pytest.raises(NotFound):
        await database.write(jobs.retry, ANN, "t1")
    assert set(await dump(database, ANN)) <= STAYS


async def test_a_user_begins_again_under_the_same_names(database: Database) -> None:
    await live_a_little(database, ANN)
    revision = (await database.write(delete_user, ANN, ""), (await dump(database, ANN))["spaces"][0]["revision"])[1]

    await live_a_little(database, ANN)

    found = await database.read(memories.get, ANN, uri(ANN, "tea"))
    assert (found.content, found.version, found.rev_from) == ("black tea", 2, revision + 2)
    assert found.active_count == 1
    versions, _ = await database.read(memories.versions_page, ANN, uri(ANN, "tea"), 2**62, 10, 2**40)
    assert [one.version for one in versions] == [2, 1]
    assert len(await database.read(sessions.messages_between, ANN, "s", 1, 100)) == 5


async def test_a_repeated_request_neither_claims_nor_restores_what_was_deleted(
    database: Database, clock: Clock
) -> None:
    await talk(database, ANN, "s", "one")
    await answer(database, ANN, "WriteMemories", "r1", says=b"revision 1")
    await answer(database, BOB, "WriteMemories", "r1", says=b"of bob")
    await answer(database, ANN, DELETE_USER, "d1", says=b"deleted")

    await database.write(delete_user, ANN, "")

    for body in ("body", "another body"):
        with pytest.raises(NotFound, match="no request named r1"):
            await answer(database, ANN, "WriteMemories", "r1", body, says=b"revision 3")
    (kept,) = [row for row in (await dump(database, ANN))["requests"] if row["request_id"] == "r1"]
    assert bytes(kept["response"]) == b"" and kept["digest"] == "", "nothing of what was said is kept"
    assert await answer(database, ANN, DELETE_USER, "d1", says=b"deleted twice") == b"deleted"
    with pytest.raises(RequestReused):
        await answer(database, ANN, DELETE_USER, "d1", "another body")
    assert await answer(database, BOB, "WriteMemories", "r1") == b"of bob"
    assert await answer(database, ANN, "WriteMemories", "r2", says=b"revision 3") == b"revision 3"
    clock.advance(24 * 3600 + 1)
    assert await answer(database, ANN, "WriteMemories", "r1", says=b"revision 4") == b"revision 4"


# Sessions too long for one transaction


@pytest.mark.parametrize("whole", ["session", "user"])
async def test_what_is_not_yet_taken_away_cannot_be_reached(
    database: Database, whole: str, tmp_path: Path, registry: Registry
) -> None:
    more = SLICE + 5
    await fill(database, ANN, "s", more)
    await fill(database, BOB, "s", 3)
    before = await dump(database, BOB)

    if whole == "session":
        await database.write(delete_session, ANN, "s", "")
    else:
        await database.write(delete_user, ANN, "")

    assert await held(database, ANN) == {"messages": 5, "passages": 5, "leftovers": 1}
    assert await database.read(sessions.messages_between, ANN, "s", 1, more) == []
    assert await database.read(rows.page, ANN, "passages", 2**62, rows.FIRST, 10, Models("")) == ([], None)
    assert await database.read(rows.names, ANN, "passages", rows.FIRST, 10) == []
    assert await database.read(rows.passage_points, ANN, [("s", more)], Models("")) == []
    assert await database.read(passages.of_points, ANN, [(("s", more), passage_point(ANN, "ann-s", more))]) == {}
    assert await database.read(missing_vectors.missing, ANN, registry, 100) == []
    assert await database.read(missing_vectors.missing, BOB, registry, 100)

    await Cleaner(database, FolderBlobs(tmp_path)).clean()
    assert await held(database, ANN) == {"messages": 0, "passages": 0, "leftovers": 0}
    assert await dump(database, BOB) == before


async def test_long_messages_go_in_smaller_slices(database: Database, tmp_path: Path) -> None:
    long = "x" * (pending_deletions.MESSAGE_TOKENS * BYTES_A_TOKEN * SLICE // 2)
    await talk(database, ANN, "s", *[long] * 5)
    await talk(database, ANN, "s", *["short"] * 5)

    await database.write(delete_session, ANN, "s", "")

    assert await held(database, ANN) == {"messages": 8, "passages": 0, "leftovers": 1}
    await Cleaner(database, FolderBlobs(tmp_path)).clean()
    assert await held(database, ANN) == {"messages": 0, "passages": 0, "leftovers": 0}


async def test_what_is_in_the_way_of_a_session_made_anew_goes_in_slices(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    slices_of(monkeypatch, 5)
    await fill(database, ANN, "s", 22)
    await fill(database, ANN, "t", 2)
    for name in ("s", "t"):
        await database.write(delete_session, ANN, name, "")
    assert await held(database, ANN) == {"messages": 14, "passages": 14, "leftovers": 2}
    counted = Noted(database)

    async def make() -> tuple[Session, bool]:
        return await counted.write(sessions.get_or_create, ANN, "s")

    with pytest.raises(pending_deletions.BlockedByDeletion):
        await make()
    assert await held(database, ANN) == {"messages": 14, "passages": 14, "leftovers": 2}
    assert await database.read(sessions.page, ANN, None, 10) == []

    session, made = await pending_deletions.retry_after_cleanup(counted, ANN, make)

    assert made and session.last_sequence == 0
    assert await held(database, ANN) == {"messages": 2, "passages": 2, "leftovers": 1}
    # Messages, passages, the name; and in the last one account, space and session are made.
    assert len(counted.changed) == 6 and max(counted.changed) <= 2 * 5 + 3
    await talk(database, ANN, "s", "new words")
    assert not await database.write(pending_deletions.clear_some_of, ANN, "s"), (
        "the cleaner of another server comes late"
    )
    assert len(await database.read(sessions.messages_between, ANN, "s", 1, 100)) == 1


# The index


async def full(search: Search, space: Space = ANN) -> None:
    """Two memories, one of them at its second version, and a passage, all in the index."""
    await queue(search.database, space, f"{space.user}-1", "a copper kettle")
    await done(search.database, searches.write(space, "tea", 0, 1, "copper tea"))
    await queue(search.database, space, f"{space.user}-2", "a copper spoon")
    await done(
        search.database,
        searches.write(space, "tea", 1, 2, "copper tea with milk"),
        searches.write(space, "milk", 0, 1, "copper milk"),
    )
    await search.caught_up(space)


async def points(index: VectorIndex, space: Space) -> list[str]:
    return await index.list_ids(space.account, space.user)


async def test_all_points_of_a_deleted_user_leave_the_index(search: Search, clock: Clock) -> None:
    search.relay.start()
    await full(search)
    await full(search, BOB)
    clock.advance(GRACE_SECONDS)
    await search.counts(BOB, 4)
    kept = await points(search.index, BOB)
    found = [one.item for one in (await search.find(BOB, "copper")).results]

    await search.database.write(delete_user, ANN, "")

    assert (await search.find(ANN, "copper")).results == [], "at once"
    await search.counts(ANN, 0)
    assert (await search.find(ANN, "copper")).results == []
    await search.caught_up(ANN)
    assert await points(search.index, BOB) == kept
    assert [one.item for one in (await search.find(BOB, "copper")).results] == found


async def test_late_removals_take_nothing_of_what_the_user_writes_afterwards(search: Search, clock: Clock) -> None:
    """The same URIs at the same versions, the same session with the same numbers: other points."""
    search.relay.start()
    await full(search)
    old = await points(search.index, ANN)
    await search.relay.stop()
    await search.database.write(delete_user, ANN, "")
    await queue(search.database, ANN, "ann-3", "a copper kettle")
    await done(search.database, searches.write(ANN, "tea", 0, 1, "copper tea"))

    search.relay.start()
    await search.caught_up(ANN)
    clock.advance(2 * GRACE_SECONDS)
    await search.until(lambda: nothing_waits(search, ANN))
    await search.counts(ANN, 2)

    assert not set(old) & set(await points(search.index, ANN))
    assert searches.memories(await search.find(ANN, "copper")) == ["copper tea"]
    assert len(said(await search.find(ANN, "copper"))) == 1


async def test_points_that_came_back_stand_for_nothing(search: Search) -> None:
    """Not even for what has the same URI and version, or the same place in a session of that name, by now."""
    search.relay.start()
    await full(search)
    await search.relay.stop()
    old = [
        point
        for table in rows.TABLES
        for point in (
            await search.database.read(rows.page, ANN, table, 2**62, rows.FIRST, 10, Models("hashed-words-8"))
        )[0]
    ]
    assert len(old) == 4
    await search.database.write(delete_user, ANN, "")
    for number in (1, 2):
        await talk(search.database, ANN, f"s-ann-{number}", "a copper kettle")
        await commit(search.database, ANN, f"s-ann-{number}", f"again-{number}")
    await done(search.database, searches.write(ANN, "tea", 0, 1, "copper tea"))
    await done(search.database, searches.write(ANN, "tea", 1, 2, "copper tea with honey"))
    search.relay.start()
    await search.caught_up(ANN)
    await search.relay.stop()
    before = (await search.find(ANN, "copper", limit=100)).results

    await search.index.upsert(old)

    after = (await search.find(ANN, "copper", limit=100)).results
    assert len(after) == len(before) == 3
    assert {repr(one.item) for one in after} == {repr(one.item) for one in before}


class HeldIndex(EdgeIndex):
    """Its next `upsert` waits, once `hold` was called, until `go` is set; then its points are `written`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.reached = asyncio.Event()
        self.go = asyncio.Event()
        self.written = asyncio.Event()
        self._held = False

    def hold(self) -> None:
        self._held = True

    async def upsert(self, points: Sequence[IndexPoint]) -> None:
        if not self._held:
            return await super().upsert(points)
        self._held = False
        self.reached.set()
        await self.go.wait()
        await super().upsert(points)
        self.written.set()


@pytest.fixture
async def slow(database: Database, registry: Registry, tmp_path: Path) -> Any:
    """A server that is held between reading rows and writing their points, and a second one on the same index."""
    index = HeldIndex(tmp_path / "slow")
    first = Search.of(database, index, registry)
    second = Search.of(database, index, registry)
    await first.attachment.attach()
    await second.attachment.attach()
    yield first, second, index
    index.go.set()
    await first.relay.stop()
    await second.relay.stop()
    await index.close()


@pytest.mark.parametrize(("of", "whole"), [("passages", "session"), ("passages", "user"), ("memories", "user")])
async def test_points_that_are_written_after_the_deletion_go_again(
    slow: tuple[Search, Search, HeldIndex], of: str, whole: str
) -> None:
    """A relay read the rows, was held, and writes their points when another has taken out all that there was."""
    first, second, index = slow
    await talk(first.database, ANN, "s", "a copper kettle", "a copper spoon")
    await commit(first.database, ANN, "s", "t1")
    if of == "memories":
        await index_passages(first.database)
        await done(first.database, searches.write(ANN, "tea", 0, 1, "copper tea"))
    index.hold()
    first.relay.start()
    async with asyncio.timeout(20):
        await index.reached.wait()

    if whole == "session":
        await first.database.write(delete_session, ANN, "s", "")
    else:
        await first.database.write(delete_user, ANN, "")
    second.relay.start()
    await second.until(lambda: nothing_waits(second, ANN))
    await second.counts(ANN, 0)
    await second.relay.stop()
    index.go.set()

    async with asyncio.timeout(20):
        await index.written.wait()
    await first.counts(ANN, 0)
    assert (await first.find(ANN, "copper")).results == []


async def nothing_waits(search: Search, space: Space) -> bool:
    standing = await search.standing(space)
    waits = (await dump(search.database, space)).get("outbox", [])
    return standing.indexed == standing.revision and not waits


async def test_a_late_vector_is_of_its_own_row_alone(search: Search) -> None:
    """The embedder works on a memory while its user is deleted and writes another of the same URI and version."""
    search.embedder.go.clear()
    await queue(search.database, ANN, "t1", "")
    await done(search.database, wordless(searches.write(ANN, "tea", 0, 1, "old words")))
    missing = await search.database.read(missing_vectors.missing, ANN, Registry.load(), 10)
    await search.database.write(delete_user, ANN, "")
    await queue(search.database, ANN, "t2", "")
    await done(search.database, wordless(searches.write(ANN, "tea", 0, 1, "new words")))

    await search.database.write(missing_vectors.fill, ANN, [(one, b"1234" * 8) for one in missing], "hashed-words-8")

    assert [row["dense"] for row in (await dump(search.database, ANN))["memories"]] == [None]


async def test_the_task_of_a_deleted_session_says_why_it_ended(database: Database) -> None:
    await queue(database, ANN, "t1")
    job = await claim(database)

    (cancelled,) = await database.write(delete_session, ANN, "s-t1", "its session was deleted")

    assert cancelled.lease == job.lease
    task, events = await database.read(tasks.events_after, ANN, "t1", 0)
    assert (task.state, "its session was deleted" in task.error) == ("cancelled", True)
    assert events[-1].kind == "state"
    with pytest.raises(LeaseLost):
        await database.write(apply.apply, ANN, prepared(job.lease))
