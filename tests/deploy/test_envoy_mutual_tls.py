"""Envoy's example with mutual TLS in front of both ports, gRPC and HTTP, and TLS behind it: calls and streams of
callers with a certificate and a key get through, and nobody else does."""

import io
import json
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from google.protobuf.descriptor import MethodDescriptor

from runekeep import AccessDeniedError, Client, RunekeepError
from runekeep.http_api.methods import path_of, served_methods
from runekeep_server.identity import Audience
from runekeep_server.rpc.methods import METHODS
from tests.deploy.envoy_process import EnvoyProcess, http_configuration
from tests.deploy.tools import DEPLOY, run
from tests.support.certificates import CLIENT, Authority, replace
from tests.support.keys import ADMIN_KEY, KEYED
from tests.support.server_process import ServerProcess
from tests.support.serving import serving

pytestmark = pytest.mark.deploy

CALLER = "spiffe://mesh.test/ns/agents/sa/ana"
SESSIONS, TASKS = "runekeep.v1.SessionService", "runekeep.v1.TaskService"
SPACES = "runekeep.v1.SpaceService"
STREAM = {"content-type": "application/connect+json"}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of servers and Envoy, by the script of deploy/; and of callers, by an authority of theirs and one of nobody's."""
    folder = tmp_path_factory.mktemp("certificates")
    run(DEPLOY / "compose" / "certificates.sh", folder)
    authority = Authority("callers")
    replace(folder / "callers.pem", authority.certificate)
    authority.issue(CALLER, usages=(CLIENT,)).write(folder, "caller")
    Authority("strangers").issue(CALLER, usages=(CLIENT,)).write(folder, "stranger")
    return folder


@pytest.fixture(scope="module")
def server(certificates: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    settings = {
        "RUNEKEEP_TLS__CERTIFICATE": str(certificates / "server.pem"),
        "RUNEKEEP_TLS__KEY": str(certificates / "server.key"),
        **KEYED,
    }
    process = ServerProcess(tmp_path_factory.mktemp("server"), settings)
    try:
        yield process.start()
    finally:
        process.discard()


@pytest.fixture(scope="module")
def key(certificates: Path, server: ServerProcess) -> str:
    """The key of a user."""
    with Client(server.address, api_key=ADMIN_KEY, ca_file=certificates / "ca.pem") as client:
        return str(client.admin.create_key("user", account="acme", user="ana")["secret"])


@pytest.fixture(scope="module")
def envoy(
    certificates: Path, server: ServerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EnvoyProcess]:
    tls = ("--tls-cert", str(certificates / "server.pem"), "--tls-key", str(certificates / "server.key"))
    trusted = str(certificates / "ca.pem")
    with serving("http", "--address", server.address, *tls, RUNEKEEP_CA_FILE=trusted) as url:
        address = url.removeprefix("https://").rstrip("/")
        folder = tmp_path_factory.mktemp("envoy")
        process = EnvoyProcess(folder, certificates, [server.address], [address], mutual_tls=True)
        process.validate()
        process.start()
        try:
            process.wait_until_healthy(1)
            process.wait_until_healthy(1, "http")
            yield process
        finally:
            process.stop()


@pytest.fixture
def by_grpc(certificates: Path, envoy: EnvoyProcess, key: str) -> Iterator[Client]:
    with Client(f"https://localhost:{envoy.ports['grpc']}", api_key=key, **of_caller(certificates)) as client:
        yield client


@pytest.fixture
def by_http(certificates: Path, envoy: EnvoyProcess, key: str) -> Iterator[httpx2.Client]:
    with httpx2.Client(
        base_url=f"https://localhost:{envoy.ports['http']}",
        verify=context(certificates, "caller"),
        headers={"authorization": f"Bearer {key}"},
        timeout=30,
    ) as client:
        yield client


def of_caller(certificates: Path, name: str = "caller") -> dict[str, Any]:
    files = {"cert_file": certificates / f"{name}.pem", "key_file": certificates / f"{name}.key"} if name else {}
    return {"ca_file": certificates / "ca.pem", **files}


def context(certificates: Path, name: str = "") -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(certificates / "ca.pem"))
    if name:
        made.load_cert_chain(certificates / f"{name}.pem", certificates / f"{name}.key")
    return made


def envelope(message: Any) -> bytes:
    body = json.dumps(message).encode()
    return struct.pack(">BI", 0, len(body)) + body


