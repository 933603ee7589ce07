"""The mode mesh on a real server: who gets in by which certificate, and who tries to."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from grpc_health.v1 import health_pb2, health_pb2_grpc

from runekeep.v1 import (
    admin_service_pb2,
    admin_service_pb2_grpc,
    extractor_service_pb2,
    extractor_service_pb2_grpc,
    session_service_pb2,
    session_service_pb2_grpc,
)
from tests.support.callers import Failure
from tests.support.certificates import CLIENT, DAY, LOCAL, SERVER, Authority, Pair, self_signed
from tests.support.server_process import ServerProcess
from tests.support.worker import Worker

MESH = "spiffe://mesh.test"
ANNA = f"{MESH}/ns/agents/sa/anna"
ACME = f"{MESH}/ns/agents/sa/scheduler"
ADMIN = "admin.mesh.test"
WORKER = "w-1.workers.mesh.test"
PROXY = f"{MESH}/ns/edge/sa/gateway"
RULES = [
    {"certificate": ANNA, "scope": "user", "account": "acme", "user": "anna"},
    {"certificate": f"{MESH}/ns/agents/sa/*", "scope": "account", "account": "acme"},
    {"certificate": ADMIN, "scope": "admin"},
    {"certificate": "*.workers.mesh.test", "scope": "worker"},
    {"certificate": PROXY, "scope": "proxy"},
]
OK, UNKNOWN, DENIED = "OK", "UNAUTHENTICATED", "PERMISSION_DENIED"
NO_CONNECTION = "UNAVAILABLE"

Metadata = tuple[tuple[str, str], ...]


def who(account: str = "", user: str = "", scope: str = "") -> Metadata:
    given = (("account", account), ("user", user), ("scope", scope))
    return tuple((f"x-runekeep-{name}", value) for name, value in given if value)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority("mesh")


@pytest.fixture(scope="module")
def server_settings(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    directory = tmp_path_factory.mktemp("tls")
    certificate, key = authority.issue(*LOCAL, usages=(SERVER,)).write(directory, "server")
    return {
        "RUNEKEEP_IDENTITY_MODE": "mesh",
        "RUNEKEEP_TLS__CERTIFICATE": str(certificate),
        "RUNEKEEP_TLS__KEY": str(key),
        "RUNEKEEP_TLS__CLIENT_CA": str(authority.write(directory)),
        "RUNEKEEP_MESH__RULES": json.dumps(RULES),
    }


class Door:
    """Connects to the server as the holder of certificates."""

    def __init__(self, address: str, authority: Authority) -> None:
        self.address = address
        self._authority = authority
        self._open: list[grpc.aio.Channel] = []

    def by(self, pair: Pair | None) -> grpc.aio.Channel:
        credentials = grpc.ssl_channel_credentials(
            self._authority.certificate, pair and pair.key, pair and pair.certificate
        )
        self._open.append(grpc.aio.secure_channel(self.address, credentials))
        return self._open[-1]

    def holding(self, *names: str) -> grpc.aio.Channel:
        return self.by(self._authority.issue(*names, usages=(CLIENT,)))

    async def close(self) -> None:
        for channel in self._open:
            await channel.close()


@pytest.fixture
async def door(server: ServerProcess, authority: Authority) -> AsyncIterator[Door]:
    made = Door(server.address, authority)
    yield made
    await made.close()


async def outcome(call: Any) -> str:
    """The status of a call, in a word."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        if error.code().name in (UNKNOWN, DENIED):
            assert Failure(error).reason == "ACCESS_DENIED"
        return error.code().name
    return OK


async def as_user(channel: grpc.aio.Channel, metadata: Metadata = (), session: str = "mine") -> str:
    request = session_service_pb2.GetSessionRequest(session=session, auto_create=True)
    stub = session_service_pb2_grpc.SessionServiceStub(channel)
    return await outcome(stub.GetSession(request, metadata=metadata, timeout=20))


async def as_admin(channel: grpc.aio.Channel, metadata: Metadata = ()) -> str:
    stub = admin_service_pb2_grpc.AdminServiceStub(channel)
    return await outcome(stub.ListApiKeys(admin_service_pb2.ListApiKeysRequest(), metadata=metadata, timeout=20))


