"""Peers that speak HTTP/2 by hand up to a chosen point, and then fall silent."""

import socket
from types import TracebackType
from typing import Final, Self

from runekeep_common.addresses import split_address

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SETTINGS: Final = 4
_PING: Final = 6
_ACK: Final = 1


def _frame(kind: int, flags: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + bytes(4) + payload


class RawPeer:
    """A connection to a server. `speaks`: it sends the preface and settings, as every client does first."""

    def __init__(self, address: str, *, speaks: bool = False) -> None:
        self._speaks = speaks
        self._socket = socket.create_connection(split_address(address))
        if speaks:
            self._socket.sendall(_PREFACE + _frame(_SETTINGS, 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def say(self, data: bytes) -> None:
        self._socket.sendall(data)

    def wait_for_close(self, patience: float, *, answers_pings: bool = False) -> None:
        """Returns when the server has closed the connection. Raises TimeoutError if nothing arrives for `patience`
        seconds."""
        self._socket.settimeout(patience)
        received = b""
        try:
            while data := self._socket.recv(65_536):
                if self._speaks:
                    received = self._react(received + data, answers_pings)
        except ConnectionError:
            return

    def _react(self, received: bytes, answers_pings: bool) -> bytes:
        while len(received) >= 9 and len(received) >= 9 + int.from_bytes(received[:3], "big"):
            end = 9 + int.from_bytes(received[:3], "big")
            kind, flags, payload = received[3], received[4], received[9:end]
            received = received[end:]
            if not flags & _ACK and (kind == _SETTINGS or (kind == _PING and answers_pings)):
                self._socket.sendall(_frame(kind, _ACK, payload if kind == _PING else b""))
        return received
