"""What only the store knows, read beside the servers: watermarks, lanes, leases, what the index has not got."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any, Protocol

import asyncpg

from storage.database import Space

_AWAY = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
)
Rows = list[tuple[Any, ...]]


class Eyes(Protocol):
    """A connection that only reads."""

    async def rows(self, sql: str) -> Rows:
        """Rows of a statement without parameters; none while the store cannot be asked."""
        ...

    async def close(self) -> None: ...


class SqliteEyes:
    """A second connection to the file of a server."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA query_only=ON")
        self._connection.execute("PRAGMA busy_timeout=1000")

    async def rows(self, sql: str) -> Rows:
        try:
            return self._connection.execute(sql).fetchall()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            return []

    async def close(self) -> None:
        self._connection.close()


class PostgresEyes:
    """A connection of its own, opened again when it broke."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Any = None
        self._turn = asyncio.Lock()
        """Faults look while the watermarks are watched."""

    async def rows(self, sql: str) -> Rows:
        async with self._turn:
            try:
                if self._connection is None or self._connection.is_closed():
                    self._connection = await asyncpg.connect(self._url, timeout=5)
                return [tuple(row) for row in await self._connection.fetch(sql, timeout=5)]
            except _AWAY:
                await self.close()
                return []

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()


async def watermarks(eyes: Eyes) -> dict[Space, int]:
    """Newest revision of each space that is wholly in the index."""
    rows = await eyes.rows("SELECT account, user_id, indexed_revision FROM spaces")
    return {Space(account, user): revision for account, user, revision in rows}


async def lane(eyes: Eyes, space: Space) -> tuple[str, ...]:
    """Ids of all jobs of a space, in the order in which they are worked off."""
    rows = await eyes.rows(f"SELECT job_id FROM jobs WHERE {_of(space)} ORDER BY lane_sequence")
    return tuple(job for (job,) in rows)


async def open_jobs(eyes: Eyes, space: Space) -> int:
    """Jobs that wait or are leased, or are ready by the account's own count, whichever is more."""
    mine = f"SELECT COUNT(*) FROM jobs WHERE {_of(space)} AND (state IN ('pending', 'leased') OR is_head = 1)"
    ((rows,),) = await eyes.rows(mine)
    counted = await eyes.rows(f"SELECT ready_jobs FROM accounts WHERE account = '{space.account}'")
    return max(rows, counted[0][0]) if counted else int(rows)


async def unsent(eyes: Eyes, space: Space) -> int:
    """Points that the index has not got."""
    ((count,),) = await eyes.rows(f"SELECT COUNT(*) FROM outbox WHERE {_of(space)} AND op = 'upsert'")
    return int(count)


async def leases(eyes: Eyes) -> dict[tuple[str, int], str]:
    """Workers by (job, fencing token), of all leases that are held."""
    rows = await eyes.rows("SELECT job_id, lease_epoch, worker_id FROM jobs WHERE state = 'leased'")
    return {(job, token): worker for job, token, worker in rows}


def _of(space: Space) -> str:
    return f"account = '{space.account}' AND user_id = '{space.user}'"
