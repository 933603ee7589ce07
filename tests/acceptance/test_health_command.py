"""`runekeep health`, by which orchestrators probe a server."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.processes import environment
from tests.support.certificates import Authority
from tests.support.server_process import ROOT, ServerProcess

NAME = "memory.example"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A server's certificate, for another name than the one under which it is called."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority()
    authority.write(folder)
    authority.issue(NAME).write(folder, "server")
    return folder


@pytest.fixture(scope="module")
def server(certificates: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    settings = {
        "RUNEKEEP_TLS__CERTIFICATE": str(certificates / "server.pem"),
        "RUNEKEEP_TLS__KEY": str(certificates / "server.key"),
    }
    started = ServerProcess(tmp_path_factory.mktemp("server") / "data", settings).start()
    try:
        yield started
    finally:
        started.discard()


def health(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "runekeep", "health", *arguments],
        cwd=ROOT,
        env=environment({"COLUMNS": "80", **variables}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_it_says_whether_a_server_serves(server: ServerProcess, certificates: Path) -> None:
    ca = {"RUNEKEEP_CA_FILE": str(certificates / "ca.pem"), "RUNEKEEP_ADDRESS": server.address}
    named = ("--server-name", NAME)
    serves = health(*named, **ca)
    assert (serves.returncode, serves.stdout) == (0, f"{server.address} serves.\n")
    one = health(*named, "--service", "runekeep.v1.SessionService", "--json", **ca)
    assert one.returncode == 0
    assert json.loads(one.stdout) == {
        "address": server.address,
        "service": "runekeep.v1.SessionService",
        "status": "SERVING",
    }
    unknown = health(*named, "--service", "no.Service", "--json", **ca)
    assert unknown.returncode == 1 and json.loads(unknown.stdout)["status"] == "SERVICE_UNKNOWN"


def test_it_does_not_believe_everybody(server: ServerProcess, certificates: Path) -> None:
    # Its certificate is not for 127.0.0.1; without TLS nobody answers; what is no certificate is told of.
    ca = {"RUNEKEEP_CA_FILE": str(certificates / "ca.pem")}
    for arguments, variables in ((("--address", server.address), ca), (("--address", server.address), {})):
        refused = health(*arguments, "--json", **variables)
        assert refused.returncode == 1 and json.loads(refused.stdout)["status"] == "NOT_REACHED"
    wrong = health("--address", server.address, RUNEKEEP_CA_FILE=str(certificates / "server.key"))
    assert wrong.returncode == 1 and "RUNEKEEP_CA_FILE" in wrong.stderr


def test_a_server_that_is_not_there_is_no_success() -> None:
    away = health("--address", "127.0.0.1:1", "--timeout", "1")
    assert away.returncode == 1 and away.stdout == "" and "NOT_REACHED" in away.stderr
