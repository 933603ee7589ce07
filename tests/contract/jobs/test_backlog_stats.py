"""What waits in the store, all accounts together: counted right, and at no cost for what has ended."""

import pytest

from runekeep_storage.database import Database, Tx
from runekeep_storage.drivers.sqlite.driver import SqliteDatabase
from runekeep_storage.jobs import backlog
from runekeep_storage.jobs.backlog import BacklogStats
from runekeep_storage.migrations.migrate import HEAD
from runekeep_storage.spaces import watermarks
from runekeep_storage.spaces.index_backlog import IndexBacklog
from tests.support.storage.databases import ANN, BOB, CAT, SECOND, Clock, claim, queue, revise, write
from tests.support.storage.query_costs import Cost, Measured, assert_as_cheap

pytestmark = pytest.mark.postgres_long

INDEX = "ab12"
ENDED = 20_000


async def stands(database: Database) -> BacklogStats:
    return await database.read_global(backlog.read)


def queues(found: BacklogStats) -> dict[tuple[str, str], tuple[int, int]]:
    return {(one.kind, one.state): (one.jobs, one.oldest_at) for one in found.queues if one.jobs}


async def test_a_store_tells_what_it_is(database: Database, clock: Clock) -> None:
    told = await database.read_global(backlog.about, on_postgres=not isinstance(database, SqliteDatabase))
    assert (told.revision, told.now) == (HEAD, clock.now)
    assert all(part.isdigit() for part in told.version.split("."))


async def test_an_empty_store_has_nothing_that_waits(database: Database, clock: Clock) -> None:
    found = await stands(database)
    assert found.now == clock.now
    assert len(found.queues) == 8
    assert not queues(found)
    assert found == BacklogStats(clock.now, found.queues, IndexBacklog(0, 0, 0, 0, 0, 0))


async def test_jobs_are_counted_by_state_and_the_oldest_is_told(database: Database, clock: Clock) -> None:
    began = clock.now
    for space, task_id in ((ANN, "first"), (BOB, "second"), (CAT, "third")):
        await queue(database, space, task_id)
        clock.advance(10)
    leased = await claim(database)
    found = queues(await stands(database))
    assert found["commit", "leased"] == (1, leased.created_at)
    assert found["commit", "pending"] == (2, began if leased.job_id != "first" else began + 10 * SECOND)


async def test_what_search_does_not_know_yet_is_told(database: Database, clock: Clock) -> None:
    began = clock.now
    await database.write_global(watermarks.adopt, INDEX)
    await revise(database, ANN, "first", write(ANN, "tea", 0, 1))
    clock.advance(10)
    await revise(database, ANN, "second", write(ANN, "tea", 1, 2))
    await revise(database, CAT, "third", write(CAT, "tea", 0, 1))
    found = await stands(database)
    assert (found.index.revisions, found.index.revisions_oldest_at) == (3, began)
    assert (found.index.archives, found.index.messages, found.index.archives_oldest_at) == (3, 3, began)
    assert not queues(found)

    async def catch_up(tx: Tx) -> None:
        for space, revision in ((ANN, 1), (CAT, 1)):
            await watermarks.join(tx, space, INDEX)
            await watermarks.move(tx, space, revision)
        await tx.execute("UPDATE archives SET passages_indexed = 1 WHERE account = $1", ANN.account)

    await database.write_global(catch_up)
    found = await stands(database)
    assert (found.index.revisions, found.index.revisions_oldest_at) == (1, began + 10 * SECOND)
    assert (found.index.archives, found.index.messages, found.index.archives_oldest_at) == (1, 1, began + 10 * SECOND)
    assert found.index.users == 0

    # Its points are in an index that is no more.
    await database.write_global(watermarks.adopt, "cd34")
    assert (await stands(database)).index.users == 2


async def test_no_more_is_counted_than_the_bound(
    database: Database, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    began = clock.now
    for number in range(4):
        await queue(database, ANN, f"task-{number}")
        clock.advance(1)
    monkeypatch.setattr(backlog, "LIMIT", 3)
    found = await stands(database)
    assert queues(found)["commit", "pending"] == (3, began)
    assert found.index.archives == 3


async def test_what_has_ended_costs_nothing(database: Database) -> None:
    async def cost() -> Cost:
        async def measured(tx: Tx) -> Cost:
            told = Cost()
            await backlog.read(Measured(tx, told))
            return told

        return await database.write_global(measured)

    async def fill(tx: Tx) -> None:
        numbers = f"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ENDED})"
        user = "'acme', 'user-' || CAST(i AS TEXT)"
        await tx.execute(
            f"{numbers} INSERT INTO spaces (account, user_id, revision, indexed_revision, index_id)"
            f" SELECT {user}, 5, 5, '{INDEX}' FROM n"
        )
        await tx.execute(
            f"{numbers} INSERT INTO jobs (account, user_id, job_id, kind, state, created_at)"
            f" SELECT {user}, 'job-' || CAST(i AS TEXT), 'commit', 'succeeded', i FROM n"
        )
        await tx.execute(
            f"{numbers} INSERT INTO archives (account, user_id, session_id, archive_index, passages_indexed,"
            f" created_at) SELECT {user}, 's', 1, 1, i FROM n"
        )

    await database.write_global(watermarks.adopt, INDEX)
    await queue(database, ANN, "waits")
    few = await cost()
    await database.write_global(fill)
    if not isinstance(database, SqliteDatabase):
        await database.write_global(_analyze)
    many = await cost()
    assert_as_cheap(few, many)
    assert any("jobs_by_state" in plan for plan in many.plans), many.plans


async def _analyze(tx: Tx) -> None:
    for table in ("spaces", "jobs", "archives"):
        await tx.execute(f"ANALYZE {table}")
