"""Blobs in a folder that several servers share."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from runekeep_storage.blobs import blobs
from runekeep_storage.blobs.blobs import FolderBlobs
from runekeep_storage.database import Space

ANN = Space("acme", "ann")


def test_servers_that_put_the_same_at_once_keep_it_once(tmp_path: Path) -> None:
    servers = [FolderBlobs(tmp_path / "shared") for _ in range(8)]
    together = Barrier(len(servers))

    def put(server: FolderBlobs, number: int) -> str:
        together.wait()
        return server.put(ANN, b"round %d" % number)

    with ThreadPoolExecutor(len(servers)) as threads:
        for number in range(20):
            names = set(threads.map(lambda server, number=number: put(server, number), servers))  # type: ignore[misc]  # mypy cannot infer such lambdas
            assert len(names) == 1
            for server in servers:
                assert server.get(ANN, *names) == b"round %d" % number
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 20 and all(len(path.name) == 64 for path in files)


def test_what_is_put_is_on_disk_with_all_its_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Synced in this order: the contents, then each folder that may be new."""
    synced: list[str] = []

    def fsync(opened: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{opened}"))

    monkeypatch.setattr(blobs.os, "fsync", fsync)
    root = tmp_path / "shared"
    name = FolderBlobs(root).put(ANN, b"data")

    folder = root / "acme" / "ann" / name[:2]
    assert Path(synced[0]).parent == folder
    assert synced[1:] == [str(one) for one in (folder, *folder.parents[:3])]
