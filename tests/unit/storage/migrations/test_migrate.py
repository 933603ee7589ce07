"""Bringing a store to the schema of this release."""

import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from runekeep_storage.drivers.sqlite.driver import SqliteDatabase
from runekeep_storage.migrations.migrate import HEAD, Schema, SchemaTooNew, migrate_sqlite, sqlite_schema

ROOT = Path(__file__).resolve().parents[4]
VERSIONS = ROOT / "storage" / "runekeep_storage" / "migrations" / "versions"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runekeep.db"


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def objects(path: Path) -> set[str]:
    connection = sqlite3.connect(path)
    found = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    connection.close()
    return found


def test_the_head_is_the_newest_migration() -> None:
    """Every file but the first names an older one as its predecessor; the one nobody names is the head."""
    told = [file.read_text(encoding="utf-8") for file in VERSIONS.glob("*.py")]
    revisions = {match[1] for source in told if (match := re.search(r'^revision = "(\w+)"$', source, re.M))}
    replaced = {match[1] for source in told if (match := re.search(r'^down_revision = "(\w+)"$', source, re.M))}

    assert len(revisions) == len(told)
    assert revisions - replaced == {HEAD}


async def test_an_empty_folder_becomes_a_store(path: Path) -> None:
    database = SqliteDatabase(path)
    await database.open()
    await database.close()

    assert {"accounts", "sessions", "messages", "jobs", "memories", "outbox"} <= objects(path)
    migrate_sqlite(path)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(HEAD,)]
    connection.close()


def test_a_store_that_is_up_to_date_opens_without_the_migration_tools(path: Path) -> None:
    migrate_sqlite(path)

    ran = run(
        """
        import asyncio, sys
        from pathlib import Path
        from runekeep_storage.drivers.sqlite.driver import SqliteDatabase

        async def main():
            database = SqliteDatabase(Path(sys.argv[1]))
            await database.open()
            await database.close()

        asyncio.run(main())
        print(sorted({"alembic", "sqlalchemy"} & set(sys.modules)))
        """,
        path,
    )

    assert (ran.returncode, ran.stdout.strip()) == (0, "[]"), ran.stderr


def test_a_schema_from_the_future_is_refused_and_left_alone(path: Path) -> None:
    migrate_sqlite(path)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE alembic_version SET version_num = 'r9999'")
    connection.commit()
    connection.close()
    before = path.read_bytes()

    with pytest.raises(SchemaTooNew, match="r9999"):
        migrate_sqlite(path)

    assert path.read_bytes() == before


IN_THE_MIDDLE = """
    import os, signal, sys
    from pathlib import Path
    from alembic import op
    from runekeep_storage.migrations.migrate import migrate_sqlite

    create_table, made = op.create_table, []

    def create_then_end(name, *arguments, **options):
        create_table(name, *arguments, **options)
        made.append(name)
        if len(made) == 6:
            print(name, flush=True)
            {end}

    op.create_table = create_then_end
    migrate_sqlite(Path(sys.argv[1]))
"""


@pytest.mark.parametrize(
    ("end", "code"), [("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL), ("raise OSError('pulled')", 1)]
)
def test_a_migration_that_ends_in_the_middle_leaves_nothing(path: Path, end: str, code: int) -> None:
    ran = run(IN_THE_MIDDLE.replace("{end}", end), path)
    assert (ran.returncode, bool(ran.stdout.strip())) == (code, True), ran.stderr

    copied = path.with_name("copy.db")
    for file in path.parent.glob(f"{path.name}*"):
        shutil.copy(file, file.with_name(file.name.replace(path.name, copied.name)))
    assert objects(copied) == set()

    migrate_sqlite(path)
    assert {"sessions", "requests"} <= objects(path)


def test_a_schema_says_which_servers_may_work_on_it(path: Path) -> None:
    migrate_sqlite(path)

    found = sqlite_schema(path)

    assert found is not None and found.revision == HEAD
    assert found.compatible_from == max(compatible_from(file) for file in VERSIONS.glob("*.py"))


def compatible_from(file: Path) -> str:
    """Of a migration, which may not name one that comes after it."""
    source = file.read_text(encoding="utf-8")
    (said,) = re.findall(r'^compatible_from = "(r\d{4})"$', source, re.M)
    assert said <= file.name[:5], file.name
    return said


def become(path: Path, revision: str, compatible_from: str) -> None:
    """Marks a store as one that a later release migrated."""
    connection = sqlite3.connect(path)
    connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))
    connection.execute("UPDATE store_schema SET revision = ?, compatible_from = ?", (revision, compatible_from))
    connection.commit()
    connection.close()


async def test_a_newer_schema_that_only_adds_is_served_and_left_alone(path: Path) -> None:
    migrate_sqlite(path)
    become(path, "r9999", compatible_from=HEAD)

    database = SqliteDatabase(path)
    await database.open()
    await database.close()

    assert sqlite_schema(path) == Schema("r9999", HEAD)


def test_a_newer_schema_that_takes_away_is_refused(path: Path) -> None:
    migrate_sqlite(path)
    become(path, "r9999", compatible_from="r9998")

    with pytest.raises(SchemaTooNew, match="r9999"):
        migrate_sqlite(path)


def test_what_was_said_of_another_schema_does_not_count(path: Path) -> None:
    """As after a migration by hand."""
    migrate_sqlite(path)
    become(path, "r9998", compatible_from=HEAD)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE alembic_version SET version_num = 'r9999'")
    connection.commit()
    connection.close()

    with pytest.raises(SchemaTooNew, match="r9999"):
        migrate_sqlite(path)
