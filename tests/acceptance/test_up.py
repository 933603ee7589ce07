"""`runekeep up` keeps a server and extractors running, whatever kills them."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from runekeep import Client, TextPart
from tests.acceptance.processes import environment
from tests.support.ports import free_port
from tests.support.postgres import PostgresServer
from tests.support.waiting import until

END_SECONDS = 60.0
WAIT_SECONDS = 120.0


class Up:
    """`runekeep up` with one extractor. `said` is its line on standard output."""

    def __init__(self, folder: Path, *arguments: str, **settings: str) -> None:
        self._log, self._out = folder / "up.log", folder / "up.out"
        command = [sys.executable, "-P", "-m", "runekeep", "up", "--json", "--extractors", "1", *arguments]
        given = {"RUNEKEEP_EMBEDDER": "none", "RUNEKEEP_EXTRACTOR_ENGINE": "offline", **settings}
        with self._log.open("w") as log, self._out.open("w") as out:
            self.process = subprocess.Popen(
                [*command, "--data-dir", str(folder / "data")],
                cwd=folder,
                env=environment(given),
                stdout=out,
                stderr=log,
            )

    def serves(self) -> dict[str, Any]:
        until(lambda: self.announced().endswith("\n") or self.process.poll() is not None)
        assert self.process.poll() is None, self.log()
        said: dict[str, Any] = json.loads(self.announced())
        return said

    def announced(self) -> str:
        return self._out.read_text()

    def servers(self) -> list[int]:
        """Process ids of the servers that served after the first one."""
        return [int(pid) for pid in re.findall(r"server serves again on \S+, process id (\d+)", self.log())]

    def log(self) -> str:
        return self._log.read_text()


@contextlib.contextmanager
def up(folder: Path, *arguments: str, **settings: str) -> Iterator[Up]:
    started = Up(folder, *arguments, **settings)
    try:
        yield started
    finally:
        started.process.terminate()
        try:
            started.process.wait(END_SECONDS)
        finally:
            started.process.kill()


def test_a_server_that_is_killed_serves_again_at_its_address_and_its_extractor_goes_on(tmp_path: Path) -> None:
    with up(tmp_path, "--address", "127.0.0.1:0") as running:
        said = running.serves()
        pids = said["pids"]
        with Client(said["address"]) as client:
            session = client.session(session_id="chat")
            session.add_message("user", [TextPart("I prefer green tea over coffee, every morning.")])
            server = pids["server"]
            for kills in (1, 2):
                os.kill(server, signal.SIGKILL)
                until(lambda kills=kills: len(running.servers()) == kills)  # type: ignore[misc]  # mypy cannot infer such lambdas
                server = running.servers()[-1]
            task = client.wait_task(session.commit()["task_id"], timeout=WAIT_SECONDS)
            assert task["status"] == "completed", running.log()
        os.kill(pids["extractor-1"], 0)
        assert running.log().count("server ended (killed by SIGKILL); starting it again") == 2
    assert running.process.returncode == 0


def test_extractors_call_the_internal_address(tmp_path: Path) -> None:
    with up(tmp_path, "--address", "127.0.0.1:0", RUNEKEEP_INTERNAL_ADDRESS=f"127.0.0.1:{free_port()}") as running:
        with Client(running.serves()["address"]) as client:
            session = client.session(session_id="chat")
            session.add_message("user", [TextPart("I prefer green tea over coffee, every morning.")])
            task = client.wait_task(session.commit()["task_id"], timeout=WAIT_SECONDS)
        assert task["status"] == "completed", running.log()


def test_a_studio_stands_beside_the_server(tmp_path: Path) -> None:
    with up(tmp_path, "--address", "127.0.0.1:0", "--studio", "127.0.0.1:0") as running:
        until(lambda: "Studio on" in running.log())
        link = re.findall(r"Studio on (http://127.0.0.1:\d+)/", running.log())[0]
        assert "Whose memory?" in httpx.get(f"{link}/login").text
        taken = [sys.executable, "-P", "-m", "runekeep", "studio", "--listen", link.removeprefix("http://")]
        second = subprocess.run(taken, env=environment(), capture_output=True, text=True)
        assert second.returncode == 2 and "is taken" in second.stderr
    assert running.process.returncode == 0


def test_a_server_that_cannot_start_ends_it(tmp_path: Path) -> None:
    with up(tmp_path, RUNEKEEP_LEASE_SECONDS="-1") as running:
        assert running.process.wait(END_SECONDS) == 2
    assert "lease_seconds" in running.log() and "before it served, status 2" in running.log()
    assert "starting it again" not in running.log() and not running.announced()


def test_a_server_that_cannot_start_again_ends_it(tmp_path: Path) -> None:
    with up(tmp_path, "--address", "127.0.0.1:0") as running:
        pids = running.serves()["pids"]
        # A server learns it only when it starts.
        os.kill(pids["server"], signal.SIGSTOP)
        (tmp_path / "data" / "restore-unfinished").write_text("x")
        os.kill(pids["server"], signal.SIGKILL)
        assert running.process.wait(END_SECONDS) == 2
    assert "was interrupted; run it again" in running.log() and "before it served, status 2" in running.log()
    with pytest.raises(ProcessLookupError):
        os.kill(pids["extractor-1"], 0)


def test_a_store_that_is_away_ends_nothing_once_it_served(tmp_path: Path) -> None:
    server = PostgresServer().start()
    try:
        settings = {"RUNEKEEP_STORE_URL": server.url(server.create()), "RUNEKEEP_STORE_WAIT_SECONDS": "0.1"}
        with up(tmp_path, "--address", f"127.0.0.1:{free_port()}", **settings) as running:
            said = running.serves()
            server.halt()
            os.kill(said["pids"]["server"], signal.SIGKILL)
            until(lambda: "server ended (status 75); starting it again" in running.log())
            server.resume()
            until(running.servers)
            with Client(said["address"]) as client:
                client.session(session_id="chat").add_message("user", [TextPart("Tea.")])
        assert running.process.returncode == 0
    finally:
        server.stop()
