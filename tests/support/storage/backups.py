"""Data directories for tests of backups."""

import contextlib
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

from runekeep_storage.blobs.blobs import FolderBlobs
from runekeep_storage.drivers.common.data_directory import DataDirectory
from runekeep_storage.drivers.sqlite.driver import SqliteDatabase
from runekeep_storage.erasure.cleanup import Cleaner
from runekeep_storage.erasure.deletion import delete_session
from runekeep_storage.transfer.backup import Source
from runekeep_storage.transfer.restore import Destination
from tests.contract.blobs.test_blobs import age, keep_output
from tests.support.fork_server import run_module
from tests.support.storage.databases import ANN


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
    rows = await store.database.read_global(
        lambda tx: tx.fetch("SELECT tool_id, blob FROM tool_outputs WHERE user_id = 'ann'")
    )
    await store.database.close()
    return {row["tool_id"]: store.blobs.get(ANN, row["blob"]) for row in rows}


def server_backup(*arguments: object) -> subprocess.CompletedProcess[str]:
    """`python -m runekeep_server.backup` in a process of its own: it sets up the logs of its process for good."""
    return run_module("runekeep_server.backup", *arguments)
