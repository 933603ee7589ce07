"""A backup of an embedded store is whole, or it is none; and so is a store that is made of one."""

import asyncio
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from runekeep_storage.drivers.common.data_directory import DataDirectory, RestoreUnfinished
from runekeep_storage.erasure.deletion import delete_session
from runekeep_storage.errors import DataDirectoryInUse
from runekeep_storage.migrations.migrate import HEAD
from runekeep_storage.sessions import sessions
from runekeep_storage.transfer import backup
from runekeep_storage.transfer.backup import BackupFailed, Source, make
from runekeep_storage.transfer.backup_manifest import BLOBS, DATABASE, MANIFEST, BackupInvalid, read_manifest
from runekeep_storage.transfer.restore import Destination, RestoreRefused, check, restore
from tests.contract.blobs.test_blobs import files, keep_output
from tests.support.fork_server import run_module
from tests.support.storage.backups import Store, destination, opened_store, outputs, server_backup
from tests.support.storage.databases import ANN, BOB, talk


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with opened_store(tmp_path / "data") as made:
        yield made


async def test_a_backup_of_an_open_store_is_what_it_held_then(store: Store, tmp_path: Path) -> None:
    await store.keep("s", "c1", "first")
    await keep_output(store.database, store.blobs, BOB, "s", "c1", "of another user")
    store.blobs.put(ANN, b"of a call that was refused")

    made = await make(store.source, tmp_path / "backup")
    await store.keep("s", "c2", "later")

    assert (made.revision, made.blobs.count, made.blobs.missing, made.blobs.damaged) == (HEAD, 2, (), ())
    assert files(tmp_path / "backup") == {
        MANIFEST, DATABASE, *files(store.directory.blobs / "acme" / "bob"), *only(store, b"first")
    }  # fmt: skip
    assert await check(tmp_path / "backup") == made
    assert await restore(tmp_path / "backup", destination(tmp_path / "new")) == made
    assert await outputs(tmp_path / "new") == {"c1": b"first"}
    assert (tmp_path / "new").stat().st_mode & 0o077 == 0


def only(store: Store, data: bytes) -> set[str]:
    return {path.name for path in store.directory.blobs.rglob("*") if path.is_file() and path.read_bytes() == data}


