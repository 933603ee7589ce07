"""Migrates a store to the schema of this code, and decides which servers may work on it.

Each migration names in `compatible_from` the oldest schema whose servers may run while it is applied and afterwards:
its own if it removes something or changes a meaning, an older one if it only adds. The store holds the newest of those
names beside its schema, so that a server of an earlier release can tell whether it may start on a schema that it does
not know. CONTRIBUTING.md has the rules for authors of migrations.

Alembic and SQLAlchemy are loaded only if there is something to migrate, so that a start on an up-to-date store stays
light.
"""

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from runekeep_storage.errors import StoreError, StoreUnavailable

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy.engine import Connection

HEAD = "r0014"
"""Newest migration; a test compares it with the files in storage/runekeep_storage/migrations/versions. Names sort by
age."""
MIGRATION_LOCK = 0x52756E656B656570
"""PostgreSQL advisory lock: "Runekeep" as a number, so that no other program on the database uses it by chance."""
MIGRATION_SECONDS = 600.0
"""Maximum duration of one statement of a migration, including the wait for another server's migration."""
TABLE_LOCK_MS = 5_000
"""PostgreSQL: how long a migration waits for a table. Callers queue behind it meanwhile, so it must give up rather than
wait for a dump or a forgotten session."""
MAX_MIGRATION_TRIES = 5
"""Maximum number of attempts on PostgreSQL, which aborts one of two transactions that wait for each other's tables. The
migration cannot know in which order servers of the release before lock tables."""
DEADLOCK_DETECTED = "40P01"
"""https://www.postgresql.org/docs/current/errcodes-appendix.html"""

_VERSION = "SELECT version_num FROM alembic_version"
_COMPATIBLE = "SELECT compatible_from FROM store_schema WHERE revision = "

log = structlog.get_logger(__name__)


class SchemaTooNew(StoreError):
    """Servers of this release may not work on the store's schema."""


@dataclass(frozen=True, slots=True)
class Schema:
    """The schema of a store: its newest migration, and the oldest schema whose servers may work on it (empty:
    unknown)."""

    revision: str
    compatible_from: str

    def is_served(self) -> bool:
        """Returns whether servers of this release may work on the schema without a migration. Raises SchemaTooNew if no
        migration can help."""
        if self.revision <= HEAD:
            return self.revision == HEAD
        if self.compatible_from and self.compatible_from <= HEAD:
            log.warning("store_schema_is_newer", store=self.revision, server=HEAD)
            return True
        raise SchemaTooNew(
            f"the store has the schema {self.revision}, which this release ({HEAD}) does not know and may not work on;"
            " start the release that wrote it, or restore a backup"
        )


def migrate_sqlite(path: Path) -> None:
    """Migrates the database file at `path`, which is created if it does not exist.

    Applies everything or nothing. Raises SchemaTooNew, StoreUnavailable.
    """
    found = sqlite_schema(path)
    if found is not None and found.is_served():
        return
    from sqlalchemy import create_engine, event
    from sqlalchemy.exc import DBAPIError

    engine = create_engine(f"sqlite:///{path}", connect_args={"isolation_level": None})
    # The driver would commit before each CREATE TABLE: a kill in the middle would leave half a schema.
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    try:
        with engine.begin() as connection:
            upgrade(connection)
    except DBAPIError as error:
        raise StoreUnavailable(f"cannot migrate {path}: {error.orig}") from error
    finally:
        engine.dispose()


async def migrate_postgres(url: str) -> None:
    """Migrates the database at `url`, which must exist. Servers that start at the same time wait for the first of them.

    Applies everything or nothing. Raises SchemaTooNew, StoreUnavailable, and what asyncpg raises if it cannot connect.
    """
    import asyncpg

    connection = await asyncpg.connect(url, timeout=10, command_timeout=MIGRATION_SECONDS)
    try:
        found = await postgres_schema(connection)
    finally:
        await connection.close(timeout=10)
    if found is not None and found.is_served():
        return
    from sqlalchemy import text
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.ext.asyncio import create_async_engine

    # Only asyncpg reads the URL, so that it means the same here and in the driver.
    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(url, command_timeout=MIGRATION_SECONDS)
    )
    try:
        for left in reversed(range(MAX_MIGRATION_TRIES)):
            try:
                async with engine.begin() as migrating:
                    await migrating.execute(text(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})"))
                    # After the advisory lock, whose wait it would limit as well.
                    await migrating.execute(text(f"SET LOCAL lock_timeout = {TABLE_LOCK_MS}"))
                    await migrating.run_sync(upgrade)
                return
            except DBAPIError as error:
                if not left or getattr(error.orig, "sqlstate", "") != DEADLOCK_DETECTED:
                    raise StoreUnavailable(f"cannot migrate the PostgreSQL database: {error.orig}") from error
                log.info("migration_repeated", why="deadlock", left=left)
    finally:
        await engine.dispose()


def sqlite_schema(path: Path) -> Schema | None:
    """Returns the schema of the database file at `path`, which is only read; None if it does not exist or was never
    migrated."""
    if not path.exists():
        return None
    connection = sqlite3.connect(path)
    try:
        row = connection.execute(_VERSION).fetchone()
        if row is None:
            return None
        try:
            said = connection.execute(f"{_COMPATIBLE}?", row).fetchone()
        except sqlite3.OperationalError:
            # A schema from before that table existed.
            said = None
    except sqlite3.OperationalError:
        return None
    finally:
        connection.close()
    return Schema(str(row[0]), str(said[0]) if said else "")


async def postgres_schema(connection: Any) -> Schema | None:
    """Returns the schema of the database of an asyncpg connection; None if it was never migrated."""
    if await connection.fetchval("SELECT to_regclass('alembic_version')") is None:
        return None
    revision: str | None = await connection.fetchval(_VERSION)
    if revision is None:
        return None
    told = await connection.fetchval("SELECT to_regclass('store_schema')") is not None
    said: str | None = await connection.fetchval(f"{_COMPATIBLE}$1", revision) if told else None
    return Schema(revision, said or "")


def upgrade(connection: "Connection") -> None:
    """Runs all missing migrations in the transaction of `connection`, and stores which servers may work on the result.
    Another server may have run them since this one looked. Raises SchemaTooNew."""
    from alembic import command
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory
    from sqlalchemy import text

    config = alembic_config(connection)
    there = MigrationContext.configure(connection).get_current_revision()
    if there is not None and there > HEAD:
        said = connection.execute(text(f"{_COMPATIBLE}:revision"), {"revision": there}).scalar()
        Schema(there, said or "").is_served()
        return
    command.upgrade(config, HEAD)
    migrations = ScriptDirectory.from_config(config).walk_revisions()
    compatible_from = max(one.module.compatible_from for one in migrations if one.revision <= HEAD)
    connection.execute(text("DELETE FROM store_schema"))
    connection.execute(
        text("INSERT INTO store_schema (revision, compatible_from) VALUES (:revision, :compatible_from)"),
        {"revision": HEAD, "compatible_from": compatible_from},
    )


def alembic_config(connection: "Connection") -> "Config":
    """Returns the configuration with which Alembic works on the migrations beside this file, through `connection`."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
