"""What lies beside the relational store: the data directory, blobs, and an index that can be made anew from rows."""

import asyncio
import errno
import hashlib
import os
import shutil
import socket
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runekeep_schemas.type_files.registry import Registry
from runekeep_storage.blobs.blobs import FolderBlobs
from runekeep_storage.database import Space, Tx
from runekeep_storage.drivers.common import data_directory
from runekeep_storage.drivers.common.data_directory import DataDirectory
from runekeep_storage.embedders import embedder_set
from runekeep_storage.errors import DataDirectoryInUse, NotFound, StoreUnavailable
from runekeep_storage.index.base import IndexMismatch
from runekeep_storage.records import Memory
from runekeep_storage.search import backlog
from runekeep_storage.search.requests import FindRequest
from runekeep_storage.spaces import spaces, watermarks
from runekeep_storage.store import Store, StoreOptions, rebuild_index
from tests.doubles.word_embedder import WordEmbedder, vector
from tests.support.storage.databases import ANN, BOB, CAT, commit, revise, talk, write

ROOT = Path(__file__).resolve().parents[3]
HOLDER = """
import sys
from pathlib import Path
from runekeep_storage.drivers.common.data_directory import DataDirectory
directory = DataDirectory(Path(sys.argv[1]))
directory.acquire()
print("held", flush=True)
sys.stdin.read()
"""