async def test_what_is_deleted_while_a_backup_is_made_is_in_it_whole_or_not_at_all(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blobs that are old go with their rows at once: before the snapshot, and between it and the end."""
    await store.keep("before", "c1", "goes before the snapshot")
    await store.keep("after", "c2", "goes after the snapshot")

    async def meanwhile() -> None:
        await store.keep("between", "c3", "comes when the blobs have been taken")
        await store.delete("before")

    around_snapshot(monkeypatch, meanwhile, lambda: store.delete("after"))
    made = await make(store.source, tmp_path / "backup")

    assert made.blobs.missing == ()
    assert not only(store, b"goes after the snapshot")
    await restore(tmp_path / "backup", destination(tmp_path / "new"))
    assert await outputs(tmp_path / "new") == {
        "c2": b"goes after the snapshot",
        "c3": b"comes when the blobs have been taken",
    }
    assert len(files(tmp_path / "backup" / BLOBS)) == 2


def around_snapshot(
    monkeypatch: pytest.MonkeyPatch, before: Callable[[], Awaitable[None]], after: Callable[[], Awaitable[None]]
) -> None:
    """Things that happen around the snapshot of a backup, while another process would make it."""
    taken = backup._Copy._copy_database
    loop = asyncio.get_running_loop()

    def copy(self: Any) -> None:
        in_thread(before)
        taken(self)
        in_thread(after)

    def in_thread(what: Callable[[], Awaitable[None]]) -> None:
        async def work() -> None:
            await what()

        asyncio.run_coroutine_threadsafe(work(), loop).result()

    monkeypatch.setattr(backup._Copy, "_copy_database", copy)
    whole = backup._Copy.take

    async def take(self: Any) -> set[str]:
        # In a thread of its own, as in a process of its own: the store's loop goes on.
        return await asyncio.to_thread(lambda: asyncio.run(whole(self)))

    monkeypatch.setattr(backup._Copy, "take", take)


async def test_blobs_that_the_store_lost_or_that_rotted_are_told(store: Store, tmp_path: Path) -> None:
    lost = await store.keep("s", "c1", "lost")
    rotten = await store.keep("s", "c2", "rotten")
    for path in store.directory.blobs.rglob(lost):
        path.unlink()
    for path in store.directory.blobs.rglob(rotten):
        path.write_bytes(b"rotted")

    made = await make(store.source, tmp_path / "backup")

    assert made.blobs.missing == (f"acme/ann/{lost}",)
    assert made.blobs.damaged == (f"acme/ann/{rotten}",)
    assert await check(tmp_path / "backup") == made
    await store.database.close()
    ran = server_backup("make", tmp_path / "again", "--data-dir", store.directory.root)
    assert ran.returncode == 1 and "missing in the store already" in ran.stdout
    await store.database.open()


async def test_nothing_is_overwritten(store: Store, tmp_path: Path) -> None:
    await store.keep("s", "c1", "kept")
    await make(store.source, tmp_path / "backup")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("Dear Ann")

    with pytest.raises(BackupFailed, match="is there already"):
        await make(store.source, tmp_path / "backup")
    for taken in (store.directory.root, tmp_path / "other"):
        before = files(taken)
        with pytest.raises(RestoreRefused, match="overwrites nothing"):
            await restore(tmp_path / "backup", destination(taken))
        assert files(taken) == before | {"lock"}
    outside = Destination(tmp_path / "new", store.directory.database, tmp_path / "new" / "blobs")
    with pytest.raises(RestoreRefused, match=r"runekeep\.db"):
        await restore(tmp_path / "backup", outside)
    await store.database.close()
    assert await outputs(store.directory.root) == {"c1": b"kept"}


async def test_a_server_that_runs_keeps_a_restore_out(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runekeep_storage.drivers.common.data_directory.WAIT_SECONDS", 0.0)
    await make(store.source, tmp_path / "backup")
    running = DataDirectory(tmp_path / "new")
    running.acquire()

    with pytest.raises(DataDirectoryInUse):
        await restore(tmp_path / "backup", destination(tmp_path / "new"))

    running.release()


@pytest.mark.parametrize("harm", ["database", "blob", "no blob", "manifest", "no manifest", "newer"])
async def test_a_damaged_backup_is_found_out_before_anything_is_written(
    store: Store, tmp_path: Path, harm: str
) -> None:
    name = await store.keep("s", "c1", "kept")
    whole = tmp_path / "backup"
    await make(store.source, whole)
    (blob,) = whole.rglob(name)
    match harm:
        case "database":
            content = bytearray((whole / DATABASE).read_bytes())
            content[len(content) // 2] ^= 1
            (whole / DATABASE).write_bytes(content)
        case "blob":
            blob.unlink()
            blob.write_bytes(b"other")
        case "no blob":
            blob.unlink()
        case "manifest":
            (whole / MANIFEST).write_text((whole / MANIFEST).read_text()[:-20])
        case "no manifest":
            (whole / MANIFEST).unlink()
        case "newer":
            told = json.loads((whole / MANIFEST).read_text())
            (whole / MANIFEST).write_text(json.dumps({**told, "format": 2}))

    for trying in (check(whole), restore(whole, destination(tmp_path / "new"))):
        with pytest.raises(BackupInvalid):
            await trying
    assert not (tmp_path / "new").exists()


def killed_at(step: int, *arguments: object) -> bool:
    """Whether a backup or restore was killed at that one of its steps; else it ended well."""
    ran = run_module("tests.support.storage.killed_backup", step, *arguments, loaded="runekeep_server")
    assert ran.returncode in (0, -signal.SIGKILL), ran.stderr
    return ran.returncode != 0


async def test_a_backup_that_is_killed_anywhere_is_none_and_the_next_one_is_whole(store: Store, tmp_path: Path) -> None:
    await store.keep("s", "c1", "kept")
    target = tmp_path / "backup"
    at = 0
    while killed_at(at, "make", target, "--data-dir", store.directory.root):
        if target.exists():
            await check(target)
            shutil.rmtree(target)
        at += 4
    assert at >= 8, "there are that many steps to be killed at"
    await check(target)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


async def test_a_restore_that_is_killed_anywhere_is_begun_anew_and_no_server_starts_on_it(
    store: Store, tmp_path: Path
) -> None:
    await store.keep("s", "c1", "kept")
    await make(store.source, tmp_path / "backup")
    new = tmp_path / "new"
    at = 0
    while killed_at(at, "restore", tmp_path / "backup", "--data-dir", new):
        if (new / "restore-unfinished").exists():
            with pytest.raises(RestoreUnfinished, match="run it again"):
                DataDirectory(new).acquire()
        elif (new / DATABASE).exists():
            # Killed in its very last step.
            assert await outputs(new) == {"c1": b"kept"}
            shutil.rmtree(new)
        at += 4
    assert at >= 8
    server = DataDirectory(new)
    server.acquire()
    server.release()
    assert await outputs(new) == {"c1": b"kept"}


async def test_two_backups_in_one_place_at_a_time_are_refused(store: Store, tmp_path: Path) -> None:
    with (
        backup._unfinished(tmp_path / "backup"),
        pytest.raises(BackupFailed, match="another process is making"),
    ):
        await make(store.source, tmp_path / "backup")


async def test_there_is_no_backup_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(BackupFailed, match="there is no store"):
        await make(Source(tmp_path / "none.db", None), tmp_path / "backup")
    assert not (tmp_path / "backup").exists() and not (tmp_path / "none.db").exists()


async def test_a_backup_holds_nothing_that_was_deleted_before(store: Store, tmp_path: Path) -> None:
    # As SQLite is built by default; Debian's overwrites what is deleted.
    store.database._connections[0].execute("PRAGMA secure_delete=OFF")
    await store.keep("s", "c1", "kept")
    await sessions_of(store, "gone", "The safe opens with 4711-0815.")
    await store.database.write(delete_session, ANN, "gone", "")

    await make(store.source, tmp_path / "backup")

    live = b"".join(path.read_bytes() for path in store.directory.root.glob("runekeep.db*"))
    assert b"4711-0815" in live, "the live store keeps deleted rows in free pages"
    assert b"4711-0815" not in (tmp_path / "backup" / DATABASE).read_bytes()
    assert read_manifest(tmp_path / "backup").blobs.count == 1


async def sessions_of(store: Store, name: str, words: str) -> None:
    await talk(store.database, ANN, name, *[words] * 20)
    assert (await store.database.read(sessions.get, ANN, name)).last_sequence == 20


async def test_blobs_are_copied_where_no_link_can_be(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.keep("s", "c1", "kept")

    def refused(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refused)
    await make(store.source, tmp_path / "backup")

    (path,) = (tmp_path / "backup" / BLOBS).rglob("?" * 64)
    assert path.read_bytes() == b"kept" and path.stat().st_nlink == 1


async def test_a_backup_that_fails_leaves_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.keep("s", "c1", "kept")

    class Full:
        free = 4096

    with monkeypatch.context() as full:
        full.setattr("shutil.disk_usage", lambda _: Full)
        with pytest.raises(BackupFailed, match=r"has 0\.0 MB free, and the database takes"):
            await make(store.source, tmp_path / "backup")
    monkeypatch.setattr(backup, "quick_check", lambda _: "a page is missing")
    with pytest.raises(BackupFailed, match="the copy is damaged: a page is missing"):
        await make(store.source, tmp_path / "backup")

    assert [path.name for path in tmp_path.iterdir()] == ["data"]


async def test_folders_of_blobs_may_vanish_while_they_are_copied(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep takes folders away with the last of their blobs."""
    await store.keep("s", "c1", "kept")
    for number in range(20):
        store.blobs.put(ANN, b"of a call that was refused %d" % number)
    taken = backup._take
    (kept,) = only(store, b"kept")

    def take(path: Path, copy: Path) -> None:
        for folder in path.parents[1].iterdir():
            if folder.name not in (path.parent.name, kept[:2]):
                shutil.rmtree(folder)
        if path.name != kept:
            path.unlink()
        taken(path, copy)

    monkeypatch.setattr(backup, "_take", take)
    made = await make(store.source, tmp_path / "backup")

    assert (made.blobs.count, made.blobs.missing) == (1, ())
    assert await check(tmp_path / "backup") == made
