"""Loads and checks the server's TLS certificates, and replaces them without a restart.

An external tool renews key and certificate, often one file after the other. The files are checked every
`tls.reload_seconds`. Unusable files change nothing, and open connections keep the certificate that they started with.
The oldest supported version is TLS 1.2, the oldest that gRPC knows.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock
from typing import Any

import grpc
import structlog
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

from runekeep_server.settings import TlsSettings

_log = structlog.get_logger()

MIN_RSA_BITS = 2048
_CURVES = (ec.SECP256R1, ec.SECP384R1)
"""The accepted curves, all of which gRPC's TLS supports. With other kinds of keys every handshake fails without a
reason."""

SOON = timedelta(days=14)
SOON_PART = 0.2
"""A certificate is near its end if less than SOON and less than this part of its lifetime are left. The second
condition is for short-lived certificates: one of an hour is renewed within the hour."""


class TlsError(Exception):
    """The files cannot be used. The message says which file, why, and what to do; it contains nothing of a key."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The validity of a certificate. `name`: the setting of its file. `subject`: its subject name."""

    name: str
    subject: str
    starts: datetime
    ends: datetime

    def is_near(self, now: datetime) -> bool:
        left = self.ends - now
        return left < SOON and left < (self.ends - self.starts) * SOON_PART


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of the files, as bytes for gRPC."""

    certificate: bytes
    key: bytes = field(repr=False)
    client_ca: bytes | None

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(self.key, self.certificate)], self.client_ca)


def read_files(settings: TlsSettings) -> Contents:
    """Returns the current contents of the files, unchecked. Raises TlsError for a file that cannot be read."""
    assert settings.certificate is not None and settings.key is not None, "without a certificate there is no TLS"
    return Contents(
        certificate=_read("certificate", settings.certificate),
        key=_read("key", settings.key),
        client_ca=None if settings.client_ca is None else _read("client_ca", settings.client_ca),
    )


def check(contents: Contents, settings: TlsSettings, now: datetime) -> tuple[Ending, ...]:
    """Returns the validity of every certificate in the files. Raises TlsError for contents that would let in no caller,
    or callers without a trusted certificate."""
    key = _key(contents.key, settings.key)
    with _parsed("certificate", settings.certificate):
        endings = _endings_of_chain(contents.certificate, key, settings, now)
    if contents.client_ca is not None:
        with _parsed("client_ca", settings.client_ca):
            endings += _endings_of_authorities(contents.client_ca, settings, now)
    return tuple(endings)


class Certificates:
    """The certificates in use, reloaded from the files. `credentials` are for the server's port."""

    def __init__(self, settings: TlsSettings, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """Raises TlsError if the files cannot be used."""
        self._settings = settings
        self._now = now
        self._contents = read_files(settings)
        self._endings = check(self._contents, settings, now())
        self._refused: tuple[Contents | None, str] | None = None
        self._refusal_reported = False
        self._endings_reported: set[tuple[Ending, int]] = set()
        self._lock = Lock()
        self._watch: asyncio.Task[None] | None = None

    def credentials(self) -> grpc.ServerCredentials:
        """Returns credentials for one port. With a client_ca, the handshake accepts only callers with a certificate
        from that authority."""
        # None means no change; this is documented, but missing in the types.
        fetch: Any = self.make_fetcher()
        return grpc.dynamic_ssl_server_credentials(
            self._contents.configuration(),
            fetch,
            require_client_authentication=self._contents.client_ca is not None,
        )

    def make_fetcher(self) -> Callable[[], grpc.ServerCertificateConfiguration | None]:
        """Returns a function that gRPC calls before each handshake of a port, on one of its own threads. The function
        returns new certificates once, and None otherwise. Each port needs its own function, so that every port gets
        them."""
        given = self._contents

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            nonlocal given
            with self._lock:
                if given is self._contents:
                    return None
                given = self._contents
            return given.configuration()

        return fetch

    async def start(self) -> None:
        """Starts the periodic check of the files, and warns of certificates that end soon."""
        self._report_endings()
        self._watch = asyncio.create_task(self._look_again())

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)

    def look(self) -> None:
        """Loads the files again, and uses changed contents for every new connection if they are valid.

        Invalid contents are logged once, and only if they are found a second time: before that, a file may be half
        written, or the certificate of a new key may be still to come.
        """
        contents: Contents | None = None
        try:
            contents = read_files(self._settings)
            if contents != self._contents:
                self._endings = check(contents, self._settings, self._now())
                with self._lock:
                    self._contents = contents
                self._endings_reported.clear()
                _log.info("certificates_replaced", ends=min(ending.ends for ending in self._endings).isoformat())
            self._refused = None
        except TlsError as error:
            refused = (contents, str(error))
            if refused != self._refused:
                self._refused, self._refusal_reported = refused, False
            elif not self._refusal_reported:
                self._refusal_reported = True
                _log.error("certificates_not_taken", problem=str(error))
        self._report_endings()

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(self._settings.reload_seconds)
            try:
                # A network file system may be slow.
                await asyncio.to_thread(self.look)
            except Exception:
                # Without this loop, renewed certificates would never be loaded.
                _log.exception("certificates_not_checked")

    def _report_endings(self) -> None:
        """Logs each certificate that ends soon once a day."""
        now = self._now()
        for ending in self._endings:
            days = (ending.ends - now) // timedelta(days=1)
            if not ending.is_near(now) or (ending, days) in self._endings_reported:
                continue
            self._endings_reported.add((ending, days))
            about = {"setting": f"tls.{ending.name}", "of": ending.subject, "ends": ending.ends.isoformat()}
            if now < ending.ends:
                _log.warning("certificate_ends_soon", days_left=days, **about)
            else:
                _log.error("certificate_ended", **about)


