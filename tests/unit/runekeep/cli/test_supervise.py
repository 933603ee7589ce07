"""`runekeep up`: real child processes, played by small scripts."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from runekeep.cli.processes.environments import extractor_environment, server_environment
from runekeep.cli.processes.supervisor import ChildFailed, Serving, Supervisor

SERVER = """
import json, signal, sys
signal.signal(signal.SIGTERM, lambda *_: (print("drained", flush=True), sys.exit(0)))
print("not the announcement", flush=True)
print(json.dumps({"event": "serving", "address": "127.0.0.1:5"}), flush=True)
signal.pause()
"""
EXTRACTOR = """
import pathlib, signal, sys
with pathlib.Path(sys.argv[1]).open("a") as file:
    file.write(" ".join(sys.argv[2:]) + "\\n")
signal.pause()
"""


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Watcher:
    """Keeps what a supervisor says."""

    def __init__(self) -> None:
        self.serving: asyncio.Future[Serving] = asyncio.get_running_loop().create_future()
        self.restarting: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def supervisor(self, server: str, extractor: list[str], extractors: int = 2) -> Supervisor:
        return Supervisor(
            server=[sys.executable, "-c", server],
            extractor=extractor,
            extractors=extractors,
            on_serving=self.serving.set_result,
            report=lambda event, details: self.restarting.put_nowait(details),
        )


async def test_all_children_end_with_it(tmp_path: Path) -> None:
    watcher = Watcher()
    extractor = [sys.executable, "-c", EXTRACTOR, str(tmp_path / "starts")]
    running = asyncio.create_task(watcher.supervisor(SERVER, extractor).run())
    serving = await watcher.serving
    assert serving.address == "127.0.0.1:5"
    assert list(serving.pids) == ["server", "extractor-1", "extractor-2"]
    assert all(alive(pid) for pid in serving.pids.values())
    os.kill(os.getpid(), signal.SIGTERM)
    await running
    assert not any(alive(pid) for pid in serving.pids.values())


async def test_an_extractor_that_dies_starts_again_and_the_pause_grows(tmp_path: Path) -> None:
    watcher = Watcher()
    extractor = [sys.executable, "-c", "import sys; sys.exit(3)"]
    running = asyncio.create_task(watcher.supervisor(SERVER, extractor, extractors=1).run())
    first, second = await watcher.restarting.get(), await watcher.restarting.get()
    assert (first["name"], first["status"]) == ("extractor-1", "status 3")
    assert second["pause"] == 2 * first["pause"]
    os.kill(os.getpid(), signal.SIGINT)
    await running


async def test_extractors_are_told_where_the_server_is(tmp_path: Path) -> None:
    watcher = Watcher()
    starts = tmp_path / "starts"
    extractor = [sys.executable, "-c", EXTRACTOR, str(starts)]
    running = asyncio.create_task(watcher.supervisor(SERVER, extractor, extractors=1).run())
    serving = await watcher.serving
    while not starts.exists() or not starts.read_text():
        assert alive(serving.pids["extractor-1"])
        await asyncio.sleep(0.01)
    os.kill(serving.pids["extractor-1"], signal.SIGKILL)
    assert (await watcher.restarting.get())["status"] == "killed by SIGKILL"
    os.kill(os.getpid(), signal.SIGTERM)
    await running
    assert starts.read_text().splitlines()[0] == "--server 127.0.0.1:5"


async def test_extractors_call_the_address_that_they_are_told_to(tmp_path: Path) -> None:
    watcher, starts = Watcher(), tmp_path / "starts"
    supervisor = watcher.supervisor(SERVER, [sys.executable, "-c", EXTRACTOR, str(starts)], extractors=1)
    supervisor.extractor_server = "https://memory.example.org:7433"
    running = asyncio.create_task(supervisor.run())
    serving = await watcher.serving
    while not starts.exists() or not starts.read_text():
        assert alive(serving.pids["extractor-1"])
        await asyncio.sleep(0.01)
    os.kill(os.getpid(), signal.SIGTERM)
    await running
    assert starts.read_text() == "--server https://memory.example.org:7433\n"


SECRETS = (
    *("RUNEKEEP_ADMIN_KEY", "RUNEKEEP_WORKER_KEY", "RUNEKEEP_STORE_URL", "RUNEKEEP_INDEX_API_KEY", "RUNEKEEP_API_KEY"),
    *("runekeep_admin_key", "runekeep_worker_key", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "GITHUB_TOKEN"),
)
MODEL = {"ANTHROPIC_API_KEY": "the model's", "RUNEKEEP_EXTRACTOR_MODEL": "small", "https_proxy": "http://proxy:3128"}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("RUNEKEEP_", "ANTHROPIC_", "OPENAI_")):
            monkeypatch.delenv(name)
    for name in SECRETS:
        monkeypatch.setenv(name, f"{name.lower()} of the server")
    for name, value in MODEL.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("environment")
def test_extractors_get_the_worker_s_key_and_no_secret_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    given = extractor_environment()
    assert not set(SECRETS) & set(given)
    assert given["RUNEKEEP_EXTRACTOR_API_KEY"] == "runekeep_worker_key of the server"
    assert given["PATH"] == os.environ["PATH"] and MODEL.items() <= given.items()
    monkeypatch.setenv("RUNEKEEP_EXTRACTOR_API_KEY", "its own")
    assert extractor_environment()["RUNEKEEP_EXTRACTOR_API_KEY"] == "its own"


@pytest.mark.usefixtures("environment")
def test_extractors_get_the_file_of_the_worker_s_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RUNEKEEP_WORKER_KEY", "runekeep_worker_key"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("RUNEKEEP_WORKER_KEY_FILE", "/run/secrets/worker")
    given = extractor_environment()
    assert given["RUNEKEEP_EXTRACTOR_API_KEY_FILE"] == "/run/secrets/worker"
    assert "RUNEKEEP_EXTRACTOR_API_KEY" not in given and "RUNEKEEP_WORKER_KEY_FILE" not in given


@pytest.mark.usefixtures("environment")
def test_the_server_gets_neither_the_model_s_key_nor_a_caller_s() -> None:
    given = server_environment()
    assert not {"ANTHROPIC_API_KEY", "RUNEKEEP_EXTRACTOR_MODEL", "RUNEKEEP_API_KEY", "GITHUB_TOKEN"} & set(given)
    assert {"RUNEKEEP_ADMIN_KEY", "RUNEKEEP_STORE_URL", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "PATH"} <= set(given)


RESTARTED = """
import json, os, pathlib, signal, sys
with pathlib.Path(sys.argv[1]).open("a") as file:
    file.write(" ".join(sys.argv[2:]) + "\\n")
