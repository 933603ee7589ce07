"""Accounts on every store: limits of their own, what they have stored, and who counts it."""

import asyncio
from pathlib import Path

import pytest

from runekeep_storage.accounts import accounts, usage_stats
from runekeep_storage.accounts.accounts import OwnLimits, Usage
from runekeep_storage.accounts.usage_stats import Counting
from runekeep_storage.blobs import sweeps
from runekeep_storage.blobs.blobs import FolderBlobs
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.erasure import deletion
from runekeep_storage.jobs import claiming
from runekeep_storage.jobs.budgets import TokenLimits
from runekeep_storage.records import Job
from tests.support.storage.databases import ANN, BOB, CAT, TERMS, Clock, NewStore, queue, revise, talk, write

pytestmark = pytest.mark.postgres_long

SECONDS = 60.0


@pytest.fixture
def blobs(tmp_path: Path) -> FolderBlobs:
    return FolderBlobs(tmp_path / "blobs")


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small slices and no rest: the same passes, with every border in them."""
    monkeypatch.setattr(usage_stats, "ROWS", 2)
    monkeypatch.setattr(usage_stats, "SPACES", 1)
    monkeypatch.setattr(usage_stats, "REST", 0.0)


async def usage(database: Database, account: str) -> Usage:
    return (await database.read_global(accounts.get, account)).usage


async def count(database: Database, blobs: FolderBlobs, clock: Clock) -> None:
    clock.advance(SECONDS)
    assert await Counting(database, blobs, SECONDS).count()


async def test_what_accounts_have_stored_is_counted(database: Database, blobs: FolderBlobs, clock: Clock) -> None:
    await talk(database, ANN, "s", "one", "zwölf", "three", "four", "five")
    await talk(database, BOB, "t", "six")
    await talk(database, CAT, "s", "alone")
    for version in (1, 2, 3):
        await revise(database, ANN, f"k{version}", write(ANN, "Tea", version - 1, version, "ü" * 100))
    blobs.put(ANN, b"x" * 5000)

    await count(database, blobs, clock)

    acme, other = await usage(database, "acme"), await usage(database, "other")
    # Five and one, and one in each of the three sessions that made a revision.
    assert (acme.users, acme.sessions, acme.messages, acme.memories) == (2, 5, 9, 1)
    assert (other.users, other.sessions, other.messages, other.memories) == (1, 1, 1, 0)
    assert acme.counted_at == clock.now
    sizes = await database.read_global(_bytes, "acme")
    assert acme.stored_bytes == sizes + 5000 and sizes > 3 * 200


async def _bytes(tx: Tx, account: str) -> int:
    """What the rows of an account take, added up by nobody else's rule."""
    size = 0
    for table, columns in (
        ("messages", ("parts",)),
        ("memories", ("fields", "content", "abstract", "overview")),
        ("turns", ("summary",)),
        ("turn_artifacts", ("text",)),
    ):
        for row in await tx.fetch(f"SELECT {', '.join(columns)} FROM {table} WHERE account = $1", account):
            size += sum(len(row[column].encode()) for column in columns)
    return size


