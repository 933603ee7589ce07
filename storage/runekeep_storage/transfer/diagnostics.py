"""Facts about a store without a server, for operators.

It writes nothing, except that SQLite and Qdrant Edge repair their own logs when they open what a killed server left.
All facts are independent of accounts: schemas, privileges, clocks, versions.
"""

import asyncio
import json
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from runekeep_storage.blobs import scrub
from runekeep_storage.blobs.blobs import Blobs
from runekeep_storage.drivers.sqlite.driver import system_clock
from runekeep_storage.drivers.sqlite.transaction import SqliteTx
from runekeep_storage.errors import BlobDamaged, NotFound
from runekeep_storage.index.base import VectorDatatype
from runekeep_storage.index.stored_vectors import StoredVectors
from runekeep_storage.migrations.migrate import Schema, postgres_schema, sqlite_schema
from runekeep_storage.tables import TABLES
from runekeep_storage.transfer import statements

if TYPE_CHECKING:
    from runekeep_storage.index.qdrant_nodes import NodeAddress

QUICK_SECONDS = 5.0
"""Shorter than a server waits for the lock of its data directory, which is held meanwhile."""
CONNECT_SECONDS = 5.0
_STEPS = 10_000
"""SQLite's own steps between two looks at the clock."""


@dataclass(frozen=True, slots=True)
class SqliteFacts:
    """Facts about a database file. `problem`: what SQLite finds wrong; empty if nothing. `whole`: the check ended
    before time ran out."""

    schema: Schema | None
    bytes: int
    problem: str
    whole: bool


def sqlite_facts(database: Path, seconds: float = QUICK_SECONDS) -> SqliteFacts:
    """Returns facts about a file that no server uses. Raises sqlite3.Error."""
    size = database.stat().st_size
    try:
        schema = sqlite_schema(database)
    except sqlite3.DatabaseError as error:
        return SqliteFacts(None, size, str(error), whole=True)
    connection = _opened(database)
    end = monotonic() + seconds
    connection.set_progress_handler(lambda: monotonic() > end, _STEPS)
    try:
        found = [str(row[0]) for row in connection.execute("PRAGMA quick_check(3)")]
    except sqlite3.OperationalError as error:
        if monotonic() <= end:
            raise
        return SqliteFacts(schema, size, "" if "interrupted" in str(error) else str(error), whole=False)
    except sqlite3.DatabaseError as error:
        return SqliteFacts(schema, size, str(error), whole=True)
    finally:
        connection.close()
    return SqliteFacts(schema, size, "" if found == ["ok"] else "; ".join(found), whole=True)


