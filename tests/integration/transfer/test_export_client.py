"""Export and import by the client and the command line: a file is there when it is whole, and never before."""

import io
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from runekeep import AsyncClient, Client, FailedPreconditionError, InvalidArgumentError, TextPart
from tests.support.callers import unique
from tests.support.fork_server import run_module
from tests.support.server_process import ServerProcess


def talked(address: str, user: str) -> None:
    with Client(address, user=user) as client:
        session = client.session("talk")
        session.add_message("user", [TextPart("Green tea, please.")])
        session.add_message("assistant", [TextPart("Noted.")])


def run(server: ServerProcess, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run_module("runekeep", *arguments, "--address", server.address)


def test_a_file_goes_out_and_comes_in(server: ServerProcess, tmp_path: Path) -> None:
    ann, bob, file = unique("ann"), unique("bob"), tmp_path / "me.tar.gz"
    talked(server.address, ann)
    told: list[int] = []
    with Client(server.address, user=ann) as client:
        written = client.export_space(file, progress=told.append)
    assert (written, told[-1]) == (file.stat().st_size,) * 2
    assert [path.name for path in tmp_path.iterdir()] == ["me.tar.gz"]
    with Client(server.address, user=bob) as client:
        made = client.import_space(str(file), request_id="once", progress=told.append)
        assert (made["contents"]["messages"], made["revision_offset"], told[-1]) == (2, 0, written)
        assert client.import_space(file, request_id="once") == made
        parts = [message.parts[0] for message in client.session("talk").messages()]
        assert parts == [TextPart("Green tea, please."), TextPart("Noted.")]
        with pytest.raises(FailedPreconditionError) as refused:
            client.import_space(file)
        assert refused.value.reason == "SPACE_NOT_EMPTY"


async def test_open_files_do_as_well(server: ServerProcess) -> None:
    ann, bob, file = unique("ann"), unique("bob"), io.BytesIO()
    async with AsyncClient(server.address, user=ann) as client:
        await client.session("talk").add_message("user", [TextPart("Green tea, please.")])
        assert await client.export_space(file) == len(file.getvalue())
    file.seek(0)
    async with AsyncClient(server.address, user=bob) as client:
        assert (await client.import_space(file))["contents"]["messages"] == 1


def test_what_cannot_be_exported_leaves_the_file_that_was_there(server: ServerProcess, tmp_path: Path) -> None:
    file = tmp_path / "me.tar.gz"
    file.write_text("the one before")

    def stop(done: int) -> None:
        raise KeyError("of the test")

    with Client(server.address, user=unique("ann")) as client, pytest.raises(KeyError):
        client.export_space(file, progress=stop)
    assert (file.read_text(), len(list(tmp_path.iterdir()))) == ("the one before", 1)


def test_every_refused_import_says_why(server: ServerProcess) -> None:
    """In one of six such calls grpc.aio replaces the server's status, because the client still sends."""
    file = io.BytesIO(b"no export " * 100_000)
    with Client(server.address, user=unique("ann")) as client:
        for _ in range(100):
            file.seek(0)
            with pytest.raises(InvalidArgumentError) as refused:
                client.import_space(file)
            assert refused.value.reason == "EXPORT_INVALID"


def test_a_file_that_cannot_be_read_is_not_imported(server: ServerProcess) -> None:
    class Unreadable(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError("of the test")

    user = unique("ann")
    with Client(server.address, user=user) as client:
        with pytest.raises(OSError, match="of the test"):
            client.import_space(Unreadable())
        assert not list(client.list_sessions())


def test_the_commands(server: ServerProcess, tmp_path: Path) -> None:
    ann, bob, cat, file = unique("ann"), unique("bob"), unique("cat"), tmp_path / "me.tar.gz"
    talked(server.address, ann)
    out = run(server, "export", file, "--user", ann)
    assert out.returncode == 0 and "Wrote" in out.stdout, out
    again = run(server, "export", file, "--user", ann)
    assert again.returncode == 1 and "--force" in again.stderr, again
    forced = run(server, "export", file, "--user", ann, "--force", "--json")
    assert json.loads(forced.stdout) == {"file": str(file), "bytes": file.stat().st_size}
    come = run(server, "import", file, "--user", bob)
    assert come.returncode == 0 and "Imported 1 session, 2 messages" in " ".join(come.stdout.split()), come
    twice = run(server, "import", file, "--user", bob)
    assert twice.returncode == 1 and "SPACE_NOT_EMPTY" in twice.stderr and "--user" in twice.stderr, twice
    made: Any = json.loads(run(server, "import", file, "--user", cat, "--json").stdout)
    assert made["contents"]["sessions"] == 1
