"""Processes that a server starts run no code of the working directory and are not given its secrets."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.processes import environment

VARIABLES = {
    "RUNEKEEP_IDENTITY_MODE": "keys",
    "runekeep_admin_key": "secret-of-the-operator-" + 20 * "x",
    "ANTHROPIC_API_KEY": "secret-of-the-model",
    "OPENAI_API_KEY": "secret-of-the-model",
    "AWS_SECRET_ACCESS_KEY": "secret-of-the-bucket",
    "PGPASSWORD": "secret-of-the-database",
}
SHADOWED = ("uuid", "numpy", "storage", "runekeep_storage", "qdrant_edge")
"""Modules that the index process imports."""
END_SECONDS = 60

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


def children(pid: int) -> list[int]:
    threads = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for thread in threads for child in (thread / "children").read_text().split()]


def command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def test_the_index_process_imports_nothing_from_the_working_directory(tmp_path: Path) -> None:
    ran, directory = tmp_path / "ran", tmp_path / "project"
    directory.mkdir()
    for name in SHADOWED:
        (directory / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write({name!r}); raise SystemExit(9)\n")
    # As the installed script `runekeep` does: the working directory is not on its path.
    command = [sys.executable, "-P", "-m", "runekeep", "up", "--json", "--extractors", "1", "--address", "127.0.0.1:0"]
    with subprocess.Popen(command, cwd=directory, env=environment(VARIABLES), stdout=subprocess.PIPE) as up:
        try:
            assert up.stdout is not None
            pids = json.loads(up.stdout.readline())["pids"]
            server, extractor = pids["server"], pids["extractor-1"]
            of_server, of_extractor = (Path(f"/proc/{pid}/environ").read_bytes() for pid in (server, extractor))
            (index,) = (child for child in children(server) if b"edge_process" in command_line(child))
            given = Path(f"/proc/{index}/environ").read_bytes()
            up.send_signal(signal.SIGTERM)
            assert up.wait(END_SECONDS) == 0
        finally:
            up.kill()

    assert not ran.exists(), f"ran {ran.read_text()}"
    assert b"PATH=" in given
    assert b"secret-of" not in given
    assert b"secret-of-the-model" not in of_server and b"secret-of-the-operator" in of_server
    others = (b"secret-of-the-operator", b"secret-of-the-bucket", b"secret-of-the-database")
    assert b"secret-of-the-model" in of_extractor and not any(secret in of_extractor for secret in others)
