"""Server, extractors and studio as child processes of one that watches over them."""

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from runekeep.cli.processes.environments import extractor_environment, server_environment, studio_environment

FIRST_PAUSE_SECONDS = 0.5
MAX_PAUSE_SECONDS = 30.0
STEADY_SECONDS = 60.0
"""A child that lived this long starts again with the first pause."""
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
STOP_SECONDS = 30.0
"""How long a child may drain before it is killed; a little above the server's own limit."""


EXIT_CANNOT_START = 2
"""The server's exit status when it cannot start until somebody changes something."""


class ChildFailed(Exception):
    """The server cannot start, and a restart would not help. `status` is the exit status of the server."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the server ended before it served, {_status(status)}")
        self.status = status


@dataclass(frozen=True, slots=True)
class Serving:
    """The server's announcement: its address, all of its fields, and the children's process ids by name."""

    address: str
    announcement: dict[str, Any]
    pids: dict[str, int]


@dataclass(slots=True)
class Supervisor:
    """Runs one server and `extractors` extractors until a signal arrives, and restarts those that end.

    Calls `report(event, details)`: `restarting` with name, status and pause in seconds; `serving` with name, address
    and process id when the server serves again; `given up` with name and status when the studio cannot start.
    """

    server: Sequence[str]
    extractor: Sequence[str]
    extractors: int
    on_serving: Callable[[Serving], None]
    report: Callable[[str, dict[str, Any]], None]
    extractor_server: str | None = None
    """The address that extractors call; None: the one that the server announces."""
    studio: Sequence[str] = ()
    """The command of the studio, which gets the server's address; empty: none."""
    _children: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Raises ChildFailed; leaves no child behind, whatever happens."""
        loop = asyncio.get_running_loop()
        for number in _STOP_SIGNALS:
            loop.add_signal_handler(number, self._stop.set)
        helpers: list[asyncio.Task[None]] = []
        stopped = asyncio.create_task(self._stop.wait())
        first: asyncio.Future[dict[str, Any]] = loop.create_future()
        try:
            helpers.append(asyncio.create_task(self._keep_serving(first)))
            begun: list[asyncio.Future[Any]] = [first, stopped, *helpers]
            await asyncio.wait(begun, return_when=asyncio.FIRST_COMPLETED)
            if first.done() and not stopped.done():
                helpers += await self._start_extractors(first.result())
            await asyncio.wait([stopped, *helpers], return_when=asyncio.FIRST_COMPLETED)
            for helper in helpers:
                if helper.done() and not self._stop.is_set():
                    helper.result()
        finally:
            stopped.cancel()
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            await self._end_all()
            for number in _STOP_SIGNALS:
                loop.remove_signal_handler(number)

    async def _start_extractors(self, announcement: dict[str, Any]) -> list[asyncio.Task[None]]:
        """Starts all extractors before the announcement, which names them."""
        command = [
            *self.extractor,
            "--server",
            self.extractor_server or announcement.get("internal_address", announcement["address"]),
        ]
        names = [f"extractor-{n + 1}" for n in range(self.extractors)]
        children = [await self._start(name, command) for name in names]
        self.on_serving(
            Serving(announcement["address"], announcement, {name: child.pid for name, child in self._children.items()})
        )
        helpers = [
            asyncio.create_task(self._keep_running(name, command, child))
            for name, child in zip(names, children, strict=True)
        ]
        if self.studio:
            studio = [*self.studio, "--address", announcement["address"]]
            helpers.append(
                asyncio.create_task(self._keep_running("studio", studio, await self._start("studio", studio)))
            )
        return helpers

    async def _keep_serving(self, first: "asyncio.Future[dict[str, Any]]") -> None:
        """Runs the server, and restarts it when it ends. `first` gets the announcement of the first server that serves.

        Raises ChildFailed if a server reports that it cannot start, or ends before any has served: then the
        installation is at fault.
        """
        command, backoff = self.server, _Backoff()
        while True:
            backoff.started()
            server = await self._start("server", command)
            announcement = await _until_serving(server)
            if announcement is not None and not first.done():
                # Restart on the port that the first server took: extractors and clients know it by now.
                command = [*command, "--address", announcement["address"]]
                first.set_result(announcement)
            elif announcement is not None:
                self.report("serving", {"name": "server", "address": announcement["address"], "pid": server.pid})
            status = await _forward_to_end(server)
            if announcement is None and (status == EXIT_CANNOT_START or (status >= 0 and not first.done())):
                raise ChildFailed(status)
            pause = backoff.ended()
            self.report("restarting", {"name": "server", "status": _status(status), "pause": pause})
            await asyncio.sleep(pause)

    async def _start(self, name: str, command: Sequence[str]) -> asyncio.subprocess.Process:
        child = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE if name == "server" else sys.stderr.fileno(),
            env=_environment(name),
            # A group of its own: Ctrl-C reaches this process alone, which then ends the children in order.
            start_new_session=True,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
            limit=1024 * 1024,
        )
        self._children[name] = child
        return child

    async def _keep_running(self, name: str, command: Sequence[str], child: asyncio.subprocess.Process) -> None:
        backoff = _Backoff()
        while True:
            backoff.started()
            status = await child.wait()
            if name == "studio" and status == EXIT_CANNOT_START:
                # Its port is taken, for example. The server goes on without it.
                self.report("given up", {"name": name, "status": _status(status)})
                await self._stop.wait()
                return
            pause = backoff.ended()
            self.report("restarting", {"name": name, "status": _status(status), "pause": pause})
            await asyncio.sleep(pause)
            child = await self._start(name, command)

    async def _end_all(self) -> None:
        # Extractors first: while the server is there they can give their jobs back.
        others = [child for name, child in self._children.items() if name != "server"]
        await asyncio.gather(*(_end(child) for child in others))
        if "server" in self._children:
            await _end(self._children["server"])


class _Backoff:
    """The pause before a child restarts. It doubles each time a child did not live long."""

    def __init__(self) -> None:
        self._next = FIRST_PAUSE_SECONDS
        self._started = 0.0

    def started(self) -> None:
        self._started = monotonic()

    def ended(self) -> float:
        """Returns the pause in seconds."""
        if monotonic() - self._started > STEADY_SECONDS:
            self._next = FIRST_PAUSE_SECONDS
        pause, self._next = self._next, min(self._next * 2, MAX_PAUSE_SECONDS)
        return pause


async def _until_serving(server: asyncio.subprocess.Process) -> dict[str, Any] | None:
    """Returns the server's announcement once it serves; None if it ended before. The server itself limits how long it
    waits."""
    assert server.stdout is not None
    while text := await server.stdout.readline():
        announcement = _announcement(text)
        if announcement is not None:
            return announcement
        sys.stderr.buffer.write(text)
        sys.stderr.flush()
    return None


def _environment(name: str) -> dict[str, str]:
    if name == "server":
        return server_environment()
    return studio_environment() if name == "studio" else extractor_environment()


def module_command(module: str, arguments: Sequence[str] = ()) -> list[str]:
    """Returns the command line that runs a module of this installation, never a file of that name in the current
    directory."""
    return [sys.executable, "-P", "-m", module, *arguments]


def _announcement(line: bytes) -> dict[str, Any] | None:
    try:
        announcement = json.loads(line)
    except ValueError:
        return None
    return (
        announcement
        if isinstance(announcement, dict) and announcement.get("event") == "serving" and "address" in announcement
        else None
    )


async def _forward(server: asyncio.subprocess.Process) -> None:
    assert server.stdout is not None
    while chunk := await server.stdout.read(65536):
        sys.stderr.buffer.write(chunk)
        sys.stderr.flush()


async def _forward_to_end(server: asyncio.subprocess.Process) -> int:
    """Forwards the server's output until it ends. Returns its status."""
    forwarding = asyncio.create_task(_forward(server))
    try:
        return await server.wait()
    finally:
        forwarding.cancel()
        await asyncio.gather(forwarding, return_exceptions=True)


async def _end(child: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.terminate()
    # A pipe that nobody reads would hold a child that still has something to say.
    drain = asyncio.create_task(_forward(child)) if child.stdout is not None else None
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await child.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        await child.wait()
    finally:
        if drain is not None:
            await drain


def _status(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"status {code}"


def _end_with_parent() -> None:
    # PR_SET_PDEATHSIG: a supervisor that is killed outright takes its children with it.
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
