"""The pages about TLS and the mode mesh: their scripts run as they stand, their tables are those of the code."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

import pytest

from runekeep.client.connection.connection import NAMES
from runekeep.transport import advice
from runekeep_extractor.settings import ExtractorSettings
from runekeep_server.identity import mesh
from runekeep_server.rpc import tls
from runekeep_server.settings import MeshRule, TlsSettings
from tests.acceptance.processes import environment
from tests.support.pages import DEFAULT_ADDRESS, DOCS, example, section
from tests.support.ports import free_port
from tests.support.waiting import until

TLS, MESH = DOCS / "operate" / "tls.md", DOCS / "operate" / "mesh.md"
SECONDS = 120.0


@pytest.fixture
def shell(tmp_path: Path) -> "Shell":
    return Shell(tmp_path)


class Shell:
    """Runs the scripts of the pages in a folder, on a port of their own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._address = f"127.0.0.1:{free_port()}"
        commands = directory / "bin"
        commands.mkdir()
        runekeep = commands / "runekeep"
        runekeep.write_text(f'#!/bin/sh\nexec {sys.executable} -m runekeep "$@"\n')
        runekeep.chmod(0o755)
        quick = {"RUNEKEEP_EMBEDDER": "none", "RUNEKEEP_POLL_SECONDS": "0.1", "COLUMNS": "200"}
        root = str(Path(__file__).parents[2])
        path = f"{commands}{os.pathsep}{os.environ['PATH']}"
        self._environment = environment({**quick, "PATH": path, "PYTHONPATH": root})

    def file(self, page: Path, name: str) -> None:
        (self.directory / name).write_text(self._here(example(page, name)))

    def run(self, page: Path, name: str) -> str:
        """What a script that ends with 0 said."""
        ended = subprocess.run(
            self._command(page, name),
            cwd=self.directory,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert ended.returncode == 0, f"{ended.stdout[-2000:]}{ended.stderr[-4000:]}"
        return ended.stdout

    @contextmanager
    def running(self, page: Path, name: str, says: str) -> Iterator[Path]:
        """A script that goes on, from the moment at which it says this. Gives what it says."""
        said = self.directory / f"{name}.log"
        with said.open("w") as log:
            process = subprocess.Popen(
                self._command(page, name), cwd=self.directory, env=self._environment, stdout=log, stderr=log
            )
        try:
            until(lambda: says in said.read_text() or process.poll() is not None)
            assert process.poll() is None, said.read_text()
            yield said
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS) == 0, said.read_text()
        finally:
            process.kill()
            process.wait()

    def _command(self, page: Path, name: str) -> list[str]:
        script = self._here(example(page, name))
        # The last command in place of the shell, so that signals reach it.
        *before, last = script.rstrip().splitlines()
        exec_last = f"exec {last}" if last.startswith("runekeep ") else last
        return ["sh", "-euc", "\n".join([*before, exec_last])]

    def _here(self, text: str) -> str:
        return text.replace(DEFAULT_ADDRESS, self._address)


def test_the_scripts_of_both_pages_run_as_they_stand(shell: Shell) -> None:
    shell.run(TLS, "pki.sh")
    assert (shell.directory / "pki" / "ca.key").stat().st_mode & 0o077 == 0
    with shell.running(TLS, "up.sh", "Serving on"):
        assert "session" in shell.run(TLS, "call.sh").lower()
    shell.file(MESH, "server.yaml")
    with (
        shell.running(MESH, "serve.sh", '"event":"serving"'),
        shell.running(MESH, "extractor.sh", '"connected"'),
    ):
        assert "session" in shell.run(MESH, "call.sh").lower()


def test_the_events_of_certificates_are_those_of_the_code() -> None:
    logged = set(re.findall(r'_log\.\w+\(\s*"([^"]+)"', Path(tls.__file__).read_text()))
    assert set(re.findall(r"^\| `([a-z_]+)` \|", section(TLS, "Renewing certificates"), re.MULTILINE)) == logged


def test_the_files_are_those_of_the_settings() -> None:
    named = set(re.findall(r"`(RUNEKEEP_\w+)`", section(TLS, "Whose files are whose")))
    of_server = {f"RUNEKEEP_TLS__{name.upper()}" for name in TlsSettings.model_fields if name != "reload_seconds"}
    ours = {"api_key", "ca_file", "cert_file", "key_file"}
    assert ours < set(ExtractorSettings.model_fields)
    of_extractor = {f"RUNEKEEP_EXTRACTOR_{name.upper()}" for name in ours}
    assert named == of_server | of_extractor | {getattr(NAMES, name) for name in ours}


def test_what_clients_say_is_what_the_code_says() -> None:
    rows = re.findall(r"^\| (.+?) \| .+ \|$", section(TLS, "When no connection comes about"), re.MULTILINE)[1:]
    code = " ".join(re.sub(r'"\s*f?"', "", Path(advice.__file__).read_text()).split())
    phrases = [phrase.strip(" .") for row in rows[1:] for phrase in re.split(r"\.\.\.|; (?=is )", row)]
    assert len(phrases) >= 9
    for phrase in filter(None, phrases):
        assert phrase in code, phrase


def test_the_scopes_and_keys_are_those_of_the_code() -> None:
    scopes = set(re.findall(r"^\| `(\w+)` \|", section(MESH, "Rules"), re.MULTILINE))
    assert scopes == set(get_args(MeshRule.model_fields["scope"].annotation))
    keys = set(re.findall(r"`(x-runekeep-\w+)`", section(MESH, "What proxies say")))
    assert keys == {mesh.SCOPE_KEY, mesh.ACCOUNT_KEY, mesh.USER_KEY}