async def as_worker(channel: grpc.aio.Channel) -> str:
    """By a request without a lease: who gets past the door is told what it lacks."""
    stub = extractor_service_pb2_grpc.ExtractorServiceStub(channel)
    code = await outcome(stub.ReadForJob(extractor_service_pb2.ReadForJobRequest(), timeout=20))
    return OK if code == "INVALID_ARGUMENT" else code


# At the door of TLS


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param(None, id="no certificate"),
        pytest.param(Authority("mesh").issue(ADMIN), id="of an authority of the same name"),
        pytest.param(self_signed(ADMIN), id="self-signed"),
    ],
)
async def test_who_is_vouched_for_by_nobody_gets_no_connection(door: Door, pair: Pair | None) -> None:
    channel = door.by(pair)
    assert await as_admin(channel) == NO_CONNECTION
    assert await as_user(channel, who("acme", "anna", "admin")) == NO_CONNECTION


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"ends": -DAY / 2}, id="expired"),
        pytest.param({"starts": DAY}, id="not yet valid"),
        pytest.param({"usages": (SERVER,)}, id="made for servers"),
    ],
)
async def test_a_certificate_that_does_not_hold_gets_no_connection(
    door: Door, authority: Authority, wrong: dict[str, Any]
) -> None:
    assert await as_admin(door.by(authority.issue(ADMIN, **wrong))) == NO_CONNECTION


async def test_a_holder_of_a_certificate_cannot_vouch_for_others(door: Door, authority: Authority) -> None:
    holder = authority.issue(f"{MESH}/ns/other/sa/any")
    forged = Authority.held_by(holder).issue(ADMIN)
    assert await as_admin(door.by(forged)) == NO_CONNECTION


async def test_a_certificate_from_below_the_authority_gets_in(door: Door, authority: Authority) -> None:
    below = Authority("mesh of one cluster", signed_by=authority)
    assert await as_admin(door.by(below.issue(ADMIN))) == OK


async def test_plain_text_gets_no_connection(server: ServerProcess) -> None:
    async with grpc.aio.insecure_channel(server.address) as channel:
        assert await as_user(channel, who("acme", "anna")) == NO_CONNECTION


# By which certificate


async def test_each_scope_opens_its_own_service_and_no_other(door: Door) -> None:
    for name, user, admin, worker in (
        (ANNA, OK, DENIED, DENIED),
        (ADMIN, DENIED, OK, DENIED),
        (WORKER, DENIED, DENIED, OK),
    ):
        channel = door.holding(name)
        assert (await as_user(channel), await as_admin(channel), await as_worker(channel)) == (user, admin, worker)


@pytest.mark.parametrize(
    "names",
    [
        pytest.param((), id="no name"),
        pytest.param((f"{MESH}/ns/agents",), id="the beginning of a rule"),
        pytest.param((f"{ANNA}/x",), id="an extra segment"),
        pytest.param((f"{MESH}/ns/agents/sa/",), id="an empty segment"),
        pytest.param((f"{MESH}/ns/agents/sa//anna",), id="a doubled slash"),
        pytest.param((f"{MESH}/ns/agents/sa/a%2Fb",), id="a slash in per cent"),
        pytest.param((f"{MESH}/ns/agents/sa/%61nna",), id="a letter in per cent"),
        pytest.param((f"{MESH}/ns/agents/sa/..",), id="dots"),
        pytest.param((f"{MESH}/ns/agents/sa/*",), id="the rule itself"),
        pytest.param((f"{ANNA}?x=1",), id="a query"),
        pytest.param((f"{ANNA}#x",), id="a fragment"),
        pytest.param((f"{MESH}.example/ns/agents/sa/anna",), id="another trust domain"),
        pytest.param((f"https://evil.test/{ANNA}",), id="a rule within"),
        pytest.param((f"{MESH}/ns/agents/sa/anna".upper(),), id="upper case"),
        pytest.param(("SPIFFE://mesh.test/ns/agents/sa/anna",), id="an upper case scheme"),
        pytest.param(("spiffe://mesh-test/ns/agents/sa/anna",), id="another sign for a dot"),
        pytest.param(("admin-mesh.test",), id="another sign for a name's dot"),
        pytest.param(("Admin.mesh.test",), id="an upper case name"),
        pytest.param(("admin.mesh.test.",), id="a dot at the end"),
        pytest.param(("admin.mesh.test.evil.test",), id="a longer name"),
        pytest.param(("x.admin.mesh.test",), id="a name below"),
        pytest.param(("*.mesh.test",), id="a wildcard that would cover it"),
        pytest.param(("*.workers.mesh.test",), id="a wildcard that is the rule"),
        pytest.param(("a.b.workers.mesh.test",), id="two labels for one"),
        pytest.param(("workers.mesh.test",), id="no label for one"),
        pytest.param(("anna@admin.mesh.test",), id="an e-mail address"),
        pytest.param((ANNA, PROXY), id="two URIs that both fit"),
        pytest.param((f"{MESH}/ns/other/sa/x", ANNA), id="two URIs of which one fits"),
        pytest.param((f"{MESH}/ns/other/sa/x", f"{MESH}/ns/other/sa/y", ADMIN), id="two URIs beside a name that fits"),
    ],
)
async def test_a_name_that_only_resembles_a_rule_is_nobody(door: Door, names: tuple[str, ...]) -> None:
    channel = door.holding(*names)
    assert await as_user(channel, who(user="anna")) == UNKNOWN
    assert await as_admin(channel) == UNKNOWN
    assert await as_worker(channel) == UNKNOWN


