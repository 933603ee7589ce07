"""Empty stores for servers, of the newest schema: to make a schema costs as much as most tests of a server.

That a server makes its schema itself is what tests of the commands, of the release before and of `EMPTY` show.
"""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from runekeep_storage.drivers.common.data_directory import DataDirectory
from tests.support.postgres import PostgresServer

STORE_URL = "RUNEKEEP_STORE_URL"


def prepare(data_dir: Path, settings: Mapping[str, str], migrated_file: Path) -> None:
    """Puts a copy of `migrated_file`, a SQLite store, into a data directory that is not there yet; nothing where the
    `settings` name a store elsewhere."""
    directory = DataDirectory(data_dir)
    if STORE_URL not in settings and not directory.root.exists():
        directory.root.mkdir(mode=0o700, parents=True)
        shutil.copy(migrated_file, directory.database)


@contextmanager
def on_postgres(server: PostgresServer) -> Iterator[dict[str, str]]:
    """Settings of servers on a new database, which goes in the end."""
    name = server.create()
    yield {STORE_URL: server.url(name)}
    server.drop(name)