class Envelopes:
    """The messages of a stream of the Connect protocol, one after another, with their flags."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._read = b""

    def next(self) -> tuple[int, Any]:
        flags, size = struct.unpack(">BI", self._take(5))
        return flags, json.loads(self._take(size))

    def _take(self, size: int) -> bytes:
        while len(self._read) < size:
            self._read += next(self._pieces)
        taken, self._read = self._read[:size], self._read[size:]
        return taken


def committed(client: Client, session: str) -> str:
    talk = client.session(session)
    talk.add_message("user", "I live in Lisbon.")
    return talk.commit()["task_id"]


def test_calls_and_streams_pass_the_port_of_grpc(by_grpc: Client) -> None:
    task = committed(by_grpc, "grpc")
    updates = by_grpc.watch_task(task)
    assert next(updates)["kind"] == "snapshot"
    # The stream is open while this call is made, and tells of it.
    by_grpc.cancel_task(task)
    assert [one["kind"] for one in updates][-1] == "ended"
    whole = io.BytesIO()
    assert by_grpc.export_space(whole) == len(whole.getvalue()) > 0


def test_calls_and_streams_pass_the_port_of_http(by_http: httpx2.Client, by_grpc: Client) -> None:
    part = {"role": "ROLE_USER", "parts": [{"text": {"text": "I live in Lisbon."}}]}
    for method, request in (
        ("GetSession", {"session": "http", "autoCreate": True}),
        ("AddMessages", {"session": "http", "messages": [part]}),
        ("CommitSession", {"session": "http"}),
    ):
        answer = by_http.post(f"/{SESSIONS}/{method}", json=request)
        assert answer.status_code == 200, answer.text
    task = answer.json()["taskId"]
    listed = by_http.get(f"/{SESSIONS}/ListMessages", params={"encoding": "json", "message": '{"session":"http"}'})
    assert not listed.json().get("messages"), "all are archived"
    with by_http.stream("POST", f"/{TASKS}/WatchTask", content=envelope({"taskId": task}), headers=STREAM) as stream:
        envelopes = Envelopes(stream.iter_raw())
        assert envelopes.next()[1]["snapshot"]["taskId"] == task
        by_grpc.cancel_task(task)
        kinds = []
        while (last := envelopes.next())[0] != 2:
            kinds.append(next(iter(last[1])))
    assert kinds[-1] == "ended" and last == (2, {})
    with by_http.stream("POST", f"/{SPACES}/ExportSpace", content=envelope({}), headers=STREAM) as stream:
        assert Envelopes(stream.iter_raw()).next()[1]["data"]


@pytest.mark.parametrize("name", ["", "stranger"], ids=["without a certificate", "of another authority"])
def test_nobody_gets_through_without_a_certificate_of_the_authority(
    certificates: Path, envoy: EnvoyProcess, key: str, name: str
) -> None:
    address = f"https://localhost:{envoy.ports['grpc']}"
    stranger = Client(address, api_key=key, timeout=5, **of_caller(certificates, name))
    with stranger as client, pytest.raises(RunekeepError) as refused:
        list(client.list_sessions())
    assert refused.value.code == "UNAVAILABLE"
    url = f"https://localhost:{envoy.ports['http']}/healthz"
    with pytest.raises(httpx2.TransportError):
        httpx2.get(url, verify=context(certificates, name), timeout=5)


def test_a_certificate_is_no_key(certificates: Path, envoy: EnvoyProcess) -> None:
    keyless = Client(f"https://localhost:{envoy.ports['grpc']}", api_key="", **of_caller(certificates))
    with keyless as client, pytest.raises(AccessDeniedError):
        list(client.list_sessions())
    answer = httpx2.post(
        f"https://localhost:{envoy.ports['http']}/{SESSIONS}/ListSessions", json={},
        headers={"x-runekeep-account": "acme", "x-runekeep-user": "ana"}, verify=context(certificates, "caller"),
    )  # fmt: skip
    assert answer.status_code == 401 and answer.json()["code"] == "unauthenticated"


@pytest.mark.parametrize(
    "name", sorted(name for name, method in METHODS.items() if method.audience is not Audience.USERS), ids=str
)
def test_services_of_workers_and_operators_are_not_passed_on(by_http: httpx2.Client, name: str) -> None:
    answer = by_http.post(name, json={})
    assert answer.status_code == 404 and not answer.content


def test_the_description_and_the_health_are_passed_on(by_http: httpx2.Client) -> None:
    assert by_http.get("/healthz").json() == {"status": "serving"}
    assert by_http.get("/openapi.json").json()["openapi"].startswith("3.")


def test_every_stream_has_a_route_without_a_time_limit_and_without_repeats(certificates: Path, tmp_path: Path) -> None:
    (listener,) = http_configuration(tmp_path, certificates, ["127.0.0.1:1"])["static_resources"]["listeners"]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    routes = manager["route_config"]["virtual_hosts"][0]["routes"]
    streams: list[MethodDescriptor] = [method for method in served_methods() if method.server_streaming]
    told = {
        one["match"]["path"]: one["route"] for one in routes if one["match"].get("path", "").startswith("/runekeep.")
    }
    assert told.keys() == {path_of(method) for method in streams}
    for route in told.values():
        assert (route["timeout"], route["idle_timeout"]) == ("0s", "0s") and "retry_policy" not in route
    assert manager["stream_idle_timeout"] == "0s"
