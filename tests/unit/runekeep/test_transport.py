"""How the client reaches a server: what it refuses to do, what it says when certificates stand in the way, rotation."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from runekeep import AccessDeniedError, AsyncClient, Client, RunekeepError, TlsError, UnavailableError
from runekeep.client.connection.connection import NAMES
from runekeep.transport.transport import TransportError, transport
from runekeep.v1 import session_service_pb2, session_service_pb2_grpc, task_service_pb2, task_service_pb2_grpc
from tests.support.certificates import CLIENT, DAY, LOCAL, SERVER, Authority, Pair, self_signed

KEY = "rk_abcdefghijklmnop_" + "s" * 43


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ADDRESS", "ACCOUNT", "USER", "API_KEY", "CA_FILE", "CERT_FILE", "KEY_FILE"):
        monkeypatch.delenv(f"RUNEKEEP_{name}", raising=False)


# What is refused before anything is sent


@pytest.mark.parametrize(
    "address",
    [
        "runekeep.internal:7433",
        "10.0.0.5:7433",
        "0.0.0.0:7433",
        "127.0.0.1.example.org:7433",
        "localhost.example.org:7433",
        "[::ffff:10.0.0.5]:7433",
        "[2001:db8::1]:7433",
        "ipv4:127.0.0.1:7433,10.0.0.5:7433",
    ],
)
@pytest.mark.parametrize("by", ["argument", "variable"])
def test_a_key_never_goes_over_a_network_in_plain_text(monkeypatch: pytest.MonkeyPatch, address: str, by: str) -> None:
    if by == "variable":
        monkeypatch.setenv("RUNEKEEP_API_KEY", KEY)
    with pytest.raises(ValueError, match="in plain text") as refused:
        Client(address, api_key=KEY if by == "argument" else None)
    assert f"https://{address}" in str(refused.value) and "RUNEKEEP_CA_FILE" in str(refused.value)
    assert KEY not in str(refused.value)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:7433", "127.9.9.9:1", "localhost:7433", "[::1]:7433", "ipv4:127.0.0.1:1,127.0.0.2:2", "ipv6:[::1]:1"],
)
def test_a_key_may_go_to_this_machine_in_plain_text(address: str) -> None:
    way = transport(address, NAMES, api_key=f" {KEY}\n")
    assert way.metadata == (("authorization", f"Bearer {KEY}"),) and not way.tls
    assert KEY not in repr(way)


def test_over_tls_a_key_may_go_anywhere(tmp_path: Path) -> None:
    ca = Authority().write(tmp_path)
    assert transport("https://runekeep.internal:7433", NAMES, api_key=KEY).tls
    assert transport("runekeep.internal:7433", NAMES, api_key=KEY, ca_file=ca).tls


@pytest.mark.parametrize(
    ("address", "target"),
    [
        ("https://memory.example.org", "memory.example.org:443"),
        ("https://memory.example.org:7433/", "memory.example.org:7433"),
        ("https://[::1]:7433", "[::1]:7433"),
        ("https://[::1]", "[::1]:443"),
    ],
)
def test_addresses_over_tls(address: str, target: str) -> None:
    way = transport(address, NAMES)
    assert (way.tls, way.target) == (True, target)


def test_an_address_of_many_servers_is_under_the_same_rules(tmp_path: Path) -> None:
    ca = Authority().write(tmp_path)
    way = transport("dns:///runekeep-headless.memory:7433", NAMES, ca_file=ca, api_key=KEY)
    assert (way.tls, way.balanced, way.target) == (True, True, "runekeep-headless.memory:7433")
    assert not transport("runekeep:7433", NAMES).balanced
    assert transport("dns:///[::1]:7433", NAMES, api_key=KEY).balanced
    with pytest.raises(TransportError, match="in plain text, for everybody on the way to read: give RUNEKEEP_CA_FILE"):
        transport("dns:///runekeep-headless:7433", NAMES, api_key=KEY)


@pytest.mark.parametrize(
    "address",
    [
        "dns:///host",
        "dns:host:7433",
        "dns://10.0.0.1/host:7433",
        "dns:///https://host:7433",
        "http://127.0.0.1:7433",
        "127.0.0.1",
        "::1:7433",
        ":7433",
        "https://",
        "https://host:7433/path",
        "https://user@host:7433",
        "host:port",
        "unix:/run/runekeep",
        "ipv4:host:7433",
        "ipv4:127.0.0.1:7433,",
        "HTTPS://host:7433",
    ],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="is no address of a server: write host:port, or https://host:port"):
        Client(address)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"cert_file": "a.pem"}, "give both RUNEKEEP_CERT_FILE and RUNEKEEP_KEY_FILE"),
        ({"key_file": "a.key"}, "give both"),
        ({"cert_file": "a.pem", "key_file": "a.key"}, "shown over TLS only"),
        ({"api_key": f"{KEY}\r\nx-runekeep-user: mara"}, "RUNEKEEP_API_KEY holds what can be no key"),
        ({"api_key": "schlüssel"}, "can be no key"),
        (
            {"address": "ipv4:127.0.0.1:1,127.0.0.2:1", "ca_file": "a.pem"},
            "no name that a certificate could",
        ),
        ({"ca_file": "none.pem"}, "none.pem cannot be read: No such file"),
    ],
)
def test_parts_that_do_not_go_together_are_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        Client(**{"address": "127.0.0.1:7433", **given})  # type: ignore[arg-type]
    assert KEY not in str(refused.value)


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    authority, nonsense = Authority(), tmp_path / "nonsense.pem"
    nonsense.write_bytes(b"nonsense")
    ca, (certificate, key) = authority.write(tmp_path), authority.issue("a").write(tmp_path, "a")
    other, _ = authority.issue("b").write(tmp_path, "b")
    with pytest.raises(TransportError, match=r"nonsense.pem \(RUNEKEEP_CA_FILE\) holds no certificate"):
        transport("h:1", NAMES, ca_file=nonsense).check()
    with pytest.raises(TransportError, match=r"b.pem \(RUNEKEEP_CERT_FILE\) and .*a.key .* are not a certificate and"):
        transport("h:1", NAMES, ca_file=ca, cert_file=other, key_file=key).check()
    with pytest.raises(TransportError, match="are not a certificate and its key"):
        transport("h:1", NAMES, ca_file=ca, cert_file=certificate, key_file=nonsense).check()
    transport("h:1", NAMES, ca_file=ca, cert_file=certificate, key_file=key).check()


@pytest.mark.parametrize("gone", ["ca.pem", "a.pem", "a.key"])
def test_a_file_that_goes_while_it_is_looked_at_is_named(
    tmp_path: Path, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What renews certificates may remove one before it writes the next."""
    authority = Authority()
    ca, (certificate, key) = authority.write(tmp_path), authority.issue("a").write(tmp_path, "a")
    way = transport("h:1", NAMES, ca_file=ca, cert_file=certificate, key_file=key)
    held = type(way)._held

    def held_and_gone(self: Any) -> Any:
        found = held(self)
        (tmp_path / gone).unlink()
        return found

    monkeypatch.setattr(type(way), "_held", held_and_gone)
    with pytest.raises(TransportError, match=f"{gone} .*cannot be read: No such file"):
        way.check()


