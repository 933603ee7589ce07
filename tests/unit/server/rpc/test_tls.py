"""The server's certificates: what is taken, what is reported, and what connections are served while files change."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtensionOID
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from structlog.testing import capture_logs

from runekeep_server.rpc.tls import Certificates, TlsError, read_files
from runekeep_server.settings import TlsSettings
from tests.support.certificates import DAY, LOCAL, SERVER, Authority, Pair, replace, self_signed, weak_key

NOT_TAKEN = "certificates_not_taken"


class Files:
    """The three files of a server, and the authorities behind them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority, self.callers = Authority(), Authority("callers")
        self.put(self.issue())
        self.client_ca = self.callers.write(directory, "client_ca")
        self.settings = self.of()

    def of(self, *, client_ca: bool = True) -> TlsSettings:
        return TlsSettings(certificate=self.certificate, key=self.key, client_ca=self.client_ca if client_ca else None)

    def issue(self, *names: str, **options: Any) -> Pair:
        return self.authority.issue(*(names or LOCAL), usages=(SERVER,), **options)

    def put(self, pair: Pair) -> None:
        self.certificate, self.key = pair.write(self.directory, "server")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


# What is taken


def unreadable(*, authority: bool = False) -> Pair:
    """A certificate of which only the alternative names are broken, which shows when they are looked for."""
    key, name, now = ec.generate_private_key(ec.SECP256R1()), x509.Name([]), datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now - DAY, now + DAY)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(
            x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, b"\x30\x03\x82\x01\xff"), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    kinds = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    text = key.private_bytes(serialization.Encoding.PEM, *kinds)
    return Pair(made.public_bytes(serialization.Encoding.PEM), text)


def of_no_curve(pair: Pair) -> Pair:
    """The same, its key on a curve that nobody knows: the last digit of the curve's number is another one."""
    der = x509.load_pem_x509_certificate(pair.certificate).public_bytes(serialization.Encoding.DER)
    p_256 = bytes.fromhex("06082a8648ce3d030107")
    assert p_256 in der
    return Pair(ssl.DER_cert_to_PEM_cert(der.replace(p_256, p_256[:-1] + b"\x7f")).encode(), pair.key)


def encrypted(pair: Pair) -> bytes:
    key = serialization.load_pem_private_key(pair.key, None)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"a password"),
    )


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda files: files.certificate.unlink(), "tls.certificate: .* cannot be read"),
        (lambda files: files.key.unlink(), "tls.key: .* cannot be read"),
        (lambda files: files.client_ca.unlink(), "tls.client_ca: .* cannot be read"),
        (lambda files: files.certificate.write_bytes(b""), "tls.certificate: .* holds no certificate"),
        (lambda files: files.certificate.write_bytes(files.certificate.read_bytes()[:200]), "holds no certificate"),
        (lambda files: files.certificate.write_bytes(files.key.read_bytes()), "holds no certificate"),
        (lambda files: files.key.write_bytes(b"nonsense"), "tls.key: .* holds no key"),
        (lambda files: files.key.write_bytes(files.certificate.read_bytes()), "tls.key: .* holds no key"),
        (lambda files: files.key.write_bytes(encrypted(files.issue())), "is encrypted"),
        (lambda files: files.key.write_bytes(files.issue().key), "is not the key of the certificate"),
        (lambda files: files.put(files.issue(key=weak_key())), "at least 2048 bits"),
        (lambda files: files.put(files.issue(key=ed25519.Ed25519PrivateKey.generate())), "is of a kind"),
        (lambda files: files.put(files.issue(key=ec.generate_private_key(ec.SECP521R1()))), "is of a kind"),
        (lambda files: files.put(files.issue(ends=-DAY / 2)), r"ended at .* Renew it"),
        (lambda files: files.put(files.issue(starts=DAY)), "begins at .* clock right"),
        (lambda files: files.put(files.authority.issue(common_name="localhost")), "no subject alternative name"),
        (lambda files: files.put(unreadable()), "tls.certificate: .* or a broken one"),
        (lambda files: files.put(of_no_curve(files.issue())), "tls.certificate: .* of a kind that is not taken"),
        (lambda files: files.client_ca.write_bytes(b""), "tls.client_ca: .* holds no certificate"),
        (
            lambda files: files.client_ca.write_bytes(
                files.callers.certificate + unreadable(authority=True).certificate
            ),
            "tls.client_ca: .* or a broken one",
        ),
        (lambda files: files.client_ca.write_bytes(self_signed("a").certificate), "may not sign others"),
        (lambda files: files.client_ca.write_bytes(files.certificate.read_bytes()), "may not sign others"),
    ],
)
def test_files_that_would_let_nobody_or_anybody_in_are_refused(
    files: Files, spoil: Callable[[Files], None], said: str
) -> None:
    key = files.key.read_text().splitlines()[1]
    spoil(files)
    with pytest.raises(TlsError, match=said) as refused:
        Certificates(files.settings)
    assert key not in str(refused.value)


