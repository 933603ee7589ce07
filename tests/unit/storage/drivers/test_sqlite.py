"""What only the SQLite driver does: one writer thread, group commit, and full disks."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runekeep_storage.database import Space, Tx
from runekeep_storage.drivers.sqlite.driver import GROUP_LIMIT, SqliteDatabase
from runekeep_storage.errors import StoreUnavailable
from runekeep_storage.sessions import sessions

ROOT = Path(__file__).resolve().parents[4]
ANN = Space("acme", "ann")


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    made = SqliteDatabase(tmp_path / "runekeep.db")
    await made.open()
    yield made
    await made.close()


async def names(tx: Tx) -> list[str]:
    return [row["session_id"] for row in await tx.fetch("SELECT session_id FROM sessions ORDER BY session_id")]


async def fill(tx: Tx, session_id: str, characters: int) -> None:
    await sessions.create(tx, ANN, session_id, title="x" * characters)


async def test_a_commit_is_synced_to_a_write_ahead_log(database: SqliteDatabase) -> None:
    async def settings(tx: Tx) -> dict[str, object]:
        return {
            name: (await tx.fetch(f"PRAGMA {name}"))[0][0] for name in ("journal_mode", "synchronous", "foreign_keys")
        }

    expected = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
    assert await database.write_global(settings) == expected
    assert await database.read_global(settings) == expected


async def test_requests_that_wait_share_one_commit(database: SqliteDatabase, tmp_path: Path) -> None:
    """Another connection counts commits: SQLite changes `data_version` once a commit, however many rows it has."""
    watcher = sqlite3.connect(tmp_path / "runekeep.db", isolation_level=None, check_same_thread=False)

    def version() -> int:
        return int(watcher.execute("PRAGMA data_version").fetchone()[0])

    seen = []

    async def note(tx: Tx, number: int) -> None:
        await sessions.create(tx, ANN, f"s{number:03}")
        seen.append(version())

    before = version()
    await asyncio.gather(*(database.write_global(note, number) for number in range(GROUP_LIMIT // 2)))
    watcher.close()

    # The first request may go alone while the others are still being asked; what waited then went together.
    assert len(seen) == GROUP_LIMIT // 2
    assert len(set(seen) - {before}) <= 5


async def test_a_transaction_that_waits_for_something_else_fails_at_once(database: SqliteDatabase) -> None:
    async def waits(tx: Tx) -> None:
        await sessions.create(tx, ANN, "half")
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="outside the store"):
        await database.write_global(waits)
    with pytest.raises(RuntimeError, match="outside the store"):
        await database.read_global(waits_to_read)

    assert await database.read_global(names) == []
    assert (await database.write(sessions.create, ANN, "next")).session_id == "next"


async def waits_to_read(tx: Tx) -> None:
    await names(tx)
    await asyncio.sleep(0)


async def test_a_cancellation_inside_a_transaction_does_not_end_the_writer(database: SqliteDatabase) -> None:
    async def cancelled(tx: Tx) -> None:
        await sessions.create(tx, ANN, "half")
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(20):
            await database.write_global(cancelled)

    assert await database.read_global(names) == []
    async with asyncio.timeout(20):
        assert (await database.write(sessions.create, ANN, "next")).session_id == "next"


async def test_a_call_cancelled_in_the_middle_of_its_commit_leaves_the_others_their_answers(
    database: SqliteDatabase,
) -> None:
    """The writer is stopped by hand, so that two requests wait and go together, one of them given up meanwhile."""
    gates = {name: (threading.Event(), threading.Event()) for name in ("first", "given up")}

    async def stops(tx: Tx, name: str) -> None:
        reached, go = gates[name]
        await sessions.create(tx, ANN, name)
        reached.set()
        assert go.wait(20)

    first = asyncio.create_task(database.write_global(stops, "first"))
    assert await asyncio.to_thread(gates["first"][0].wait, 20)
    given_up = asyncio.create_task(database.write_global(stops, "given up"))
    neighbour = asyncio.create_task(database.write(sessions.create, ANN, "neighbour"))
    await asyncio.sleep(0)
    gates["first"][1].set()
    assert await asyncio.to_thread(gates["given up"][0].wait, 20)
    given_up.cancel()
    await asyncio.wait([given_up])
    gates["given up"][1].set()

    async with asyncio.timeout(20):
        assert (await neighbour).session_id == "neighbour"
    await first
    assert given_up.cancelled()
    assert await database.read_global(names) == ["first", "given up", "neighbour"]


async def page_count(tx: Tx) -> int:
    row = await tx.fetchrow("PRAGMA page_count")
    return int(row[0]) if row else 0


async def limit_pages(tx: Tx, pages: int) -> None:
    await tx.fetch(f"PRAGMA max_page_count = {pages}")


async def test_a_full_store_refuses_and_goes_on_afterwards(database: SqliteDatabase) -> None:
    await database.write_global(fill, "before", 10)
    await database.write_global(limit_pages, await database.read_global(page_count) + 4)

    outcomes = await asyncio.gather(
        database.write_global(fill, "small-1", 10),
        database.write_global(fill, "large", 1_000_000),
        database.write_global(fill, "small-2", 10),
        return_exceptions=True,
    )

    assert isinstance(outcomes[1], StoreUnavailable)
    written = {f"small-{number}" for number in (1, 2) if outcomes[2 * number - 2] is None}
    assert set(await database.read_global(names)) == {"before"} | written

    await database.write_global(limit_pages, 1_000_000)
    await database.write_global(fill, "large", 1_000_000)
    assert set(await database.read_global(names)) == {"before", "large"} | written


async def test_a_store_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runekeep.db"
    path.write_bytes(b"this is not a database, and it is long enough to be looked at" * 100)

    with pytest.raises(StoreUnavailable, match=r"runekeep\.db"):
        await SqliteDatabase(path).open()


async def test_a_store_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"runekeep\.db"):
        await SqliteDatabase(tmp_path / "missing" / "runekeep.db").open()


FULL_DISK = """
    import asyncio, json, resource, signal, sys
    from pathlib import Path
    from runekeep_storage.sessions import sessions
    from runekeep_storage.database import Space
    from runekeep_storage.errors import StoreUnavailable
    from runekeep_storage.drivers.sqlite.driver import SqliteDatabase

    async def main():
        folder, ann = Path(sys.argv[1]), Space("acme", "ann")
        database = SqliteDatabase(folder / "runekeep.db")
        await database.open()
        await database.write(sessions.create, ann, "s000", "x" * 100_000)
        # Files may grow a little beyond what they are: first some appends pass, then the disk is "full".
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        largest = max(file.stat().st_size for file in folder.iterdir())
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest + 300_000, hard))
        kept, refused = ["s000"], []
        for number in range(1, 13):
            batch = [f"s{number:03}{letter}" for letter in "abc"]
            outcomes = await asyncio.gather(
                *(database.write(sessions.create, ann, name, "x" * 30_000) for name in batch), return_exceptions=True
            )
            for name, outcome in zip(batch, outcomes):
                if isinstance(outcome, StoreUnavailable):
                    refused.append(name)
                elif isinstance(outcome, Exception):
                    raise outcome
                else:
                    kept.append(name)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        kept.append((await database.write(sessions.create, ann, "t")).session_id)
        seen = [session.session_id for session in await database.read(sessions.page, ann, None, 1000)]
        await database.close()
        print(json.dumps({"kept": kept, "refused": refused, "seen": sorted(seen)}))

    asyncio.run(main())
