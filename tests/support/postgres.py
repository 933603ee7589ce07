"""A PostgreSQL of the tests' own: a cluster in a temporary directory, as an ordinary user, gone when they end."""

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from storage.migrate import migrate_postgres

BINARIES = Path("/usr/lib/postgresql")
START_SECONDS = 30
EMPTY = "template1"
"""A template without a schema of ours."""
# Nothing is asked of a disk: what a power cut leaves is PostgreSQL's business, and its own tests'.
CONFIGURATION = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 200
shared_buffers = 64MB
fsync = off
synchronous_commit = off
full_page_writes = off
autovacuum_naptime = 5s
"""


class PostgresServer:
    """`start`, databases by `create`, `stop`. `restart` breaks all connections, as a fail-over does."""

    def __init__(self) -> None:
        self._bin = _newest_binaries()
        # Not the tests' own directory: others than root may not enter that one.
        self._root = Path(tempfile.mkdtemp(prefix="runekeep-postgres-"))
        self._data = self._root / "data"
        self._user = "postgres" if os.getuid() == 0 else None
        self._names = (f"test_{number}" for number in count())
        self._template = ""

    def start(self) -> "PostgresServer":
        if self._user:
            shutil.chown(self._root, self._user)
        # Sorted by the rules of a language, as many databases are: the store must not depend on it.
        locale = ["--encoding=UTF8", "--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en-US"]
        self._run("initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "--no-sync", *locale)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(f"{CONFIGURATION}port = {self._port}\n")
        self._control("start")
        try:
            self._template = self.create(EMPTY)
            asyncio.run(migrate_postgres(self.url(self._template)))
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        try:
            self._control("stop", "-m", "immediate")
        finally:
            shutil.rmtree(self._root, ignore_errors=True)

    def restart(self) -> None:
        self._control("restart", "-m", "fast")

    def url(self, name: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self._port}/{name}"

    def create(self, template: str = "") -> str:
        """Name of a new database with the newest schema, or with what `template` has."""
        name = next(self._names)
        self.sql(f"CREATE DATABASE {name} TEMPLATE {template or self._template}")
        return name

    def drop(self, name: str) -> None:
        self.sql(f"DROP DATABASE {name} WITH (FORCE)")

    def sql(self, statement: str, name: str = "postgres") -> str:
        """What psql prints, without headers."""
        return self._run("psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", statement, self.url(name))

    def _control(self, action: str, *options: str) -> None:
        log = self._root / "log"
        command = ["pg_ctl", "-D", self._data, "-l", log, "-w", "-t", str(START_SECONDS), *options, action]
        try:
            self._run(*command)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{log.read_text() if log.exists() else ''}") from None

    def _run(self, program: str, *arguments: object) -> str:
        command: Sequence[str] = [str(self._bin / program), *map(str, arguments)]
        # In a file and not a pipe, which the server would hold open for as long as it runs.
        with tempfile.TemporaryFile("w+") as said:
            ran = subprocess.run(
                command, user=self._user, cwd="/", stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                timeout=2 * START_SECONDS, check=False,
            )  # fmt: skip
            said.seek(0)
            output = said.read()
        assert ran.returncode == 0, f"{program} failed: {output}"
        return output.strip()


def _newest_binaries() -> Path:
    found = sorted(BINARIES.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    assert found, f"no PostgreSQL in {BINARIES}: install Debian's package `postgresql`"
    return found[-1].parent
