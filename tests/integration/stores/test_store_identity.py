"""A store that vanished, went back in time or was exchanged is refused at the start, until its loss is accepted."""

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import create_engine

from runekeep_storage.drivers.common.mark_file import NAME
from runekeep_storage.migrations.migrate import alembic_config
from tests.doubles import s3_server
from tests.support.fork_server import run_module
from tests.support.lost_stores import LOST, accepted_losses, code_in, mark, talk, texts
from tests.support.server_process import ServerProcess
from tests.support.waiting import until

Servers = Callable[..., ServerProcess]
DATABASE, LOG = "runekeep.db", "runekeep.db-wal"


def copied(server: ServerProcess, to: Path) -> Path:
    """Returns the database of a server that has ended, with its log."""
    to.mkdir()
    for file in server.data_dir.glob(f"{DATABASE}*"):
        shutil.copy(file, to)
    return to


def take_back_to(path: Path, revision: str) -> None:
    """Makes the database one of an earlier schema, with as much of its rows as that holds."""
    older = path.with_suffix(".older")
    engine = create_engine(f"sqlite:///{older}")
    with engine.begin() as made:
        command.upgrade(alembic_config(made), revision)
    engine.dispose()
    with closing(sqlite3.connect(older, isolation_level=None)) as store:
        store.execute("ATTACH ? AS newer", (str(path),))
        tables = [name for (name,) in store.execute("SELECT name FROM main.sqlite_schema WHERE type = 'table'")]
        for table in set(tables) - {"alembic_version", "store_schema"}:
            columns = ", ".join(
                name
                for (name,) in store.execute(
                    "SELECT name FROM pragma_table_info(?, 'main') WHERE name IN"
                    " (SELECT name FROM pragma_table_info(?, 'newer'))",
                    (table, table),
                )
            )
            store.execute(f"DELETE FROM main.{table}")
            store.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM newer.{table}")
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()
    older.rename(path)


def put_back(server: ServerProcess, copy: Path) -> None:
    for file in server.data_dir.glob(f"{DATABASE}*"):
        file.unlink()
    for file in copy.iterdir():
        shutil.copy(file, server.data_dir)


async def killed_when_marked(server: ServerProcess, text: str) -> None:
    """Appends that message, and kills the server once a mark records it."""
    before = mark(server.data_dir / "index").get("revision", 0)
    await talk(server, text)
    await asyncio.to_thread(until, lambda: mark(server.data_dir / "index").get("revision", 0) > before)
    server.kill()


async def test_a_database_that_vanished_is_refused_until_its_loss_is_accepted(own_server: Servers) -> None:
    server = own_server()
    await talk(server, "one")
    server.stop()
    there = mark(server.data_dir / "index")
    assert mark(server.data_dir / "blobs") == there | {"written_at": mark(server.data_dir / "blobs")["written_at"]}
    (server.data_dir / DATABASE).unlink()

    refusal = server.refused()

    assert f"{LOST}: there is no database {server.data_dir / DATABASE}" in refusal
    for part in ("index", "blobs"):
        assert f"({server.data_dir / part}) saw revision {there['revision']} of store {there['store']}" in refusal
    assert not (server.data_dir / DATABASE).exists(), "a start that is refused makes no store"
    wrong = ServerProcess(server.data_dir, {"RUNEKEEP_ACCEPT_DATA_LOSS": "0" * 12})
    assert LOST in wrong.refused()

    server.start("127.0.0.1:0", "--accept-data-loss", code_in(refusal))
    (subject,) = await accepted_losses(server)
    assert subject.startswith(code_in(refusal)) and there["store"] in subject
    await talk(server, "two")
    server.stop()
    assert mark(server.data_dir / "index")["store"] not in ("", there["store"])
    server.start()
    assert await texts(server) == ["two"] and await accepted_losses(server) == [subject]
    server.stop()