async def test_the_common_name_is_no_name(door: Door, authority: Authority) -> None:
    assert await as_admin(door.by(authority.issue(common_name=ADMIN))) == UNKNOWN


async def test_a_rule_for_names_does_not_read_uris_nor_the_other_way_round(door: Door, authority: Authority) -> None:
    uri_as_name = x509.SubjectAlternativeName([x509.DNSName(ANNA)])
    name_as_uri = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(ADMIN)])
    for names in (uri_as_name, name_as_uri):
        channel = door.by(authority.issue(alternatives=names))
        assert {await as_user(channel), await as_admin(channel)} == {UNKNOWN}


async def test_of_several_dns_names_the_first_rule_that_fits_any_holds(door: Door) -> None:
    channel = door.holding("other.mesh.test", WORKER, ADMIN)
    assert (await as_admin(channel), await as_worker(channel)) == (OK, DENIED)


# What a certificate's holder says


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (who(), OK),
        (who("acme", "anna"), OK),
        (who(scope="user"), OK),
        (who("other", "anna"), DENIED),
        (who("acme", "ben"), DENIED),
        (who(user="ben"), DENIED),
        (who("acme", "anna", "admin"), DENIED),
        (who(scope="worker"), DENIED),
        (who(scope="account"), DENIED),
        (who(scope="proxy"), DENIED),
        (who("acme") + who("acme"), UNKNOWN),
        (who(user="anna") + who(user="ben"), UNKNOWN),
        (who(scope="user") + who(scope="admin"), UNKNOWN),
        (who(user="../ben"), UNKNOWN),
    ],
)
async def test_a_user_s_certificate_is_for_that_user_whatever_the_metadata_say(
    door: Door, metadata: Metadata, expected: str
) -> None:
    assert await as_user(door.holding(ANNA), metadata) == expected


async def test_nobody_becomes_an_operator_or_a_worker_by_saying_so(door: Door) -> None:
    for name in (ANNA, ACME, WORKER):
        assert await as_admin(door.holding(name), who(scope="admin")) == DENIED
    assert await as_user(door.holding(ADMIN), who("acme", "anna", "user")) == DENIED


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (who(user="anna"), OK),
        (who("acme", "ben"), OK),
        (who(), UNKNOWN),
        (who("acme"), UNKNOWN),
        (who("other", "anna"), DENIED),
        (who(user="anna", scope="user"), DENIED),
        (who(user="anna") + who(user="anna"), UNKNOWN),
        (who(user="memories"), UNKNOWN),
    ],
)
async def test_an_account_s_certificate_names_a_user_of_it(door: Door, metadata: Metadata, expected: str) -> None:
    assert await as_user(door.holding(ACME), metadata) == expected


# What a proxy says


