"""Stores of each driver that can be taken to any revision of the schema, and what releases before write to them."""

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from sqlalchemy import create_engine, event
from sqlalchemy.ext.asyncio import create_async_engine

from runekeep_storage.database import Database, Space, Tx
from runekeep_storage.drivers.postgres.driver import PostgresDatabase
from runekeep_storage.drivers.sqlite.driver import SqliteDatabase
from runekeep_storage.migrations.migrate import alembic_config, migrate_postgres, migrate_sqlite
from runekeep_storage.sessions import sessions
from runekeep_storage.spaces import statements
from tests.support.postgres import EMPTY, PostgresServer
from tests.support.storage.databases import DRIVERS, Clock


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


def add_spaces_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets spaces be added as by releases without the column `embedder_change`."""
    monkeypatch.setattr(
        statements,
        "ADD_SPACE",
        "INSERT INTO spaces (account, user_id, created_at, checked_at) VALUES ($1, $2, $3, $3)"
        " ON CONFLICT (account, user_id) DO NOTHING",
    )


async def say_as_before(database: Database, space: Space, text: str) -> None:
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
