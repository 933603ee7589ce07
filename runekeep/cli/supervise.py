"""Server and extractors as child processes of one that watches over them."""

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from runekeep.cli.environments import extractor_environment, server_environment

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
STEADY_SECONDS = 60.0
"""A child that lived this long starts again with the first pause."""
START_SECONDS = 120.0
"""How long the server may take until it serves; a migration or a rebuild may run first."""
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
STOP_SECONDS = 30.0
"""How long a child may drain before it is killed; a little above the server's own limit."""


class ChildFailed(Exception):
    """The server could not be started, or ended on its own."""


@dataclass(frozen=True, slots=True)
class Serving:
    """The server's announcement: its address, all it said, and the children's process ids by name."""

    address: str
    said: dict[str, Any]
    pids: dict[str, int]


@dataclass(slots=True)
class Supervisor:
    """Runs one server and `extractors` extractors until a signal comes or the server ends.

    `report(event, details)` is told of what happens: `restarting` with name, status and pause in seconds.
    """

    server: Sequence[str]
    extractor: Sequence[str]
    extractors: int
    on_serving: Callable[[Serving], None]
    report: Callable[[str, dict[str, Any]], None]
    extractor_server: str | None = None
    """The address that extractors call; None: the one that the server announces."""
    _children: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    _stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Raises ChildFailed; leaves no child behind, whatever happens."""
        loop = asyncio.get_running_loop()
        for number in _STOP_SIGNALS:
            loop.add_signal_handler(number, self._stop.set)
        helpers: list[asyncio.Task[None]] = []
        try:
            server = await self._start("server", self.server)
            said = await self._until_serving(server)
            if said is None:
                return
            helpers.append(asyncio.create_task(_forward(server)))
            command = [*self.extractor, "--server", self.extractor_server or said["address"]]
            # The first ones start before the announcement, so that it names them all.
            first = [await self._start(f"extractor-{n + 1}", command) for n in range(self.extractors)]
            helpers += [
                asyncio.create_task(self._keep_running(f"extractor-{n + 1}", command, child))
                for n, child in enumerate(first)
            ]
            pids = {name: child.pid for name, child in self._children.items()}
            self.on_serving(Serving(said["address"], said, pids))
            await self._watch(server, helpers)
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            await self._end_all()
            for number in _STOP_SIGNALS:
                loop.remove_signal_handler(number)

    async def _watch(self, server: asyncio.subprocess.Process, helpers: Sequence[asyncio.Task[None]]) -> None:
        ended = asyncio.create_task(server.wait())
        stopped = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait([ended, stopped, *helpers[1:]], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            ended.cancel()
        if not self._stop.is_set():
            for helper in helpers[1:]:
                if helper.done():
                    helper.result()
            raise ChildFailed(f"the server ended on its own, {_status(server.returncode)}")

    async def _start(self, name: str, command: Sequence[str]) -> asyncio.subprocess.Process:
        child = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE if name == "server" else sys.stderr.fileno(),
            env=server_environment() if name == "server" else extractor_environment(),
            # A group of its own: Ctrl-C reaches this process alone, which then ends the children in order.
            start_new_session=True,
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
            limit=1024 * 1024,
        )
        self._children[name] = child
        return child

    async def _until_serving(self, server: asyncio.subprocess.Process) -> dict[str, Any] | None:
        """What the server said when it served; None when a signal came first."""
        assert server.stdout is not None
        stopped = asyncio.create_task(self._stop.wait())
        try:
            async with asyncio.timeout(START_SECONDS):
                while True:
                    line = asyncio.create_task(server.stdout.readline())
                    await asyncio.wait([line, stopped], return_when=asyncio.FIRST_COMPLETED)
                    if not line.done():
                        line.cancel()
                        return None
                    text = line.result()
                    if not text:
                        raise ChildFailed(f"the server ended before it served, {_status(await server.wait())}")
                    said = _announcement(text)
                    if said is not None:
                        return said
                    sys.stderr.buffer.write(text)
                    sys.stderr.flush()
        except TimeoutError as error:
            raise ChildFailed(f"the server did not serve within {START_SECONDS:.0f} s") from error
        finally:
            stopped.cancel()

    async def _keep_running(self, name: str, command: Sequence[str], child: asyncio.subprocess.Process) -> None:
        clock = asyncio.get_running_loop().time
        pause = FIRST_PAUSE_SECONDS
        while True:
            started = clock()
            status = await child.wait()
            if clock() - started > STEADY_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            self.report("restarting", {"name": name, "status": _status(status), "pause": pause})
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
            child = await self._start(name, command)

    async def _end_all(self) -> None:
        # Extractors first: while the server is there they can give their jobs back.
        extractors = [child for name, child in self._children.items() if name != "server"]
        await asyncio.gather(*(_end(child) for child in extractors))
        if "server" in self._children:
            await _end(self._children["server"])


def module_command(module: str, arguments: Sequence[str] = ()) -> list[str]:
    """Command line that runs a module of this installation, never a file of that name in the current directory."""
    return [sys.executable, "-P", "-m", module, *arguments]


def _announcement(line: bytes) -> dict[str, Any] | None:
    try:
        said = json.loads(line)
    except ValueError:
        return None
    return said if isinstance(said, dict) and said.get("event") == "serving" and "address" in said else None


async def _forward(server: asyncio.subprocess.Process) -> None:
    assert server.stdout is not None
    while chunk := await server.stdout.read(65536):
        sys.stderr.buffer.write(chunk)
        sys.stderr.flush()


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
