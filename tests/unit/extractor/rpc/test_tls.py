"""How the extractor reaches its server: with a key and a certificate, and what it says when that fails."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator

import grpc.aio
import pytest

from runekeep.v1 import extractor_service_pb2_grpc
from runekeep_extractor.settings import ExtractorSettings
from tests.support.certificates import LOCAL, Authority
from tests.unit.extractor.server_double import ServerDouble

KEY = "rk_abcdefghijklmnop_" + "s" * 43


class Seen(grpc.aio.ServerInterceptor):
    """Keeps the credentials of calls."""

    def __init__(self) -> None:
        self.keys: set[str] = set()

    async def intercept_service(self, continuation, details):
        self.keys.add(dict(details.invocation_metadata).get("authorization", ""))
        return await continuation(details)


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
async def mutual(authority: Authority) -> AsyncIterator[tuple[ServerDouble, Seen, str]]:
    """A double over mutual TLS, what calls carried, and its address."""
    double, seen, pair = ServerDouble(), Seen(), authority.issue(*LOCAL)
    server = grpc.aio.server(interceptors=[seen])
    extractor_service_pb2_grpc.add_ExtractorServiceServicer_to_server(double, server)
    credentials = grpc.ssl_server_credentials([(pair.key, pair.certificate)], authority.certificate, True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    yield double, seen, f"https://127.0.0.1:{port}"
    await server.stop(None)


async def started(address: str, **settings: object) -> asyncio.subprocess.Process:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC_", "RUNEKEEP_"))}
    given = {f"RUNEKEEP_EXTRACTOR_{name}": str(value) for name, value in settings.items()}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "runekeep_extractor", "--server", address, "--engine", "offline"),
        env=kept | given,
        stderr=asyncio.subprocess.PIPE,
    )


async def test_a_worker_carries_its_key_and_its_certificate(authority, mutual, tmp_path):
    double, seen, address = mutual
    certificate, key = authority.issue("worker.example.org").write(tmp_path, "worker")
    process = await started(
        address, API_KEY=KEY, CA_FILE=authority.write(tmp_path), CERT_FILE=certificate, KEY_FILE=key
    )
    try:
        talk = await double.conversation()
        await talk.welcome()
        await talk.expect("ready")
        assert seen.keys == {f"Bearer {KEY}"}
    finally:
        process.kill()
        _, said = await process.communicate()
    assert b"connected" in said and KEY.encode() not in said


async def test_a_worker_that_is_not_let_in_goes_on_trying_and_says_what_to_do(authority, mutual, tmp_path):
    _, _, address = mutual
    process = await started(address, CA_FILE=authority.write(tmp_path))
    assert process.stderr is not None
    try:
        async with asyncio.timeout(60):
            tries = 0
            while tries < 2:
                line = await process.stderr.readline()
                tries += b"not_connected" in line
                assert line
        assert b"RUNEKEEP_EXTRACTOR_CERT_FILE" in line
    finally:
        process.kill()
        await process.communicate()


@pytest.mark.parametrize(
    ("address", "settings", "said"),
    [
        ("memory.example.org:7433", {"API_KEY": KEY}, "in plain text"),
        ("127.0.0.1:1", {"CA_FILE": "none.pem"}, "none.pem cannot be read"),
        ("https://h:1", {"CERT_FILE": "a.pem"}, "RUNEKEEP_EXTRACTOR_KEY_FILE"),
        ("h:1/x", {}, "(RUNEKEEP_EXTRACTOR_SERVER)"),
    ],
)
async def test_a_worker_with_settings_that_cannot_work_does_not_start(address, settings, said):
    process = await started(address, **settings)
    _, told = await process.communicate()
    assert process.returncode == 2
    assert told.decode().startswith("The extractor cannot start: ") and said in told.decode()
    assert KEY not in told.decode()


def test_the_settings_do_not_show_the_key(monkeypatch):
    monkeypatch.setenv("RUNEKEEP_EXTRACTOR_API_KEY", KEY)
    assert KEY not in repr(ExtractorSettings())
