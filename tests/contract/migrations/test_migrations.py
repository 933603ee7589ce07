"""Migrations while servers of the release before work on the store: what those rely on stays, and they go on."""

import asyncio
import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, event, inspect
from sqlalchemy.ext.asyncio import create_async_engine

from runekeep_schemas.auto_commit import AutoCommit
from runekeep_schemas.documents.uris import MAX_URI_BYTES
from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.drivers.postgres.driver import PostgresDatabase
from runekeep_storage.drivers.sqlite.driver import SqliteDatabase
from runekeep_storage.errors import StoreUnavailable
from runekeep_storage.history import history
from runekeep_storage.memories import apply, directories, origins
from runekeep_storage.migrations import migrate
from runekeep_storage.migrations.migrate import (
    HEAD,
    SchemaTooNew,
    alembic_config,
    migrate_postgres,
    migrate_sqlite,
)
from runekeep_storage.sessions import sessions
from runekeep_storage.spaces import statements
from tests.support.postgres import EMPTY, PostgresServer
from tests.support.storage.auto_commits import idle_at
from tests.support.storage.databases import ANN, BOB, DRIVERS, Clock, claim, commit, prepared, uri, write

MODULES = {one.revision: one.module for one in ScriptDirectory.from_config(alembic_config(None)).walk_revisions()}  # type: ignore[arg-type]  # nothing is asked of a database
REVISIONS = list(MODULES)[::-1]
STEPS = list(pairwise(REVISIONS))
ADDING = [(before, after) for before, after in STEPS if MODULES[after].compatible_from <= before][-1]
"""The newest step that servers of the release before may go on with."""
CHANGELOG = Path(__file__).parents[3] / "CHANGELOG.md"


@dataclass(frozen=True, slots=True)
class Place:
    """A store: `bring` takes it to a revision, `migrate` is what a server does at its start, `look` calls a function
    with a connection of SQLAlchemy."""

    bring: Callable[[str], None]
    migrate: Callable[[], None]
    look: Callable[[Callable[[Any], Any]], Any]
    connect: Callable[[], Database]


def to(revision: str) -> Callable[[Any], None]:
    return lambda connection: command.upgrade(alembic_config(connection), revision)


def sqlite_place(path: Path, clock: Clock) -> Place:
    def look(work: Callable[[Any], Any]) -> Any:
        engine = create_engine(f"sqlite:///{path}", connect_args={"isolation_level": None})
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
        with engine.begin() as connection:
            found = work(connection)
        engine.dispose()
        return found

    return Place(
        lambda revision: look(to(revision)),
        lambda: migrate_sqlite(path),
        look,
        lambda: SqliteDatabase(path, clock=clock),
    )


def postgres_place(url: str, clock: Clock) -> Place:
    def look(work: Callable[[Any], Any]) -> Any:
        async def looked() -> Any:
            engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
            async with engine.begin() as connection:
                found = await connection.run_sync(work)
            await engine.dispose()
            return found

        return asyncio.run(looked())

    return Place(
        lambda revision: look(to(revision)),
        lambda: asyncio.run(migrate_postgres(url)),
        look,
        lambda: PostgresDatabase(url, clock=clock),
    )


@pytest.fixture(params=DRIVERS)
def place(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Place]:
    """An empty database of either engine."""
    if request.param == "sqlite":
        yield sqlite_place(tmp_path / "runekeep.db", clock)
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    name = server.create(EMPTY)
    yield postgres_place(server.url(name), clock)
    server.drop(name)


def shape(connection: Any) -> dict[str, Any]:
    """By table: columns with type, whether they may be empty and whether they have a default; keys and unique ones."""
    seen = inspect(connection)
    return {
        table: {
            "columns": {
                one["name"]: (str(one["type"]), one["nullable"], bool(one["default"] or one.get("identity")))
                for one in seen.get_columns(table)
            },
            "key": tuple(seen.get_pk_constraint(table)["constrained_columns"]),
            "unique": {
                *(tuple(one["column_names"]) for one in seen.get_unique_constraints(table)),
                *(tuple(one["column_names"]) for one in seen.get_indexes(table) if one["unique"]),
            },
            "checks": len(seen.get_check_constraints(table)) + len(seen.get_foreign_keys(table)),
        }
        for table in seen.get_table_names()
        if table not in ("alembic_version", "store_schema")
    }