def _read(name: str, file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise TlsError(
            f"tls.{name}: {file} cannot be read: {error.strerror}. Name a file that this user may read."
        ) from error


@contextmanager
def _parsed(name: str, file: Path | None) -> Iterator[None]:
    """Turns parse errors of certificates into TlsError. Most fields are parsed only when they are accessed."""
    try:
        yield
    except (ValueError, UnsupportedAlgorithm, x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as error:
        raise TlsError(
            f"tls.{name}: {file} holds no certificate in PEM, or a broken one, or one of a kind that is not taken. "
            "Have it made anew; its key is to be of RSA or a named curve."
        ) from error


def _endings_of_chain(text: bytes, key: PrivateKeyTypes, settings: TlsSettings, now: datetime) -> list[Ending]:
    leaf, *_ = chain = x509.load_pem_x509_certificates(text)
    if _public(leaf.public_key()) != _public(key.public_key()):
        raise TlsError(
            f"tls.key: {settings.key} is not the key of the certificate in {settings.certificate}. "
            "Give the two that were made together."
        )
    if not _alternative_names(leaf):
        raise TlsError(
            f"tls.certificate: the one in {settings.certificate} has no subject alternative name, so that clients "
            "cannot tell whose it is. Have one made for the server's DNS names and addresses."
        )
    _in_force("certificate", settings.certificate, leaf, now)
    return [_ending("certificate", certificate) for certificate in chain]


def _endings_of_authorities(text: bytes, settings: TlsSettings, now: datetime) -> list[Ending]:
    authorities = x509.load_pem_x509_certificates(text)
    for authority in authorities:
        if not _may_sign(authority):
            raise TlsError(
                f"tls.client_ca: {settings.client_ca} holds a certificate that may not sign others "
                f"({authority.subject.rfc4514_string()}). Give those of the authority that callers' come from."
            )
    in_force = [one for one in authorities if one.not_valid_before_utc <= now < one.not_valid_after_utc]
    if not in_force:
        _in_force("client_ca", settings.client_ca, authorities[0], now)
    # An expired authority may stay in the file next to its successor.
    return [_ending("client_ca", certificate) for certificate in in_force]


def _key(text: bytes, file: Path | None) -> PrivateKeyTypes:
    try:
        key = serialization.load_pem_private_key(text, password=None)
    except TypeError as error:
        raise TlsError(f"tls.key: the key in {file} is encrypted. Give one without a password.") from error
    except (ValueError, UnsupportedAlgorithm):
        # Without the cause, whose text may contain part of a broken key.
        raise TlsError(f"tls.key: {file} holds no key in PEM, or a broken one.") from None
    if isinstance(key, rsa.RSAPrivateKey) and key.key_size >= MIN_RSA_BITS:
        return key
    if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, _CURVES):
        return key
    raise TlsError(
        f"tls.key: the key in {file} is of a kind that is not taken. Make an ECDSA key of P-256 or P-384, or an RSA "
        f"key of at least {MIN_RSA_BITS} bits."
    )


def _public(key: object) -> bytes:
    return key.public_bytes(  # type: ignore[attr-defined,no-any-return]
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def _alternative_names(certificate: x509.Certificate) -> bool:
    try:
        return bool(list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value))
    except x509.ExtensionNotFound:
        return False


def _may_sign(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _in_force(name: str, file: Path | None, certificate: x509.Certificate, now: datetime) -> None:
    if now >= certificate.not_valid_after_utc:
        raise TlsError(
            f"tls.{name}: the certificate in {file} ended at {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC. "
            "Renew it."
        )
    if now < certificate.not_valid_before_utc:
        raise TlsError(
            f"tls.{name}: the certificate in {file} begins at {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC. "
            "Is this machine's clock right?"
        )


def _ending(name: str, certificate: x509.Certificate) -> Ending:
    return Ending(
        name,
        certificate.subject.rfc4514_string(),
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
    )