def test_an_authority_that_ended_may_stand_beside_the_one_that_followed_it(files: Files) -> None:
    ended = Authority("ended", ends=-DAY / 2).certificate
    files.client_ca.write_bytes(ended + files.callers.certificate)
    Certificates(files.settings)
    files.client_ca.write_bytes(ended)
    with pytest.raises(TlsError, match=r"tls.client_ca: .* ended at"):
        Certificates(files.settings)


def test_contents_do_not_show_the_key(files: Files) -> None:
    assert "PRIVATE" not in repr(read_files(files.settings))


# What is told


def events(logs: list[Any]) -> list[tuple[str, str]]:
    return [(line["log_level"], line["event"]) for line in logs]


def test_a_key_and_a_certificate_that_are_replaced_one_after_the_other_are_taken_as_a_pair(files: Files) -> None:
    certificates, new = Certificates(files.settings), files.issue()
    fetchers = [certificates.make_fetcher() for _ in range(2)]
    with capture_logs() as logs:
        replace(files.certificate, new.certificate)
        certificates.look()
        assert [fetch() for fetch in fetchers] == [None, None]
        replace(files.key, new.key)
        certificates.look()
    assert events(logs) == [("info", "certificates_replaced")]
    for fetch in fetchers:
        assert fetch() is not None
        assert fetch() is None, "gRPC keeps the certificates that it was given"


def test_files_that_stay_broken_are_reported_once_and_change_nothing(files: Files) -> None:
    certificates = Certificates(files.settings)
    fetch = certificates.make_fetcher()
    whole = files.certificate.read_bytes()
    with capture_logs() as logs:
        replace(files.certificate, whole[:100])
        for _ in range(4):
            certificates.look()
        files.certificate.unlink()
        for _ in range(4):
            certificates.look()
        assert fetch() is None
        replace(files.certificate, whole)
        certificates.look()
    assert events(logs) == [("error", NOT_TAKEN)] * 2
    assert "holds no certificate" in logs[0]["problem"] and "cannot be read" in logs[1]["problem"]


