"""The relational store that a URL names."""

from pathlib import Path

import pytest

from runekeep_schemas.type_files.registry import Registry
from runekeep_storage.database import Space
from runekeep_storage.sessions import sessions
from runekeep_storage.store import Store, StoreOptions


@pytest.mark.parametrize("slashes", ["//", "///"])
async def test_a_sqlite_file_may_lie_elsewhere(tmp_path: Path, slashes: str) -> None:
    file = tmp_path / "elsewhere.db"
    store = Store(StoreOptions(tmp_path / "data", f"sqlite:{slashes}{file}", embedder="none"), Registry.load())

    await store.open()
    await store.database.write(sessions.create, Space("acme", "ann"), "s")
    await store.close()

    assert file.exists() and not store.directory.database.exists()