def _opened(database: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{database.absolute().as_uri()}?mode=rw", uri=True)
    connection.row_factory = sqlite3.Row
    return connection


@dataclass(frozen=True, slots=True)
class BlobFacts:
    """Blobs that rows name: how many were `read`, and the names of those that are `damaged` or `missing`. `whole`: all
    of them were checked before time ran out."""

    read: int
    damaged: tuple[str, ...]
    missing: tuple[str, ...]
    whole: bool


async def blob_facts(database: Path, blobs: Blobs, seconds: float = QUICK_SECONDS) -> BlobFacts:
    """Checks the blobs that a database file names, which no server may use. Raises sqlite3.Error, StoreUnavailable."""
    connection = _opened(database)
    tx, end, read = SqliteTx(connection, system_clock), monotonic() + seconds, 0
    damaged: list[str] = []
    missing: list[str] = []
    try:
        async for space, name in scrub.named(tx):
            if monotonic() > end:
                return BlobFacts(read, tuple(damaged), tuple(missing), whole=False)
            try:
                await asyncio.to_thread(blobs.get, space, name)
            except NotFound:
                missing.append(name)
                continue
            except BlobDamaged:
                damaged.append(name)
            read += 1
    finally:
        connection.close()
    return BlobFacts(read, tuple(damaged), tuple(missing), whole=True)


@dataclass(frozen=True, slots=True)
class PostgresFacts:
    """Facts about a PostgreSQL server. `version` as it reports it, `major` its first number. `lacking`: table
    privileges that the role lacks, in words. `may_migrate`: it may create tables. `ahead`: seconds by which its clock
    is ahead of this machine's, with an error of up to half of `round_trip`."""

    version: str
    major: int
    schema: Schema | None
    encoding: str
    collation: str
    role: str
    lacking: tuple[str, ...]
    may_migrate: bool
    read_only: bool
    connections: int
    ahead: float
    round_trip: float


async def postgres_facts(url: str) -> PostgresFacts:
    """Returns facts about the server. Raises what asyncpg raises if it cannot connect or query, OSError and
    TimeoutError."""
    import asyncpg

    connection = await asyncpg.connect(url, timeout=CONNECT_SECONDS, command_timeout=CONNECT_SECONDS)
    try:
        await connection.execute("BEGIN READ ONLY")
        asked = monotonic()
        there = await connection.fetchval(statements.CLOCK)
        round_trip = monotonic() - asked
        told: Any = await connection.fetchrow(statements.SERVER_FACTS)
        lacking = await _lacking(connection)
        needed = {_privilege(statements.READ_PRIVILEGE, table) for table in ("alembic_version", "store_schema")}
        may_read = needed.isdisjoint(lacking)
        return PostgresFacts(
            version=told["version"],
            major=told["number"] // 10_000,
            schema=await postgres_schema(connection) if may_read else None,
            encoding=told["encoding"],
            collation=told["collation"],
            role=told["role"],
            lacking=lacking,
            may_migrate=told["may_migrate"],
            read_only=told["read_only"],
            connections=told["most"],
            ahead=there - (time() - round_trip / 2),
            round_trip=round_trip,
        )
    finally:
        await connection.close(timeout=CONNECT_SECONDS)


async def _lacking(connection: Any) -> tuple[str, ...]:
    # Other tables in a database do not concern a server's role.
    names = [table.name for table in TABLES]
    rows = await connection.fetch(statements.LACKING_PRIVILEGES, list(statements.PRIVILEGES), names)
    return tuple(_privilege(row["privilege"], row["tablename"]) for row in rows)


def _privilege(privilege: str, table: str) -> str:
    return f"{privilege} on {table}"


def edge_vectors(directory: Path) -> StoredVectors | None:
    """Returns what the embedded index in `directory` records of its vectors; None if there is no index yet. Raises
    OSError, ValueError, KeyError, TypeError."""
    try:
        told = json.loads((directory / "space.json").read_text("utf-8"))
    except FileNotFoundError:
        return None
    return StoredVectors.of_metadata(told)


async def edge_points(directory: Path, vectors: StoredVectors) -> int:
    """Opens the embedded index as a server does. Returns the number of its points. Raises IndexUnavailable,
    IndexMismatch, and ValueError for a datatype that this release does not know."""
    from runekeep_storage.index.edge import EdgeIndex

    index = EdgeIndex(directory, datatype=VectorDatatype(vectors.datatype))
    try:
        await index.open(next(iter(vectors.names)))
        return await index.count_all()
    finally:
        await index.close()


@dataclass(frozen=True, slots=True)
class QdrantFacts:
    """Facts about a Qdrant server. `vectors`: what the collection records of them; None if there is none yet, and then
    `points` is 0."""

    version: str
    vectors: StoredVectors | None
    points: int


async def qdrant_facts(address: "NodeAddress", api_key: str | None) -> QdrantFacts:
    """Returns facts about the server. Raises what the client raises if it cannot query, and ValueError for a collection
    that Runekeep did not create."""
    from runekeep_storage.index.qdrant import ALL_POINTS, COLLECTION

    client = address.client(api_key, round(CONNECT_SECONDS), {})
    try:
        version = str((await client.info()).version)
        if not await client.collection_exists(COLLECTION):
            return QdrantFacts(version, None, 0)
        metadata = (await client.get_collection(COLLECTION)).config.metadata or {}
        if not {"model", "dimension"} <= set(metadata):
            raise ValueError(f"its collection {COLLECTION} is none that a server of ours made")
        vectors = StoredVectors.of_metadata(metadata)
        return QdrantFacts(version, vectors, (await client.count(COLLECTION, ALL_POINTS)).count)
    finally:
        await client.close()
