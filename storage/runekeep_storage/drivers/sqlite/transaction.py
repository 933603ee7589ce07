"""One transaction on one SQLite connection: its statements."""

import re
import sqlite3
from collections.abc import Callable, Coroutine
from functools import lru_cache
from typing import Any, TypeVar

from runekeep_storage.database import Row, Space, Topic, Tx
from runekeep_storage.drivers.sqlite import statements

T = TypeVar("T")

_PLACEHOLDER = re.compile(r"\$(\d+)")


@lru_cache(maxsize=1024)
def _sqlite_sql(sql: str) -> str:
    return _PLACEHOLDER.sub(r"?\1", sql)


class SqliteTx:
    """A transaction on one connection. Nothing in it ever suspends; see
    `runekeep_storage.drivers.common.without_event_loop`."""

    def __init__(self, connection: sqlite3.Connection, clock: Callable[[], int]) -> None:
        self._connection = connection
        self._clock = clock

    async def fetch(self, sql: str, *args: Any) -> list[Row]:
        return self._connection.execute(_sqlite_sql(sql), args).fetchall()

    async def fetchrow(self, sql: str, *args: Any) -> Row | None:
        cursor = self._connection.execute(_sqlite_sql(sql), args)
        row = cursor.fetchone()
        # A RETURNING statement is complete only once all of its rows are read.
        cursor.fetchall()
        return row

    async def execute(self, sql: str, *args: Any) -> int:
        return self._connection.execute(_sqlite_sql(sql), args).rowcount

    async def compute(self, work: Callable[[Tx], Coroutine[Any, Any, T]]) -> T:
        """Runs `work` directly: SQLite transactions never run on the event loop."""
        return await work(self)

    def now(self) -> int:
        return self._clock()

    def is_shut(self, space: Space) -> bool:
        found = self._connection.execute(_sqlite_sql(statements.IS_SHUT), (space.account, space.user))
        return found.fetchone() is not None

    def tell_shut(self, space: Space) -> None:
        """Does nothing: the next transaction reads the row in `shut_spaces`."""

    def tell_open(self, space: Space) -> None:
        """Does nothing, see `tell_shut`."""

    async def ensure_durable(self) -> None:
        """Does nothing: every commit waits for the disk."""

    def notify(self, topic: Topic, subject: str = "") -> None:
        """Does nothing: no other server uses this store, and this one knows what it did."""
