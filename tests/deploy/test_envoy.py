"""Envoy's example, run: a real Envoy between clients and two real servers, all over TLS."""

import http.client
import shutil
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from runekeep import Client
from runekeep.contract import SERVICES
from runekeep.v1 import session_service_pb2
from runekeep_server.identity import Audience
from runekeep_server.rpc.methods import INTERNAL_SERVICES, METHODS
from tests.deploy.envoy_process import START_SECONDS, EnvoyProcess, configuration
from tests.deploy.tools import DEPLOY, run
from tests.support.server_process import ServerProcess

pytestmark = pytest.mark.deploy

ORIGIN = "https://app.example.com"
LIST = "/runekeep.v1.SessionService/ListSessions"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    run(DEPLOY / "compose" / "certificates.sh", folder)
    return folder


@pytest.fixture(scope="module")
def servers(certificates: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServerProcess]]:
    """Two, each with a session of its name, so that an answer tells where it comes from: they share nothing here."""
    settings = {
        "RUNEKEEP_TLS__CERTIFICATE": str(certificates / "server.pem"),
        "RUNEKEEP_TLS__KEY": str(certificates / "server.key"),
    }
    started: list[ServerProcess] = []
    try:
        for name in ("first", "second"):
            server = ServerProcess(tmp_path_factory.mktemp("servers") / name, settings)
            started.append(server)
            server.start()
            with Client(server.address, user="mara", ca_file=certificates / "ca.pem") as client:
                client.create_session(name)
        yield started
    finally:
        for server in started:
            server.discard()


@pytest.fixture(scope="module")
def envoy(
    certificates: Path, servers: list[ServerProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EnvoyProcess]:
    process = EnvoyProcess(tmp_path_factory.mktemp("envoy"), certificates, [server.address for server in servers])
    process.validate()
    process.start()
    try:
        process.wait_until_healthy(2)
        yield process
    finally:
        process.stop()


def answered_by(client: Client) -> str:
    (session,) = client.list_sessions()
    return str(session["session_id"])


@dataclass(frozen=True, slots=True)
class Answer:
    """Of an HTTP request."""

    status: int
    headers: Message
    body: bytes


def asked(connection: http.client.HTTPConnection, method: str, path: str, **more: Any) -> Answer:
    """The answer to one request; the connection ends with it."""
    with closing(connection):
        connection.request(method, path, **more)
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read())


@pytest.fixture
def web(certificates: Path, envoy: EnvoyProcess) -> http.client.HTTPSConnection:
    """A browser's way."""
    context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    return http.client.HTTPSConnection("localhost", envoy.ports["web"], context=context, timeout=10)


def test_calls_go_to_every_server(certificates: Path, envoy: EnvoyProcess) -> None:
    with Client(f"localhost:{envoy.ports['grpc']}", user="mara", ca_file=certificates / "ca.pem") as client:
        assert {answered_by(client) for _ in range(60)} == {"first", "second"}


def test_without_tls_nobody_is_answered(envoy: EnvoyProcess) -> None:
    with grpc.insecure_channel(f"localhost:{envoy.ports['grpc']}") as channel, pytest.raises(grpc.RpcError) as refused:
        health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


def test_health_and_its_watch_pass(certificates: Path, envoy: EnvoyProcess) -> None:
    credentials = grpc.ssl_channel_credentials((certificates / "ca.pem").read_bytes())
    with grpc.secure_channel(f"localhost:{envoy.ports['grpc']}", credentials) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service="runekeep.v1.SessionService")
        assert stub.Check(request, timeout=5).status == health_pb2.HealthCheckResponse.SERVING
        watch = stub.Watch(request, timeout=5)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        watch.cancel()


def test_what_is_no_grpc_is_not_passed_on(web: http.client.HTTPSConnection) -> None:
    assert asked(web, "GET", "/").status == 404


def test_a_browser_calls_by_grpc_web(web: http.client.HTTPSConnection) -> None:
    request = session_service_pb2.ListSessionsRequest().SerializeToString()
    headers = {
        "content-type": "application/grpc-web+proto",
        "origin": ORIGIN,
        "x-grpc-web": "1",
        "x-runekeep-user": "mara",
    }
    answer = asked(web, "POST", LIST, body=struct.pack(">BI", 0, len(request)) + request, headers=headers)
    assert answer.status == 200 and answer.headers["content-type"] == "application/grpc-web+proto"
    assert answer.headers["access-control-allow-origin"] == ORIGIN
    assert "grpc-status" in answer.headers["access-control-expose-headers"]
    flag, length = struct.unpack(">BI", answer.body[:5])
    assert flag == 0
    sessions = session_service_pb2.ListSessionsResponse.FromString(answer.body[5 : 5 + length]).sessions
    assert [session.session_id for session in sessions] in (["first"], ["second"])
    trailers = answer.body[5 + length :]
    assert trailers[0] == 0x80 and b"grpc-status:0" in trailers


@pytest.mark.parametrize(("origin", "allowed"), [(ORIGIN, ORIGIN), ("https://elsewhere.example", None)])
def test_browsers_are_told_who_may_call(web: http.client.HTTPSConnection, origin: str, allowed: str | None) -> None:
    headers = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,x-grpc-web",
    }
    answer = asked(web, "OPTIONS", LIST, headers=headers)
    assert answer.headers["access-control-allow-origin"] == allowed
    if allowed:
        assert "authorization" in answer.headers["access-control-allow-headers"]


