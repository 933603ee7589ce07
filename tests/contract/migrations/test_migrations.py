"""Migrations while servers of the release before work on the store: what those rely on stays, and they go on."""

import asyncio
import re
import sqlite3
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect

from runekeep_storage.errors import StoreUnavailable
from runekeep_storage.memories import apply
from runekeep_storage.migrations import migrate
from runekeep_storage.migrations.migrate import SchemaTooNew, alembic_config, migrate_postgres
from runekeep_storage.sessions import sessions
from tests.support.postgres import EMPTY, PostgresServer
from tests.support.storage.databases import ANN, BOB, Clock, claim, commit, prepared, write
from tests.support.storage.migrations import Place, add_spaces_as_before, postgres_place, say_as_before

MODULES = {one.revision: one.module for one in ScriptDirectory.from_config(alembic_config(None)).walk_revisions()}  # type: ignore[arg-type]  # nothing is asked of a database
REVISIONS = list(MODULES)[::-1]
STEPS = list(pairwise(REVISIONS))
ADDING = [(before, after) for before, after in STEPS if MODULES[after].compatible_from <= before][-1]
"""The newest step that servers of the release before may go on with."""
CHANGELOG = Path(__file__).parents[3] / "CHANGELOG.md"


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


async def test_a_server_of_the_release_before_goes_on_while_and_after_the_store_is_migrated(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With rows that were there, with what it writes meanwhile, and started anew afterwards.

    By the code of this release, so only by what needs nothing of that migration and of those behind it; the release
    before itself is tried in tests/acceptance/test_upgrade.py.
    """
    before, after = ADDING
    add_spaces_as_before(monkeypatch)
    await asyncio.to_thread(place.bring, before)
    monkeypatch.setattr(migrate, "HEAD", before)
    old = place.connect()
    await old.open()
    await say_as_before(old, ANN, "I drink green tea.")
    under_way = asyncio.Event()

    async def go_on() -> int:
        number = 0
        while not under_way.is_set():
            number += 1
            await say_as_before(old, BOB, f"message {number}")
        return number

    writing = asyncio.create_task(go_on())
    monkeypatch.setattr(migrate, "HEAD", after)
    await asyncio.to_thread(place.migrate)
    under_way.set()
    written = await writing
    await say_as_before(old, ANN, "I drink black tea.")
    await old.close()

    monkeypatch.setattr(migrate, "HEAD", before)
    anew = place.connect()
    await anew.open()
    assert (await anew.read(sessions.get, BOB, "s")).last_sequence == written
    await say_as_before(anew, BOB, "after its restart")
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
