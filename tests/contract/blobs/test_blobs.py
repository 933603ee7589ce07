"""Large values that no row names any more: they leave the disk, and none does that is named or about to be."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from runekeep_storage.blobs import sweeps
from runekeep_storage.blobs.blobs import GRACE_SECONDS as BLOB_GRACE
from runekeep_storage.blobs.blobs import FolderBlobs
from runekeep_storage.database import Database, Space
from runekeep_storage.erasure.cleanup import Cleaner
from runekeep_storage.erasure.deletion import delete_session, delete_user
from runekeep_storage.errors import NotFound
from runekeep_storage.records import STORED_OUTPUT, Message
from runekeep_storage.sessions import sessions
from runekeep_storage.tables import SLICE
from tests.support.appending import add_messages
from tests.support.storage.databases import ANN, BOB, Clock, talk
from tests.support.storage.deletions import NAMESAKE, dump, fill, held

pytestmark = pytest.mark.postgres_long


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Of the blobs."""
    return tmp_path / "blobs"


def age(root: Path) -> None:
    """As if all blobs had been put longer ago than the grace."""
    for path in root.rglob("*"):
        if path.is_file():
            os.utime(path, (path.stat().st_atime, path.stat().st_mtime - BLOB_GRACE - 60))


def files(root: Path) -> set[str]:
    return {path.name for path in root.rglob("*") if path.is_file()}


async def keep_output(
    database: Database, blobs: FolderBlobs, space: Space, session_id: str, call: str, data: str
) -> str:
    """A message whose tool output is kept apart."""
    name = blobs.put(space, data.encode())
    session, _ = await database.write(sessions.get_or_create, space, session_id)
    part = {"type": "tool", "tool_id": call, "tool_name": "t", "output": "", STORED_OUTPUT: name}
    message = Message(f"m{session.last_sequence + 1}", "assistant", (part,))
    await database.write(add_messages, space, session_id, [message], {call: (name, len(data))})
    return name


async def test_outputs_leave_the_disk_with_the_last_row_that_names_them(database: Database, root: Path) -> None:
    blobs = FolderBlobs(root)
    cleaner = Cleaner(database, blobs)
    for space in (ANN, BOB, NAMESAKE):
        await keep_output(database, blobs, space, "gone", "c1", "alone")
        await keep_output(database, blobs, space, "gone", "c2", "shared")
        await keep_output(database, blobs, space, "kept", "c2", "shared")
        # The call id is used again: the first output of it is named by its message alone.
        first = await keep_output(database, blobs, space, "kept", "c3", "first")
        second = await keep_output(database, blobs, space, "kept", "c3", "second")
    age(root)

    await database.write(delete_session, ANN, "gone", "")
    await cleaner.clean()
    assert len(files(root / "acme" / "ann")) == 3
    assert {first, second} < files(root / "acme" / "ann")

    await database.write(delete_user, ANN, "")
    await cleaner.clean()
    assert not (root / "acme" / "ann").exists()
    assert len(files(root / "acme" / "bob")) == len(files(root / "other" / "ann")) == 4
    assert await database.read_global(sweeps.waiting) is None


async def test_an_output_that_is_just_being_kept_stays(database: Database, clock: Clock, root: Path) -> None:
    """Its row comes after it: a blob without a row is only then nobody's when it is old."""
    blobs = FolderBlobs(root)
    cleaner = Cleaner(database, blobs)
    name = await keep_output(database, blobs, ANN, "s", "c1", "data")
    age(root)
    assert blobs.put(ANN, b"data") == name, "a second message with the same output is on its way"

    await database.write(delete_user, ANN, "")
    await cleaner.clean()
    assert blobs.get(ANN, name) == b"data"
    assert await database.read_global(sweeps.waiting) is None

    await keep_output(database, blobs, ANN, "s", "c1", "data")
    age(root)
    clock.advance(BLOB_GRACE + 1)
    await cleaner.clean()
    assert blobs.get(ANN, name) == b"data", "named again"
    assert (await dump(database, ANN)).get("blob_sweeps") is None


