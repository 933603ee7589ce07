"""Brings a store to the schema that this code speaks.

Alembic and SQLAlchemy are loaded only when there is something to migrate, so that a start on an up-to-date store
stays light.
"""

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

from storage.errors import StoreError, StoreUnavailable

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

HEAD = "r0001"
"""Newest migration; a test compares it with the files in storage/migrations/versions."""
MIGRATION_LOCK = 0x52756E656B656570
"""Of PostgreSQL: "Runekeep" as a number, so that no other program on the database has it by chance."""
MIGRATION_SECONDS = 600.0
"""For one statement of a migration, the wait for another server's migration included."""


class SchemaTooNew(StoreError):
    """The store was written by a newer release."""


def migrate_sqlite(path: Path) -> None:
    """Migrates the database file at `path`, which is made when there is none.

    All of it or nothing. Raises SchemaTooNew, StoreUnavailable.
    """
    version = _sqlite_version(path)
    if version == HEAD:
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
    """Migrates the database at `url`, which must exist. Servers that start at once wait for the first of them.

    All of it or nothing. Raises SchemaTooNew, StoreUnavailable, and what asyncpg raises when it cannot connect.
    """
    import asyncpg

    connection = await asyncpg.connect(url, timeout=10, command_timeout=MIGRATION_SECONDS)
    try:
        if await _postgres_version(connection) == HEAD:
            return
    finally:
        await connection.close(timeout=10)
    from sqlalchemy import text
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.ext.asyncio import create_async_engine

    # asyncpg alone reads the URL, so that it means the same here and in the driver.
    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(url, command_timeout=MIGRATION_SECONDS)
    )
    try:
        async with engine.begin() as migrating:
            await migrating.execute(text(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})"))
            await migrating.run_sync(upgrade)
    except DBAPIError as error:
        raise StoreUnavailable(f"cannot migrate the PostgreSQL database: {error.orig}") from error
    finally:
        await engine.dispose()


async def _postgres_version(connection: Any) -> str | None:
    if await connection.fetchval("SELECT to_regclass('alembic_version')") is None:
        return None
    version: str | None = await connection.fetchval("SELECT version_num FROM alembic_version")
    return version


def upgrade(connection: "Connection") -> None:
    """Runs all migrations that are missing, in the transaction of `connection`. Raises SchemaTooNew."""
    from alembic import command
    from alembic.config import Config
    from alembic.util.exc import CommandError

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        if "Can't locate revision" in str(error):
            raise SchemaTooNew(
                f"the store has a schema that this release does not know ({error}); start the release that wrote it"
            ) from error
        raise


def _sqlite_version(path: Path) -> str | None:
    if not path.exists():
        return None
    connection = sqlite3.connect(path)
    try:
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.OperationalError:
        return None
    finally:
        connection.close()
    return str(row[0]) if row else None
