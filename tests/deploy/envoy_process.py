"""A real Envoy with deploy/envoy/envoy.yaml, on free ports and in front of servers on this machine."""

import http.client
import json
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.tools import DEPLOY, installed, run

CONFIG = DEPLOY / "envoy" / "envoy.yaml"
HTTP = CONFIG.with_name("http.yaml")
MUTUAL_TLS = CONFIG.with_name("mutual_tls.yaml")
CERTIFICATE = CONFIG.with_name("certificate.yaml")
START_SECONDS = 30.0


def configuration(directory: Path, certificates: Path, servers: Sequence[str]) -> dict[str, Any]:
    """The file as it stands but for addresses and directories. The one that it names is written into `directory`."""
    loaded = _on_this_machine(CONFIG, directory, certificates)
    administration = loaded["admin"]["address"]["socket_address"]
    clusters = {cluster["name"]: cluster for cluster in loaded["static_resources"]["clusters"]}
    ((own,),) = [one["lb_endpoints"] for one in clusters["admin"]["load_assignment"]["endpoints"]]
    # The listener for metrics leads there, so this port has to be known before.
    with socket.create_server(("127.0.0.1", 0)) as free:
        administration["port_value"] = free.getsockname()[1]
    own["endpoint"]["address"]["socket_address"] = administration
    _lead_to(clusters["runekeep"], servers, 7433)
    return loaded


def http_configuration(directory: Path, certificates: Path, addresses: Sequence[str]) -> dict[str, Any]:
    """The addition for HTTP, in the same way. `addresses`: those of `runekeep http`."""
    loaded = _on_this_machine(HTTP, directory, certificates)
    (cluster,) = loaded["static_resources"]["clusters"]
    _lead_to(cluster, addresses, 7483)
    return loaded


def ask_for_certificates(loaded: dict[str, Any], certificates: Path) -> None:
    """Adds mutual TLS to every listener with TLS."""
    added = yaml.safe_load(MUTUAL_TLS.read_text().replace("/certificates/", f"{certificates}/"))
    for listener in loaded["static_resources"]["listeners"]:
        for chain in listener["filter_chains"]:
            if "transport_socket" in chain:
                context = chain["transport_socket"]["typed_config"]
                common = context["common_tls_context"] | added["common_tls_context"]
                context |= added | {"common_tls_context": common}


def _on_this_machine(file: Path, directory: Path, certificates: Path) -> dict[str, Any]:
    named = directory / CERTIFICATE.name
    named.write_text(CERTIFICATE.read_text().replace("/certificates", str(certificates)))
    text = file.read_text().replace(f"/etc/envoy/{CERTIFICATE.name}", str(named))
    loaded: dict[str, Any] = yaml.safe_load(text.replace("/certificates/", f"{certificates}/"))
    for listener in loaded["static_resources"]["listeners"]:
        listener["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": 0}
    return loaded


def _lead_to(cluster: dict[str, Any], addresses: Sequence[str], port: int) -> None:
    (endpoints,) = cluster["load_assignment"]["endpoints"]
    (named,) = endpoints["lb_endpoints"]
    assert named["endpoint"]["address"]["socket_address"] == {"address": "server", "port_value": port}
    endpoints["lb_endpoints"] = [
        {"endpoint": {"address": {"socket_address": {"address": host, "port_value": int(port)}}}}
        for host, port in (address.split(":") for address in addresses)
    ]


class EnvoyProcess:
    """`start`, then `ports` of the listeners by name, until `stop`. `http`: addresses of `runekeep http`; with
    `mutual_tls` callers need a certificate of the authority `callers.pem`."""

    def __init__(
        self,
        directory: Path,
        certificates: Path,
        servers: Sequence[str],
        http: Sequence[str] = (),
        *,
        mutual_tls: bool = False,
    ) -> None:
        self.ports: dict[str, int] = {}
        self._directory = directory
        file = directory / "envoy.json"
        loaded = configuration(directory, certificates, servers)
        added = http_configuration(directory, certificates, http) if http else None
        if mutual_tls:
            for one in filter(None, (loaded, added)):
                ask_for_certificates(one, certificates)
        file.write_text(json.dumps(loaded))
        self._options = ["--config-path", str(file), *(("--config-yaml", json.dumps(added)) if added else ())]
        self._admin = directory / "admin"

    def validate(self) -> str:
        """What Envoy says of its configuration; it must be good."""
        return run(installed("envoy"), "--mode", "validate", *self._options)

    def start(self) -> "EnvoyProcess":
        command = [installed("envoy"), *self._options, "--admin-address-path", str(self._admin)]
        with (self._directory / "envoy.log").open("w") as log:
            self._process = subprocess.Popen(
                [*command, "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warn"], stdout=log, stderr=log
            )
        try:
            deadline = time.monotonic() + START_SECONDS
            while not self._ready():
                assert self._process.poll() is None and time.monotonic() < deadline, self.log()
                time.sleep(0.05)
            self.ports = {
                listener["name"]: listener["local_address"]["socket_address"]["port_value"]
                for listener in json.loads(self.admin("/listeners?format=json"))["listener_statuses"]
            }
        except BaseException:
            self.stop()
            raise
        return self

    def healthy(self, name: str = "runekeep") -> int:
        """Servers of a cluster that it sends calls to."""
        told = json.loads(self.admin("/clusters?format=json"))["cluster_statuses"]
        (cluster,) = [one for one in told if one["name"] == name]
        return sum(set(host["health_status"]) == {"eds_health_status"} for host in cluster.get("host_statuses", []))

    def wait_until_healthy(self, number: int, name: str = "runekeep") -> None:
        deadline = time.monotonic() + START_SECONDS
        while self.healthy(name) != number:
            assert time.monotonic() < deadline, f"{self.healthy(name)} healthy servers\n{self.log()}"
            time.sleep(0.05)

    def admin(self, path: str) -> str:
        """What its administration answers."""
        connection = http.client.HTTPConnection(self._admin.read_text().strip(), timeout=10)
        try:
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def log(self) -> str:
        return (self._directory / "envoy.log").read_text()[-6000:]

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _ready(self) -> bool:
        try:
            return self.admin("/ready").strip() == "LIVE"
        except (OSError, http.client.HTTPException):
            return False
