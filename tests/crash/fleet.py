"""A whole installation: servers on one store, four extractors with the real SDK, and the model that answers them."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

from tests.crash.history import History
from tests.crash.model import Confused, answered
from tests.crash.processes import BLIND_SERVER, Program
from tests.crash.tunnel import Tunnel
from tests.doubles.messages_api import MessagesApi, Request, Response, answer, error
from tests.support.ports import free_port
from tests.support.postgres import PostgresServer

EXTRACTORS = 4
LEASE_SECONDS = 2.5
TYPES = Path(__file__).parent / "types"
SETTINGS = {
    "RUNEKEEP_EMBEDDER": "none",
    "RUNEKEEP_TYPES_DIRS": str(TYPES),
    "RUNEKEEP_LOG_LEVEL": "warning",
    # Times shrunk, so that all that waits for a clock happens often.
    "RUNEKEEP_LEASE_SECONDS": str(LEASE_SECONDS),
    "RUNEKEEP_FIRST_LEASE_SECONDS": "1.5",
    "RUNEKEEP_HEARTBEAT_SECONDS": "0.5",
    "RUNEKEEP_POLL_SECONDS": "0.2",
    "RUNEKEEP_BACKOFF_FIRST_SECONDS": "0.05",
    "RUNEKEEP_BACKOFF_MAX_SECONDS": "0.5",
    # A job here loses more workers in a minute than others in their life; none may be given up for that.
    "RUNEKEEP_MAX_ATTEMPTS": "1000",
    "RUNEKEEP_MAX_LOST_LEASES": "1000",
    "RUNEKEEP_MAX_CONFLICTS": "1000",
}


class Backing(Protocol):
    """The store below the servers."""

    name: str
    servers: int

    async def start(self) -> dict[str, str]:
        """Settings for each server."""
        ...

    async def stop(self) -> None: ...


class OnSqlite:
    """One server, everything embedded in it."""

    name = "sqlite"
    servers = 1

    async def start(self) -> dict[str, str]:
        return {}

    async def stop(self) -> None:
        pass


class OnPostgres:
    """Two servers on one database, one index server and one folder of blobs."""

    name = "postgres"
    servers = 2

    def __init__(self, server: PostgresServer, directory: Path) -> None:
        self.server = server
        self._database = ""
        self._blobs = directory / "blobs"
        port = free_port()
        self._index_url = f"grpc://127.0.0.1:{port}"
        arguments = [str(directory / "qdrant"), str(port)]
        self.index = Program("index", "tests.support.index_server", arguments, {}, directory, announces=True)

    async def start(self) -> dict[str, str]:
        self._database = await asyncio.to_thread(self.server.create)
        # The tests' cluster leaves syncing out; what was answered must still outlive a crash of PostgreSQL itself.
        setting = f"ALTER DATABASE {self._database} SET synchronous_commit = on"
        await asyncio.to_thread(self.server.sql, setting)
        await self.index.start()
        return {
            "RUNEKEEP_STORE_URL": self.server.url(self._database),
            "RUNEKEEP_INDEX_URL": self._index_url,
            "RUNEKEEP_BLOB_DIR": str(self._blobs),
        }

    async def stop(self) -> None:
        self.index.kill()
        if self._database:
            await asyncio.to_thread(self.server.drop, self._database)


class Fleet:
    """Runs from `running` on. `servers` serve on `ports`; `fired` names each failpoint as often as it fired."""

    def __init__(self, backing: Backing, directory: Path, history: History, without: str) -> None:
        self.backing = backing
        self.history = history
        self.ports = [free_port() for _ in range(backing.servers)]
        self.servers: list[Program] = []
        self.extractors: list[Program] = []
        self.tunnels = [Tunnel(port) for port in self.ports]
        self.ground = asyncio.Lock()
        """For faults of what all servers stand on: one at a time."""
        self._directory = directory
        self._fired = directory / "fired"
        self._api = MessagesApi()
        self._asked = 0
        self._without = without

    @property
    def fired(self) -> list[str]:
        if not self._fired.exists():
            return []
        return [line.split()[0] for line in self._fired.read_text().splitlines()]

    async def start(self, ends: contextlib.AsyncExitStack) -> None:
        """Once this returns, servers serve and extractors can be started: some are to die before anything else.

        `ends` is told of all that is to be ended, in whatever state it is then.
        """
        log = {"RUNEKEEP_FAILPOINT_LOG": str(self._fired)}
        ends.push_async_callback(self.backing.stop)
        settings = {**SETTINGS, **log, **await self.backing.start(), "CRASH_WITHOUT": self._without}
        for number, port in enumerate(self.ports):
            arguments = ["--address", f"127.0.0.1:{port}", "--data-dir", str(self.data_dir(number))]
            name, module = f"server-{number}", BLIND_SERVER if self._without else "runekeep_server"
            self.servers.append(Program(name, module, arguments, settings, self._directory, announces=True))
            ends.callback(self.servers[-1].kill)
        # One after the other: the first of them migrates.
        for server in self.servers:
            await server.start()
        for tunnel in self.tunnels:
            await tunnel.start()
            ends.push_async_callback(tunnel.stop)
        self._api.otherwise = self._model
        ends.enter_context(self._api)
        model = {"ANTHROPIC_BASE_URL": self._api.url, "ANTHROPIC_API_KEY": "any"}
        for number in range(EXTRACTORS):
            arguments = ["--server", self._addresses(number), "--worker-id", f"worker-{number}", "--concurrency", "2"]
            program = Program(
                f"worker-{number}", "runekeep_extractor", arguments, {**model, **log}, self._directory, announces=False
            )
            self.extractors.append(program)
            ends.callback(program.kill)

    def data_dir(self, number: int) -> Path:
        return self._directory / f"data-{number}"

    def share_out(self, server: Program) -> None:
        """Has the workers of the other servers connect anew, so that some come to this one: they never move by
        themselves, and a server without workers passes few failpoints.
        """
        for other, tunnel in zip(self.servers, self.tunnels, strict=True):
            if other is not server:
                tunnel.cut()

    def errors(self) -> list[dict[str, Any]]:
        """Error lines of all logs, each with the program that said it."""
        programs = [*self.servers, *self.extractors]
        lines = [{"program": program.name, **line} for program in programs for line in program.logged()]
        return [line for line in lines if line.get("level") in ("error", "critical")]

    def expired(self, worker: str) -> int:
        """Returns how many leases of a worker the servers took back."""
        lines = [line for server in self.servers for line in server.logged()]
        return sum(line.get("event") == "lease_expired" and line.get("worker") == worker for line in lines)

    def model_is_asked(self) -> bool:
        """Whether the model is working on an answer."""
        return self._asked > 0

    async def stop(self) -> None:
        """Ends all by SIGTERM; adds a fault for each that does not end well."""
        for programs in (self.extractors, self.servers):
            codes = await asyncio.gather(*(program.terminate() for program in programs))
            for program, code in zip(programs, codes, strict=True):
                if code != 0:
                    self.history.faults.append(f"{program.name} ended with {code} when it was asked to end")

    def _addresses(self, number: int) -> str:
        """All servers, for the one and the other worker in another order: gRPC takes the first that is there."""
        ports = [tunnel.port for tunnel in self.tunnels]
        turned = ports[number % len(ports) :] + ports[: number % len(ports)]
        return "ipv4:" + ",".join(f"127.0.0.1:{port}" for port in turned)

    def _model(self, request: Request) -> Response:
        # Nobody looks at them here, and a long run makes thousands.
        self._api.requests.clear()
        self._asked += 1
        try:
            return model_answer(request, self.history)
        finally:
            self._asked -= 1


def model_answer(request: Request, history: History) -> Response:
    """Returns the answer of this suite's model. A prompt that mixes several commits is a fault in the history."""
    try:
        text = json.dumps(answered(request))
    except Confused as confused:
        history.faults.append(f"the model was shown {confused}")
        return error(400, "invalid_request_error", "confused")(request)
    return answer(text)(request)


@contextlib.asynccontextmanager
async def running(backing: Backing, directory: Path, history: History, *, without: str = "") -> AsyncIterator[Fleet]:
    """`without`: the guard that its servers lack, see `blind_server`."""
    fleet = Fleet(backing, directory, history, without)
    async with contextlib.AsyncExitStack() as ends:
        await fleet.start(ends)
        yield fleet