lives = len(pathlib.Path(sys.argv[1]).read_text().splitlines())
if lives in {fails}:
    os.kill(os.getpid(), signal.SIGKILL)
if lives == {refuses}:
    sys.exit(2)
print(json.dumps({"event": "serving", "address": "127.0.0.1:5"}), flush=True)
signal.pause()
"""


def restarted(fails: tuple[int, ...] = (), refuses: int = 0) -> str:
    return RESTARTED.replace("{fails}", repr(fails)).replace("{refuses}", str(refuses))


async def test_a_server_that_dies_starts_again_where_it_was(tmp_path: Path) -> None:
    """Also a server that is killed while it restarts. Extractors go on."""
    watcher, starts = Watcher(), tmp_path / "starts"
    supervisor = watcher.supervisor("", [sys.executable, "-c", "import signal; signal.pause()"], extractors=1)
    supervisor.server = [sys.executable, "-c", restarted(fails=(2,)), str(starts)]
    running = asyncio.create_task(supervisor.run())
    pids = (await watcher.serving).pids
    os.kill(pids["server"], signal.SIGKILL)
    first, second = await watcher.restarting.get(), await watcher.restarting.get()
    assert first == {"name": "server", "status": "killed by SIGKILL", "pause": first["pause"]}
    assert second == {**first, "pause": 2 * first["pause"]}
    again = await watcher.restarting.get()
    assert (again["name"], again["address"]) == ("server", "127.0.0.1:5") and alive(again["pid"])
    assert alive(pids["extractor-1"])
    assert starts.read_text().splitlines() == ["", *["--address 127.0.0.1:5"] * 2]
    os.kill(os.getpid(), signal.SIGTERM)
    await running
    assert not alive(again["pid"]) and not alive(pids["extractor-1"])


async def test_a_server_that_cannot_start_again_ends_everything(tmp_path: Path) -> None:
    watcher, starts = Watcher(), tmp_path / "starts"
    supervisor = watcher.supervisor("", [sys.executable, "-c", "import signal; signal.pause()"], extractors=1)
    supervisor.server = [sys.executable, "-c", restarted(refuses=2), str(starts)]
    running = asyncio.create_task(supervisor.run())
    pids = (await watcher.serving).pids
    os.kill(pids["server"], signal.SIGKILL)
    with pytest.raises(ChildFailed, match="before it served, status 2"):
        await running
    assert not alive(pids["extractor-1"])


@pytest.mark.parametrize("status", [2, 1, 75])
async def test_a_first_start_that_fails_ends_everything(status: int) -> None:
    supervisor = Watcher().supervisor(f"import sys; sys.exit({status})", [sys.executable, "-c", ""])
    with pytest.raises(ChildFailed, match=f"before it served, status {status}"):
        await supervisor.run()
