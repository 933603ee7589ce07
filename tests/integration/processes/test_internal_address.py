"""With an internal address, AdminService and ExtractorService cannot be reached from users' networks with any key."""

import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from runekeep.v1 import (
    admin_service_pb2,
    admin_service_pb2_grpc,
    extractor_service_pb2,
    extractor_service_pb2_grpc,
    session_service_pb2,
    session_service_pb2_grpc,
)
from runekeep_server.rpc.methods import INTERNAL_SERVICES, METHODS
from tests.support.certificates import LOCAL, Authority
from tests.support.ports import free_port
from tests.support.refused_start import refused_start
from tests.support.server_process import ServerProcess
from tests.support.waiting import until

KEYS = {"RUNEKEEP_ADMIN_KEY": "a" * 48, "RUNEKEEP_WORKER_KEY": "b" * 48}
SETTINGS = {"RUNEKEEP_IDENTITY_MODE": "keys", **KEYS}


@dataclass(frozen=True, slots=True)
class Split:
    """A server with two addresses."""

    users: grpc.Channel
    internal: grpc.Channel


@pytest.fixture
def split(own_server: Callable[..., ServerProcess]) -> Iterator[Split]:
    address = f"127.0.0.1:{free_port()}"
    server = own_server({**SETTINGS, "RUNEKEEP_INTERNAL_ADDRESS": address})
    with grpc.insecure_channel(server.address) as users, grpc.insecure_channel(address) as internal:
        yield Split(users, internal)
    server.stop()


def bearer(key: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {key}"),)


def make_key(channel: grpc.Channel) -> str:
    request = admin_service_pb2.CreateApiKeyRequest(
        scope=admin_service_pb2.SCOPE_USER, account="studio", user="mara", request_id="first"
    )
    stub = admin_service_pb2_grpc.AdminServiceStub(channel)
    return str(stub.CreateApiKey(request, timeout=10, metadata=bearer(KEYS["RUNEKEEP_ADMIN_KEY"])).secret)


def code_of(channel: grpc.Channel, method: str, key: str) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as failed:
        channel.stream_unary(method)(iter([b""]), timeout=10, metadata=bearer(key))
    return failed.value.code()


def test_each_address_serves_its_own_services_alone(split: Split) -> None:
    # Calls the services at the right addresses first: what one address has cached must not be served by the other.
    user = make_key(split.internal)
    leases = extractor_service_pb2_grpc.ExtractorServiceStub(split.internal)
    with pytest.raises(grpc.RpcError) as refused:
        request = extractor_service_pb2.ReadForJobRequest()
        leases.ReadForJob(request, timeout=10, metadata=bearer(KEYS["RUNEKEEP_WORKER_KEY"]))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT, "it is served, and the request is invalid"
    sessions = session_service_pb2_grpc.SessionServiceStub(split.users)
    sessions.ListSessions(session_service_pb2.ListSessionsRequest(), timeout=10, metadata=bearer(user))
    for method in METHODS:
        internal = method[1:].partition("/")[0] in INTERNAL_SERVICES
        wrong = split.users if internal else split.internal
        for key in (*KEYS.values(), user):
            assert code_of(wrong, method, key) is grpc.StatusCode.UNIMPLEMENTED, method


def test_both_addresses_tell_their_health(split: Split) -> None:
    for channel in (split.users, split.internal):
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_both_addresses_take_a_renewed_certificate(own_server: Callable[..., ServerProcess], tmp_path: Path) -> None:
    authority, address = Authority(), f"127.0.0.1:{free_port()}"
    certificate, key = authority.issue(*LOCAL).write(tmp_path, "server")
    settings = {
        **SETTINGS,
        "RUNEKEEP_INTERNAL_ADDRESS": address,
        "RUNEKEEP_TLS__CERTIFICATE": str(certificate),
        "RUNEKEEP_TLS__KEY": str(key),
        "RUNEKEEP_TLS__RELOAD_SECONDS": "0.1",
    }
    server = own_server(settings)
    ports = [int(each.rpartition(":")[2]) for each in (server.address, address)]
    before = [ssl.get_server_certificate(("127.0.0.1", port), timeout=10) for port in ports]
    assert before[0] == before[1] == certificate.read_text()
    renewed = authority.issue(*LOCAL)
    renewed.write(tmp_path, "server")
    for port in ports:
        until(
            lambda port=port: (
                ssl.get_server_certificate(("127.0.0.1", port), timeout=10)  # type: ignore[misc]  # its stub names no timeout
                == renewed.certificate.decode()
            )
        )
    server.stop()


@pytest.mark.parametrize("mode", ["development", "keys"])
def test_an_internal_address_without_protection_is_refused(tmp_path: Path, mode: str) -> None:
    settings = {"RUNEKEEP_IDENTITY_MODE": mode, "RUNEKEEP_INTERNAL_ADDRESS": "0.0.0.0:0"}
    refusal = refused_settings(tmp_path / "data", settings)
    assert ("internal_address" if mode == "development" else "tls.certificate") in refusal


def refused_settings(data_dir: Path, settings: dict[str, str]) -> str:
    server = ServerProcess(data_dir, settings)
    try:
        return server.refused()
    finally:
        server.discard()


def test_an_internal_address_in_use_is_named(own_server: Callable[..., ServerProcess], tmp_path: Path) -> None:
    taken = own_server().address
    said = refused_start(tmp_path / "other", {"RUNEKEEP_INTERNAL_ADDRESS": taken})
    assert f"internal_address (RUNEKEEP_INTERNAL_ADDRESS): cannot listen on {taken}" in said
