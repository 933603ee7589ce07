"""A whole system as users start it, with default settings: one `runekeep up` on SQLite, or two on one PostgreSQL.

It also has a double of the model, and on PostgreSQL a Qdrant double and an S3 double. Each double can be taken away for
any time.
"""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from tests.crash.clients import PROBE, SPACES, Client, Doors
from tests.crash.fleet import TYPES, model_answer
from tests.crash.history import History
from tests.crash.installation import Installation
from tests.crash.processes import Program
from tests.crash.tunnel import Tunnel
from tests.crash.violations import Violation
from tests.doubles import s3_server
from tests.doubles.messages_api import MessagesApi, Request, Response
from tests.support.ports import free_port
from tests.support.postgres import PostgresServer

SWITCH = Path(__file__).parent / "embedder_switch"


class System:
    """Runs inside `running_system`. `postgres` and what belongs to it: None on SQLite."""

    def __init__(self, directory: Path, history: History, postgres: PostgresServer | None) -> None:
        self.directory = directory
        self.history = history
        self.store = "sqlite" if postgres is None else "postgres"
        self.installations: list[Installation] = []
        self.model = MessagesApi()
        self.model_answers = 0
        self.postgres = postgres
        self.index: Program | None = None
        self.objects: s3_server.S3Double | None = None
        self.object_door: Tunnel | None = None
        self.embedder_away = directory / "embedder-away"
        self.violations: list[Violation] = []
        """Violations that the faults themselves saw."""
        self.doors: Doors
        self.lookers: list[Client]
        """A client for each space of the load."""
        self.probe: Client
        self._may_answer = threading.Event()
        self._may_answer.set()

    @property
    def ports(self) -> list[int]:
        return [installation.port for installation in self.installations]

    @property
    def only(self) -> Installation:
        """Returns the only installation of a system on SQLite."""
        (installation,) = self.installations
        return installation

    async def start(self, ends: contextlib.AsyncExitStack, environment: dict[str, str]) -> None:
        """`environment`: for all processes of `up`."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.model.otherwise = self._answer
        ends.enter_context(self.model)
        settings = {
            "RUNEKEEP_TYPES_DIRS": str(TYPES),
            "ANTHROPIC_BASE_URL": self.model.url,
            "ANTHROPIC_API_KEY": "any",
            "RUNEKEEP_FAILPOINT_EMBEDDER_AWAY": str(self.embedder_away),
            "PYTHONPATH": str(SWITCH),
            **environment,
        }
        if self.postgres is not None:
            settings |= await self._beside_postgres(ends, self.postgres)
        for number in range(1 if self.postgres is None else 2):
            self.installations.append(
                Installation(
                    f"up-{number}",
                    free_port(),
                    self.directory / f"data-{number}",
                    settings,
                    extractors=2 if self.postgres is None else 1,
                    logs=self.directory,
                )
            )
            ends.callback(self.installations[-1].end)
            await self.installations[-1].start()
        self.doors = Doors(self.ports)
        ends.push_async_callback(self.doors.close)
        self.probe = Client(self.doors, PROBE, self.history, "probe")
        self.lookers = [Client(self.doors, space, self.history, "looker") for space in SPACES]

    @contextlib.contextmanager
    def model_that_waits(self) -> Iterator[None]:
        """The model answers nobody inside the block."""
        self._may_answer.clear()
        try:
            yield
        finally:
            self._may_answer.set()

    async def whole(self) -> None:
        """Waits until all installations are complete."""
        await asyncio.gather(*(installation.whole() for installation in self.installations))

    async def stop(self) -> None:
        """Ends all with SIGTERM; adds a fault for each that does not end well."""
        for installation, status in zip(
            self.installations, await asyncio.gather(*(one.stop() for one in self.installations)), strict=True
        ):
            if status != 0:
                self.history.faults.append(f"{installation.name} ended with {status} when it was asked to end")

    async def _beside_postgres(self, ends: contextlib.AsyncExitStack, postgres: PostgresServer) -> dict[str, str]:
        database = await asyncio.to_thread(postgres.create)
        # The tests' cluster runs without syncing, but acknowledged data must still survive a crash of PostgreSQL
        # itself.
        await asyncio.to_thread(postgres.sql, f"ALTER DATABASE {database} SET synchronous_commit = on")
        port = free_port()
        arguments = [str(self.directory / "qdrant"), str(port)]
        self.index = Program("index", "tests.support.index_server", arguments, {}, self.directory, announces=True)
        ends.callback(self.index.kill)
        await self.index.start()
        self.objects = ends.enter_context(s3_server.running(page=1000))
        self.object_door = Tunnel(int(self.objects.endpoint.rpartition(":")[2]), free_port())
        await self.object_door.start()
        ends.push_async_callback(self.object_door.stop)
        return {
            "RUNEKEEP_STORE_URL": postgres.url(database),
            "RUNEKEEP_INDEX_URL": f"grpc://127.0.0.1:{port}",
            "RUNEKEEP_BLOB_URL": f"s3://{s3_server.BUCKET}/crash",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.object_door.port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "AWS_REGION": "nowhere",
        }

    def _answer(self, request: Request) -> Response:
        self._may_answer.wait()
        self.model.requests.clear()
        self.model_answers += 1
        return model_answer(request, self.history)


@contextlib.asynccontextmanager
async def running_system(
    directory: Path, history: History, postgres: PostgresServer | None, environment: dict[str, str] | None = None
) -> AsyncIterator[System]:
    system = System(directory, history, postgres)
    async with contextlib.AsyncExitStack() as ends:
        await system.start(ends, environment or {})
        yield system
