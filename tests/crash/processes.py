"""Processes that are killed, stopped and started again, and what they leave in their logs."""

import asyncio
import contextlib
import json
import os
import selectors
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tests.support.fork_server import Running, launch

START_SECONDS = 60.0
END_SECONDS = 60.0
STARTS = 10
"""How often a program that cannot start is started again: what it needs may be down, by another fault."""
BLIND_SERVER = "tests.crash.blind_server"


class DidNotStart(AssertionError):
    """A program ended before it served; its log has its output."""


class Program:
    """`python -m MODULE ARGUMENTS`. `announces`: it says one line with `serving` once it serves."""

    def __init__(
        self, name: str, module: str, arguments: Sequence[str], settings: Mapping[str, str], logs: Path, announces: bool
    ) -> None:
        self.name = name
        self.log = logs / f"{name}.log"
        self.starts = 0
        self._module = module
        self._arguments = arguments
        self._environment = {**foreign_environment(), **settings}
        self._announces = announces
        self._process: Running | None = None
        self._said: IO[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    async def start(self, failpoint: str = "", attempts: int = STARTS) -> None:
        """Starts it, again if it ends before it serves.

        Raises DidNotStart. `failpoint` is a value for RUNEKEEP_FAILPOINT: it may fire, and end the process, before it
        serves.
        """
        assert not self.alive, f"{self.name} runs"
        for attempt in range(attempts):
            if attempt:
                await asyncio.sleep(0.5)
            self.starts += 1
            if await asyncio.to_thread(self._start, failpoint):
                return
        raise DidNotStart(f"{self.name} did not start:\n{self.log.read_text()[-4000:]}")

    async def died(self, seconds: float) -> bool:
        """Whether it ended within that time."""
        deadline = time.monotonic() + seconds
        while self.alive:
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.01)
        self._close()
        return True

    def kill(self) -> None:
        """SIGKILL, if it runs. Returns when it is gone; children that it had may live a moment longer."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._close()

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def children(self) -> list[int]:
        """Process ids of its children, those of all its threads."""
        return children_of(self.pid)

    async def terminate(self) -> int:
        """Asks it to end, as an orchestrator does; its exit status. One that does not end is killed."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        process = self._process
        if not await self.died(END_SECONDS):
            self.kill()
        return process.returncode

    def logged(self) -> list[dict[str, Any]]:
        """Everything that it logged, in all its lives."""
        return json_lines(self.log)

    def _start(self, failpoint: str) -> bool:
        armed = {"RUNEKEEP_FAILPOINT": failpoint} if failpoint else {}
        with self.log.open("a") as log, contextlib.ExitStack() as ours:
            stdout: IO[str] = log
            if self._announces:
                reading, writing = os.pipe()
                self._said, stdout = os.fdopen(reading), ours.enter_context(os.fdopen(writing, "w"))
            self._process = launch(
                self._module,
                self._arguments,
                environment={**self._environment, **armed},
                stdout=stdout,
                stderr=log,
                loaded="runekeep_server" if self._module == BLIND_SERVER else "",
            )
        if not self._announces:
            return True
        said = self._first_line(self._said)
        if '"serving"' in said:
            return True
        # An output that ended is that of a process that ends.
        fired = bool(failpoint and said == "" and self._process.wait(END_SECONDS) == -signal.SIGKILL)
        self.kill()
        return fired

    def _first_line(self, output: IO[str] | None) -> str:
        """Empty where the output ended first."""
        assert output is not None
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            return output.readline() if selector.select(START_SECONDS) else "nothing was said"

    def _close(self) -> None:
        if self._said is not None:
            self._said.close()
        self._said = None
        self._process = None


def foreign_environment() -> dict[str, str]:
    """Returns this environment without variables of Runekeep or of a model."""
    ours = ("RUNEKEEP_", "ANTHROPIC_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def children_of(pid: int) -> list[int]:
    """Returns the process ids of its children, those of all its threads; none for a process that is gone."""
    found: list[int] = []
    tasks = Path(f"/proc/{pid}/task")
    for task in tasks.iterdir() if tasks.exists() else ():
        # A thread may end while it is being read.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found += map(int, (task / "children").read_text().split())
    return found


def json_lines(path: Path) -> list[dict[str, Any]]:
    """Returns the JSON objects of a file, one a line; skips other lines."""
    lines = []
    if path.exists():
        for line in path.read_text(errors="replace").splitlines():
            # The last line of a killed process may be incomplete, and libraries write lines of their own.
            with contextlib.suppress(json.JSONDecodeError):
                lines.append(json.loads(line))
    return [line for line in lines if isinstance(line, dict)]
