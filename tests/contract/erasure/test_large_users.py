"""Users with more rows than the transaction that deletes them takes: gone at once, emptied in slices, whole again."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from runekeep_storage.blobs.blobs import FolderBlobs
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.drivers.common.idempotent_requests import DELETE_USER
from runekeep_storage.erasure import deletion
from runekeep_storage.erasure.cleanup import Cleaner
from runekeep_storage.erasure.deletion import DeletedUser, delete_user
from runekeep_storage.errors import NotFound, SpaceShut, StoreUnavailable
from runekeep_storage.indexing import passages, rows
from runekeep_storage.jobs import tasks
from runekeep_storage.jobs.spending import COUNTERS
from runekeep_storage.memories import memories
from runekeep_storage.records import Session
from runekeep_storage.sessions import sessions
from runekeep_storage.spaces import pending_deletions, space_locks
from runekeep_storage.spaces.space_locks import OpenSpaces
from runekeep_storage.tables import SLICES
from tests.support.storage import search as searches
from tests.support.storage.databases import ANN, BOB, Clock, NewStore, commit, queue, talk, uri
from tests.support.storage.deletions import (
    OTHERS,
    STAYS,
    answer,
    done,
    dump,
    fill,
    live_a_little,
    slices_of,
)
from tests.support.storage.search import GRACE_SECONDS, Search, nothing_waits, said

pytestmark = pytest.mark.postgres_long

AT_ONCE = 5
SLICE = 3
FOLLOWS = {"leftovers", *SLICES}
"""What is taken away when the space is open again."""


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion, "AT_ONCE", AT_ONCE)
    monkeypatch.setattr(deletion, "SLICE", SLICE)


async def counted(database: Database, space: Space) -> int:
    """Rows of what is taken away behind a shut space."""
    found = await dump(database, space)
    stays = {*STAYS, *FOLLOWS, "shut_spaces"}
    brings = sum(not row["takes"] for row in found.get("outbox", []))
    return brings + sum(len(held) for table, held in found.items() if table not in stays)


async def emptied(database: Database, space: Space) -> None:
    while await database.write(deletion.empty, space):
        pass


def swept(database: Database, path: Path) -> Awaitable[None]:
    return Cleaner(database, FolderBlobs(path)).clean()


async def test_it_is_gone_at_once_and_taken_away_in_slices(database: Database, tmp_path: Path) -> None:
    for space in (ANN, *OTHERS):
        await live_a_little(database, space)
    await queue(database, ANN, "open")
    before = {space: await dump(database, space) for space in OTHERS}
    rows_before = await counted(database, ANN)
    assert rows_before > AT_ONCE + 3 * SLICE
    callers = OpenSpaces(database)

    gone = await callers.write(delete_user, ANN, "over")

    assert (gone.sessions, gone.memories, [job.job_id for job in gone.cancelled]) == (2, 1, ["open"])
    left = await counted(database, ANN)
    # The job that was cancelled wrote an event.
    assert rows_before + 1 - left == AT_ONCE
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: callers.read(memories.get, ANN, uri(ANN, "tea")),
        lambda: callers.read(sessions.page, ANN, None, 10),
        lambda: callers.write(sessions.get_or_create, ANN, "s"),
        lambda: callers.write(delete_user, ANN, "again"),
    ]
    slices = 0
    more = True
    while more:
        for call in calls:
            with pytest.raises(SpaceShut, match="user ann is being deleted"):
                await call()
        assert (await callers.read(memories.get, BOB, uri(BOB, "tea"))).content == "black tea"
        more = await database.write(deletion.empty, ANN)
        now = await counted(database, ANN)
        assert 0 <= left - now <= SLICE and (now < left or not more)
        left, slices = now, slices + 1

    assert left == 0 and slices >= (rows_before - AT_ONCE) // SLICE
    assert set(await dump(database, ANN)) <= STAYS | FOLLOWS
    assert await callers.read(sessions.page, ANN, None, 10) == []
    await swept(database, tmp_path)
    assert set(await dump(database, ANN)) <= STAYS
    assert {space: await dump(database, space) for space in OTHERS} == before


async def test_the_next_server_finishes_what_one_left_half_done(new_store: NewStore, tmp_path: Path) -> None:
    store = new_store()
    first = store.connect()
    await first.open()
    await live_a_little(first, ANN)
    await first.write(delete_user, ANN, "")
    assert await first.write(deletion.empty, ANN)
    await first.close()

    second = store.connect()
    await second.open()
    with pytest.raises(SpaceShut):
        await OpenSpaces(second).read(sessions.page, ANN, None, 10)
    await swept(second, tmp_path)

    assert set(await dump(second, ANN)) <= STAYS
    assert await second.read_global(space_locks.waiting) == []
    assert not await second.write(deletion.empty, ANN)
    await live_a_little(second, ANN)
    assert (await OpenSpaces(second).read(memories.get, ANN, uri(ANN, "tea"))).version == 2
    await second.close()


async def test_an_open_space_is_never_emptied(database: Database) -> None:
    """By a server that comes late, when the user has begun again."""
    await live_a_little(database, ANN)
    before = await dump(database, ANN)

    assert not await database.write(deletion.empty, ANN)

    assert await dump(database, ANN) == before


async def test_what_is_taken_up_together_with_the_deletion_is_refused(database: Database, tmp_path: Path) -> None:
    """Servers on PostgreSQL run calls that came in the same moment in one transaction."""
    await live_a_little(database, ANN)
    callers = OpenSpaces(database)

    gone, made, of_bob = await asyncio.gather(
        callers.write(delete_user, ANN, ""),
        callers.write(sessions.create, ANN, "late"),
        callers.write(sessions.create, BOB, "late"),
        return_exceptions=True,
    )

    assert isinstance(gone, DeletedUser) and isinstance(made, SpaceShut)
    assert isinstance(of_bob, Session)
    await swept(database, tmp_path)
    assert set(await dump(database, ANN)) <= STAYS


async def test_a_deletion_that_fails_shuts_nobody_out(database: Database) -> None:
    await live_a_little(database, ANN)
    callers = OpenSpaces(database)

    async def fails(tx: Tx, space: Space) -> None:
        await delete_user(tx, space, "")
        raise NotFound("thing", "of the test")

    failed, made = await asyncio.gather(
        callers.write(fails, ANN), callers.write(sessions.create, ANN, "late"), return_exceptions=True
    )

    assert isinstance(failed, NotFound) and isinstance(made, Session)
    assert await database.read_global(space_locks.waiting) == []


class Steps:
    """Fails some steps of the cleaner, each some work in some space; notes the others, and does `then` after the first
    of them."""

    def __init__(self, database: Database, failed: Sequence[tuple[Any, Space]] = (), error: Any = None) -> None:
        self._database = database
        self._failed = failed
        self._error = error
        self.done: list[tuple[Any, Space]] = []
        self.then: Callable[[], Awaitable[object]] | None = None

    async def write(self, work: Any, space: Space, *args: Any, **named: Any) -> Any:
        if (work, space) in self._failed:
            raise self._error
        self.done.append((work, space))
        answer = await self._database.write(work, space, *args, **named)
        if self.then is not None:
            then, self.then = self.then, None
            await then()
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


@pytest.mark.parametrize("error", [StoreUnavailable("too slow"), RuntimeError("a bad row")])
async def test_a_space_that_cannot_be_cleaned_keeps_no_other_one_waiting(
    database: Database, tmp_path: Path, error: Exception
) -> None:
    for space in (ANN, BOB):
        await live_a_little(database, space)
        await database.write(delete_user, space, "")
    for space in OTHERS[1:]:
        await fill(database, space, "s", 2)
        await database.write(_left_behind, space, "s")

    first, second = sorted(OTHERS[1:], key=lambda one: (one.account, one.user))
    failing: Any = Steps(database, [(deletion.empty, ANN), (pending_deletions.clear, first)], error)

    await swept(failing, tmp_path)

    assert await database.read_global(space_locks.waiting) == [ANN]
    assert set(await dump(database, BOB)) <= STAYS
    assert "leftovers" in await dump(database, first) and "leftovers" not in await dump(database, second)
    await swept(database, tmp_path)
    assert await database.read_global(space_locks.waiting) == []
    assert await database.read_global(pending_deletions.waiting) is None


async def _left_behind(tx: Tx, space: Space, session_id: str) -> None:
    """As when a session with more messages than a slice was deleted."""
    await tx.execute("DELETE FROM sessions WHERE account = $1 AND user_id = $2", space.account, space.user)
    await pending_deletions.leave(tx, space, session_id)


async def test_leftovers_do_not_keep_a_user_shut_out(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slices_of(monkeypatch, 1)
    await live_a_little(database, ANN)
    await fill(database, BOB, "s", 4)
    await database.write(_left_behind, BOB, "s")
    steps: Any = Steps(database)
    steps.then = lambda: database.write(delete_user, ANN, "")

    await swept(steps, tmp_path)

    of_bob = [at for at, step in enumerate(steps.done) if step == (pending_deletions.clear, BOB)]
    of_ann = [at for at, step in enumerate(steps.done) if step == (deletion.empty, ANN)]
    assert of_bob[0] < of_ann[0] and of_ann[-1] < of_bob[1]


async def test_what_is_told_late_of_a_deleted_user_goes_too(database: Database, tmp_path: Path) -> None:
    """A worker tells what it spent, before each slice for as long as the task is there."""
    await live_a_little(database, ANN)
    told: list[int] = []

    async def tell(tx: Tx) -> None:
        usage = {"model": "m", "phase": "p"} | dict.fromkeys(COUNTERS, len(told) + 1)
        await tasks.spent(tx, ANN, "acme-ann-2", 1, [usage])

    await database.write(delete_user, ANN, "")
    more = True
    while more:
        with suppress(NotFound):
            await database.write_global(tell)
            told.append(len((await dump(database, ANN))["usage_totals"]))
        more = await database.write(deletion.empty, ANN)

    assert len(told) > 1 and all(told)
    await swept(database, tmp_path)
    assert set(await dump(database, ANN)) <= STAYS


async def test_answers_that_were_kept_are_emptied_too(database: Database) -> None:
    await talk(database, ANN, "s", "one")
    for number in range(AT_ONCE + 2 * SLICE):
        await answer(database, ANN, "WriteMemories", f"r{number}", says=b"revision 1")
    await answer(database, ANN, DELETE_USER, "d1", says=b"deleted")

    await database.write(delete_user, ANN, "")
    assert await database.read_global(space_locks.waiting) == [ANN]
    await emptied(database, ANN)

    for number in range(AT_ONCE + 2 * SLICE):
        with pytest.raises(NotFound):
            await answer(database, ANN, "WriteMemories", f"r{number}", says=b"revision 2")
    assert await answer(database, ANN, DELETE_USER, "d1", says=b"deleted twice") == b"deleted"


async def test_late_passages_of_an_archive_that_still_stands_go_too(database: Database, tmp_path: Path) -> None:
    """A relay read the messages before the deletion and stores their passages when the session is gone and the archive
    is not."""
    await talk(database, ANN, "s", "a copper kettle", "a copper spoon")
    await commit(database, ANN, "s", "t1")
    for number in range(SLICE + 1):
        await talk(database, ANN, f"s{number}", "words")
        await commit(database, ANN, f"s{number}", f"more-{number}")
    (archive,) = [one for one in await database.read(passages.waiting, ANN, 100) if one.session_id == "s"]
    messages = await database.read(sessions.messages_between, ANN, "s", 1, 2)
    await database.write(delete_user, ANN, "")
    assert not (await dump(database, ANN)).get("sessions") and (await dump(database, ANN))["archives"]

    # A cleaner that has leisure for leftovers.
    assert await database.read_global(pending_deletions.waiting) is None
    made = passages.with_words(passages.of_messages(archive, messages), [None] * len(messages))
    await database.write(passages.store, ANN, "", archive, made, "", whole=True)
    await swept(database, tmp_path)

    assert set(await dump(database, ANN)) <= STAYS
    await talk(database, ANN, "s", "other words")
    assert await database.read(rows.names, ANN, "passages", rows.FIRST, 10) == []


async def test_nothing_of_it_stays_in_the_index(search: Search, clock: Clock) -> None:
    """The relay works on all the while, and the user begins again under the same names."""
    search.relay.start()
    for space in (ANN, BOB):
        await fill(search.database, space, "s", 4)
        await done(
            search.database,
            *(searches.write(space, f"tea-{number}", 0, 1, f"copper tea {number}") for number in range(6)),
        )
    await search.caught_up(ANN, BOB)
    for space in (ANN, BOB):
        await search.counts(space, 10)
    old = await search.listed(ANN)
    kept = await search.listed(BOB)

    await search.database.write(delete_user, ANN, "")
    while await search.database.write(deletion.empty, ANN):
        search.relay.wake()
    assert (await search.find(ANN, "copper")).results == []
    await talk(search.database, ANN, "s", "a copper kettle")
    await commit(search.database, ANN, "s", "again")
    await done(search.database, searches.write(ANN, "tea-1", 0, 1, "copper tea"))
    await search.caught_up(ANN)
    clock.advance(2 * GRACE_SECONDS)
    search.relay.wake()
    await search.until(lambda: nothing_waits(search))
    await search.counts(ANN, 2)

    assert not set(old) & set(await search.listed(ANN))
    found = await search.find(ANN, "copper")
    assert searches.memories(found) == ["copper tea"]
    assert [one.rpartition(" ")[2] for one in said(found)] == ["kettle"]
    assert await search.listed(BOB) == kept


async def test_a_user_of_few_rows_is_never_shut_out(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    await live_a_little(database, ANN)
    monkeypatch.setattr(deletion, "AT_ONCE", 100)

    assert await database.write(delete_user, ANN, "") == DeletedUser(1, 1, [])

    assert await database.read_global(space_locks.waiting) == []
    assert await OpenSpaces(database).read(sessions.page, ANN, None, 10) == []
    assert await counted(database, ANN) == 0
