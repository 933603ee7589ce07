"""Samples of what users and agents said, for the doctor: the newest messages of some users.

A sample reads a bounded number of rows for a bounded time, and writes nothing. The file of a running server is opened
for reading only, as `runekeep backup` does.
"""

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from runekeep_storage.database import Row, Space, Tx
from runekeep_storage.drivers.sqlite.driver import system_clock
from runekeep_storage.drivers.sqlite.transaction import SqliteTx
from runekeep_storage.transfer import statements

MAX_SPACES = 100
"""Users in a sample, chosen at random."""
MAX_SESSIONS = 5
"""Newest sessions that are read of a user."""
MAX_MESSAGES = 20
"""Messages that are read of a session."""
SECONDS = 5.0
_MAX_PARTS_CHARACTERS = 32_768
"""Longer messages are left out: they hold large outputs of tools."""
_STEPS = 10_000
"""SQLite's own steps between two looks at the clock."""


@dataclass(frozen=True, slots=True)
class TalkSample:
    """The words of the newest messages of one user, without outputs of tools."""

    space: Space
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TalkSamples:
    """Samples of some users. `spaces`: how many users there are. Time may have run out before all chosen ones were
    read."""

    samples: tuple[TalkSample, ...]
    spaces: int


async def sqlite_samples(database: Path, *, read_only: bool, seconds: float = SECONDS) -> TalkSamples:
    """Returns samples from a database file. `read_only`: a server works on it. Raises sqlite3.Error."""
    end = monotonic() + seconds
    with closing(_opened(database, "ro" if read_only else "rw")) as connection:
        # Between two users the clock is looked at anyway; this ends a statement that takes as long again.
        connection.set_progress_handler(lambda: monotonic() > end + seconds, _STEPS)
        return await _samples(SqliteTx(connection, system_clock), end)


def _opened(database: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{database.absolute().as_uri()}?mode={mode}", uri=True)
    connection.row_factory = sqlite3.Row
    return connection


async def postgres_samples(url: str, seconds: float = SECONDS) -> TalkSamples:
    """Returns samples from PostgreSQL. Raises what asyncpg raises if it cannot connect or query, StoreUnavailable,
    OSError and TimeoutError."""
    import asyncpg

    from runekeep_storage.drivers.postgres.transaction import PostgresTx, outset

    end = monotonic() + seconds
    connection = await asyncpg.connect(url, timeout=seconds, command_timeout=seconds)
    try:
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        return await _samples(PostgresTx(connection, await outset(connection, None)), end)
    finally:
        await connection.close(timeout=seconds)


async def _samples(tx: Tx, end: float) -> TalkSamples:
    count = await tx.fetchrow(statements.COUNT_OF_SPACES)
    rows = await tx.fetch(statements.SOME_SPACES, MAX_SPACES)
    samples = []
    for row in rows:
        if monotonic() > end:
            break
        space = Space(row["account"], row["user_id"])
        samples.append(TalkSample(space, tuple([text async for text in _texts(tx, space)])))
    return TalkSamples(tuple(samples), 0 if count is None else count["n"])


async def _texts(tx: Tx, space: Space) -> AsyncIterator[str]:
    for session in await tx.fetch(statements.NEWEST_SESSIONS, space.account, space.user, MAX_SESSIONS):
        key = (space.account, space.user, session["session_id"])
        for row in await tx.fetch(statements.NEWEST_MESSAGES, *key, _MAX_PARTS_CHARACTERS, MAX_MESSAGES):
            if text := _words(row):
                yield text


def _words(row: Row) -> str:
    parts = json.loads(row["parts"])
    return " ".join(str(part["text"]) for part in parts if part["type"] == "text").strip()