async def test_an_older_database_is_refused(own_server: Servers, tmp_path: Path) -> None:
    server = own_server()
    await talk(server, "one")
    server.stop()
    older, before = copied(server, tmp_path / "older"), mark(server.data_dir / "index")
    server.start()
    await killed_when_marked(server, "two")
    newer = copied(server, tmp_path / "newer")
    put_back(server, older)

    refusal = server.refused()

    assert f"is store {before['store']} at revision {before['revision']}, but the index" in refusal
    # A refused start changes nothing: the right database is served again.
    put_back(server, newer)
    server.start()
    assert await texts(server) == ["one", "two"]
    server.stop()
    # One of the two parts shows it.
    put_back(server, older)
    shutil.rmtree(server.data_dir / "index")
    refusal = server.refused()
    assert LOST in refusal and "but the blob store" in refusal

    accepting = ServerProcess(server.data_dir, {"RUNEKEEP_ACCEPT_DATA_LOSS": code_in(refusal)})
    accepting.start()
    assert await texts(accepting) == ["one"]
    # The log names another store than the file by now.
    accepting.kill()
    accepting.start()
    assert await texts(accepting) == ["one"]
    accepting.stop()
    # An accepted loss is no loss any more, and the setting has no effect.
    assert accepting.log().count("data_loss_accepted") == 1 and "accept_data_loss_unused" in accepting.log()


async def test_stores_that_were_mixed_up_are_refused(own_server: Servers, tmp_path: Path) -> None:
    ours, theirs = own_server(data="ours"), own_server(data="theirs")
    for server, text in ((ours, "ours"), (theirs, "theirs")):
        await talk(server, text)
        server.stop()
    store, other = (mark(server.data_dir / "index")["store"] for server in (ours, theirs))
    assert store != other

    # The databases of two data directories.
    of_ours, of_theirs = copied(ours, tmp_path / "of_ours"), copied(theirs, tmp_path / "of_theirs")
    put_back(ours, of_theirs)
    refusal = ours.refused()
    assert f"is store {other} at" in refusal and f"of store {store} at" in refusal
    put_back(ours, of_ours)

    # The index of another store, and no blobs.
    shutil.move(ours.data_dir / "index", tmp_path / "index")
    shutil.copytree(theirs.data_dir / "index", ours.data_dir / "index")
    refusal = ours.refused()
    assert f"is store {store} at" in refusal and f"({ours.data_dir / 'index'}) saw" in refusal
    assert "the blob store" not in refusal
    rebuilt = run_module("runekeep_server.rebuild", "--data-dir", str(ours.data_dir))
    assert rebuilt.returncode == 2 and LOST in rebuilt.stderr

    # A missing index is rebuilt.
    shutil.rmtree(ours.data_dir / "index")
    ours.start()
    assert await texts(ours) == ["ours"]
    ours.stop()
    assert mark(ours.data_dir / "index")["store"] == store


async def test_blobs_that_vanished_are_refused_until_their_loss_is_accepted(own_server: Servers) -> None:
    """As if the server started before the volume of the blobs is mounted."""
    server = own_server()
    await talk(server, "one")
    server.stop()
    folder, aside = server.data_dir / "blobs", server.data_dir.parent / "aside"
    folder.rename(aside)
    assert f"but the blob store ({folder}) has lost the store's mark" in server.refused()
    folder.mkdir()
    refusal = server.refused()
    assert LOST in refusal and "has lost the store's mark" in refusal
    assert not list(folder.iterdir()), "a start that is refused writes nothing"
    folder.rmdir()
    aside.rename(folder)
    server.start()
    await talk(server, "two")
    server.stop()

    shutil.rmtree(folder)
    code = code_in(server.refused())
    server.start("127.0.0.1:0", "--accept-data-loss", code)
    (subject,) = await accepted_losses(server)
    assert subject.startswith(code) and "blob store without a mark" in subject
    await talk(server, "three")
    server.stop()
    server.start()
    assert await texts(server) == ["one", "two", "three"]
    server.stop()
    assert mark(folder) and mark(folder)["store"] == mark(server.data_dir / "index")["store"]


async def test_a_log_of_another_database_is_not_played(own_server: Servers, tmp_path: Path) -> None:
    ours, theirs = own_server(data="ours"), own_server(data="theirs")
    for server in (ours, theirs):
        # The database's file, and not only its log, names the store.
        await talk(server, "one")
        server.stop()
        server.start()
        await killed_when_marked(server, "two")
    own = copied(ours, tmp_path / "own")
    shutil.copy(theirs.data_dir / LOG, ours.data_dir / LOG)

    refusal = ours.refused()

    assert f"the write-ahead log {ours.data_dir / LOG} belongs to another database" in refusal
    made = run_module("runekeep_server.backup", "make", str(tmp_path / "backup"), "--data-dir", str(ours.data_dir))
    assert made.returncode == 2 and "belongs to another database" in made.stderr
    looked = run_module("runekeep_server.doctor", "--data-dir", str(ours.data_dir), environment=ours.environment)
    assert "belongs to another database" in looked.stdout
    assert (ours.data_dir / DATABASE).read_bytes() == (own / DATABASE).read_bytes()
    # Without a log the database is intact, but lacks what was in the log.
    (ours.data_dir / LOG).unlink()
    assert f"{LOST}: the database" in ours.refused()
    put_back(ours, own)
    ours.start()
    assert await texts(ours) == ["one", "two"]
    ours.stop()