async def test_only_what_changed_is_counted_anew(
    database: Database, blobs: FolderBlobs, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await talk(database, ANN, "s", "one")
    await talk(database, BOB, "t", "two")
    await count(database, blobs, clock)
    looked: list[Space] = []
    sound = usage_stats.measured

    async def spied(tx: Tx, space: Space, *rest: object) -> object:
        looked.append(space)
        return await sound(tx, space, *rest)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(usage_stats, "measured", spied)
    await count(database, blobs, clock)
    assert looked == [], "nothing had changed"

    clock.advance(1)
    await talk(database, ANN, "s", "more")
    await count(database, blobs, clock)
    assert set(looked) == {ANN}
    assert (await usage(database, "acme")).messages == 3


async def test_a_change_in_any_of_many_sessions_is_seen(database: Database, blobs: FolderBlobs, clock: Clock) -> None:
    names = ("a", "b", "c", "d", "e")
    for name in names:
        await talk(database, ANN, name, "one")
    await count(database, blobs, clock)
    assert (await usage(database, "acme")).sessions == len(names) > 2 * usage_stats.ROWS

    for number, name in enumerate(names, start=1):
        clock.advance(1)
        await talk(database, ANN, name, "more")
        await count(database, blobs, clock)
        assert (await usage(database, "acme")).messages == len(names) + number, name


async def test_what_is_deleted_counts_no_more(database: Database, blobs: FolderBlobs, clock: Clock) -> None:
    await talk(database, ANN, "s", "one", "two")
    await talk(database, ANN, "t", "three")
    await count(database, blobs, clock)
    assert (await usage(database, "acme")).messages == 3

    await database.write(deletion.delete_session, ANN, "s", "test")
    await count(database, blobs, clock)
    one = await usage(database, "acme")
    assert (one.sessions, one.messages) == (1, 1) and one.stored_bytes > 0

    await database.write(deletion.delete_user, ANN, "test")
    await count(database, blobs, clock)
    assert await usage(database, "acme") == Usage(users=1, counted_at=clock.now)


async def test_blobs_that_go_after_the_rows_that_named_them_are_seen_to_go(
    database: Database, blobs: FolderBlobs, clock: Clock
) -> None:
    await talk(database, ANN, "s", "one")
    name = blobs.put(ANN, b"x" * 5000)
    await database.write(sweeps.ask, ANN)
    await count(database, blobs, clock)
    before = (await usage(database, "acme")).stored_bytes
    for file in (blobs._root / ANN.account / ANN.user).glob(f"*/{name}"):
        file.unlink()
    clock.advance(24 * 3600)
    sweep = await database.read_global(sweeps.waiting)
    assert sweep is not None
    await database.write(sweeps.done, ANN, sweep, whole=True)
    await count(database, blobs, clock)
    assert (await usage(database, "acme")).stored_bytes == before - 5000


async def test_of_several_servers_one_counts(new_store: NewStore, blobs: FolderBlobs, clock: Clock) -> None:
    stored = new_store()
    one, other = stored.connect(), stored.connect()
    await one.open()
    await other.open()
    try:
        await talk(one, ANN, "s", "hello")
        takes = await asyncio.gather(*(Counting(database, blobs, SECONDS).count() for database in (one, other)))
        assert sorted(takes) == [False, True]
        assert not await Counting(other, blobs, SECONDS).count(), "it is not due"
        clock.advance(SECONDS)
        assert await Counting(other, blobs, SECONDS).count()
    finally:
        await one.close()
        await other.close()


async def test_a_pass_says_that_it_goes_on(
    database: Database, blobs: FolderBlobs, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that takes longer than the time between two is not overtaken by another."""
    monkeypatch.setattr(usage_stats._Rest, "seconds", property(lambda _: SECONDS))
    for number in range(3):
        await talk(database, Space("acme", f"u{number}"), "s", "hello")
    sound = usage_stats.seen
    due: list[int] = []

    async def slow(tx: Tx, after: Space) -> object:
        clock.advance(SECONDS - 1)
        due.append(await usage_stats.due_in(tx))
        return await sound(tx, after)

    monkeypatch.setattr(usage_stats, "seen", slow)
    await count(database, blobs, clock)
    assert len(due) == 4 and all(one > 0 for one in due[1:]), due


async def test_a_pass_that_is_long_at_one_user_says_that_it_goes_on(
    database: Database, blobs: FolderBlobs, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_stats._Rest, "seconds", property(lambda _: SECONDS))
    await talk(database, ANN, "s", *(f"message {number}" for number in range(7)))
    sound = usage_stats.measured
    due: list[int] = []

    async def slow(*args: object) -> object:
        clock.advance(SECONDS - 1)
        due.append(await usage_stats.due_in(args[0]))  # type: ignore[arg-type]  # as it was called
        return await sound(*args)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(usage_stats, "measured", slow)
    await count(database, blobs, clock)
    assert len(due) > 4 and all(one > 0 for one in due), due


async def test_own_limits_take_the_place_of_all_that_there_were(database: Database, clock: Clock) -> None:
    assert await database.read_global(accounts.get, "acme") == accounts.Account("acme", OwnLimits(), Usage())
    own = OwnLimits(calls_per_second=2.5, streams=3, stored_bytes=0, daily_tokens=10)
    assert (await database.write_global(accounts.set_limits, "acme", own)).limits == own
    assert await database.read_global(accounts.limited, "") == [("acme", own)]
    assert (
        await database.write_global(accounts.set_limits, "acme", OwnLimits(concurrent_calls=1))
    ).limits == OwnLimits(concurrent_calls=1)


async def test_accounts_are_listed_by_name(database: Database, clock: Clock) -> None:
    for account in ("b", "d"):
        await talk(database, Space(account, "ann"), "s", "hello")
    for account in ("a", "b", "c"):
        await database.write_global(accounts.set_limits, account, OwnLimits(streams=1))
    first = await database.read_global(accounts.page, "", 3)
    assert [one.name for one in first] == ["a", "b", "c"]
    assert [one.name for one in await database.read_global(accounts.page, "c", 3)] == ["d"]


async def test_who_has_stored_as_much_as_they_may(database: Database, blobs: FolderBlobs, clock: Clock) -> None:
    for account in ("a", "b", "c"):
        await talk(database, Space(account, "ann"), "s", "hello")
    await count(database, blobs, clock)
    size = (await usage(database, "a")).stored_bytes
    assert await database.read_global(accounts.full, "", 0) == [], "0 is no bound"
    assert await database.read_global(accounts.full, "", size) == ["a", "b", "c"]
    assert await database.read_global(accounts.full, "", size + 1) == []
    await database.write_global(accounts.set_limits, "b", OwnLimits(stored_bytes=size + 1))
    await database.write_global(accounts.set_limits, "c", OwnLimits(stored_bytes=0))
    assert await database.read_global(accounts.full, "", size) == ["a"]
    assert await database.read_global(accounts.full, "a", 1) == []


async def test_an_account_may_spend_its_own_tokens_a_day(database: Database, clock: Clock) -> None:
    for task, space in (("k1", ANN), ("k2", CAT)):
        await queue(database, space, task)
    await database.write_global(accounts.set_limits, CAT.account, OwnLimits(daily_tokens=70))
    given: dict[str, int | None] = {}
    for _ in range(2):
        claimed = await database.write_global(claiming.claim, "w", TERMS, TokenLimits(account_daily=500))
        assert isinstance(claimed, tuple) and isinstance(claimed[0], Job)
        row = await database.read_global(_budget, claimed[0].job_id)
        given[claimed[0].account] = row
    assert given == {ANN.account: 500, CAT.account: 70}
    assert await database.read_global(accounts.daily_tokens, CAT.account, 500) == 70
    assert await database.read_global(accounts.daily_tokens, ANN.account, 500) == 500


async def _budget(tx: Tx, job_id: str) -> int | None:
    row = await tx.fetchrow("SELECT token_budget FROM jobs WHERE job_id = $1", job_id)
    assert row is not None
    return row["token_budget"]  # type: ignore[no-any-return]  # a number
