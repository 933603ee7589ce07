"""The server that the attacks of a module share. A module may set SERVER_SETTINGS."""

from collections.abc import AsyncIterator, Iterator

import grpc
import pytest

from tests.support.server_process import ServerProcess


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    settings = getattr(request.module, "SERVER_SETTINGS", {})
    process = ServerProcess(tmp_path_factory.mktemp("server") / "data", settings).start()
    try:
        yield process
        process.stop()
    finally:
        process.discard()


@pytest.fixture
async def channel(server: ServerProcess) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(server.address, options=[("grpc.max_receive_message_length", -1)]) as channel:
        yield channel
