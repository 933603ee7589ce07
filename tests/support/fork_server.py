"""Programs of ours as processes that have their modules already: to load those is most of what a start takes.

A process that has loaded what a program imports forks for each start, and each fork runs the program's `__main__` as
`python -m` does, with arguments, environment and working directory of its own. Hashes of strings are those of all its
forks. Tests of the commands, of the README's tour and of the programs' own frames start them as users do.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[2]
LOADED = {
    "runekeep_server": (
        "uvloop",
        "asyncpg",
        "runekeep_server.settings",
        "runekeep_server.telemetry.logs",
        "runekeep_server.app",
        "runekeep_server.services",
    ),
    "runekeep_extractor": (
        "uvloop",
        "anthropic",
        "runekeep_extractor.running",
        "runekeep_extractor.pipeline",
        "runekeep_extractor.offline",
    ),
    "runekeep": (
        "typer.main",
        "rich.table",
        "runekeep.cli.app",
        "runekeep.cli.common.terminal",
        "runekeep.client.sync_client",
    ),
}
"""What programs of a package import once they run. Nothing that starts a thread: a fork has none of them."""
_OF_MODULES = ("PYTHON", "GRPC_")
"""Variables of these names count when modules are loaded."""
_MESSAGE_BYTES = 1 << 20
_STARTING = threading.Lock()
_STARTED: dict[str, "ForkServer"] = {}


class Forked:
    """A process that a `ForkServer` started, with what is used of a `subprocess.Popen`."""

    def __init__(self, pid: int, ended: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = ended

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._code(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        code = self._code(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("a process that was forked", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            # It may end between the two.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _code(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            self._ended.settimeout(timeout)
            with contextlib.suppress(BlockingIOError, TimeoutError):
                said = self._ended.recv(16)
                if said:
                    self.returncode = int(said)
                elif self.returncode is None:
                    self._is_lost()
                self._ended.close()
        return self.returncode

    def _is_lost(self) -> None:
        """What forks was ended: nobody will know how this process ends."""
        self.returncode = -signal.SIGKILL
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


class ForkServer:
    """Starts processes that have the modules of LOADED[`loaded`]; ends with this process."""

    def __init__(self, loaded: str) -> None:
        self._turn = threading.Lock()
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.fork_server", loaded, str(theirs.fileno())],
                cwd=ROOT,
                env={name: value for name, value in os.environ.items() if not name.startswith("RUNEKEEP_")},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._close)

    def start(
        self, command: Sequence[str], *, environment: Mapping[str, str], cwd: Path, stdout: IO[str], stderr: IO[str]
    ) -> Forked:
        """`command`: a module with a `__main__`, and its arguments. `stdout` and `stderr`: files, or ends of pipes."""
        ended, theirs = socket.socketpair()
        request = json.dumps({"command": command, "environment": dict(environment), "cwd": str(cwd)})
        with self._turn, theirs:
            handed = [stdout.fileno(), stderr.fileno(), theirs.fileno()]
            socket.send_fds(self._requests, [request.encode()], handed)
            pid = self._requests.recv(16)
        assert pid, "what forks has ended"
        return Forked(int(pid), ended)

    def _close(self) -> None:
        self._requests.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()


Running = Forked | subprocess.Popen[bytes]


def launch(
    program: str,
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    stdout: IO[str],
    stderr: IO[str],
    cwd: Path = ROOT,
    loaded: str = "",
    fork: bool = True,
) -> Running:
    """Starts a module as `python -m` does: as a fork, unless its modules must be loaded anew to be what the environment
    says, or `fork` is False. `loaded`: which of LOADED it wants, where it is not of a package of that name; others have
    nothing to spare."""
    loaded = loaded or program.partition(".")[0]
    if fork and loaded in LOADED and _may_fork(environment):
        return _fork_server(loaded).start(
            [program, *arguments], environment=environment, cwd=cwd, stdout=stdout, stderr=stderr
        )
    command = [sys.executable, "-m", program, *arguments]
    return subprocess.Popen(command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)


def run_module(
    program: str,
    *arguments: object,
    environment: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    timeout: float = 60.0,
    loaded: str = "",
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` with what it says captured, whatever its exit code; `environment`: else this process's."""
    environment = os.environ if environment is None else environment
    command = list(map(str, arguments))
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        process = launch(
            program, command, environment=environment, stdout=stdout, stderr=stderr, cwd=cwd, loaded=loaded
        )
        try:
            code = process.wait(timeout)
        except BaseException:
            process.kill()
            process.wait()
            raise
        stdout.seek(0)
        stderr.seek(0)
        return subprocess.CompletedProcess([program, *command], code, stdout.read(), stderr.read())


def _fork_server(loaded: str) -> ForkServer:
    """One for each, to the end of this process."""
    with _STARTING:
        if loaded not in _STARTED:
            _STARTED[loaded] = ForkServer(loaded)
        return _STARTED[loaded]


def _may_fork(environment: Mapping[str, str]) -> bool:
    names = {name for name in (*environment, *os.environ) if name.startswith(_OF_MODULES)}
    return all(environment.get(name) == os.environ.get(name) for name in names)


def main(loaded: str, requests: socket.socket) -> None:
    """Forks when asked to and says how forks end, until nobody can ask any more. A fork runs what was asked for."""
    # Who stops the tests by hand wants what they started stopped by them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _load(LOADED[loaded])
    woken = _wake_at_ends()
    running: dict[int, int] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(requests, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if woken in ready:
                woken.recv(1024)
                _tell_ends(running)
            if requests in ready:
                request, handed, _, _ = socket.recv_fds(requests, _MESSAGE_BYTES, 3)
                if not request:
                    return
                stdout, stderr, ended = handed
                pid = os.fork()
                if not pid:
                    break
                running[pid] = ended
                os.close(stdout)
                os.close(stderr)
                requests.send(str(pid).encode())
    for descriptor in (ended, *running.values()):
        os.close(descriptor)
    requests.close()
    woken.close()
    asked = json.loads(request)
    _become(asked, stdout, stderr)
    runpy.run_module(asked["command"][0], run_name="__main__", alter_sys=True)


def _load(modules: Sequence[str]) -> None:
    # As the programs do themselves before they load the rest.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from runekeep_common import process_startup

    process_startup.begin()
    for name in modules:
        importlib.import_module(name)
    # What is shared with the forks stays shared: nothing looks through it.
    gc.freeze()


def _wake_at_ends() -> socket.socket:
    """Can be read from when a child has ended."""
    woken, waking = socket.socketpair()
    waking.setblocking(False)
    signal.set_wakeup_fd(waking.detach(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return woken


def _tell_ends(running: dict[int, int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            with socket.socket(fileno=running.pop(ended[0])) as told, contextlib.suppress(BrokenPipeError):
                told.send(str(os.waitstatus_to_exitcode(ended[1])).encode())


def _become(request: dict[str, Any], stdout: int, stderr: int) -> None:
    from runekeep_common import failpoints

    os.close(signal.set_wakeup_fd(-1))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Programs that want it otherwise say so themselves.
    gc.enable()
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    # Arms what this process is to die at: the one module that looks at the environment when it is loaded.
    importlib.reload(failpoints)
    sys.argv[1:] = request["command"][1:]


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[2])) as told:
        main(sys.argv[1], told)
