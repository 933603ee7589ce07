"""Two servers, for tests of the relay."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runekeep_schemas.type_files.registry import Registry
from runekeep_storage.database import Database
from tests.support.storage.databases import NewStore
from tests.support.storage.edge_in_thread import EdgeHere
from tests.support.storage.search import Search


@pytest.fixture
async def pair(new_store: NewStore, registry: Registry, tmp_path: Path) -> AsyncIterator[tuple[Search, Search]]:
    """Two servers on one store and one index; their relays do not run yet."""
    store = new_store()
    index = EdgeHere(tmp_path / "index")
    databases: list[Database] = [store.connect(), store.connect()]
    for database in databases:
        await database.open()
    first, second = (Search.of(database, index, registry) for database in databases)
    for server in (first, second):
        await server.attachment.attach()
    yield first, second
    for server in (first, second):
        await server.relay.stop()
    await index.close()
    for database in databases:
        await database.close()
