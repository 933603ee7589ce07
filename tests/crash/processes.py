"""Processes that are killed, stopped and started again, and what they leave in their logs."""

import asyncio
import contextlib
import json
import os
import random
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0
END_SECONDS = 60.0
STARTS = 10
"""How often a program that cannot start is started again: what it needs may be down, by another fault."""
PORTS = range(20_000, 30_000)
"""Below those that the system hands out, so that nobody is given the port of a server that is dead for a while."""


class Program:
    """`python -m MODULE ARGUMENTS`. `announces`: it says one line with `serving` once it serves."""

    def __init__(
        self, name: str, module: str, arguments: Sequence[str], settings: Mapping[str, str], logs: Path, announces: bool
    ) -> None:
        self.name = name
        self.log = logs / f"{name}.log"
        self.starts = 0
        self._command = [sys.executable, "-m", module, *arguments]
        self._environment = {**_foreign_environment(), **settings}
        self._announces = announces
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    async def start(self, failpoint: str = "") -> None:
        """Starts it, again when it ends before it serves.

        `failpoint` is what RUNEKEEP_FAILPOINT takes: it may fire, and end the process, before that.
        """
        assert not self.alive, f"{self.name} runs"
        for attempt in range(STARTS):
            if attempt:
                await asyncio.sleep(0.5)
            self.starts += 1
            if await asyncio.to_thread(self._start, failpoint):
                return
        raise AssertionError(f"{self.name} did not start:\n{self.log.read_text()[-4000:]}")

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
        found: list[int] = []
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            # A thread may end while it is looked at.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found += map(int, (task / "children").read_text().split())
        return found

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
        if not self.log.exists():
            return []
        lines = []
        for line in self.log.read_text(errors="replace").splitlines():
            # The last line of a process that was killed may be half a line; libraries write lines of their own.
            with contextlib.suppress(json.JSONDecodeError):
                lines.append(json.loads(line))
        return [line for line in lines if isinstance(line, dict)]

    def _start(self, failpoint: str) -> bool:
        armed = {"RUNEKEEP_FAILPOINT": failpoint} if failpoint else {}
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=ROOT,
                env={**self._environment, **armed},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if self._announces else log,
                stderr=log,
                text=True,
            )
        if not self._announces:
            return True
        said = self._first_line(self._process.stdout)
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
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None


def free_port() -> int:
    """A port that a process can be given again and again."""
    for port in random.sample(PORTS, 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no free port")


def _foreign_environment() -> dict[str, str]:
    ours = ("RUNEKEEP_", "ANTHROPIC_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}
