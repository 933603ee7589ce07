"""What waits for the index, and what lies beside it, is found by its own index: it costs the same with a few hundred
and with thousands of rows, on every driver."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from runekeep_schemas.type_files.registry import Registry
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.erasure import purge
from runekeep_storage.indexing import outbox, passages
from runekeep_storage.indexing.outbox import Entry
from runekeep_storage.memories import memories
from runekeep_storage.relay import missing_vectors
from tests.support.storage.databases import ANN, CAT, SECOND, NewStore
from tests.support.storage.query_costs import Cost, Measured, assert_as_cheap

FEW, MANY = 300, 5_000
INDEX = "abc"
NUMBERS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < CAST($1 AS BIGINT))"
NAME = "'user-' || CAST(1000000 + i AS TEXT)"

Fill = Callable[[Tx, int], Awaitable[None]]


@asynccontextmanager
async def filled(new_store: NewStore, count: int, *fills: Fill) -> AsyncIterator[Database]:
    database = new_store().connect()
    await database.open()

    async def work(tx: Tx) -> None:
        for fill in fills:
            await fill(tx, count)
        for table in ("spaces", "outbox", "archives", "memories", "passages", "active_counts"):
            # As both engines find out by themselves in time.
            await tx.execute(f"ANALYZE {table}")

    try:
        await database.write_global(work)
        yield database
    finally:
        await database.close()


async def measured(database: Database, work: Callable[..., Awaitable[Any]], *args: Any) -> tuple[Cost, Any]:
    async def run(tx: Tx) -> tuple[Cost, Any]:
        cost = Cost()
        return cost, await work(Measured(tx, cost), *args)

    return await database.read_global(run)


async def compared(
    new_store: NewStore, fills: tuple[Fill, ...], work: Callable[..., Awaitable[Any]], *args: Any
) -> list[Any]:
    """Answers with few rows and with many, for which the work must be the same."""
    costs, answers = [], []
    for count in (FEW, MANY):
        async with filled(new_store, count, *fills) as database:
            cost, answer = await measured(database, work, *args)
        costs.append(cost)
        answers.append(answer)
    assert_as_cheap(*costs)
    return answers


async def spaces(tx: Tx, count: int, *, index: str = INDEX, revision: int = 0) -> None:
    await tx.execute(
        f"{NUMBERS} INSERT INTO spaces (account, user_id, index_id, revision)"
        f" SELECT 'acme', {NAME}, $2, CAST($3 AS BIGINT) FROM n",
        count,
        index,
        revision,
    )


async def entries(tx: Tx, count: int, *, op: str = "upsert", due_at: int = 0) -> None:
    """One of each space."""
    await tx.execute(
        f"{NUMBERS} INSERT INTO outbox (account, user_id, revision, number, op, takes, due_at)"
        f" SELECT 'acme', {NAME}, 0, 1, $2, CAST($3 AS BIGINT), CAST($4 AS BIGINT) FROM n",
        count,
        op,
        int(Entry(op).takes),
        due_at,
    )


async def entries_of_ann(tx: Tx, count: int, *, op: str = "upsert", due_at: int = 0, revision: int = 0) -> None:
    await tx.execute(
        "INSERT INTO spaces (account, user_id, index_id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        ANN.account,
        ANN.user,
        INDEX,
    )
    await tx.execute(
        f"{NUMBERS} INSERT INTO outbox (account, user_id, revision, number, op, takes, due_at, first_sequence,"
        " last_sequence)"
        " SELECT $2, $3, CAST($4 AS BIGINT), COALESCE((SELECT MAX(number) FROM outbox WHERE user_id = $3), 0) + i, $5,"
        " CAST($6 AS BIGINT), CAST($7 AS BIGINT), 1, 1 FROM n",
        count,
        ANN.account,
        ANN.user,
        revision,
        op,
        int(Entry(op).takes),
        due_at,
    )


def named(*numbers: int) -> list[Space]:
    return [Space("acme", f"user-{1_000_000 + number}") for number in numbers]


async def nobody(tx: Tx, count: int) -> None:
    """A few others behind, who wait whatever `count` is."""
    await spaces(tx, 3)
    await entries(tx, 3)


async def test_spaces_that_wait_are_found_without_reading_the_backlog_of_one(new_store: NewStore) -> None:
    few, many = await compared(new_store, (nobody, entries_of_ann), outbox.waiting_spaces, INDEX)

    assert few == many == ([ANN, *named(1, 2, 3)], outbox.FIRST)


@pytest.mark.parametrize("waiting", ["entries", "revisions", "elsewhere", "graces"])
async def test_spaces_that_wait_are_found_without_reading_them_all(new_store: NewStore, waiting: str) -> None:
    """Of those with entries, with revisions not marked, in another index, and with removals that are not due yet."""

    async def fill(tx: Tx, count: int) -> None:
        await spaces(tx, count, index="fed" if waiting == "elsewhere" else INDEX, revision=int(waiting == "revisions"))
        if waiting == "graces":
            await entries(tx, count, op="delete", due_at=tx.now() + SECOND)
        elif waiting != "revisions":
            await entries(tx, count)

    after = ("acme", "user-1000010")
    few, many = await compared(new_store, (fill,), outbox.waiting_spaces, INDEX, after, 5)

    seen = named(11, 12, 13, 14, 15)
    assert few == many == (seen if waiting in ("entries", "revisions") else [], (seen[-1].account, seen[-1].user))


async def test_what_is_taken_of_a_deleted_user_is_found_without_reading_removals(new_store: NewStore) -> None:
    async def fill(tx: Tx, count: int) -> None:
        await entries_of_ann(tx, count, op="delete")
        await entries_of_ann(tx, 10)

    costs = []
    for count in (FEW, MANY):
        async with filled(new_store, count, fill) as database:

            async def work(tx: Tx) -> Cost:
                cost = Cost()
                assert await purge.take(Measured(tx, cost), ANN, 5)
                return cost

            costs.append(await database.write_global(work))
            assert len((await database.read(outbox.due, ANN, 10))[1]) == 10
            assert [entry.op for entry in (await database.read(outbox.due, ANN, 10))[1]].count("upsert") == 5
    assert_as_cheap(*costs)


async def test_what_is_due_of_a_space_is_found_without_reading_what_is_not(new_store: NewStore) -> None:
    """A few entries that bring something, in front of many removals that are due, behind many that are not."""

    async def fill(tx: Tx, count: int) -> None:
        await entries_of_ann(tx, count, op="delete", due_at=tx.now() + SECOND)
        await entries_of_ann(tx, count, op="delete_passages")
        await entries_of_ann(tx, 3)

    few, many = await compared(new_store, (fill,), outbox.due, ANN, 50)

    assert few == (0, few[1])
    for _, found in (few, many):
        assert [entry.op for entry in found] == ["upsert"] * 3 + ["delete_passages"] * 47
        assert found[0].number > found[3].number


async def archives(tx: Tx, count: int, user: str = "'ann'", **columns: int) -> None:
    """Creates that many archives of one message each, of one user or of as many users, newest first."""
    sets = {"first_sequence": "i", "last_sequence": "i", "passages_indexed": 0} | columns
    await tx.execute(
        f"{NUMBERS} INSERT INTO archives (account, user_id, session_id, archive_index, task_id, created_at,"
        f" {', '.join(sets)}) SELECT 'acme', {user}, 's{sets['passages_indexed']}', i,"
        f" 'task-' || CAST(i AS TEXT), 5000000 - i, {', '.join(map(str, sets.values()))} FROM n",
        count,
    )


async def passage_rows(tx: Tx, count: int, user: str = "'ann'") -> None:
    """Creates that many passages without a vector, and as many with one."""
    for session, dense in (("s", None), ("done", b"1")):
        await tx.execute(
            f"{NUMBERS} INSERT INTO passages (account, user_id, session_id, sequence, dense)"
            f" SELECT 'acme', {user}, '{session}', i, CAST($2 AS BYTEA) FROM n",
            count,
            dense,
        )


async def memories_without_vectors(tx: Tx, count: int, user: str = "'ann'") -> None:
    """Creates that many memories without a vector, as many with one, and as many superseded versions."""
    for name, dense, rev_to in (("m", None, 0), ("done", b"1", 0), ("old", None, 1)):
        await tx.execute(
            f"{NUMBERS} INSERT INTO memories (account, user_id, uri, version, rev_to, dense)"
            f" SELECT 'acme', {user}, 'viking://{name}/' || CAST(i AS TEXT), 1, {rev_to}, CAST($2 AS BYTEA) FROM n",
            count,
            dense,
        )


async def rows_of_ann(tx: Tx, limit: int) -> list[tuple[str, int]]:
    found = await missing_vectors.missing(tx, ANN, Registry.load(), limit)
    return [(one.row["session_id"], one.row["sequence"]) for one in found]


async def test_archives_of_a_space_are_found_without_reading_them_all(new_store: NewStore) -> None:
    async def fill(tx: Tx, count: int) -> None:
        await archives(tx, count)
        await archives(tx, count, passages_indexed=1)
        await archives(tx, count, NAME)

    few, many = await compared(new_store, (fill,), passages.waiting, ANN, 5)

    for count, found in ((FEW, few), (MANY, many)):
        assert [archive.task_id for archive in found] == [f"task-{count - number}" for number in range(5)]


@pytest.mark.parametrize("of_one", [True, False], ids=["of one", "of many"])
@pytest.mark.parametrize("waiting", ["archives", "passages", "memories"])
async def test_whose_turn_it_is_is_found_without_reading_what_waits(
    new_store: NewStore, waiting: str, of_one: bool
) -> None:
    """The user comes after one that has the whole backlog, and is one of as many users."""
    rows = {"archives": archives, "passages": passage_rows, "memories": memories_without_vectors}[waiting]
    next_spaces = passages.waiting_spaces if waiting == "archives" else missing_vectors.waiting_spaces

    async def fill(tx: Tx, count: int) -> None:
        await rows(tx, count if of_one else 1)
        await rows(tx, 3 if of_one else count, NAME)
        # In a store that has run for a while, the backlog is only a part of the data.
        await archives(tx, count, "'zoe'", passages_indexed=1)

    few, many = await compared(new_store, (fill,), next_spaces, outbox.FIRST, 4)

    behind = named(1, 2, 3)
    assert few == many == ([ANN, *behind], (behind[-1].account, behind[-1].user))


async def test_accounts_that_are_left_out_are_passed_over_however_many_users_wait(new_store: NewStore) -> None:
    async def fill(tx: Tx, count: int) -> None:
        await passage_rows(tx, count, NAME)
        await tx.execute(
            "INSERT INTO passages (account, user_id, session_id, sequence) VALUES ('other', 'cat', 's', 1)"
        )

    few, many = await compared(new_store, (fill,), missing_vectors.waiting_spaces, outbox.FIRST, 2, {ANN.account})

    assert few == many == ([CAT], (CAT.account, CAT.user))


async def test_rows_without_a_vector_are_found_without_reading_the_others(new_store: NewStore) -> None:
    async def fill(tx: Tx, count: int) -> None:
        await passage_rows(tx, count)
        await passage_rows(tx, count, NAME)

    few, many = await compared(new_store, (fill,), rows_of_ann, 5)

    assert few == many == [("s", number) for number in range(1, 6)]


async def memory_rows(tx: Tx, count: int) -> None:
    """`count` memories as of revision 1, of which ten got a second version at revision 2 and a third at 3."""
    insert = "INSERT INTO memories (account, user_id, uri, version, memory_type, rev_from, rev_to)"
    await tx.execute(
        f"{NUMBERS} {insert} SELECT $2, $3, CAST(i AS TEXT), 1, 'events', 1, CASE WHEN i <= 10 THEN 2 ELSE 0 END"
        " FROM n",
        count,
        ANN.account,
        ANN.user,
    )
    # Much that was made and superseded long ago.
    await tx.execute(
        f"{NUMBERS} {insert} SELECT $2, $3, 'old-' || CAST(i AS TEXT), 1, 'events', 0, 1 FROM n",
        count,
        ANN.account,
        ANN.user,
    )
    for version in (2, 3):
        await tx.execute(
            f"{NUMBERS} {insert} SELECT $2, $3, CAST(i AS TEXT), CAST($4 AS BIGINT), 'events', CAST($4 AS BIGINT),"
            " CAST($5 AS BIGINT) FROM n",
            10,
            ANN.account,
            ANN.user,
            version,
            3 if version == 2 else 0,
        )
    await tx.execute(
        f"{NUMBERS} INSERT INTO active_counts (account, user_id, uri, uses) SELECT $2, $3, CAST(i AS TEXT), 7 FROM n",
        count,
        ANN.account,
        ANN.user,
    )


@pytest.mark.parametrize(
    ("indexed", "revision", "version"), [(1, 2, 2), (2, 1, 1), (3, 1, 1), (3, 2, 2), (1, 3, 3), (2, 2, 0)]
)
async def test_memories_beside_the_index_are_found_without_reading_the_space(
    new_store: NewStore, indexed: int, revision: int, version: int
) -> None:
    few, many = await compared(new_store, (memory_rows,), memories.beside_index, ANN, indexed, revision, 1000, "")

    for found in (few, many):
        assert {(memory.version, memory.active_count) for memory, _, _ in found} == (
            {(version, 7)} if version else set()
        )
        assert len(found) == (10 if version else 0)


async def test_a_space_that_is_in_no_index_is_read_up_to_the_limit(new_store: NewStore) -> None:
    few, many = await compared(new_store, (memory_rows,), memories.beside_index, ANN, -1, 3, 50, "")

    assert len(few) == len(many) == 50


async def test_a_removal_of_any_length_is_given_in_parts(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that is marked twice, or late, takes nothing else out of the list."""
    monkeypatch.setattr(outbox, "REMOVALS", 4)
    asked = [
        Entry("delete_passages", task_id="t1", first_sequence=1, last_sequence=9),
        Entry("delete", point_id="a b c"),
        Entry("delete_passages", task_id="t2", first_sequence=1, last_sequence=9),
    ]
    await database.write(outbox.add, ANN, 0, asked)

    seen, first = [], None
    async with asyncio.timeout(30):
        while due := (await database.read(outbox.due, ANN, 100))[1]:
            first = first or due
            seen.append([(one.task_id, one.first_sequence, one.last_sequence) for one in due])
            await database.write(outbox.done, ANN, due, 0)
            await database.write(outbox.done, ANN, first, 0)

    assert seen == [
        [("t1", 1, 4)],
        [("t1", 5, 8)],
        [("t1", 9, 9), ("", 0, 0)],
        [("t2", 1, 4)],
        [("t2", 5, 8)],
        [("t2", 9, 9)],
    ]