"""


def test_a_full_disk_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    script = [sys.executable, "-c", textwrap.dedent(FULL_DISK), str(tmp_path)]
    ran = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout.splitlines()[-1])

    assert told["refused"]
    assert len(told["kept"]) > 2
    assert told["seen"] == sorted(told["kept"])
    after = sqlite3.connect(tmp_path / "runekeep.db")
    assert after.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert sorted(row[0] for row in after.execute("SELECT session_id FROM sessions")) == sorted(told["kept"])
    after.close()


KILLED = """
    import asyncio, sys
    from pathlib import Path
    from runekeep_storage.sessions import sessions
    from runekeep_storage.database import Space
    from runekeep_storage.drivers.sqlite.driver import SqliteDatabase

    async def main():
        database = SqliteDatabase(Path(sys.argv[1]) / "runekeep.db")
        await database.open()
        async def one(number):
            await database.write(sessions.create, Space("acme", "ann"), f"s{number:06}")
            print(f"s{number:06}", flush=True)
        number = 0
        while True:
            await asyncio.gather(*(one(number + offset) for offset in range(8)))
            number += 8

    asyncio.run(main())
"""


def test_what_was_answered_outlives_a_kill(tmp_path: Path) -> None:
    script = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path)]
    with subprocess.Popen(script, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        answered = [process.stdout.readline().strip() for _ in range(200)]
        os.kill(process.pid, signal.SIGKILL)
        answered += [line.strip() for line in process.stdout if len(line) == len("s000000\n")]

    after = sqlite3.connect(tmp_path / "runekeep.db")
    kept = {row[0] for row in after.execute("SELECT session_id FROM sessions")}
    after.close()
    assert len(answered) >= 200
    assert set(answered) <= kept