@pytest.mark.parametrize(
    "name", sorted(name for name, method in METHODS.items() if method.audience is not Audience.USERS), ids=str
)
def test_services_of_workers_and_operators_are_not_passed_on(
    web: http.client.HTTPSConnection, certificates: Path, envoy: EnvoyProcess, servers: list[ServerProcess], name: str
) -> None:
    headers = {"content-type": "application/grpc-web+proto"}
    assert asked(web, "POST", name, body=b"\0\0\0\0\0", headers=headers).status == 404
    credentials = grpc.ssl_channel_credentials((certificates / "ca.pem").read_bytes())
    answers = []
    # These servers have no internal address and serve everything, so it is Envoy that refuses the call.
    for address in (f"localhost:{envoy.ports['grpc']}", servers[-1].address):
        with grpc.secure_channel(address, credentials) as channel, pytest.raises(grpc.RpcError) as refused:
            channel.stream_unary(name)(iter([b"\xff"]), timeout=10)
        answers.append(refused.value.code())
    assert answers == [grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INVALID_ARGUMENT]


def test_metrics_and_readiness_are_shown_and_the_administration_is_not(envoy: EnvoyProcess) -> None:
    def shown(path: str) -> Answer:
        return asked(http.client.HTTPConnection("127.0.0.1", envoy.ports["metrics"], timeout=10), "GET", path)

    assert shown("/ready").body.strip() == b"LIVE"
    assert b"envoy_cluster_upstream_rq_total" in shown("/metrics").body
    assert shown("/config_dump").status == shown("/quitquitquit").status == 404


def test_every_stream_has_a_route_without_a_time_limit_and_without_repeats(certificates: Path, tmp_path: Path) -> None:
    streams = {
        f"/{method.containing_service.full_name}/{method.name}"
        for service in SERVICES
        for method in service.methods
        if method.client_streaming or method.server_streaming
    }
    loaded = configuration(tmp_path, certificates, ["127.0.0.1:1"])
    listeners = {listener["name"]: listener for listener in loaded["static_resources"]["listeners"]}
    routes = {
        name: listeners[name]["filter_chains"][0]["filters"][0]["typed_config"]["route_config"]["virtual_hosts"][0][
            "routes"
        ]
        for name in ("grpc", "web")
    }
    told = {
        name: {
            route["match"]["path"]
            for route in some
            if "path" in route["match"] and route["match"]["path"].startswith("/runekeep.")
        }
        for name, some in routes.items()
    }
    streams = {path for path in streams if METHODS[path].audience is Audience.USERS}
    assert told["grpc"] == streams
    # gRPC-Web knows no streams of the caller.
    assert told["web"] == {path for path in streams if path.endswith(("/WatchTask", "/AskMemory", "/ExportSpace"))}
    for some in routes.values():
        for route in some:
            action = route["route"]
            if "retry_policy" in action:
                # What no server has seen, and nothing else: clients alone know what may be done twice.
                assert action["retry_policy"]["retry_on"] == "connect-failure,refused-stream"
                # The order counts: a stream must have been chosen before.
                assert not route["match"].get("path", "").startswith("/runekeep.")
            else:
                assert action["timeout"] == action["idle_timeout"] == "0s"
    services = {service.name for service in SERVICES}
    for some in routes.values():
        (pattern,) = [route["match"]["safe_regex"]["regex"] for route in some if "safe_regex" in route["match"]]
        named = {f"{word}Service" for word in pattern[pattern.index("(") + 1 : pattern.index(")")].split("|")}
        assert named == services - {name.rpartition(".")[2] for name in INTERNAL_SERVICES}


def test_a_new_certificate_is_taken_while_calls_go_on(certificates: Path, envoy: EnvoyProcess) -> None:
    def shown(listener: str) -> str:
        context = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
        with (
            socket.create_connection(("localhost", envoy.ports[listener]), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as wrapped,
        ):
            told = wrapped.getpeercert()
            assert told is not None
            return str(told["serialNumber"])

    before = {listener: shown(listener) for listener in ("grpc", "web")}
    with Client(f"localhost:{envoy.ports['grpc']}", user="mara", ca_file=certificates / "ca.pem") as client:
        answered_by(client)
        # As deploy/compose does it: the key first, so that for a moment the two do not fit together.
        renewed = certificates.with_name("renewed")
        shutil.copytree(certificates, renewed)
        (renewed / "server.pem").unlink()
        run(DEPLOY / "compose" / "certificates.sh", renewed)
        for name in ("server.key", "server.pem"):
            (renewed / name).rename(certificates / name)
        deadline = time.monotonic() + START_SECONDS
        while any(shown(listener) == before[listener] for listener in before):
            answered_by(client)
            assert time.monotonic() < deadline, envoy.log()
        answered_by(client)


def test_a_server_that_drains_gets_no_more_calls_and_none_fails(
    certificates: Path, envoy: EnvoyProcess, servers: list[ServerProcess]
) -> None:
    # The last test of this file: one server is gone after it.
    address = f"localhost:{envoy.ports['grpc']}"
    credentials = grpc.ssl_channel_credentials((certificates / "ca.pem").read_bytes())
    request = session_service_pb2.ListSessionsRequest()
    with grpc.secure_channel(address, credentials) as channel:
        # Without the client's own repeats.
        call = channel.unary_unary(
            LIST,
            request_serializer=session_service_pb2.ListSessionsRequest.SerializeToString,
            response_deserializer=session_service_pb2.ListSessionsResponse.FromString,
        )
        servers[0].terminate()
        came_from = []
        while envoy.healthy() == 2 or len(came_from) < 20:
            answer = call(request, timeout=10, metadata=(("x-runekeep-user", "mara"),))
            came_from.append(answer.sessions[0].session_id)
        servers[0].ended()
        last = [
            call(request, timeout=10, metadata=(("x-runekeep-user", "mara"),)).sessions[0].session_id for _ in range(20)
        ]
    assert set(last) == {"second"}, came_from
