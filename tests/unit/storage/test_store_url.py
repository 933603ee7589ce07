"""The relational store that a URL names."""

from pathlib import Path

import pytest

from schemas.registry import Registry
from storage import sessions
from storage.database import Space
from storage.store import Store, StoreOptions


@pytest.mark.parametrize("slashes", ["//", "///"])
async def test_a_sqlite_file_may_lie_elsewhere(tmp_path: Path, slashes: str) -> None:
    file = tmp_path / "elsewhere.db"
    store = Store(StoreOptions(tmp_path / "data", f"sqlite:{slashes}{file}", embedder="none"), Registry.load())

    await store.open()
    await store.database.write(sessions.create, Space("acme", "ann"), "s")
    await store.close()

    assert file.exists() and not store.directory.database.exists()
