"""The write-ahead log of SQLite is copied beside the writer, and stays bounded."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from runekeep_storage.database import Tx
from runekeep_storage.drivers.sqlite import checkpoints
from runekeep_storage.drivers.sqlite.checkpoints import DUE_COMMITS, MAX_PAGES
from runekeep_storage.drivers.sqlite.driver import SqliteDatabase
from tests.support.waiting import until

PATIENCE_SECONDS = 30.0
PAGE_BYTES = 4096


@pytest.fixture
async def database(tmp_path: Path) -> SqliteDatabase:
    opened = SqliteDatabase(tmp_path / "runekeep.db")
    await opened.open()
    return opened


async def _add(tx: Tx, number: int, size: int) -> None:
    await tx.execute(
        "INSERT INTO messages (account, user_id, session_id, sequence, message_id, parts)"
        " VALUES ('acme', 'ann', 's', $1, $2, $3)",
        number,
        f"m{number}",
        "x" * size,
    )


def _copied(path: Path) -> int:
    """Counts the messages in the database file alone, without its log."""
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        return int(connection.execute("SELECT COUNT(*) FROM messages").fetchone()[0])
    finally:
        connection.close()


async def test_the_log_is_copied_after_some_commits(database: SqliteDatabase, tmp_path: Path) -> None:
    for number in range(1, DUE_COMMITS):
        await database.write_global(_add, number, 10)
    path = tmp_path / "runekeep.db"
    assert _copied(path) == 0
    await database.write_global(_add, DUE_COMMITS, 10)
    await asyncio.to_thread(until, lambda: _copied(path) == DUE_COMMITS)
    await database.close()
    assert _copied(path) == DUE_COMMITS


async def test_the_log_stays_bounded_though_no_thread_copies_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "DUE_COMMITS", 10**6)
    database = SqliteDatabase(tmp_path / "runekeep.db")
    await database.open()
    large = 500 * PAGE_BYTES
    for number in range(3 * MAX_PAGES // 500):
        await database.write_global(_add, number, large)
    assert (tmp_path / "runekeep.db-wal").stat().st_size < 1.2 * MAX_PAGES * PAGE_BYTES
    await database.close()


async def test_a_checkpoint_that_fails_stops_no_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = SqliteDatabase(tmp_path / "runekeep.db")
    await database.open()
    assert database._checkpointer is not None
    failures = 0

    def refuse() -> sqlite3.Connection:
        nonlocal failures
        failures += 1
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(database._checkpointer, "_connect", refuse)
    number = 0
    async with asyncio.timeout(PATIENCE_SECONDS):
        while failures < 2:
            number += 1
            await database.write_global(_add, number, 10)
    await database.purge()
    await database.close()
    assert _copied(tmp_path / "runekeep.db") == number
