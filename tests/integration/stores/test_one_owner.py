"""One process owns a SQLite file, whatever name, data directory or lock file a second process uses."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import grpc

from tests.support.callers import Caller, said
from tests.support.fork_server import run_module
from tests.support.refused_start import ROOT, refused_start
from tests.support.server_process import ServerProcess

Servers = Callable[..., ServerProcess]


def by_symlink(database: Path, elsewhere: Path) -> Path:
    (elsewhere / "link.db").symlink_to(database)
    return elsewhere / "link.db"


def by_linked_folder(database: Path, elsewhere: Path) -> Path:
    (elsewhere / "folder").symlink_to(database.parent)
    return elsewhere / "folder" / database.name


def by_its_name(database: Path, elsewhere: Path) -> Path:
    return database


def by_hard_link(database: Path, elsewhere: Path) -> Path:
    (elsewhere / "hard.db").hardlink_to(database)
    return elsewhere / "hard.db"


def url(database: Path) -> dict[str, str]:
    return {"RUNEKEEP_STORE_URL": f"sqlite:///{database}"}


async def serves(server: ServerProcess) -> None:
    """The server writes and finds."""
    async with grpc.aio.insecure_channel(server.address) as channel:
        caller = Caller(channel, "anna")
        session = await caller.session()
        await caller.add(session, said("tea"))
        await caller.find("tea")


NAMES = (by_its_name, by_symlink, by_linked_folder, by_hard_link)


async def test_a_second_server_on_the_database_is_refused_by_whatever_name(own_server: Servers, tmp_path: Path) -> None:
    server = own_server()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    paths = [named(server.data_dir / "runekeep.db", elsewhere) for named in NAMES]

    # Concurrently, because each waits for an owner that might be about to end.
    refused = (
        asyncio.to_thread(refused_start, tmp_path / f"other-{number}", url(path)) for number, path in enumerate(paths)
    )
    told = await asyncio.gather(*refused)

    for named, path, line in zip(NAMES, paths, told, strict=True):
        assert f"{path} is in use by the server with " in line
        # The file that names the owner lies beside the name that the owner uses.
        if named is not by_hard_link:
            assert f"process id {server.pid} on {socket.gethostname()} since 20" in line
    await serves(server)
    server.stop()
    assert not (server.data_dir / "runekeep.db.owner").exists()
    again = own_server(url(paths[-1]), "other")
    await serves(again)
    again.stop()


async def test_a_deleted_lock_file_lets_no_second_server_in(own_server: Servers) -> None:
    server = own_server()
    (server.data_dir / "lock").unlink()

    told = refused_start(server.data_dir)

    assert f"process id {server.pid} on " in told
    await serves(server)
    server.stop()


async def test_the_lock_outlives_other_descriptors_of_the_file(own_server: Servers, tmp_path: Path) -> None:
    """Backups, the doctor and purges open and close the database while the server runs."""
    server = own_server()
    database = server.data_dir / "runekeep.db"
    await serves(server)
    for arguments in (["backup", str(tmp_path / "copy")], ["doctor"]):
        environment = {**os.environ, "RUNEKEEP_EMBEDDER": "none", "RUNEKEEP_ADDRESS": server.address}
        ran = run_module("runekeep", *arguments, "--data-dir", server.data_dir, environment=environment, timeout=120)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    assert (tmp_path / "copy" / "manifest.json").exists()
    assert "is in use by" in refused_start(tmp_path / "other", url(database))
    server.stop()


async def test_a_killed_owner_is_gone(own_server: Servers) -> None:
    server = own_server()
    database = server.data_dir / "runekeep.db"
    server.kill()
    assert (server.data_dir / "runekeep.db.owner").exists()
    other = own_server(url(database), "other")
    await serves(other)
    other.stop()


def test_commands_without_a_server_are_refused_too(own_server: Servers, tmp_path: Path) -> None:
    server = own_server()
    database = server.data_dir / "runekeep.db"
    environment = {**os.environ, "RUNEKEEP_EMBEDDER": "none", **url(database)}
    other = ("--data-dir", tmp_path / "other")
    ran = run_module("runekeep", "index", "rebuild", *other, environment=environment, timeout=120)
    assert ran.returncode == 2 and f"process id {server.pid} on " in ran.stderr, ran.stderr

    ran = run_module("runekeep", "doctor", "--json", *other, environment=environment, timeout=120)
    assert ran.returncode == 1 and "store.owner" in ran.stdout and f"process id {server.pid} on " in ran.stdout
    server.stop()


def test_of_servers_that_start_at_once_on_a_new_database_one_serves(tmp_path: Path) -> None:
    database = tmp_path / "new.db"
    environment = {**os.environ, "RUNEKEEP_EMBEDDER": "none", **url(database)}
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "runekeep_server", "--address", "127.0.0.1:0", "--data-dir", str(tmp_path / name)],
            cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        for name in ("one", "two", "three")
    ]  # fmt: skip
    try:
        # Only refused servers end.
        lines = []
        for process in started:
            assert process.stdout is not None
            lines.append(process.stdout.readline())
        assert sum("serving" in line for line in lines) == 1
        assert sorted(process.wait(60) for process, line in zip(started, lines, strict=True) if not line) == [2, 2]
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            process.communicate(timeout=60)