async def test_whatever_goes_wrong_with_a_look_the_next_one_takes_what_is_good(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = Certificates(files.settings.model_copy(update={"reload_seconds": 0.01}))
    failed, taken = asyncio.Event(), asyncio.Event()
    loop, look = asyncio.get_running_loop(), certificates.look

    def looks() -> None:
        if not failed.is_set():
            loop.call_soon_threadsafe(failed.set)
            raise RuntimeError("a fault that nobody thought of")
        look()
        if certificates._contents.certificate == new.certificate:
            loop.call_soon_threadsafe(taken.set)

    monkeypatch.setattr(certificates, "look", looks)
    new = files.issue()
    with capture_logs() as logs:
        await certificates.start()
        async with asyncio.timeout(20):
            await failed.wait()
            files.put(new)
            await taken.wait()
    await certificates.close()
    assert ("error", "certificates_not_checked") in events(logs)


@pytest.mark.parametrize(
    ("lasts", "quiet", "near"),
    [
        # Of a year, the last 14 days; of a day, the last fifth.
        (365 * DAY, 351 * DAY - timedelta(minutes=1), 351 * DAY + timedelta(minutes=1)),
        (DAY, timedelta(hours=19), timedelta(hours=20)),
    ],
)
async def test_a_certificate_near_its_end_is_told_of_once_a_day(
    files: Files, lasts: timedelta, quiet: timedelta, near: timedelta
) -> None:
    begun = datetime.now(UTC)
    files.put(files.issue(starts=timedelta(), ends=lasts))
    now = [begun]
    certificates = Certificates(files.settings, lambda: now[0])
    with capture_logs() as logs:
        await certificates.start()
        now[0] = begun + quiet
        certificates.look()
        assert logs == []
        now[0] = begun + near
        certificates.look()
        certificates.look()
        assert events(logs) == [("warning", "certificate_ends_soon")]
        assert logs[0]["setting"] == "tls.certificate" and logs[0]["days_left"] == (lasts - near).days
        now[0] = begun + lasts
        certificates.look()
        assert events(logs[1:]) == [("error", "certificate_ended")]
        # What follows is good; the clock of this test is not that of the new certificate.
        now[0] = begun
        files.put(files.issue(ends=5000 * DAY))
        certificates.look()
        assert events(logs[2:]) == [("info", "certificates_replaced")]
    await certificates.close()


# What connections are served


class Served:
    """A gRPC server with the health service, on a port with these certificates."""

    def __init__(self, files: Files, *, client_ca: bool) -> None:
        self.certificates = Certificates(files.of(client_ca=client_ca))
        self.health = health.aio.HealthServicer()
        self._server = grpc.aio.server()
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self._server)
        self.port = self._server.add_secure_port("127.0.0.1:0", self.certificates.credentials())

    async def __aenter__(self) -> "Served":
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(None)

    def channel(self, authority: Authority, own: Pair | None = None) -> grpc.aio.Channel:
        credentials = grpc.ssl_channel_credentials(authority.certificate, own and own.key, own and own.certificate)
        return grpc.aio.secure_channel(f"localhost:{self.port}", credentials)


async def answers(channel: grpc.aio.Channel) -> bool:
    async with channel:
        try:
            await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=20)
        except grpc.aio.AioRpcError as error:
            assert error.code() is grpc.StatusCode.UNAVAILABLE, error
            return False
        return True


@pytest.fixture
async def served(files: Files) -> AsyncIterator[Served]:
    async with Served(files, client_ca=True) as one:
        yield one


async def test_new_connections_get_the_new_certificate_and_an_old_stream_goes_on(files: Files) -> None:
    before, after = files.authority, Authority("after")
    async with Served(files, client_ca=False) as one, one.channel(before) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING

        files.put(after.issue(*LOCAL, usages=(SERVER,)))
        one.certificates.look()
        assert await answers(one.channel(after))
        assert not await answers(one.channel(before))
        await one.health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING

        replace(files.certificate, b"broken")
        one.certificates.look()
        assert await answers(one.channel(after))
        watch.cancel()


async def test_callers_of_an_authority_that_is_not_trusted_any_more_cannot_connect(
    files: Files, served: Served
) -> None:
    old, new = files.callers.issue("spiffe://mesh/a"), Authority("new callers")
    assert await answers(served.channel(files.authority, old))
    async with served.channel(files.authority, old) as open_before:
        stub = health_pb2_grpc.HealthStub(open_before)
        await stub.Check(health_pb2.HealthCheckRequest(), timeout=20)
        new.write(files.directory, "client_ca")
        served.certificates.look()
        assert not await answers(served.channel(files.authority, old))
        assert await answers(served.channel(files.authority, new.issue("spiffe://mesh/a")))
        await stub.Check(health_pb2.HealthCheckRequest(), timeout=20)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
@pytest.mark.parametrize(("version", "spoken"), [(ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True)])
async def test_the_oldest_version_is_1_2(files: Files, version: ssl.TLSVersion, spoken: bool) -> None:
    async with Served(files, client_ca=False) as one:
        context = ssl.create_default_context(cadata=files.authority.certificate.decode())
        # Else this side would refuse by itself.
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version, context.maximum_version = ssl.TLSVersion.MINIMUM_SUPPORTED, version
        context.set_alpn_protocols(["h2"])
        try:
            _, writer = await asyncio.open_connection("localhost", one.port, ssl=context)
        except ConnectionError:
            # gRPC hangs up. Had this side refused, it were an SSLError.
            assert not spoken
        else:
            writer.close()
            assert spoken
