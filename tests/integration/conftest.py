"""A server for each module, a channel and callers for each test."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import grpc
import pytest

from tests.support.callers import Caller, unique
from tests.support.server_process import ServerProcess
from tests.support.stores import on_postgres, prepare

# As the extractor and the client have it: a page of long messages is larger than gRPC's own 4 MiB.
CHANNEL_OPTIONS = [("grpc.max_receive_message_length", 32 * 1024 * 1024)]

Callers = Callable[..., Caller]


@pytest.fixture(scope="module")
def server_settings(request: pytest.FixtureRequest) -> dict[str, str]:
    """Environment of the module's server: its `SERVER_SETTINGS`, if it has any."""
    return getattr(request.module, "SERVER_SETTINGS", {})


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def either_store(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Settings of servers on an empty store of each kind; for `server_settings` of a module."""
    if request.param == "sqlite":
        yield {}
        return
    with on_postgres(request.getfixturevalue("postgres_server")) as settings:
        yield settings


@pytest.fixture
def fresh_store(either_store: dict[str, str], request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """As `either_store`, for servers of a test's own: a store that no other server has."""
    if not either_store:
        yield {}
        return
    with on_postgres(request.getfixturevalue("postgres_server")) as settings:
        yield settings


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, server_settings: dict[str, str], migrated_file: Path
) -> Iterator[ServerProcess]:
    data_dir = tmp_path_factory.mktemp("server") / "data"
    prepare(data_dir, server_settings, migrated_file)
    process = ServerProcess(data_dir, server_settings).start()
    try:
        yield process
        process.stop()
    finally:
        process.discard()


@pytest.fixture
def own_server(tmp_path: Path, migrated_file: Path) -> Iterator[Callable[[dict[str, str]], ServerProcess]]:
    """Makes servers that the test ends itself, each with a store of its own unless the settings name one."""
    made: list[ServerProcess] = []

    def make(settings: dict[str, str] | None = None, data: str = "data") -> ServerProcess:
        prepare(tmp_path / data, settings or {}, migrated_file)
        made.append(ServerProcess(tmp_path / data, settings))
        return made[-1].start()

    yield make
    for process in made:
        process.discard()


@pytest.fixture
async def channel(server: ServerProcess) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(server.address, options=CHANNEL_OPTIONS) as channel:
        yield channel


@pytest.fixture
async def callers(channel: grpc.aio.Channel) -> AsyncIterator[Callers]:
    """Makes callers whose spaces nobody else uses; what they leave in the queue is cancelled."""
    made: list[Caller] = []

    def make(user: str = "", account: str = "") -> Caller:
        made.append(Caller(channel, user or unique("user"), account or unique("account")))
        return made[-1]

    yield make
    for caller in made:
        await caller.cancel_open()


@pytest.fixture
def caller(callers: Callers) -> Caller:
    return callers()
