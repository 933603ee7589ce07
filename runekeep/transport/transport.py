"""How a server is reached: plain or over TLS, with which certificates and key, and what to do when that fails.

The extractor reaches its server by the same rules, so that what may go over a wire is decided in one place.
"""

import ipaddress
import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import grpc.aio

HTTPS = "https://"
DNS = "dns:///"
_HTTPS_PORT = 443
_LOOKS = 3

_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""Where the systems keep what they trust. gRPC for Python would not look: it brings a list of its own."""

_BALANCED = (
    (
        "grpc.service_config",
        '{"loadBalancingConfig": [{"round_robin": {}}], '
        '"healthCheckConfig": {"serviceName": "runekeep.v1.SessionService"}}',
    ),
)
"""Calls take turns over the addresses whose servers say that they serve. By itself gRPC stays with one address."""

_LISTS = ("ipv4:", "ipv6:")
"""Before several addresses, divided by commas, of which gRPC takes the first that answers."""

Options = Sequence[tuple[str, str | int]]


class TransportError(ValueError):
    """The address, a certificate or the key cannot be used. The message says which and what to do, never the key."""


@dataclass(frozen=True, slots=True)
class Names:
    """What the settings are called where the user gave them, for messages."""

    address: str
    api_key: str
    ca_file: str
    cert_file: str
    key_file: str


@dataclass(frozen=True, slots=True)
class Transport:
    """Where a server is and how it is spoken to. Made by `transport`, which checks that the parts go together."""

    target: str
    """`host:port`, or a list as `ipv4:address:port,address:port`."""
    tls: bool
    names: Names
    balanced: bool = False
    """Whether calls are spread over all addresses of the host."""
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    api_key: str = field(default="", repr=False)

    @property
    def files(self) -> tuple[Path, ...]:
        """Those that may be replaced while a client runs."""
        return tuple(file for file in (self.ca_file, self.cert_file, self.key_file) if file is not None)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The credentials that every call carries."""
        return (("authorization", f"Bearer {self.api_key}"),) if self.api_key else ()

    def open(self, options: Options) -> grpc.aio.Channel:
        """A channel, which connects at its first call. Raises TransportError for files that cannot be used."""
        target = self.target
        if self.balanced:
            # The certificate is still held to the host's name.
            target, options = f"{DNS}{target}", (*options, *_BALANCED)
        if self.tls:
            return grpc.aio.secure_channel(target, self._credentials(), options=options)
        # A proxy of the environment (http_proxy) would be told everything, and ask a machine that is not this one.
        local = (("grpc.enable_http_proxy", 0),) if _stays_here(self.target) else ()
        return grpc.aio.insecure_channel(target, options=(*options, *local))

    def check(self) -> None:
        """Raises TransportError for files that cannot be used, which `open` would find out later."""
        if self.tls:
            self._credentials()

    def _credentials(self) -> grpc.ChannelCredentials:
        for _ in range(_LOOKS):
            held = self._held()
            _check(self)
            # The check reads the files too: what it found good must be what is taken.
            if held == self._held():
                break
        else:
            raise TransportError("The files with certificates change all the time; they are to be put in place whole")
        authorities, certificate, key = held
        if self.ca_file is None:
            authorities = _roots_of_the_system()
        return grpc.ssl_channel_credentials(authorities, key, certificate)

    def _held(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        return _read(self.ca_file), _read(self.cert_file), _read(self.key_file)


def transport(
    address: str,
    names: Names,
    *,
    api_key: str | None = None,
    ca_file: str | Path | None = None,
    cert_file: str | Path | None = None,
    key_file: str | Path | None = None,
) -> Transport:
    """The way to `host:port`, plain unless a `ca_file` is given, or to `https://host:port`, over TLS. Plain alone:
    `ipv4:address:port,address:port` (or `ipv6:`), the first of them that answers.

    `dns:///host:port` is `host:port` with calls spread over all addresses of the host. A name that is written otherwise
    is asked for its addresses too, but gRPC stays with the first that answers.

    Over TLS the server's certificate must come from `ca_file`, or without one from those that gRPC trusts, and hold the
    host's name. `cert_file` and `key_file`, in PEM, are shown to a server that asks who calls. Empty means not given.
    Raises TransportError, also for a key that would go over the network for everybody to read.
    """
    tls, balanced, target = _parsed(address, names.address)
    tls = tls or bool(ca_file)
    if tls and target.startswith(_LISTS):
        raise TransportError(
            f"A list of addresses ({names.address}) has no name that a certificate could be held to: write host:port"
        )
    if bool(cert_file) != bool(key_file):
        raise TransportError(f"A certificate and its key go together: give both {names.cert_file} and {names.key_file}")
    if cert_file and not tls:
        raise TransportError(
            f"A client certificate is shown over TLS only: write the address as {HTTPS}{target} ({names.address}), or "
            f"give {names.ca_file}"
        )
    key = (api_key or "").strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        raise TransportError(f"{names.api_key} holds what can be no key: spaces, or signs that are not ASCII")
    if key and not tls and not _stays_here(target):
        other = "" if balanced else f"write the address as {HTTPS}{target} ({names.address}), or "
        raise TransportError(
            f"The key would go to {target} in plain text, for everybody on the way to read: {other}give {names.ca_file}"
        )
    return Transport(target, tls, names, balanced, _path(ca_file), _path(cert_file), _path(key_file), key)


def is_loopback(host: str) -> bool:
    """Whether what is sent to `host` stays on this machine."""
    if host == "localhost":
        return True
    return _is_ip(host) and ipaddress.ip_address(host).is_loopback


def _stays_here(target: str) -> bool:
    return all(is_loopback(host_of(one)) for one in _each(target))


def _each(target: str) -> list[str]:
    return target.partition(":")[2].split(",") if target.startswith(_LISTS) else [target]


def host_of(target: str) -> str:
    """The host of `host:port`, without the brackets of IPv6."""
    return _split(target)[0]


def _parsed(address: str, name: str) -> tuple[bool, bool, str]:
    """Whether over TLS, whether to all addresses of the host, and `host:port`."""
    if address.startswith(_LISTS):
        parts = [_split(one) for one in _each(address)]
        if all(_is_ip(host) and port.isdecimal() for host, port in parts):
            return False, False, address
    tls, balanced = address.startswith(HTTPS), address.startswith(DNS)
    target = address.removeprefix(HTTPS).removesuffix("/") if tls else address.removeprefix(DNS)
    host, port = _split(target)
    if tls and not port:
        target, port = f"{target}:{_HTTPS_PORT}", str(_HTTPS_PORT)
    if not host or not port.isdecimal() or set("/@?# ") & set(target):
        raise TransportError(
            f"{address!r} is no address of a server: write host:port, or {HTTPS}host:port for TLS, or {DNS}host:port "
            f"to spread calls over all addresses of the host ({name})"
        )
    return tls, balanced, target


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _split(target: str) -> tuple[str, str]:
    """Host, without the brackets of IPv6, and port, empty when there is none."""
    if target.startswith("["):
        host, _, rest = target[1:].partition("]")
        return host, rest.removeprefix(":")
    host, _, port = target.partition(":")
    return host, port


def _check(transport: Transport) -> None:
    """TransportError where gRPC would only say later, and of no file, that no connection can be made."""
    names, context = transport.names, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if transport.ca_file is not None:
        try:
            context.load_verify_locations(transport.ca_file)
        except ssl.SSLError as error:
            raise TransportError(f"{transport.ca_file} ({names.ca_file}) holds no certificate in PEM") from error
        except OSError as error:
            raise _unreadable(error, transport.ca_file) from error
    if transport.cert_file is not None and transport.key_file is not None:
        try:
            context.load_cert_chain(transport.cert_file, transport.key_file, password=_no_password)
        except _Encrypted:
            raise TransportError(
                f"The key in {transport.key_file} ({names.key_file}) is encrypted: give one without a password"
            ) from None
        except ssl.SSLError as error:
            raise TransportError(
                f"{transport.cert_file} ({names.cert_file}) and {transport.key_file} ({names.key_file}) are not a "
                "certificate and its key, in PEM"
            ) from error
        except OSError as error:
            raise _unreadable(error, transport.cert_file, transport.key_file) from error


class _Encrypted(Exception):
    """A key asks for a password; nobody is to be asked at a terminal."""


def _no_password() -> str:
    raise _Encrypted


def _read(file: Path | None) -> bytes | None:
    try:
        return None if file is None else file.read_bytes()
    except OSError as error:
        raise _unreadable(error, file) from error


def _unreadable(error: OSError, *files: Path | None) -> TransportError:
    return TransportError(f"{' or '.join(map(str, files))} cannot be read: {error.strerror}")


def _roots_of_the_system() -> bytes | None:
    """The authorities that this system trusts; None: gRPC takes those that came with it, or that its variable names."""
    if os.environ.get("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"):
        return None
    bundles = (ssl.get_default_verify_paths().cafile, *_BUNDLES)
    return next((Path(bundle).read_bytes() for bundle in bundles if bundle and os.path.isfile(bundle)), None)


def _path(file: str | Path | None) -> Path | None:
    return Path(file) if file else None