# Of SQLite. An index of an expression is not unique here, so nothing is missed.
@pytest.mark.filterwarnings("ignore:Skipped unsupported reflection of expression-based index")
@pytest.mark.parametrize(("before", "after"), STEPS)
def test_what_a_migration_says_to_be_compatible_only_adds(place: Place, before: str, after: str) -> None:
    """Statements of the release before go on: tables and columns stay as they are, new columns need no value, and no
    new rule can refuse a row of theirs."""
    if MODULES[after].compatible_from == after:
        pytest.skip(f"{after} says that servers of the release before must have ended")
    place.bring(before)
    old = place.look(shape)
    place.bring(after)
    new = place.look(shape)

    assert_only_added(old, new)


def assert_only_added(old: dict[str, Any], new: dict[str, Any]) -> None:
    for table, was in old.items():
        now = new[table]
        assert {name: now["columns"][name] for name in was["columns"]} == was["columns"], table
        added = {name: now["columns"][name] for name in now["columns"].keys() - was["columns"].keys()}
        assert all(nullable or default for _, nullable, default in added.values()), (table, added)
        assert (now["key"], now["unique"], now["checks"]) == (was["key"], was["unique"], was["checks"]), table


def test_the_check_of_migrations_sees_what_would_stop_servers_of_the_release_before(tmp_path: Path) -> None:
    def after(*statements: str) -> dict[str, Any]:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.db"
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE notes (id TEXT PRIMARY KEY, words TEXT NOT NULL)")
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()
        engine = create_engine(f"sqlite:///{path}")
        with engine.connect() as seen:
            found = shape(seen)
        engine.dispose()
        return found

    old = after()
    assert_only_added(old, after("ALTER TABLE notes ADD COLUMN tags TEXT NOT NULL DEFAULT ''"))
    assert_only_added(old, after("CREATE TABLE more (id TEXT PRIMARY KEY)"))
    for breaking in (
        ("ALTER TABLE notes RENAME COLUMN words TO text",),
        ("ALTER TABLE notes DROP COLUMN words",),
        ("CREATE UNIQUE INDEX one_of_words ON notes (words)",),
        ("DROP TABLE notes", "CREATE TABLE notes (id TEXT PRIMARY KEY, words TEXT NOT NULL, tags TEXT NOT NULL)"),
        ("DROP TABLE notes", "CREATE TABLE notes (id TEXT PRIMARY KEY, words INTEGER NOT NULL)"),
        ("DROP TABLE notes", "CREATE TABLE notes (id TEXT PRIMARY KEY, words TEXT NOT NULL CHECK (words <> ''))"),
    ):
        with pytest.raises((AssertionError, KeyError)):
            assert_only_added(old, after(*breaking))


def made_by_hand(connection: Any) -> None:
    """What the changelog has operators do beforehand where the table is large. Here nobody else has it."""
    statement = re.search(r"CREATE INDEX CONCURRENTLY (jobs_by_state [^;]*);", CHANGELOG.read_text("utf-8"))
    assert statement is not None
    connection.exec_driver_sql(f"CREATE INDEX {statement[1]}")


def holders_made_by_hand(connection: Any) -> None:
    """Tests the same for the index on a new column. SQLite neither needs nor supports this."""
    statements = re.search(
        r"(ALTER TABLE jobs ADD COLUMN IF NOT EXISTS [^;]*);\s+CREATE INDEX CONCURRENTLY (jobs_by_holder [^;]*);",
        CHANGELOG.read_text("utf-8"),
    )
    assert statements is not None
    connection.exec_driver_sql(statements[1])
    connection.exec_driver_sql(f"CREATE INDEX {statements[2]}")


def indexes_of_jobs(connection: Any) -> Any:
    return {
        one["name"]: (
            one["column_names"],
            one["unique"],
            {name: str(value) for name, value in one["dialect_options"].items()},
        )
        for one in inspect(connection).get_indexes("jobs")
    }


def test_an_index_that_was_made_beforehand_is_kept(place: Place) -> None:
    place.bring("r0001")
    place.look(made_by_hand)
    made = place.look(indexes_of_jobs)
    place.bring("r0002")

    assert place.look(indexes_of_jobs) == made


def test_what_was_made_beforehand_for_directories_and_calls_is_what_the_migration_makes(
    postgres_server: PostgresServer,
) -> None:
    """PostgreSQL alone has such large tables that operators make their indexes themselves."""
    indexes = r"CREATE INDEX CONCURRENTLY (?:\w+_by_directory|messages_with_calls) [^;]*;"
    found = re.findall(rf"ALTER TABLE messages [^;]*;|{indexes}", CHANGELOG.read_text("utf-8"))
    assert len(found) == 4

    def definitions(connection: Any) -> list[str]:
        rows = connection.exec_driver_sql(
            "SELECT indexdef FROM pg_indexes WHERE indexname LIKE '%%_by_directory' OR indexname LIKE '%%_with_calls'"
        )
        return sorted(row[0] for row in rows)

    def by_hand(connection: Any) -> None:
        for statement in found:
            connection.exec_driver_sql(statement.replace("CONCURRENTLY", ""))

    made = []
    for first in (by_hand, None):
        name = postgres_server.create(EMPTY)
        place = postgres_place(postgres_server.url(name), Clock())
        place.bring("r0009")
        if first is not None:
            place.look(first)
        place.bring("r0011")
        made.append(place.look(definitions))
        postgres_server.drop(name)
    assert made[0] == made[1] and len(made[0]) == 3