@pytest.mark.parametrize(
    ("metadata", "user", "admin"),
    [
        (who("acme", "anna"), OK, DENIED),
        (who("other", "zoe", "user"), OK, DENIED),
        (who(scope="admin"), DENIED, OK),
        (who(scope="worker"), DENIED, DENIED),
        (who(), UNKNOWN, UNKNOWN),
        (who("acme"), UNKNOWN, UNKNOWN),
        (who(user="anna"), UNKNOWN, UNKNOWN),
        (who("acme", "anna", "account"), UNKNOWN, UNKNOWN),
        (who("acme", "anna", "proxy"), UNKNOWN, UNKNOWN),
        (who("acme", "anna", "Admin"), UNKNOWN, UNKNOWN),
        (who("acme", "anna", "user,admin"), UNKNOWN, UNKNOWN),
        (who("acme,other", "anna"), UNKNOWN, UNKNOWN),
        (who("acme", "anna") + who("acme"), UNKNOWN, UNKNOWN),
        (who("acme", "anna") + who(user="zoe"), UNKNOWN, UNKNOWN),
        (who("acme", "anna", "user") + who(scope="admin"), UNKNOWN, UNKNOWN),
    ],
)
async def test_a_proxy_is_believed_when_it_says_one_thing(
    door: Door, metadata: Metadata, user: str, admin: str
) -> None:
    channel = door.holding(PROXY)
    assert (await as_user(channel, metadata), await as_admin(channel, metadata)) == (user, admin)


async def test_what_a_proxy_says_and_what_certificates_say_are_the_same_users(door: Door) -> None:
    assert await as_user(door.holding(ANNA), session="shared") == OK
    stub = session_service_pb2_grpc.SessionServiceStub(door.holding(PROXY))
    request = session_service_pb2.GetSessionRequest(session="shared")
    for metadata, expected in (
        (who("acme", "anna"), OK),
        (who("acme", "ben"), "NOT_FOUND"),
        (who("b", "anna"), "NOT_FOUND"),
    ):
        assert await outcome(stub.GetSession(request, metadata=metadata, timeout=20)) == expected


# What needs no rule, and what ends


async def test_health_needs_a_certificate_but_no_rule(door: Door) -> None:
    check = health_pb2.HealthCheckRequest()
    assert await outcome(health_pb2_grpc.HealthStub(door.holding("probe.test")).Check(check, timeout=20)) == OK
    assert await outcome(health_pb2_grpc.HealthStub(door.by(None)).Check(check, timeout=20)) == NO_CONNECTION


async def test_what_a_certificate_opened_ends_with_it(door: Door, authority: Authority) -> None:
    """Here it ends while a stream and a connection are open, which no handshake would notice."""
    channel = door.by(authority.issue(WORKER, ends=timedelta(seconds=3)))
    async with Worker(channel) as worker:
        failure = await worker.end()
        assert failure is not None and failure.code.name == UNKNOWN
    assert await as_admin(channel) in (UNKNOWN, NO_CONNECTION)


# A proxy on this machine


@pytest.fixture(scope="module")
def behind_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    settings = {"RUNEKEEP_IDENTITY_MODE": "mesh", "RUNEKEEP_MESH__TRUST_LOOPBACK": "true"}
    process = ServerProcess(tmp_path_factory.mktemp("proxied") / "data", settings).start()
    try:
        yield process
        process.stop()
    finally:
        process.discard()


@pytest.mark.parametrize(
    ("metadata", "user", "admin"),
    [
        (who("acme", "anna"), OK, DENIED),
        (who(scope="admin"), DENIED, OK),
        (who(), UNKNOWN, UNKNOWN),
        (who("acme", "anna") + who(user="ben"), UNKNOWN, UNKNOWN),
    ],
)
async def test_a_proxy_on_this_machine_is_believed(
    behind_proxy: ServerProcess, metadata: Metadata, user: str, admin: str
) -> None:
    async with grpc.aio.insecure_channel(behind_proxy.address) as channel:
        assert (await as_user(channel, metadata), await as_admin(channel, metadata)) == (user, admin)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"RUNEKEEP_TLS__CERTIFICATE": "none.pem"}, "tls.certificate: none.pem cannot be read"),
        ({"RUNEKEEP_ADDRESS": "0.0.0.0:0", "RUNEKEEP_TLS__CLIENT_CA": ""}, "tls.client_ca (RUNEKEEP_TLS__CLIENT_CA)"),
    ],
)
async def test_a_server_that_cannot_know_its_callers_does_not_start(
    server_settings: dict[str, str], tmp_path: Path, settings: dict[str, str], said: str
) -> None:
    process = ServerProcess(tmp_path / "data", server_settings | settings)
    with pytest.raises(AssertionError, match="did not start") as refused:
        await asyncio.to_thread(process.start, settings.get("RUNEKEEP_ADDRESS", "127.0.0.1:0"))
    process.discard()
    assert said in str(refused.value) and "Traceback" not in str(refused.value)
