"""What SQLite keeps of deleted rows, and that a purge leaves none of it, while readers and writers go on."""

import asyncio
import random
import resource
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from runekeep_storage.database import Tx
from runekeep_storage.drivers.sqlite.driver import SqliteDatabase
from runekeep_storage.errors import StoreUnavailable

WORD = "numbat"


@pytest.fixture
async def written(tmp_path: Path) -> SqliteDatabase:
    """Rows of very different lengths in an order without sense, so that pages are split and joined; every third one
    said the word and is deleted, or says it no more."""
    made = SqliteDatabase(tmp_path / "runekeep.db")
    await made.open()
    chosen = random.Random(7)

    async def fill(tx: Tx, first: int) -> None:
        for number in range(first, first + 100):
            text = f"{WORD}{number} " if number % 3 == 0 else f"other{number} "
            await tx.execute(
                "INSERT INTO messages (account, user_id, session_id, sequence, message_id, parts)"
                " VALUES ('acme', 'ann', $1, $2, $3, $4)",
                f"s{chosen.randrange(60)}",
                number,
                f"m{number}",
                text * chosen.choice([1, 5, 30, 400]),
            )

    for first in range(0, 9000, 100):
        await made.write_global(fill, first)
    await made.write_global(_run, f"DELETE FROM messages WHERE parts LIKE '{WORD}%' AND sequence % 2 = 0")
    await made.write_global(_run, f"UPDATE messages SET parts = '[]' WHERE parts LIKE '{WORD}%'")
    return made


async def _run(tx: Tx, statement: str) -> None:
    assert await tx.execute(statement) > 0


async def _count(tx: Tx) -> int:
    row = await tx.fetchrow("SELECT COUNT(*) AS n FROM messages")
    return int(row["n"]) if row else 0


def _bytes(folder: Path) -> int:
    return sum(path.read_bytes().count(WORD.encode()) for path in folder.iterdir())


async def test_deleted_rows_stay_in_the_files_until_a_purge(written: SqliteDatabase, tmp_path: Path) -> None:
    rows = await written.read_global(_count)
    assert _bytes(tmp_path) > 0, "the log of writes has them"
    await written.purge()
    assert _bytes(tmp_path) == 0
    assert (tmp_path / "runekeep.db-wal").stat().st_size == 0
    assert await written.read_global(_count) == rows
    await written.close()


async def test_pages_keep_copies_of_deleted_rows_without_a_purge(written: SqliteDatabase, tmp_path: Path) -> None:
    """Why overwriting what is deleted would not do."""
    await written.close()
    assert _bytes(tmp_path) > 0


async def test_writers_go_on_before_and_after_a_purge_and_none_is_lost(written: SqliteDatabase) -> None:
    async def add(tx: Tx, number: int) -> int:
        await tx.execute("INSERT INTO accounts (account) VALUES ($1)", f"a{number}")
        return number

    before = [asyncio.create_task(written.write_global(add, number)) for number in range(300)]
    purges = [asyncio.create_task(written.purge()) for _ in range(2)]
    after = [asyncio.create_task(written.write_global(add, number)) for number in range(300, 600)]
    assert await asyncio.gather(*before, *after) == list(range(600))
    await asyncio.gather(*purges)
    await written.close()
    with pytest.raises(StoreUnavailable):
        await written.purge()


async def test_a_purge_that_fails_leaves_no_log_behind(written: SqliteDatabase, tmp_path: Path) -> None:
    """A process that may write no file much longer than the database is: the copy fits, what comes then does not."""
    await written.purge()
    log = tmp_path / "runekeep.db-wal"
    assert log.stat().st_size == 0
    size = (tmp_path / "runekeep.db").stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 4096, limits[1]))
    try:
        with pytest.raises(StoreUnavailable):
            await written.purge()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert log.stat().st_size == 0
    await written.purge()
    await written.close()


async def test_a_purge_for_which_the_disk_has_no_room_is_refused(
    written: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = (tmp_path / "runekeep.db").stat().st_size
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=size))
    rows = await written.read_global(_count)
    with pytest.raises(StoreUnavailable, match="free space"):
        await written.purge()
    assert _bytes(tmp_path) > 0
    assert await written.read_global(_count) == rows
    monkeypatch.undo()
    await written.purge()
    assert _bytes(tmp_path) == 0
    await written.close()