async def test_a_sweep_that_nobody_did_is_done_by_the_next_server(database: Database, root: Path) -> None:
    blobs = FolderBlobs(root)
    await keep_output(database, blobs, ANN, "s", "c1", "data")
    await fill(database, ANN, "long", SLICE + 5)
    age(root)
    await database.write(delete_user, ANN, "")
    assert files(root)
    assert await database.read_global(sweeps.waiting) is None, "leftovers name blobs"

    removed = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Told(FolderBlobs):
        def remove(self, space: Space, name: str) -> None:
            super().remove(space, name)
            loop.call_soon_threadsafe(removed.set)

    next_server = Cleaner(database, Told(root))
    next_server.start()
    async with asyncio.timeout(30):
        await removed.wait()
    await next_server.stop()
    assert files(root) == set()
    assert await held(database, ANN) == {"messages": 0, "passages": 0, "leftovers": 0}


async def test_a_deletion_during_a_sweep_is_swept_too(database: Database, root: Path) -> None:
    await talk(database, ANN, "s", "one")
    await database.write(delete_user, ANN, "")
    sweep = await database.read_global(sweeps.waiting)
    assert sweep is not None

    await database.write(delete_user, ANN, "")
    await database.write(sweeps.done, ANN, sweep, whole=True)

    assert await database.read_global(sweeps.waiting) is not None


def test_a_blob_that_is_put_while_it_is_removed_is_there_afterwards(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Put at each step of the removal: the file is then what it was, or a new one."""
    blobs = FolderBlobs(root)
    for step in ("rename", "unlink"):
        name = blobs.put(ANN, b"data")
        age(root)
        original = getattr(Path, step)

        def put_before(path: Path, *args: Any, original: Any = original) -> Any:
            monkeypatch.undo()
            blobs.put(ANN, b"data")
            return original(path, *args)

        monkeypatch.setattr(Path, step, put_before)
        blobs.remove(ANN, name)
        monkeypatch.undo()
        assert blobs.get(ANN, name) == b"data", step


def test_a_blob_is_read_while_it_is_put_aside_and_back(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A remover that found it old, before it was put again, moves it between any two looks."""
    blobs = FolderBlobs(root)
    name = blobs.put(ANN, b"data")
    (path,) = (path for path in root.rglob("*") if path.is_file())
    aside = path.with_suffix(".aside")
    path.rename(aside)
    assert blobs.get(ANN, name) == b"data"

    moves = [(aside, path), (path, aside), (aside, path)]
    read = Path.read_bytes

    def read_bytes(at: Path) -> bytes:
        """Finds the blob just moved to the other place, as often as there are moves."""
        if moves:
            source, target = moves.pop(0)
            source.rename(target)
            assert not at.exists(), "looked for at both places, by turns"
        return read(at)

    path_first = [(path, aside), *moves]
    aside.rename(path)
    moves[:] = path_first
    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    assert blobs.get(ANN, name) == b"data"
    assert moves == []
    monkeypatch.undo()

    with pytest.raises(NotFound):
        blobs.get(ANN, "0" * 64)


def test_a_blob_that_is_wanted_is_put_aside_by_nobody_who_looks_later(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that no number of removers keeps it out of the readers' sight."""
    blobs = FolderBlobs(root)
    name = blobs.put(ANN, b"data")
    moved: list[Path] = []
    monkeypatch.setattr(Path, "rename", lambda path, target: moved.append(path))

    blobs.remove(ANN, name)
    assert moved == []
    age(root)
    blobs.remove(ANN, name)
    assert [path.name for path in moved] == [name]


def test_what_a_remover_put_aside_before_it_died_is_there_again(root: Path) -> None:
    blobs = FolderBlobs(root)
    name = blobs.put(ANN, b"data")
    (path,) = (path for path in root.rglob("*") if path.is_file())
    path.rename(path.with_suffix(".aside"))

    assert blobs.names(ANN) == (set(), {name})
    assert blobs.get(ANN, name) == b"data"


async def test_a_folder_that_cannot_be_read_keeps_no_other_waiting(
    database: Database, root: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = FolderBlobs(root)
    for space in (ANN, BOB):
        await keep_output(database, blobs, space, "s", "c1", "data")
        await database.write(delete_user, space, "")
    age(root)
    listed = blobs.names

    def names(space: Space) -> tuple[set[str], set[str]]:
        if space == ANN:
            raise PermissionError("not yours")
        return listed(space)

    monkeypatch.setattr(blobs, "names", names)
    await Cleaner(database, blobs).clean()

    assert not files(root / "acme" / "bob")
    assert "blob_sweeps" in await dump(database, ANN), "tried again later"
    assert "blobs_not_removed" in capfd.readouterr().out
