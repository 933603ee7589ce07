"""Real processes for acceptance tests: a server and extractors, started as a user would start them."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

START_SECONDS = 60.0


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without settings of its own, and with `extra`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RUNEKEEP_", "ANTHROPIC_"))}
    return {**kept, **(extra or {})}


class Processes:
    """Processes of one test; all are gone when it ends."""

    def __init__(self, data_dir: Path, logs: Path) -> None:
        self.data_dir = data_dir
        self._logs = logs
        self._running: list[subprocess.Popen[str]] = []
        self.address = ""

    def server(self, **settings: str) -> subprocess.Popen[str]:
        """Starts a server and waits until it serves; `settings` are environment variables."""
        command = ["-m", "server", "--address", self.address or "127.0.0.1:0", "--data-dir", str(self.data_dir)]
        process = self._start("server", command, {"RUNEKEEP_POLL_SECONDS": "0.1", **settings})
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], START_SECONDS)
        line = process.stdout.readline() if ready else ""
        assert line, f"the server did not start: {self.log()}"
        self.address = json.loads(line)["address"]
        return process

    def extractor(self, worker_id: str, *arguments: str, **settings: str) -> subprocess.Popen[str]:
        command = ["-m", "extractor", "--server", self.address, "--worker-id", worker_id, *arguments]
        return self._start(worker_id, command, settings)

    def log(self, name: str = "*") -> str:
        """The end of what the processes of that name, or all of them, logged."""
        return "\n".join(path.read_text()[-4000:] for path in sorted(self._logs.glob(f"*-{name}.log")))

    def stop(self) -> None:
        for process in reversed(self._running):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 30
        for process in self._running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def _start(self, name: str, command: list[str], settings: Mapping[str, str]) -> subprocess.Popen[str]:
        log = self._logs / f"{len(self._running):02}-{name}.log"
        with log.open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, *command],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment(settings),
            )
        self._running.append(process)
        return process


@contextlib.contextmanager
def processes(directory: Path) -> Iterator[Processes]:
    logs = directory / "logs"
    logs.mkdir()
    started = Processes(directory / "data", logs)
    try:
        yield started
    finally:
        started.stop()
