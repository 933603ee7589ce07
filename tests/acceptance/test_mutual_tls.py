"""A whole commit over mutual TLS, by a real server, a real extractor and the client, while every certificate and the
authority behind them are replaced."""

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from runekeep import AccessDeniedError, Client, TextPart, TlsError
from runekeep.v1 import admin_service_pb2, admin_service_pb2_grpc
from tests.acceptance.processes import Processes
from tests.support.certificates import CLIENT, LOCAL, SERVER, Authority, replace
from tests.support.waiting import until

WAIT_SECONDS = 90.0
AGENT, WORKER = "spiffe://mesh.test/ns/agents/sa/ana", "worker.mesh.test"
RULES = [
    {"certificate": AGENT, "scope": "user", "account": "acme", "user": "ana"},
    {"certificate": WORKER, "scope": "worker"},
]
SERVER_TLS = {"RUNEKEEP_TLS__RELOAD_SECONDS": "0.5"}
"""Two looks in a row that find a certificate without its key are an error, and this process writes one after the
other: on a busy machine with a pause in between."""


class Pki:
    """The files of a server, an agent and a worker, in folders of their own, as something renews them."""

    def __init__(self, directory: Path) -> None:
        self.folders = {name: directory / name for name in ("server", "agent", "worker")}
        for folder in self.folders.values():
            folder.mkdir()
        self.authority = Authority("first")
        self.trust(self.authority)
        self.issue(self.authority)

    def trust(self, *authorities: Authority) -> None:
        for folder in self.folders.values():
            replace(folder / "ca.pem", b"".join(authority.certificate for authority in authorities))

    def issue(self, authority: Authority) -> None:
        authority.issue(*LOCAL, usages=(SERVER,)).write(self.folders["server"], "tls")
        authority.issue(AGENT, usages=(CLIENT,)).write(self.folders["agent"], "tls")
        authority.issue(WORKER, usages=(CLIENT,)).write(self.folders["worker"], "tls")

    def of_server(self) -> dict[str, str]:
        return self._named("server", "RUNEKEEP_TLS__CERTIFICATE", "RUNEKEEP_TLS__KEY", "RUNEKEEP_TLS__CLIENT_CA")

    def of_worker(self) -> dict[str, str]:
        prefix = "RUNEKEEP_EXTRACTOR_"
        return self._named("worker", f"{prefix}CERT_FILE", f"{prefix}KEY_FILE", f"{prefix}CA_FILE")

    def of_agent(self) -> dict[str, str]:
        return self._named("agent", "cert_file", "key_file", "ca_file")

    def _named(self, owner: str, certificate: str, key: str, authority: str) -> dict[str, str]:
        files = ((certificate, "tls.pem"), (key, "tls.key"), (authority, "ca.pem"))
        return {name: str(self.folders[owner] / file) for name, file in files}


@pytest.fixture
def pki(tmp_path: Path) -> Iterator[Pki]:
    (tmp_path / "pki").mkdir()
    yield Pki(tmp_path / "pki")


def remembered(client: Client, session: str, text: str) -> None:
    """Commits one session with this sentence, of which something is kept."""
    one = client.session(session)
    one.add_message("user", [TextPart(text)], speaker="Ana")
    task = client.wait_task(one.commit()["task_id"], timeout=WAIT_SECONDS)
    assert task["status"] == "completed", task["error"]
    assert task["result"] is not None and task["result"]["memories_extracted"], task["result"]


def test_a_commit_in_the_mode_mesh_while_the_authority_is_replaced(fleet: Processes, pki: Pki) -> None:
    mesh = {"RUNEKEEP_IDENTITY_MODE": "mesh", "RUNEKEEP_MESH__RULES": json.dumps(RULES)}
    server = fleet.server(**SERVER_TLS, **mesh, **pki.of_server())
    fleet.extractor("worker-1", "--engine", "offline", **pki.of_worker())
    first = {file: Path(file).read_bytes() for file in pki.of_agent().values()}

    def replaced(times: int) -> None:
        until(lambda: fleet.log("data").count("certificates_replaced") == times)

    with Client(f"https://{fleet.address}", **pki.of_agent()) as client:
        remembered(client, "one", "I live in Ghent with my sister.")

        # As docs/operate/tls.md has it: trust both, show what the new one made, trust the new one alone.
        second = Authority("second")
        pki.trust(pki.authority, second)
        replaced(1)
        pki.issue(second)
        replaced(2)
        pki.trust(second)
        replaced(3)
        remembered(client, "two", "My favourite drink is green tea.")
        # Both find a server again that comes back, by what their files hold now.
        server.stop()
        server.start(server.address)
        remembered(client, "three", "I work at the harbour.")

    for file, text in first.items():
        replace(Path(file), text)
    replace(Path(pki.of_agent()["ca_file"]), second.certificate)
    with pytest.raises(TlsError), Client(fleet.address, **pki.of_agent(), timeout=2) as client:
        client.get_session("one")
    server.stop()


def test_a_commit_in_the_mode_keys_takes_a_key_and_a_certificate(fleet: Processes, pki: Pki) -> None:
    admin_key, worker_key = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    keys = {
        "RUNEKEEP_IDENTITY_MODE": "keys",
        "RUNEKEEP_ADMIN_KEY": admin_key,
        "RUNEKEEP_WORKER_KEY": worker_key,
    }
    server = fleet.server(**SERVER_TLS, **keys, **pki.of_server())
    fleet.extractor("worker-1", "--engine", "offline", **pki.of_worker(), RUNEKEEP_EXTRACTOR_API_KEY=worker_key)
    stranger = fleet.extractor("worker-2", "--engine", "offline", **pki.of_worker())
    key = made_key(fleet.address, pki, admin_key)
    with Client(fleet.address, api_key=key, **pki.of_agent()) as client:
        remembered(client, "one", "I live in Ghent with my sister.")
    # A certificate without a key, a key without a certificate, and a worker with a certificate alone.
    with pytest.raises(AccessDeniedError), Client(fleet.address, **pki.of_agent()) as client:
        client.get_session("one")
    with (
        pytest.raises(TlsError),
        Client(fleet.address, api_key=key, ca_file=pki.of_agent()["ca_file"], timeout=2) as client,
    ):
        client.get_session("one")
    assert stranger.wait(WAIT_SECONDS) == 1 and "UNAUTHENTICATED" in fleet.log("worker-2")
    for secret in (admin_key, worker_key, key):
        assert secret not in fleet.log()
    server.stop()


def made_key(address: str, pki: Pki, admin_key: str) -> str:
    """A key for Ana, by an operator who has a certificate and the first key."""
    files = pki.of_agent()
    certificate, key, authority = (Path(files[name]).read_bytes() for name in ("cert_file", "key_file", "ca_file"))
    with grpc.secure_channel(address, grpc.ssl_channel_credentials(authority, key, certificate)) as channel:
        made = admin_service_pb2_grpc.AdminServiceStub(channel).CreateApiKey(
            admin_service_pb2.CreateApiKeyRequest(
                request_id="ana", scope=admin_service_pb2.SCOPE_USER, account="acme", user="ana"
            ),
            metadata=(("authorization", f"Bearer {admin_key}"),),
            timeout=20,
        )
    return str(made.secret)
