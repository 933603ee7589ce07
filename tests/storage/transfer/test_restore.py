"""Where a backup may be put, and what is told of what it brings back."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from runekeep_server.rpc.methods import METHODS
from runekeep_storage.drivers.common.data_directory import LOST_AND_FOUND, DataDirectory, RestoreUnfinished
from runekeep_storage.transfer.backup import make
from runekeep_storage.transfer.backup_manifest import DATABASE
from runekeep_storage.transfer.deletions_since_backup import FormerUnreadable, deletions_since
from runekeep_storage.transfer.restore import Destination, RestoreRefused, restore
from tests.support.storage.backups import Store, destination, opened_store, outputs, server_backup

MARK = "restore-unfinished"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with opened_store(tmp_path / "data") as made:
        yield made


@pytest.fixture
async def backup(store: Store, tmp_path: Path) -> Path:
    """With one blob."""
    await store.keep("s", "c1", "kept")
    await make(store.source, tmp_path / "backup")
    return tmp_path / "backup"


async def test_a_refused_restore_leaves_the_folder_of_somebody_else_alone(backup: Path, tmp_path: Path) -> None:
    folder = tmp_path / "new"
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "theirs").write_text("of somebody else")
    (folder / "theirs").chmod(0o644)
    there = DataDirectory(folder)

    with pytest.raises(RestoreRefused, match="overwrites nothing"):
        await restore(backup, Destination(folder, there.database, there.blobs))

    assert [path.stat().st_mode & 0o777 for path in (folder, folder / "theirs")] == [0o755, 0o644]


async def test_an_interrupted_restore_takes_no_other_store_away(store: Store, backup: Path, tmp_path: Path) -> None:
    """One that is begun anew with other settings must not take a database for what the first one left."""
    begun = DataDirectory(tmp_path / "new")
    begun.acquire()
    begun.mark_restore(begun.database)
    begun.release()

    with pytest.raises(RestoreRefused, match="overwrites nothing"):
        await restore(backup, Destination(tmp_path / "new", store.directory.database, begun.blobs))

    await store.database.close()
    assert await outputs(store.directory.root) == {"c1": b"kept"}


def rows(database: Path) -> list[str]:
    """Returns all statements that create the database, except for its identity."""
    with closing(sqlite3.connect(database)) as opened:
        return [line for line in opened.iterdump() if not line.startswith('INSERT INTO "store_identity"')]


@pytest.mark.parametrize("beside", ["-wal", "-shm", "-journal"])
async def test_what_sqlite_kept_of_another_database_is_not_taken_in(backup: Path, tmp_path: Path, beside: str) -> None:
    """The log of a database that was moved away would be played into the restored one."""
    database = tmp_path / "elsewhere" / "x.db"
    database.parent.mkdir()
    stale = database.with_name(f"x.db{beside}")
    stale.write_bytes(b"of another")
    to = Destination(tmp_path / "new", database, tmp_path / "new" / "blobs")

    with pytest.raises(RestoreRefused, match=f"x.db{beside}"):
        await restore(backup, to)
    assert stale.read_bytes() == b"of another" and not database.exists()

    # What a restore left that was begun here is its own.
    DataDirectory(to.data_dir).mark_restore(database)
    await restore(backup, to)
    assert not stale.exists() and rows(database) == rows(backup / DATABASE)


async def test_a_blob_that_rotted_where_it_is_restored_to_is_replaced(
    store: Store, backup: Path, tmp_path: Path
) -> None:
    (blob,) = [path for path in store.directory.blobs.rglob("?" * 64)]
    blob.unlink()
    blob.write_bytes(b"rotten")
    new = tmp_path / "new"

    await restore(backup, Destination(new, new / DATABASE, store.directory.blobs))

    assert blob.read_bytes() == b"kept"


async def test_blobs_are_looked_for_where_the_backup_has_them(store: Store, backup: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    with pytest.raises(RestoreRefused, match="name an object store"):
        await restore(backup, Destination(new, new / DATABASE, None))
    await make(type(store.source)(store.source.database, None), tmp_path / "without")
    with pytest.raises(RestoreRefused, match="are in an object store"):
        await restore(tmp_path / "without", destination(new))
    assert not new.exists()
    await restore(tmp_path / "without", Destination(new, new / DATABASE, None))


async def test_a_volume_of_its_own_is_empty(backup: Path, tmp_path: Path) -> None:
    (tmp_path / "new" / LOST_AND_FOUND).mkdir(parents=True)
    await restore(backup, destination(tmp_path / "new"))
    assert await outputs(tmp_path / "new") == {"c1": b"kept"}


async def test_a_mark_that_says_nothing_keeps_servers_out_and_lets_a_restore_begin(
    backup: Path, tmp_path: Path
) -> None:
    """As a power cut leaves it on a file system that brings names to disk before contents."""
    new = tmp_path / "new"
    new.mkdir()
    (new / MARK).touch()
    with pytest.raises(RestoreUnfinished):
        DataDirectory(new).acquire()
    (new / "letter.txt").touch()
    with pytest.raises(RestoreRefused, match=r"letter\.txt"):
        await restore(backup, destination(new))
    (new / "letter.txt").unlink()

    await restore(backup, destination(new))

    assert await outputs(new) == {"c1": b"kept"} and not (new / MARK).exists()


def test_a_mark_is_never_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = DataDirectory(tmp_path)
    directory.mark_restore(directory.database)
    whole = (tmp_path / MARK).read_bytes()

    def no_disk(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.fsync", no_disk)
    directory.mark_restore(directory.database)
    with pytest.raises(OSError, match="Input/output"):
        directory.mark_restore(tmp_path / "other.db")
    assert (tmp_path / MARK).read_bytes() == whole and directory.is_restored_to(directory.database)


async def test_what_was_taken_away_since_is_told(store: Store, tmp_path: Path) -> None:
    """By rows and not by time alone: a call that was under way at the snapshot has a row from before it."""

    async def write(at: int, subject: str, method: str = "SessionService/DeleteSession", code: str = "OK") -> None:
        await store.database.write_global(
            lambda tx: tx.execute(
                "INSERT INTO audit_events (created_at, method, actor, scope, account, user_id, subject, code, trace_id,"
                " peer) VALUES ($1, $2, 'a', 'user', 'acme', 'ann', $3, $4, '', '')",
                at, method, subject, code,
            )
        )  # fmt: skip

    async def erase(at: int, number: str) -> None:
        await store.database.write_global(
            lambda tx: tx.execute(
                "INSERT INTO erasures (account, user_id, erasure_id, scope, state, receipt, remains, created_at,"
                " verified_at) VALUES ('acme', 'ann', $1, 'peer', 'verified', '{}', '', $2, $2)",
                number, at,
            )
        )  # fmt: skip

    await erase(1, "before")
    await write(2, "before")
    await write(3, "under way", code="")
    made = await make(store.source, tmp_path / "backup")
    await store.database.write_global(lambda tx: tx.execute("UPDATE audit_events SET code = 'OK'"))
    await write(4, "began before")
    then = round(made.snapshot_at.timestamp() * 1_000_000)
    await erase(then + 1_000_000, "since")
    methods = [method.name for method in METHODS.values() if method.destructive]
    for after, method in enumerate(methods, 2):
        await write(then + after * 1_000_000, "since", method)
    await write(then, "made", "AdminService/CreateApiKey")

    found = deletions_since(tmp_path / "backup", store.directory.database, methods)

    assert [(one.account, one.user, one.what, one.subject) for one in found] == [
        ("acme", "ann", "SessionService/DeleteSession", "under way"),
        ("acme", "ann", "SessionService/DeleteSession", "began before"),
        ("acme", "ann", "peer", ""),
        *(("acme", "ann", method, "since") for method in methods),
    ]
    assert {"SpaceService/EraseData", "AdminService/RevokeApiKey", "AdminService/RotateApiKey"} < set(methods)


async def test_a_store_of_before_that_cannot_be_read_is_told(backup: Path, tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / DATABASE).write_bytes(b"no database at all" * 100)
    for former in ("nowhere", "broken"):
        with pytest.raises(FormerUnreadable, match=former):
            deletions_since(backup, tmp_path / former / DATABASE, ())
    assert not (tmp_path / "nowhere").exists()


def test_nothing_is_restored_when_the_store_of_before_is_not_where_it_was_said_to_be(
    backup: Path, tmp_path: Path
) -> None:
    new = tmp_path / "new"
    ran = server_backup("restore", backup, "--data-dir", new, "--former", tmp_path / "nowhere")
    assert ran.returncode == 2 and "Nothing was restored: there is no store at" in ran.stderr
    assert not new.exists()


def test_a_place_that_cannot_be_written_to_is_told(backup: Path, tmp_path: Path) -> None:
    """A file lies where the directory is to be: as root one may write anywhere."""
    (tmp_path / "file").touch()
    for command, place in (("restore", tmp_path / "file"), ("restore", tmp_path / "file" / "data")):
        ran = server_backup(command, backup, "--data-dir", place)
        assert ran.returncode == 2 and ran.stderr.count("\n") == 1
        assert ran.stderr.startswith(f"Nothing was restored: {tmp_path / 'file'}")
    ran = server_backup("make", tmp_path / "file" / "backup", "--data-dir", tmp_path / "data")
    assert ran.returncode == 2 and ran.stderr.startswith("No backup was made: ")