def test_a_data_directory_has_one_holder_who_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "data"
    command = [sys.executable, "-c", HOLDER, str(root)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        monkeypatch.setattr(data_directory, "WAIT_SECONDS", 0.2)
        with pytest.raises(
            DataDirectoryInUse, match=rf"{root} .*process id {holder.pid} on {socket.gethostname()} since 20\S+Z;"
        ):
            DataDirectory(root).acquire()
        # A holder that is killed is waited for, and its lock goes with it.
        monkeypatch.setattr(data_directory, "WAIT_SECONDS", 20.0)
        holder.kill()
        directory = DataDirectory(root)
        directory.acquire()
    monkeypatch.setattr(data_directory, "WAIT_SECONDS", 0.0)
    with pytest.raises(DataDirectoryInUse, match=f"process id {os.getpid()} on "):
        DataDirectory(root).acquire()
    directory.release()
    again = DataDirectory(root)
    again.acquire()
    again.release()


def test_a_data_directory_is_its_owners_alone(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path / "deep" / "data")
    directory.acquire()
    directory.release()

    assert stat.S_IMODE(directory.root.stat().st_mode) == 0o700


def test_the_same_data_in_one_space_is_one_blob(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path)
    name = blobs.put(ANN, b"a large output")

    assert name == hashlib.sha256(b"a large output").hexdigest()
    assert blobs.put(ANN, b"a large output") == name
    assert blobs.get(ANN, name) == b"a large output"
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1
    assert blobs.put(ANN, b"") != name


def test_no_space_reaches_a_blob_of_another(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path)
    name = blobs.put(ANN, b"a secret")

    for space in (BOB, CAT, Space("other", "ann")):
        with pytest.raises(NotFound):
            blobs.get(space, name)
    assert blobs.put(BOB, b"a secret") == name
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 2
    assert len({path.stat().st_ino for path in files}) == 2


def test_a_blob_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = FolderBlobs(tmp_path)
    name = hashlib.sha256(b"data").hexdigest()

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        with pytest.raises(StoreUnavailable, match="No space left"):
            blobs.put(ANN, b"data")

    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert blobs.put(ANN, b"data") == name
    assert blobs.get(ANN, name) == b"data"


@pytest.fixture
def embedders(monkeypatch: pytest.MonkeyPatch) -> list[WordEmbedder]:
    """Stores of this test get the quick double; every one that was opened is in the list."""
    made: list[WordEmbedder] = []

    def open_one(name: str, **options: Any) -> WordEmbedder:
        made.append(WordEmbedder())
        return made[-1]

    monkeypatch.setattr(embedder_set, "open_embedder", open_one)
    return made


async def answers(store: Store) -> dict[str, list[tuple[str, float, int | None, int | None]]]:
    """What some searches find, with scores and ranks, after the relay has done what waits."""
    found = {}
    for space in (ANN, BOB):
        for words in ("tea", "green kettle", "likes", "copper tea kettle"):
            answer = await store.finder.find(space, FindRequest(words, limit=50))
            assert answer.degraded == []
            found[f"{space.user}: {words}"] = [
                (
                    one.item.uri if isinstance(one.item, Memory) else one.item.message_id,
                    round(one.score, 6),
                    one.ranked.dense_rank,
                    one.ranked.sparse_rank,
                )
                for one in answer.results
            ]
    return found


async def caught_up(store: Store) -> None:
    store.relay.wake()
    while True:
        for space in (ANN, BOB):
            standing = await store.database.read(watermarks.standing, space, await store.attachment.id())
            if (
                standing.indexed < standing.revision
                or (await store.database.read(backlog.of_space, space)).messages > 0
            ):
                break
        else:
            return
        await store.relay.moved()


async def filled(options: StoreOptions, registry: Registry) -> Store:
    store = Store(options, registry)
    await store.open()
    for space in (ANN, BOB):
        for number, words in enumerate(("likes green tea", "has a copper kettle", "likes the sea and tea"), 1):
            dense = {"dense": vector(words), "dense_model": WordEmbedder.model}
            task_id = f"{space.user}-{number}"
            await revise(store.all_spaces, space, task_id, write(space, f"m{number}", 0, 1, words, **dense))
    for space in (ANN, BOB):
        await talk(store.all_spaces, space, "s", "where is the kettle", "the copper kettle is by the tea", "thanks")
        await commit(store.all_spaces, space, "s", f"{space.user}-last")
    await caught_up(store)
    return store


async def test_an_index_made_anew_finds_the_same_without_the_embedder(
    tmp_path: Path, embedders: list[WordEmbedder]
) -> None:
    options = StoreOptions(tmp_path / "data", poll_seconds=0.02)
    registry = Registry.load()
    store = await filled(options, registry)
    before = await answers(store)
    assert all(before.values())
    await store.close()
    shutil.rmtree(store.directory.index)

    told: list[tuple[str, int]] = []
    counts = await rebuild_index(options, registry, lambda table, count: told.append((table, count)))

    assert counts == {"memories": 6, "passages": 12}
    assert told == [("memories", 3), ("passages", 6), ("memories", 6), ("passages", 12)]
    assert embedders[-1].texts == []
    store = Store(options, registry)
    await store.open()
    assert await answers(store) == before
    assert await store.database.read(spaces.revisions, ANN) == (3, 3)
    await store.close()


async def test_an_index_that_was_made_anew_by_halves_is_made_whole(
    tmp_path: Path, embedders: list[WordEmbedder]
) -> None:
    options = StoreOptions(tmp_path / "data", poll_seconds=0.02)
    registry = Registry.load()
    store = await filled(options, registry)
    before = await answers(store)
    await store.close()

    def killed(table: str, count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await rebuild_index(options, registry, killed)

    store = Store(options, registry)
    await store.open()
    try:
        await caught_up(store)
        assert await answers(store) == before
        assert await store.database.read(spaces.revisions, ANN) == (3, 3)
    finally:
        await store.close()


async def test_an_index_of_another_embedder_is_refused_until_it_is_made_anew(
    tmp_path: Path, embedders: list[WordEmbedder], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = StoreOptions(tmp_path / "data", poll_seconds=0.02)
    registry = Registry.load()
    store = await filled(options, registry)
    ranks = await answers(store)
    await store.close()

    monkeypatch.setattr(WordEmbedder, "model", "hashed-words-8 of another make")
    other = Store(options, registry)
    with pytest.raises(IndexMismatch):
        await other.open()
    await other.close()

    await rebuild_index(options, registry, lambda table, count: None)
    store = Store(options, registry)
    await store.open()
    try:
        # Words are found at once; vectors of the new make follow from the relay.
        async with asyncio.timeout(60):
            while True:
                movement = store.relay.movement
                found = (await store.finder.find(ANN, FindRequest("likes green tea", limit=50))).results
                if all(one.ranked.dense_rank for one in found):
                    break
                await store.relay.moved(movement)
        assert len(found) >= len(ranks["ann: tea"])
        assert not [one for one in await store.database.read_global(_without_vectors) if one]
    finally:
        await store.close()


async def _without_vectors(tx: Tx) -> list[int]:
    counts = []
    for table in ("memories", "passages"):
        row = await tx.fetchrow(f"SELECT COUNT(*) AS n FROM {table} WHERE dense IS NULL")
        assert row is not None
        counts.append(row["n"])
    return counts


async def test_one_server_a_data_directory(
    tmp_path: Path, embedders: list[WordEmbedder], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = StoreOptions(tmp_path / "data")
    registry = Registry.load()
    store = Store(options, registry)
    await store.open()
    monkeypatch.setattr(data_directory, "WAIT_SECONDS", 0.1)
    try:
        with pytest.raises(DataDirectoryInUse):
            await Store(replace(options, embedder="none"), registry).open()
        with pytest.raises(DataDirectoryInUse):
            await rebuild_index(options, registry, lambda table, count: None)
        await revise(store.all_spaces, ANN, "t1", write(ANN, "tea", 0, 1, "still here"))
    finally:
        await store.close()
