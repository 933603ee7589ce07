"""What a studio is started with, and which of it would let strangers in."""

from dataclasses import dataclass
from pathlib import Path

from runekeep.transport.transport import is_loopback


class SettingsError(ValueError):
    """The studio cannot start like this. The message says what to change."""


@dataclass(frozen=True, slots=True)
class StudioSettings:
    """`server` and `operator_server` are addresses as the client takes them; None is the client's default."""

    server: str | None = None
    host: str = "127.0.0.1"
    port: int = 0
    """0 takes a free port."""
    certificate: Path | None = None
    key: Path | None = None
    names: tuple[str, ...] = ()
    """Host names by which browsers may call, beside loopback names and `host`."""
    own_credentials: bool = False
    """Act with the key or certificate of the environment, for whoever has the printed link."""
    operator: bool = False
    operator_server: str | None = None

    @property
    def tls(self) -> bool:
        return self.certificate is not None

    @property
    def local(self) -> bool:
        return is_loopback(self.host)

    def check(self) -> None:
        """Raises SettingsError for what would let strangers in."""
        if (self.certificate is None) != (self.key is None):
            raise SettingsError("give both --tls-cert and --tls-key, or neither")
        if not self.local and not self.tls:
            raise SettingsError(
                f"without TLS anybody on the way to {self.host} could read keys and memories; give --tls-cert and "
                "--tls-key, or listen on a loopback address"
            )
        if not self.local and self.own_credentials:
            raise SettingsError("--own-credentials lends out your key, so it may only listen on a loopback address")


def split_listen(text: str) -> tuple[str, int]:
    """Returns host and port of `HOST:PORT`; an IPv6 host stands in brackets. Raises SettingsError."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise SettingsError(f"--listen {text}: expected HOST:PORT, such as 127.0.0.1:7480")
    return host, int(port)