def test_stores_with_the_longest_uris_migrate_and_take_more_of_them(place: Place) -> None:
    """Whatever they consist of: PostgreSQL compresses what repeats."""

    def use(*names: str) -> Callable[[Any], None]:
        def work(connection: Any) -> None:
            for name in names:
                text = f"{uri(ANN, 'x').rpartition('/')[0]}/{name}"
                path = _unlike(MAX_URI_BYTES - len(text.encode()), name)
                for statement in (
                    "INSERT INTO active_counts (account, user_id, uri, uses) VALUES ('{}', '{}', '{}', 1)",
                    "INSERT INTO memories (account, user_id, uri, version, rev_from) VALUES ('{}', '{}', '{}', 1, 1)",
                ):
                    connection.exec_driver_sql(statement.format(ANN.account, ANN.user, text + path))

        return work

    place.bring("r0010")
    place.look(use("a", "b"))
    place.bring(HEAD)
    place.look(use("c"))

    async def counted() -> list[str]:
        database = place.connect()
        await database.open()
        rows = await database.read(directories.holding, ANN, "", "w", 10)
        leading = await database.read(directories.leading, ANN, rows, 1)
        await database.close()
        return [one.uri for one in leading]

    found = asyncio.run(counted())
    assert len(found) == 3 and all(len(one.encode()) > MAX_URI_BYTES - 3 for one in found)


def _unlike(most_bytes: int, seed: str) -> str:
    """Segments of characters in no order."""
    letters = Random(seed)
    text = "".join("/" if number % 80 == 79 else chr(letters.randrange(0x4E00, 0x9F00)) for number in range(most_bytes))
    return text.encode()[:most_bytes].decode(errors="ignore").rstrip("/")


async def test_sessions_that_only_a_later_release_commits_as_idle_become_due(
    place: Place,
) -> None:
    rule = AutoCommit(message_count=9, idle=5_000_000, keep_recent_count=3).to_json()
    rows = {
        "kept": (rule, 2, 0, 100, 0),
        "archived": (rule, 2, 2, 100, 0),
        "due": (rule, 5, 0, 100, 77),
        "never": (AutoCommit(message_count=9).to_json(), 2, 0, 100, 0),
        "none": ("", 2, 0, 100, 0),
    }

    def say(connection: Any) -> None:
        for session_id, (rules, last, archived, said_at, due_at) in rows.items():
            connection.exec_driver_sql(
                "INSERT INTO sessions (account, user_id, session_id, auto_commit, last_sequence, archived_sequence,"
                f" said_at, idle_at) VALUES ('{ANN.account}', '{ANN.user}', '{session_id}', '{rules}', {last},"
                f" {archived}, {said_at}, {due_at})"
            )

    await asyncio.to_thread(place.bring, "r0010")
    await asyncio.to_thread(place.look, say)
    await asyncio.to_thread(place.migrate)
    database = place.connect()
    await database.open()
    assert {name: await idle_at(database, name) for name in rows} == {
        "kept": 5_000_100,
        "archived": 0,
        "due": 77,
        "never": 0,
        "none": 0,
    }
    await database.close()


def test_what_was_made_beforehand_for_holders_is_what_the_migration_makes(place: Place) -> None:
    if place.look(lambda connection: connection.dialect.name) == "sqlite":
        pytest.skip("one process has the file, so nobody waits for the index")
    place.bring("r0003")
    place.look(holders_made_by_hand)
    place.bring("r0004")
    made = place.look(indexes_of_jobs), place.look(shape)["jobs"]
    place.look(lambda connection: connection.exec_driver_sql("DROP INDEX jobs_by_holder"))
    place.look(lambda connection: connection.exec_driver_sql("ALTER TABLE jobs DROP COLUMN lease_holder"))
    place.look(
        lambda connection: connection.exec_driver_sql(
            "ALTER TABLE jobs DROP COLUMN bound_epoch, DROP COLUMN lease_digest, DROP COLUMN lost_by"
        )
    )
    place.look(lambda connection: connection.exec_driver_sql("ALTER TABLE api_keys DROP COLUMN accounts"))
    place.look(lambda connection: connection.exec_driver_sql("DROP TABLE workers"))
    place.look(lambda connection: connection.exec_driver_sql("UPDATE alembic_version SET version_num = 'r0003'"))
    place.bring("r0004")
    assert (place.look(indexes_of_jobs), place.look(shape)["jobs"]) == made