# What is said when no connection comes about


class Sessions(session_service_pb2_grpc.SessionServiceServicer):
    """Answers every GetSession, and keeps what the calls carried."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    async def GetSession(self, request: Any, context: Any) -> Any:
        metadata = {key: value for key, value in context.invocation_metadata()}
        self.calls.append({**metadata, "certificate": context.auth_context().get("peer_uri", [b""])[0].decode()})
        if request.session == "denied":
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "no")
        return session_service_pb2.GetSessionResponse(session=session_service_pb2.Session(session_id=request.session))


class Tasks(task_service_pb2_grpc.TaskServiceServicer):
    """A task that begins, and ends when it is told to."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def WatchTask(self, request: Any, context: Any) -> AsyncIterator[Any]:
        task = task_service_pb2.Task(task_id=request.task_id, state=task_service_pb2.TASK_STATE_RUNNING)
        yield task_service_pb2.WatchTaskResponse(snapshot=task)
        await self.go_on.wait()
        task.state = task_service_pb2.TASK_STATE_COMPLETED
        yield task_service_pb2.WatchTaskResponse(ended=task)


class Double:
    """A server on a port: plain, over TLS, or for callers of an authority only."""

    def __init__(self, pair: Pair | None, callers: Authority | None, port: int = 0, host: str = "127.0.0.1") -> None:
        self.sessions, self.tasks = Sessions(), Tasks()
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        session_service_pb2_grpc.add_SessionServiceServicer_to_server(self.sessions, self._server)
        task_service_pb2_grpc.add_TaskServiceServicer_to_server(self.tasks, self._server)
        address = f"{host}:{port}"
        if pair is None:
            self.port = self._server.add_insecure_port(address)
        else:
            credentials = grpc.ssl_server_credentials(
                [(pair.key, pair.certificate)], callers and callers.certificate, callers is not None
            )
            self.port = self._server.add_secure_port(address, credentials)

    async def start(self) -> None:
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(None)


