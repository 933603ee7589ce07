"""Only the owner can read stored data. The modes are 0700 and 0600, for every umask, and for older folders too."""

import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import pytest

from tests.support.callers import Caller, used_tool
from tests.support.refused_start import END_SECONDS, ROOT, refused_start
from tests.support.server_process import ServerProcess

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
UID = 10001


def open_to_others(*roots: Path) -> dict[str, str]:
    """Returns the modes of all paths in `roots` that give permissions to the group or to others."""
    paths = [path for root in roots for path in (root, *root.rglob("*"))]
    assert len(paths) > len(roots), "nothing was stored"
    modes = {}
    for path in paths:
        # A running server probes whether it can write.
        with suppress(FileNotFoundError):
            modes[str(path)] = stat.S_IMODE(path.lstat().st_mode)
    return {path: f"{mode:04o}" for path, mode in modes.items() if mode & 0o077}


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


async def store_something(server: ServerProcess, user: str) -> None:
    """Fills every part of a store: rows, a blob, an index."""
    async with grpc.aio.insecure_channel(server.address) as channel:
        caller = Caller(channel, user)
        await caller.add(await caller.session(), used_tool("call-1", "tea " * 10_000))
        await caller.searchable()


def run(*command: str | Path) -> None:
    subprocess.run(
        [sys.executable, "-m", *map(str, command)], cwd=ROOT, timeout=END_SECONDS, check=True, capture_output=True
    )


async def test_with_a_umask_of_0_all_that_is_written_is_private(tmp_path: Path) -> None:
    blobs, exported = tmp_path / "elsewhere", tmp_path / "me.tar.gz"
    with umask(0):
        server = ServerProcess(tmp_path / "data", {"RUNEKEEP_BLOB_DIR": str(blobs)}, quick=False).start()
        try:
            await store_something(server, "ann")
            assert list((tmp_path / "data").glob("runekeep.db-*")) and list(blobs.glob("*/*/*/*"))
            (tmp_path / "me.tar.gz.part").write_bytes(b"of an export that was cut short")
            run("runekeep", "export", exported, "--address", server.address, "--user", "ann")
            assert open_to_others(server.data_dir, blobs) == {}
            server.stop()
        finally:
            server.discard()
        os.environ["RUNEKEEP_BLOB_DIR"] = str(blobs)
        try:
            run("runekeep", "backup", tmp_path / "backup", "--data-dir", server.data_dir)
            os.environ["RUNEKEEP_BLOB_DIR"] = str(tmp_path / "new-blobs")
            run("runekeep", "restore", tmp_path / "backup", "--data-dir", tmp_path / "new")
        finally:
            del os.environ["RUNEKEEP_BLOB_DIR"]
    made = (server.data_dir, blobs, tmp_path / "backup", tmp_path / "new", tmp_path / "new-blobs")
    assert open_to_others(*made) == {}
    assert stat.S_IMODE(exported.stat().st_mode) == 0o600


async def test_what_is_open_from_before_is_closed_at_the_start(
    own_server: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    blobs, database = tmp_path / "blobs", tmp_path / "beside" / "own.db"
    database.parent.mkdir(mode=0o755)
    settings = {"RUNEKEEP_BLOB_DIR": str(blobs), "RUNEKEEP_STORE_URL": f"sqlite:///{database}"}
    server = own_server(settings)
    await store_something(server, "ann")
    server.stop()
    for path in (server.data_dir, *server.data_dir.rglob("*"), blobs, *blobs.rglob("*"), database):
        path.chmod(0o755 if path.is_dir() else 0o644)
    other = tmp_path / "of-somebody"
    other.write_text("not of the store")
    other.chmod(0o644)
    (server.data_dir / "link").symlink_to(other)
    assert len(open_to_others(server.data_dir, blobs)) > 10

    server.start()
    await store_something(server, "bob")
    (server.data_dir / "link").unlink()
    assert open_to_others(server.data_dir, blobs) == {}
    assert {stat.S_IMODE(path.stat().st_mode) for path in database.parent.iterdir()} == {0o600}
    assert stat.S_IMODE(other.stat().st_mode) == 0o644, "a link was followed"


def test_open_files_in_a_folder_that_is_private_are_closed_too(own_server: Callable[..., ServerProcess]) -> None:
    server = own_server()
    server.stop()
    for name in ("runekeep.db", "lock"):
        (server.data_dir / name).chmod(0o644)
    server.start()
    assert open_to_others(server.data_dir) == {}


@AS_ROOT
@pytest.mark.parametrize("name", ["", "index/lock", "blobs"])
def test_what_another_user_has_opened_is_refused_with_its_mode(
    own_server: Callable[..., ServerProcess], name: str
) -> None:
    server = own_server()
    server.stop()
    path = server.data_dir / name
    path.parent.chmod(0o755)
    if name == "blobs":
        path.mkdir()
    path.chmod(0o777)
    os.chown(path, UID + 1, UID + 1)
    # Root without the right to change modes of other users' files.
    said = refused_start(server.data_dir, wrapped_by=["setpriv", "--bounding-set", "-fowner", "--inh-caps", "-all"])
    assert f"{path} has the mode 0777 and belongs to user {UID + 1}" in said and "RUNEKEEP_DATA_DIR" in said


@AS_ROOT
def test_a_mounted_volume_may_belong_to_root_and_a_group() -> None:
    """Kubernetes mounts a volume with an `fsGroup` like this: mode 2775, owned by root and the group, with files that
    the group may write to."""
    # An ordinary user, who may also read the folders of Python and of the sources.
    reads_all = ("--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search")
    as_user = ["setpriv", "--reuid", str(UID), "--regid", str(UID), "--clear-groups", *reads_all]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        volume = Path(folder) / "volume"
        volume.mkdir()
        os.chown(volume, 0, UID)
        volume.chmod(0o2775)
        (volume / "lost+found").mkdir()
        (volume / "lost+found").chmod(0o2770)
        (volume / "blobs").mkdir()
        (volume / "blobs" / "old").write_bytes(b"blob")
        for path in (volume / "blobs", volume / "blobs" / "old"):
            os.chown(path, UID, UID)
            path.chmod(0o2770 if path.is_dir() else 0o660)
        command = [*as_user, sys.executable, "-m", "runekeep_server", "--address", "127.0.0.1:0", "--data-dir", volume]
        said = Path(folder) / "said"

        def starts() -> str:
            """Starts a server, ends it, and returns its first line on standard output."""
            with (
                said.open("w") as stderr,
                subprocess.Popen(
                    command,
                    cwd=ROOT,
                    env={**os.environ, "RUNEKEEP_EMBEDDER": "none"},
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    text=True,
                ) as process,
            ):
                assert process.stdout is not None
                line = process.stdout.readline()
                process.terminate()
            return line

        assert '"serving"' in starts(), said.read_text()
        mine = [path for path in volume.rglob("*") if path.name != "lost+found"]
        assert len(mine) > 4
        assert [str(path) for path in mine if path.lstat().st_mode & 0o077] == []
        doctor = [*as_user, sys.executable, "-m", "runekeep_server.doctor", "--data-dir", volume]
        examined = subprocess.run(doctor, cwd=ROOT, capture_output=True, timeout=END_SECONDS, check=False)
        (owner,) = [one for one in json.loads(examined.stdout)["checks"] if one["check"] == "data.owner"]
        assert owner["state"] == "ok", owner
        volume.chmod(0o2777)
        assert starts() == ""
        assert f"{volume} has the mode 2777 and belongs to user 0" in said.read_text()
