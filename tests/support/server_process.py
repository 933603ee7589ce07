"""A real server process on a data directory, with the checks that every end of it owes."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from runekeep_storage.drivers.common.data_directory import DataDirectory
from runekeep_storage.migrations.migrate import migrate_sqlite
from tests.support.fork_server import Running, launch
from tests.support.releases import import_path, module_of

ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0
END_SECONDS = 40.0

# Shrunk times: everything that waits for a clock waits for a short one.
QUICK = {
    "RUNEKEEP_POLL_SECONDS": "0.1",
    "RUNEKEEP_BACKOFF_FIRST_SECONDS": "0.05",
    "RUNEKEEP_BACKOFF_MAX_SECONDS": "0.1",
    "RUNEKEEP_ERASURE_PURGE_SECONDS": "0.05",
}


class ServerProcess:
    """`python -m runekeep_server` on `data_dir`; `settings` are environment variables. `start`, then `stop` or `kill`.

    `source`: the tree that it is run from. `quick`: with shrunk times, its modules loaded already, and in a new
    directory on a store that is made already. What measures wants all as it is: looks every few milliseconds take their
    share.
    """

    def __init__(
        self, data_dir: Path, settings: dict[str, str] | None = None, *, quick: bool = True, source: Path = ROOT
    ) -> None:
        self.data_dir = data_dir
        self._source = source
        self.address = ""
        self._log = data_dir.parent / f"{data_dir.name}.log"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("RUNEKEEP_")}
        self._environment = {**inherited, "RUNEKEEP_EMBEDDER": "none", **(QUICK if quick else {}), **(settings or {})}
        if source != ROOT:
            self._environment |= import_path(source)
        self._prepared = quick and source == ROOT
        self._given_store = self._prepared and "RUNEKEEP_STORE_URL" not in self._environment
        self._process: Running | None = None
        self._stdout: IO[str] | None = None
        self._children: list[int] = []

    def start(self, address: str = "127.0.0.1:0", *arguments: str) -> "ServerProcess":
        """Returns once calls are served. A restarted server keeps its address, so clients find it again. `arguments`:
        more command-line arguments."""
        if self._given_store and not self.data_dir.exists():
            self.data_dir.mkdir(mode=0o700)
            DataDirectory(self.data_dir).database.write_bytes(_empty_store())
        self._launch(["--address", address, "--data-dir", str(self.data_dir), *arguments])
        line = self._first_line()
        said = json.loads(line) if line else {}
        assert said.get("event") == "serving", f"the server did not start:\n{self._log.read_text()}"
        self.address = said["address"]
        return self

    def refused(self) -> str:
        """Starts it, expects it to end with status 2 before it serves, and returns its output."""
        before = len(self._log.read_text()) if self._log.exists() else 0
        self._launch(["--address", "127.0.0.1:0", "--data-dir", str(self.data_dir)])
        assert self._first_line() == "", "the server started"
        return self.gave_up(before)

    def gave_up(self, before: int = 0) -> str:
        """Waits for it to end by itself, with status 2. Returns its log after that many characters."""
        try:
            code = self._running().wait(END_SECONDS)
        finally:
            self._close()
        said = self._log.read_text()[before:]
        assert code == 2, f"exit {code}:\n{said[-4000:]}"
        return said

    def _launch(self, arguments: list[str]) -> None:
        reading, writing = os.pipe()
        self._stdout = os.fdopen(reading)
        with self._log.open("a") as log, os.fdopen(writing, "w") as stdout:
            self._process = launch(
                module_of("server", self._source),
                arguments,
                environment=self._environment,
                cwd=self._source,
                stdout=stdout,
                stderr=log,
                fork=self._prepared,
            )

    def terminate(self) -> None:
        """Asks it to end, as an orchestrator does."""
        self._children = _children(self._running().pid)
        self._running().send_signal(signal.SIGTERM)

    def ended(self) -> None:
        """Waits for the end after `terminate`: exit 0, no child left behind, no fault in the logs."""
        process = self._running()
        try:
            code = process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"the server did not end:\n{self._log.read_text()[-4000:]}") from None
        finally:
            self._close()
        assert code == 0, f"exit {code}:\n{self._log.read_text()[-4000:]}"
        left = [child for child in self._children if _is_alive(child)]
        assert not left, f"child processes outlived the server: {left}"
        faults = self.faults()
        assert not faults, json.dumps(faults, indent=1)[:8000]

    def stop(self) -> None:
        self.terminate()
        self.ended()

    def kill(self) -> None:
        """SIGKILL. Returns when nothing of it runs any more, its children included."""
        process = self._running()
        children = _children(process.pid)
        process.kill()
        process.wait()
        self._close()
        deadline = time.monotonic() + END_SECONDS
        while any(map(_is_alive, children)):
            assert time.monotonic() < deadline, "a child process outlived a server that was killed"
            time.sleep(0.01)

    def pause(self) -> None:
        """Stops it where it stands, until `go_on`; its children go on."""
        self._running().send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    @property
    def environment(self) -> dict[str, str]:
        """Returns the environment of its processes, with its settings, for programs beside it."""
        return self._environment

    @property
    def is_running(self) -> bool:
        """Started, and not yet waited for."""
        return self._process is not None

    @property
    def pid(self) -> int:
        return self._running().pid

    def children(self) -> list[int]:
        """Processes that it started, and theirs."""
        return _children(self._running().pid)

    def discard(self) -> None:
        """For the end of a test that failed half way."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._close()

    def log(self) -> str:
        return self._log.read_text()

    def faults(self) -> list[dict[str, Any]]:
        """Log lines of level error: a run that a test calls good has none."""
        lines = [json.loads(line) for line in self._log.read_text().split("\n") if line.startswith("{")]
        return [line for line in lines if line.get("level") in ("error", "critical")]

    def _running(self) -> Running:
        assert self._process is not None, "the server does not run"
        return self._process

    def _close(self) -> None:
        assert self._stdout is not None
        self._stdout.close()
        self._process = None

    def _first_line(self) -> str:
        stdout = self._stdout
        assert stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            return stdout.readline() if selector.select(START_SECONDS) else ""


@cache
def _empty_store() -> bytes:
    """With the newest schema. To make that is a third of what a first start takes, and has tests of its own; servers
    that a command starts make theirs."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "runekeep.db"
        migrate_sqlite(path)
        return path.read_bytes()


def _children(pid: int) -> list[int]:
    found: list[int] = []
    # Threads and processes may end while they are looked at.
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                for child in (task / "children").read_text().split():
                    found += [int(child), *_children(int(child))]
    return found


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
