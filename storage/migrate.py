"""Brings a store to the schema that this code speaks.

Alembic and SQLAlchemy are loaded only when there is something to migrate, so that a start on an up-to-date store
stays light.
"""

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from storage.errors import StoreError, StoreUnavailable

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

HEAD = "r0001"
"""Newest migration; a test compares it with the files in storage/migrations/versions."""


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
