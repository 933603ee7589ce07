"""One `runekeep up` with default settings: finds its processes, ends and stops them, and checks that they come back."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from runekeep.v1 import admin_service_pb2, admin_service_pb2_grpc
from tests.crash.processes import children_of, foreign_environment, json_lines
from tests.support.fork_server import Running, launch

WHOLE_SECONDS = 150.0
"""Time until all processes of an installation run and it serves. `up` waits up to 30 s before it restarts one."""
GONE_SECONDS = 60.0
LOOK_SECONDS = 0.05
STATUS_SECONDS = 20.0


class NotWhole(AssertionError):
    """An installation did not recover by itself."""


class Installation:
    """`up` on its own port and data directory; call `start`, then `stop`."""

    def __init__(
        self, name: str, port: int, data_dir: Path, settings: Mapping[str, str], *, extractors: int, logs: Path
    ) -> None:
        self.name = name
        self.port = port
        self.data_dir = data_dir
        self.log = logs / f"{name}.log"
        self.starts = 0
        self.restarted_by_driver = 0
        """How often `up` had ended together with a process that it should have restarted."""
        self._extractors = extractors
        self._environment = {**foreign_environment(), **settings}
        self._extra: dict[str, str] = {}
        self._process: Running | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was not started"
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def server_pid(self) -> int | None:
        return next(iter(self._running("runekeep_server")), None)

    @property
    def extractor_pids(self) -> list[int]:
        return self._running("runekeep_extractor")

    @property
    def index_pid(self) -> int | None:
        """Returns the process that holds the embedded index."""
        server = self.server_pid
        return next(iter(children_of(server)), None) if server else None

    async def start(self, extra: Mapping[str, str] | None = None) -> None:
        """Returns once it is complete. `extra`: settings for this start and later ones, which override earlier ones."""
        self._extra = dict(self._extra if extra is None else extra)
        self._launch()
        await self.whole()

    async def whole(self, other_than: int | None = None) -> None:
        """Waits until it serves with all its processes, and with a server other than `other_than`.

        Restarts `up` if it ended. Raises NotWhole.
        """
        deadline = time.monotonic() + WHOLE_SECONDS
        while time.monotonic() < deadline:
            if not self.alive:
                self.restarted_by_driver += 1
                self._launch()
            server = self.server_pid
            runs = server not in (None, other_than) and len(self.extractor_pids) == self._extractors
            if runs and await self.serves() and await self._workers() >= self._extractors:
                return
            await asyncio.sleep(LOOK_SECONDS)
        raise NotWhole(f"{self.name} did not come back:\n{self.log.read_text(errors='replace')[-3000:]}")

    async def serves(self, service: str = "") -> bool:
        """Returns what its health says; false if nobody answers."""
        return await serves(self.port, service)

    async def kill(self) -> list[int]:
        """Kills `up` with SIGKILL. Returns its children once all are gone; the kernel tells them to end."""
        processes = [self.pid, *self._everybody()]
        os.kill(self.pid, signal.SIGKILL)
        assert self._process is not None
        await asyncio.to_thread(self._process.wait, GONE_SECONDS)
        await gone(processes)
        return processes[1:]

    async def stop(self) -> int:
        """Asks it to end. Returns its exit status."""
        if self._process is None or not self.alive:
            return 0
        processes = self._everybody()
        self._process.send_signal(signal.SIGTERM)
        status = await asyncio.to_thread(self._process.wait, GONE_SECONDS)
        await gone(processes)
        return status

    def end(self) -> None:
        """Kills everything that runs, at the end of a run that failed."""
        if self.alive:
            for pid in [self.pid, *self._everybody()]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            assert self._process is not None
            self._process.wait()

    def logged(self) -> list[dict[str, Any]]:
        """Returns the lines that its server and extractors logged."""
        return json_lines(self.log)

    def count(self, event: str, **fields: Any) -> int:
        """Returns the log lines of an event with these fields."""
        lines = [line for line in self.logged() if line.get("event") == event]
        return sum(all(line.get(name) == value for name, value in fields.items()) for line in lines)

    async def status(self) -> admin_service_pb2.GetServerStatusResponse:
        """Returns the server's status. Raises AioRpcError."""
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            stub = admin_service_pb2_grpc.AdminServiceStub(channel)
            return await stub.GetServerStatus(admin_service_pb2.GetServerStatusRequest(), timeout=STATUS_SECONDS)

    async def _workers(self) -> int:
        """Returns how many extractors are connected; 0 if nobody answers."""
        try:
            return (await self.status()).workers
        except grpc.aio.AioRpcError:
            return 0

    def _launch(self) -> None:
        self.starts += 1
        arguments = ["up", "--address", f"127.0.0.1:{self.port}", "--data-dir", str(self.data_dir)]
        arguments += ["--extractors", str(self._extractors)]
        with self.log.open("a") as log:
            self._process = launch(
                "runekeep",
                arguments,
                environment={**self._environment, **self._extra},
                stdout=log,
                stderr=log,
                fork=False,
            )

    def _running(self, module: str) -> list[int]:
        if not self.alive:
            return []
        return [pid for pid in children_of(self.pid) if module in command_of(pid) and state_of(pid) != "Z"]

    def _everybody(self) -> list[int]:
        """Returns children and their children."""
        children = children_of(self.pid) if self.alive else []
        return [*children, *(grandchild for child in children for grandchild in children_of(child))]


async def serves(port: int, service: str = "") -> bool:
    """Whether a server on that port reports that it serves; false if nobody answers."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            answer = await health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(service=service), timeout=2
            )
        except grpc.aio.AioRpcError:
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


async def reached(holds: Callable[[], Any], seconds: float) -> bool:
    """Whether a condition becomes true within that time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(LOOK_SECONDS)
    return True


async def gone(pids: Sequence[int]) -> None:
    """Waits until none of these processes runs. Raises NotWhole."""
    if not await reached(lambda: all(state_of(pid) in ("", "Z") for pid in pids), GONE_SECONDS):
        raise NotWhole(f"processes outlived what started them: {[pid for pid in pids if state_of(pid)]}")


def state_of(pid: int) -> str:
    """Returns the state as one letter, such as `T` for a stopped process; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def command_of(pid: int) -> list[str]:
    """Returns its command line; empty for a process that is gone."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return []
