"""Where an HTTP server listens, and which places would let strangers in."""

import errno
import socket
from dataclasses import dataclass
from pathlib import Path

from runekeep.transport.transport import is_loopback


class ListenError(ValueError):
    """Nothing can be served like this. The message says what to change."""


@dataclass(frozen=True, slots=True)
class Place:
    """An address to listen on, the names that lead to it, and the certificate of a server that others may call."""

    host: str = "127.0.0.1"
    port: int = 0
    """0 takes a free port."""
    certificate: Path | None = None
    key: Path | None = None
    names: tuple[str, ...] = ()
    """Host names by which clients may call, beside loopback names and `host`."""

    @property
    def tls(self) -> bool:
        return self.certificate is not None

    @property
    def local(self) -> bool:
        return is_loopback(self.host)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}/"

    def check(self) -> None:
        """Raises ListenError for an address of a network without TLS."""
        if (self.certificate is None) != (self.key is None):
            raise ListenError("give both --tls-cert and --tls-key, or neither")
        if not self.local and not self.tls:
            raise ListenError(
                f"without TLS anybody on the way to {self.host} could read keys and memories; give --tls-cert and "
                "--tls-key, or listen on a loopback address"
            )


def split_listen(text: str) -> tuple[str, int]:
    """Returns host and port of `HOST:PORT`; an IPv6 host stands in brackets. Raises ListenError."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ListenError(f"--listen {text}: expected HOST:PORT, such as 127.0.0.1:7480")
    return host, int(port)


def open_listener(host: str, port: int) -> socket.socket:
    """Takes the port. Raises ListenError if that cannot be done."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Of a socket without a named protocol asyncio does not switch off Nagle's algorithm, and each page waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        # Whoever reads the announced address may call at once.
        listener.listen()
    except OSError as error:
        listener.close()
        word = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror}"
        raise ListenError(f"{host}:{port} {word}; choose another with --listen") from error
    return listener