Serve = Callable[..., Awaitable[Double]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    async with AsyncExitStack() as stack:

        async def start(
            pair: Pair | None = None, callers: Authority | None = None, port: int = 0, host: str = "127.0.0.1"
        ) -> Double:
            double = Double(pair, callers, port, host)
            await double.start()
            stack.push_async_callback(double.stop)
            return double

        yield start


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
def ca(authority: Authority, tmp_path: Path) -> Path:
    return authority.write(tmp_path)


async def refused(address: str, **way: Any) -> TlsError:
    async with AsyncClient(address, timeout=2, **way) as client:
        with pytest.raises(TlsError) as raised:
            await client.get_session("s")
    # As a command shows it.
    assert str(raised.value).startswith("UNAVAILABLE: ")
    return raised.value


@pytest.mark.parametrize(
    ("issue", "said"),
    [
        (lambda authority: Authority("other").issue(*LOCAL), r"comes from no authority that .*ca.pem holds. Name the"),
        (lambda authority: self_signed(*LOCAL), "comes from no authority"),
        (lambda authority: authority.issue(*LOCAL, ends=-DAY / 2), "has expired: its operator must renew it"),
        (lambda authority: authority.issue(*LOCAL, starts=DAY), "not valid yet"),
        (lambda authority: authority.issue("db.example.org"), r"is for other names than 127.0.0.1. Call the server by"),
        (lambda authority: authority.issue(*LOCAL, usages=(CLIENT,)), "is not made for servers"),
    ],
)
async def test_a_server_that_proves_nothing_is_not_spoken_to(
    serve: Serve, authority: Authority, ca: Path, issue: Callable[[Authority], Pair], said: str
) -> None:
    double = await serve(issue(authority))
    with pytest.raises(TlsError, match=said) as raised:
        async with AsyncClient(f"127.0.0.1:{double.port}", ca_file=ca, timeout=60) as client:
            await client.get_session("s")
    assert raised.value.certain and not double.sessions.calls


async def test_an_authority_that_the_system_does_not_know_is_not_trusted(serve: Serve, authority: Authority) -> None:
    double = await serve(authority.issue(*LOCAL))
    error = await refused(f"https://127.0.0.1:{double.port}", api_key=KEY)
    assert "no authority that this system trusts" in str(error) and "RUNEKEEP_CA_FILE" in str(error)


async def test_tls_to_a_plain_port_says_so(serve: Serve, ca: Path) -> None:
    double = await serve()
    error = await refused(f"127.0.0.1:{double.port}", ca_file=ca)
    assert error.certain and "does not speak TLS" in str(error) and "without https://" in str(error)


async def test_plain_text_to_a_port_with_tls_says_so(serve: Serve, authority: Authority) -> None:
    double = await serve(authority.issue(*LOCAL))
    error = await refused(f"127.0.0.1:{double.port}")
    assert not error.certain and f"may speak TLS. Then write its address as https://127.0.0.1:{double.port}" in str(
        error
    )


async def test_of_many_servers_it_is_said_too(serve: Serve, authority: Authority, ca: Path) -> None:
    double = await serve(authority.issue("db.example.org"))
    assert "may speak TLS" in str(await refused(f"dns:///127.0.0.1:{double.port}"))
    assert "is for other names than 127.0.0.1." in str(await refused(f"dns:///127.0.0.1:{double.port}", ca_file=ca))


async def test_a_client_certificate_that_is_missing_or_not_taken_is_asked_for(
    serve: Serve, authority: Authority, ca: Path, tmp_path: Path
) -> None:
    double = await serve(authority.issue(*LOCAL, usages=(SERVER,)), authority)
    address = f"127.0.0.1:{double.port}"
    error = await refused(address, ca_file=ca)
    assert "may ask callers for a certificate" in str(error) and "RUNEKEEP_CERT_FILE" in str(error)
    certificate, key = Authority("other").issue("spiffe://mesh/a").write(tmp_path, "other")
    error = await refused(address, ca_file=ca, cert_file=certificate, key_file=key)
    assert f"may not take the certificate in {certificate}" in str(error)
    assert not double.sessions.calls


async def test_a_server_that_is_not_there_is_no_fault_of_tls(serve: Serve, ca: Path) -> None:
    double = await serve()
    await double.stop()
    # More than all its attempts take: a deadline that is over in the middle of one is another error.
    async with AsyncClient(f"127.0.0.1:{double.port}", ca_file=ca, timeout=60) as client:
        with pytest.raises(UnavailableError) as raised:
            await client.get_session("s")
    assert not isinstance(raised.value, TlsError)


# What calls carry


async def test_a_call_carries_the_key_and_the_certificate(
    serve: Serve, authority: Authority, ca: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    double = await serve(authority.issue(*LOCAL), authority)
    certificate, key = authority.issue("spiffe://mesh/agent").write(tmp_path, "agent")
    for name, value in (("API_KEY", KEY), ("CA_FILE", ca), ("CERT_FILE", certificate), ("KEY_FILE", key)):
        monkeypatch.setenv(f"RUNEKEEP_{name}", str(value))
    async with AsyncClient(f"https://127.0.0.1:{double.port}", user="mara") as client:
        await client.get_session("s")
        with pytest.raises(AccessDeniedError) as raised:
            await client.get_session("denied")
    [first, _] = double.sessions.calls
    assert first["authorization"] == f"Bearer {KEY}" and first["certificate"] == "spiffe://mesh/agent"
    assert first["x-runekeep-user"] == "mara"
    assert KEY not in repr(raised.value) + str(raised.value)


async def test_what_goes_to_this_machine_goes_through_no_proxy(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the proxy would read the key, and connect to a port of its own machine."""
    asked: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        writer.close()

    double, listening = await serve(), await asyncio.start_server(proxy, "127.0.0.1")
    async with listening:
        for name in ("http_proxy", "https_proxy", "grpc_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
        for name in ("no_proxy", "no_grpc_proxy"):
            monkeypatch.delenv(name, raising=False)
        async with AsyncClient(f"127.0.0.1:{double.port}", api_key=KEY) as client:
            await client.get_session("s")
    assert not asked and len(double.sessions.calls) == 1


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="localhost has one address here")
async def test_calls_to_many_servers_take_turns_and_to_one_name_stay(
    serve: Serve, authority: Authority, ca: Path
) -> None:
    pair = authority.issue(*LOCAL)
    first = await serve(pair)
    second = await serve(pair, port=first.port, host="[::1]")
    for address, both in ((f"localhost:{first.port}", False), (f"dns:///localhost:{first.port}", True)):
        async with AsyncClient(address, api_key=KEY, ca_file=ca) as client:
            for double in (first, second):
                double.sessions.calls.clear()
            # The second connection may take its time.
            async with asyncio.timeout(30):
                while both and not (first.sessions.calls and second.sessions.calls):
                    await client.get_session("s")
            for _ in range(20):
                await client.get_session("s")
        assert bool(first.sessions.calls and second.sessions.calls) == both


# Files that are replaced while a client runs


async def test_a_new_certificate_is_shown_by_calls_that_begin_later_and_a_watch_goes_on(
    serve: Serve, authority: Authority, ca: Path, tmp_path: Path
) -> None:
    double = await serve(authority.issue(*LOCAL), authority)
    old, new = authority.issue("spiffe://mesh/old"), authority.issue("spiffe://mesh/new")
    certificate, key = old.write(tmp_path, "agent")
    async with AsyncClient(f"127.0.0.1:{double.port}", ca_file=ca, cert_file=certificate, key_file=key) as client:
        watch = client.watch_task("t")
        assert (await anext(watch))["kind"] == "snapshot"
        await client.get_session("s")
        # One after the other: in between the two are no pair, and the old ones hold.
        certificate.write_bytes(new.certificate)
        await client.get_session("s")
        key.write_bytes(new.key)
        await client.get_session("s")
        double.tasks.go_on.set()
        assert [update["kind"] async for update in watch] == ["ended"]
    assert [call["certificate"].rpartition("/")[2] for call in double.sessions.calls] == ["old", "old", "new"]


async def test_a_client_finds_its_server_again_under_another_authority(
    serve: Serve, authority: Authority, ca: Path, tmp_path: Path
) -> None:
    double, after = await serve(authority.issue(*LOCAL)), Authority("after")
    async with AsyncClient(f"127.0.0.1:{double.port}", ca_file=ca) as client:
        await client.get_session("s")
        await double.stop()
        double = await serve(after.issue(*LOCAL), port=double.port)
        with pytest.raises(RunekeepError):
            await client.get_session("s")
        after.write(tmp_path)
        await client.get_session("s")
    assert len(double.sessions.calls) == 1
