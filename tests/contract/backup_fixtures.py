"""Data directories for tests of backups."""

import contextlib
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

from storage.backup import Source
from storage.backup_restore import Destination
from storage.blobs import FolderBlobs
from storage.cleaner import Cleaner
from storage.datadir import DataDirectory
from storage.deletion import delete_session
from storage.sqlite import SqliteDatabase
from tests.contract.store_fixtures import ANN
from tests.contract.test_store_blobs import age, keep_output
from tests.support.fork_server import run_module


class Store:
    """A data directory with an open database."""

    def __init__(self, root: Path) -> None:
        self.directory = DataDirectory(root)
        self.database = SqliteDatabase(self.directory.database)
        self.blobs = FolderBlobs(self.directory.blobs)
        self.source = Source(self.directory.database, self.directory.blobs)

    async def keep(self, session: str, call: str, data: str) -> str:
        return await keep_output(self.database, self.blobs, ANN, session, call, data)

    async def delete(self, session: str) -> None:
        """A session whose blobs are old goes from the disk at once."""
        age(self.directory.blobs)
        await self.database.write(delete_session, ANN, session, "")
        await Cleaner(self.database, self.blobs).clean()


@contextlib.asynccontextmanager
async def opened_store(root: Path) -> AsyncIterator[Store]:
    made = Store(root)
    made.directory.root.mkdir()
    await made.database.open()
    yield made
    await made.database.close()


def destination(root: Path) -> Destination:
    directory = DataDirectory(root)
    return Destination(root, directory.database, directory.blobs)


async def outputs(root: Path) -> dict[str, bytes]:
    """What the messages of ANN's sessions name, read, from a store that nobody has open."""
    store = Store(root)
    await store.database.open()
    rows = await store.database.read(
        lambda tx: tx.fetch("SELECT tool_id, blob FROM tool_outputs WHERE user_id = 'ann'")
    )
    await store.database.close()
    return {row["tool_id"]: store.blobs.get(ANN, row["blob"]) for row in rows}


def server_backup(*arguments: object) -> subprocess.CompletedProcess[str]:
    """`python -m server.backup` in a process of its own: it sets up the logs of its process for good."""
    return run_module("server.backup", *arguments)
