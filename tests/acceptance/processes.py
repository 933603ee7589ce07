"""Real processes for acceptance tests: a server and extractors, started as a user would start them."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support.fork_server import Running, launch
from tests.support.server_process import ServerProcess

ROOT = Path(__file__).parents[2]


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without settings of its own, and with `extra`."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("RUNEKEEP_", "ANTHROPIC_", "OPENAI_"))
    }
    return {**kept, **(extra or {})}


def run(*command: str | Path, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end; its output is in the failure when it ends otherwise than with 0."""
    finished = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment(variables),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    return well_ended(finished)


def well_ended(finished: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    assert finished.returncode == 0, finished.stdout[-6000:] + finished.stderr[-6000:]
    return finished


class Processes:
    """Processes of one test; all are gone when it ends. `prepared`: with their modules loaded already, which who
    measures does not want, for what forks have in common counts for less; nor shrunk times."""

    def __init__(self, directory: Path, *, prepared: bool = True) -> None:
        self.data_dir = directory / "data"
        self.address = ""
        self._logs = directory
        self._prepared = prepared
        self._servers: list[ServerProcess] = []
        self._extractors: list[Running] = []

    def server(self, address: str = "127.0.0.1:0", **settings: str) -> ServerProcess:
        """Starts a server with its embedder and waits until it serves; `settings` are environment variables."""
        own = {"RUNEKEEP_EMBEDDER": "minilm", **settings}
        server = ServerProcess(self.data_dir, own, quick=self._prepared).start(address)
        self._servers.append(server)
        self.address = server.address
        return server

    def extractor(self, worker_id: str, *arguments: str, **settings: str) -> Running:
        arguments = ("--server", self.address, "--worker-id", worker_id, *arguments)
        with (self._logs / f"{worker_id}.log").open("a") as log:
            process = launch(
                "runekeep_extractor",
                arguments,
                environment=environment(settings),
                stdout=log,
                stderr=log,
                fork=self._prepared,
            )
        self._extractors.append(process)
        return process

    def log(self, name: str = "*") -> str:
        """The end of what the processes of that name, or all of them, logged."""
        return "\n".join(path.read_text()[-4000:] for path in sorted(self._logs.glob(f"{name}.log")))

    def stop(self) -> None:
        for process in self._extractors:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 30
        for process in self._extractors:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))
            if process.poll() is None:
                process.kill()
                process.wait()
        for server in self._servers:
            server.discard()


@contextlib.contextmanager
def processes(directory: Path, *, prepared: bool = True) -> Iterator[Processes]:
    started = Processes(directory, prepared=prepared)
    try:
        yield started
    finally:
        started.stop()
