"""Statements of many rows reach each by its key, however PostgreSQL counts: it plans a statement for the tables as it
last counted them, and for the accounts as they are on the average."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.drivers.common.idempotent_requests import RequestKey
from runekeep_storage.drivers.postgres.driver import PostgresDatabase
from runekeep_storage.indexing import outbox
from runekeep_storage.memories import directories, revisions
from runekeep_storage.memories.revisions import BY_HAND
from runekeep_storage.sessions import appends, sessions, tool_calls
from runekeep_storage.sessions.appends import Append
from runekeep_storage.spaces import spaces
from tests.support.appending import RULES, nothing
from tests.support.storage.databases import text, write

LARGE, MANY, SMALL = Space("acme", "ann"), 5_000, 1_000
OF_ALL = (
    "INSERT INTO sessions (account, user_id, session_id) SELECT {account}, {user}, 's' || i",
    "INSERT INTO messages (account, user_id, session_id, sequence, message_id, parts)"
    " SELECT {account}, {user}, 's', 1000000 + i, 'x' || i, '[]'",
    "INSERT INTO requests (account, user_id, method, request_id, digest, response, created_at)"
    " SELECT {account}, {user}, 'AddMessages', 'x' || i, 'd', '', 1",
    "INSERT INTO memories (account, user_id, uri, version, rev_from) SELECT {account}, {user}, 'm' || i, 1, 1",
    "INSERT INTO outbox (account, user_id, op, point_id, revision, number, takes)"
    " SELECT {account}, {user}, 'delete', 'p', 0, {first} + i, 1",
)


@pytest.fixture
async def uneven(url: str) -> AsyncIterator[PostgresDatabase]:
    """One account of many rows among thousands of a few, all of them counted."""
    connection: Any = await asyncpg.connect(url)
    for statement in OF_ALL:
        for account, user, first in ((f"'a' || i % {SMALL}", "'u'", MANY), ("'acme'", "'ann'", 0)):
            rows = statement.format(account=account, user=user, first=first)
            await connection.execute(f"{rows} FROM generate_series(1, {MANY}) i")
    await connection.execute("ANALYZE")
    # As it does by itself once it has run a statement five times, unless that looks dear.
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f"ALTER DATABASE {name} SET plan_cache_mode = force_generic_plan")
    await connection.close()
    database = PostgresDatabase(url)
    await database.open()
    await database.write(spaces.ensure, LARGE)
    yield database
    await database.close()


FETCHED = "SELECT CAST(SUM(idx_tup_fetch + seq_tup_read) AS BIGINT) AS number FROM pg_stat_xact_user_tables"


async def fetched(database: Database, work: Callable[..., Awaitable[Any]], *args: Any) -> int:
    """Rows that PostgreSQL takes from its tables for it, those that it then drops included."""

    async def run(tx: Tx, space: Space) -> int:
        before = await tx.fetchrow(FETCHED)
        await work(tx, *args)
        after = await tx.fetchrow(FETCHED)
        assert before is not None and after is not None
        return int(after["number"] - before["number"])

    return await database.write(run, LARGE)


async def test_appends_that_are_made_together(uneven: PostgresDatabase) -> None:
    def append(number: int) -> Append:
        said, key = text(f"m{number}", "hi"), RequestKey("AddMessages", f"r{number}", "d", f"s{number}")
        return Append(f"s{number}", [said], frozenset([f"m{number}"]), {}, RULES, "", key, nothing)

    items = [(LARGE, append(number)) for number in range(1, 17)]

    # The session, and where an INSERT finds what is there it counts as well.
    assert await fetched(uneven, appends.add, items) < 100
    assert len(await uneven.read(sessions.messages_between, LARGE, "s16", 0, 100)) == 1


async def test_the_first_memories_of_a_large_directory(uneven: PostgresDatabase, url: str) -> None:
    """The newest and the most used ones, and which directories there are, among thousands."""
    root = "viking://user/ann/memories"
    connection: Any = await asyncpg.connect(url)
    await connection.execute(
        "INSERT INTO memories (account, user_id, uri, version, rev_from, updated_at) SELECT 'acme', 'ann',"
        f" '{root}/' || CASE WHEN i % 2 = 0 THEN 'a/' ELSE 'b/' END || i || '.md', 1, 1, i"
        f" FROM generate_series(1, {MANY}) i"
    )
    await connection.execute(
        f"INSERT INTO active_counts SELECT 'acme', 'ann', '{root}/b/' || i || '.md', i"
        f" FROM generate_series(1, {MANY}, 2) i"
    )
    await connection.execute("ANALYZE")
    await connection.close()

    holding = [f"{root}/a/", f"{root}/b/"]
    assert await uneven.read(directories.holding, LARGE, f"{root}/", f"{root}0", 9) == holding
    assert await fetched(uneven, directories.holding, LARGE, f"{root}/", f"{root}0", 9) < 50
    leading = await uneven.read(directories.leading, LARGE, holding, 4)
    assert {one.uri.rpartition("/")[2] for one in leading if "/b/" in one.uri} == {
        f"{MANY - number}.md" for number in (1, 3, 5, 7)
    }
    assert await fetched(uneven, directories.leading, LARGE, holding, 4) < 200
    assert await fetched(uneven, directories.count_within, LARGE, f"{root}/a", 100) < 200
    assert await fetched(uneven, directories.count_within, LARGE, root, 100) < 50


async def test_whether_a_session_has_tool_calls(uneven: PostgresDatabase) -> None:
    """Among thousands of messages that do not list their calls, and that hold none."""
    assert not await uneven.read(tool_calls.has_calls, LARGE, "s")
    assert await fetched(uneven, tool_calls.has_calls, LARGE, "s") < 10


async def test_a_revision_of_many_memories(uneven: PostgresDatabase) -> None:
    writes = [replace(write(LARGE, "m", 1, 2, "new"), uri=f"m{number}") for number in range(1, 17)]

    assert await fetched(uneven, revisions.make, LARGE, writes, "{}", BY_HAND) < 200


async def test_the_outbox_of_a_user_whose_memories_all_go(uneven: PostgresDatabase) -> None:
    _, entries = await uneven.read(outbox.due, LARGE, 256)

    assert len(entries) == 256
    assert await fetched(uneven, outbox.done, LARGE, entries, 0) < 1_000
    _, (following,) = await uneven.read(outbox.due, LARGE, 1)
    assert following.number == entries[-1].number + 1