def test_the_index_of_the_changelog_is_that_of_the_migration(place: Place) -> None:
    place.bring("r0002")
    own = place.look(indexes_of_jobs)
    place.look(lambda connection: connection.exec_driver_sql("DROP INDEX jobs_by_state"))
    place.look(made_by_hand)

    assert place.look(indexes_of_jobs) == own


def _add_spaces_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets spaces be added as by releases without the column `embedder_change`."""
    monkeypatch.setattr(
        statements,
        "ADD_SPACE",
        "INSERT INTO spaces (account, user_id, created_at, checked_at) VALUES ($1, $2, $3, $3)"
        " ON CONFLICT (account, user_id) DO NOTHING",
    )


async def _say(database: Database, space: Space, text: str) -> None:
    """Adds a message as a release without the column `calls` does."""

    async def say(tx: Tx) -> None:
        await sessions.get_or_create(tx, space, "s")
        row = await tx.fetchrow(
            "UPDATE sessions SET last_sequence = last_sequence + 1 WHERE account = $1 AND user_id = $2"
            " RETURNING last_sequence",
            space.account,
            space.user,
        )
        assert row is not None
        await tx.execute(
            "INSERT INTO messages (account, user_id, session_id, sequence, message_id, role, parts)"
            " VALUES ($1, $2, 's', $3, $4, 'user', $5)",
            space.account,
            space.user,
            row["last_sequence"],
            f"m{row['last_sequence']}",
            json.dumps([{"type": "text", "text": text}]),
        )

    await database.write_global(say)


async def test_a_server_of_the_release_before_goes_on_while_and_after_the_store_is_migrated(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With rows that were there, with what it writes meanwhile, and started anew afterwards.

    By the code of this release, so only by what needs nothing of that migration and of those behind it; the release
    before itself is tried in tests/acceptance/test_upgrade.py.
    """
    before, after = ADDING
    _add_spaces_as_before(monkeypatch)
    await asyncio.to_thread(place.bring, before)
    monkeypatch.setattr(migrate, "HEAD", before)
    old = place.connect()
    await old.open()
    await _say(old, ANN, "I drink green tea.")
    under_way = asyncio.Event()

    async def go_on() -> int:
        number = 0
        while not under_way.is_set():
            number += 1
            await _say(old, BOB, f"message {number}")
        return number

    writing = asyncio.create_task(go_on())
    monkeypatch.setattr(migrate, "HEAD", after)
    await asyncio.to_thread(place.migrate)
    under_way.set()
    written = await writing
    await _say(old, ANN, "I drink black tea.")
    await old.close()

    monkeypatch.setattr(migrate, "HEAD", before)
    anew = place.connect()
    await anew.open()
    assert (await anew.read(sessions.get, BOB, "s")).last_sequence == written
    await _say(anew, BOB, "after its restart")
    await commit(anew, BOB, "s", "t3")
    await anew.close()

    monkeypatch.setattr(migrate, "HEAD", after)
    new = place.connect()
    await new.open()
    assert (await new.read(sessions.get, BOB, "s")).last_sequence == written + 1
    assert (await new.read(sessions.get, ANN, "s")).last_sequence == 2
    job = await claim(new)
    assert job.job_id == "t3"
    await new.write(apply.apply, BOB, prepared(job.lease, [write(BOB, "tea", 0, 1, "Drinks tea.")]))
    await new.close()