async def test_a_log_that_was_cut_short_is_noticed(own_server: Servers) -> None:
    server = own_server()
    for text in ("one", "two"):
        await killed_when_marked(server, text)
        if text == "one":
            server.start()
    log = server.data_dir / LOG
    # SQLite takes the rest of the log for all of it.
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])

    assert f"{LOST}: the database" in server.refused()


async def test_a_server_that_is_killed_leaves_no_mark_ahead_of_its_store(own_server: Servers) -> None:
    server = own_server()
    for number in range(4):
        # As soon as there is a mark, as close to its transaction as possible.
        await killed_when_marked(server, str(number))
        server.start()
    assert await texts(server) == ["0", "1", "2", "3"]
    server.stop()


async def test_a_mark_that_cannot_be_read_is_none(own_server: Servers) -> None:
    server = own_server()
    await talk(server, "one")
    server.stop()
    for part in ("index", "blobs"):
        (server.data_dir / part / NAME).write_bytes(b'{"store": "half')

    server.start()
    server.stop()

    assert server.log().count("store_mark_unreadable") >= 2
    assert mark(server.data_dir / "index")["store"] == mark(server.data_dir / "blobs")["store"]


@pytest.mark.parametrize("with_identity", [True, False], ids=["of this release", "of the release before"])
async def test_a_restored_store_needs_no_acceptance(own_server: Servers, tmp_path: Path, with_identity: bool) -> None:
    """Its blobs are those of the store that it was restored from, which is ahead by then."""
    settings = {"RUNEKEEP_BLOB_DIR": str(tmp_path / "blobs")}
    server = own_server(settings)
    await talk(server, "one")
    backup = tmp_path / "backup"
    if not with_identity:
        server.stop()
        for place in (server.data_dir / "index", tmp_path / "blobs"):
            (place / NAME).unlink()
        take_back_to(server.data_dir / DATABASE, "r0002")
    environment = {**server.environment}
    command = ("runekeep_server.backup", "make", str(backup), "--data-dir", str(server.data_dir))
    assert run_module(*command, environment=environment).returncode == 0
    if not with_identity:
        server.start()
    await talk(server, "two")
    server.stop()
    before = mark(tmp_path / "blobs")

    new = ServerProcess(tmp_path / "new", settings)
    command = ("runekeep_server.backup", "restore", str(backup), "--data-dir", str(new.data_dir))
    restored = run_module(*command, environment=environment)
    assert restored.returncode == 0, restored.stderr
    new.start()
    assert await texts(new) == ["one"]
    await talk(new, "three")
    new.stop()

    after = mark(tmp_path / "blobs")
    assert after["store"] != before["store"] and after == mark(new.data_dir / "index") | {
        "written_at": after["written_at"]
    }
    # The store that it was restored from has other blobs by now.
    assert f"of store {after['store']} at" in server.refused()
    new.start()
    new.stop()


async def test_blobs_in_an_object_store_tell_too(own_server: Servers, tmp_path: Path) -> None:
    with s3_server.running() as double:
        server = own_server(
            {
                "RUNEKEEP_BLOB_URL": f"s3://{s3_server.BUCKET}/fleet",
                "AWS_ENDPOINT_URL": double.endpoint,
                "AWS_ALLOW_HTTP": "true",
                "AWS_ACCESS_KEY_ID": "any",
                "AWS_SECRET_ACCESS_KEY": "any",
                "AWS_REGION": "nowhere",
            }
        )
        await talk(server, "one")
        server.stop()
        older = copied(server, tmp_path / "older")
        server.start()
        await talk(server, "two")
        server.stop()
        newer = copied(server, tmp_path / "newer")
        put_back(server, older)
        shutil.rmtree(server.data_dir / "index")

        assert f"the blob store (s3://{s3_server.BUCKET}/fleet) saw revision" in server.refused()

        put_back(server, newer)
        server.start()
        assert await texts(server) == ["one", "two"]
        server.stop()