def test_servers_of_the_release_before_are_kept_out_where_it_takes_away(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = ADDING
    monkeypatch.setattr(migrate, "HEAD", after)
    place.migrate()
    place.look(lambda connection: connection.exec_driver_sql(f"UPDATE store_schema SET compatible_from = '{after}'"))
    monkeypatch.setattr(migrate, "HEAD", before)

    with pytest.raises(SchemaTooNew, match=after):
        place.migrate()


async def test_a_migration_gives_up_rather_than_keep_callers_waiting(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever wants a table that the migration waits for waits behind it: a dump would stop the service for hours."""
    import asyncpg

    monkeypatch.setattr(migrate, "TABLE_LOCK_MS", 100)
    name = postgres_server.create(EMPTY)
    url = postgres_server.url(name)
    await asyncio.to_thread(postgres_place(url, Clock()).bring, REVISIONS[-2])
    holder = await asyncpg.connect(url)
    try:
        async with holder.transaction():
            await holder.execute("LOCK TABLE alembic_version IN ROW EXCLUSIVE MODE")
            await holder.execute("UPDATE alembic_version SET version_num = version_num")
            with pytest.raises(StoreUnavailable, match="lock timeout"):
                await migrate_postgres(url)
    finally:
        await holder.close()
    await migrate_postgres(url)
    postgres_server.drop(name)


async def test_messages_that_memories_came_from_become_runs(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a session is gone, and where a server of the release before writes rows after the migration. No run
    crosses a block."""
    end = origins.BLOCK
    _add_spaces_as_before(monkeypatch)
    await asyncio.to_thread(place.bring, "r0004")
    monkeypatch.setattr(migrate, "HEAD", "r0004")
    old = place.connect()
    await old.open()
    for number in range(1, 8):
        await _say(old, ANN, f"message {number}")

    async def make(tx: Tx, uri_of: str, version: int, revision: int, ended_by: int) -> None:
        # As servers of that release did: what writes memories now needs columns that are not there yet.
        await tx.execute(
            "INSERT INTO memories (account, user_id, uri, version, memory_type, rev_from, rev_to)"
            f" VALUES ('{ANN.account}', '{ANN.user}', '{uri(ANN, uri_of)}', {version}, 'preferences', {revision},"
            f" {ended_by})"
        )

    for made in (("all", 1, 1, 0), ("some", 1, 1, 2), ("gone", 1, 1, 0), ("some", 2, 2, 0)):
        await old.write_global(make, *made)

    async def name(tx: Tx, uri_of: str, version: int, session_id: str, *numbers: int) -> None:
        for number in numbers:
            await tx.execute(
                "INSERT INTO memory_sources (account, user_id, session_id, message_id, uri, version)"
                f" VALUES ('{ANN.account}', '{ANN.user}', '{session_id}', 'm{number}', '{uri(ANN, uri_of)}', {version})"
            )

    async def say_late(tx: Tx, *numbers: int) -> None:
        for number in numbers:
            await tx.execute(
                "INSERT INTO messages (account, user_id, session_id, sequence, message_id)"
                f" VALUES ('{ANN.account}', '{ANN.user}', 's', {number}, 'm{number}')"
            )

    late = range(end - 2, end + 2)
    await old.write_global(say_late, *late)
    await old.write_global(name, "all", 1, "s", *range(1, 8), *late)
    await old.write_global(name, "some", 1, "s", 2, 6)
    await old.write_global(name, "some", 2, "s", 3, 7)
    await old.write_global(name, "gone", 1, "of before", 1, 2)
    monkeypatch.setattr(migrate, "HEAD", HEAD)
    await asyncio.to_thread(place.migrate)
    await old.write_global(name, "gone", 1, "s", 5)
    await old.close()

    new = place.connect()
    await new.open()
    found = {}
    for number in (*range(1, 8), *late):
        named, _ = await new.read(history.of_message, ANN, "s", f"m{number}", "", 10, 10_000)
        found[number] = {memory.uri.rpartition("/")[2].removesuffix(".md"): memory.version for memory in named}
    assert found == {
        1: {"all": 1},
        2: {"all": 1, "some": 1},
        3: {"all": 1, "some": 2},
        4: {"all": 1},
        5: {"all": 1, "gone": 1},
        6: {"all": 1, "some": 1},
        7: {"all": 1, "some": 2},
        **{number: {"all": 1} for number in late},
    }

    async def runs(tx: Tx) -> list[tuple[Any, ...]]:
        rows = await tx.fetch(
            "SELECT session_id, message_id, uri, version, first_sequence, last_sequence FROM memory_sources"
        )
        return sorted(tuple(row) for row in rows)

    everything, some, gone = (uri(ANN, name) for name in ("all", "some", "gone"))
    assert await new.read_global(runs) == sorted(
        [
            ("of before", "m1", gone, 1, 0, 0),
            ("of before", "m2", gone, 1, 0, 0),
            ("s", "m1", everything, 1, 1, 7),
            ("s", "m2", some, 1, 2, 2),
            ("s", "m3", some, 2, 3, 3),
            ("s", f"m{end - 2}", everything, 1, end - 2, end - 1),
            ("s", f"m{end}", everything, 1, end, end + 1),
            ("s", "m5", gone, 1, 0, 0),
            ("s", "m6", some, 1, 6, 6),
            ("s", "m7", some, 2, 7, 7),
        ]
    )
    await new.close()
