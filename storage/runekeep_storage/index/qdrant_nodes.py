"""Sends calls to a node of a Qdrant cluster that answers.

`index_url` names one node or several. One of them serves all calls until it is away; then the next one does. A call may
therefore reach two nodes. This is safe because every write to the index may be repeated.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import grpc
import structlog
from qdrant_client import AsyncQdrantClient
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

MIN_VERSION = (1, 19)
"""Versions from 1.16 on keep the metadata that is checked, but before 1.19 they ignore the filter of IDF: other
tenants' words would silently count."""
INT8_VERSION = (1, 20)
"""The first version that holds vectors as `turbo8`."""

# By default gRPC tries a server that was away for long only every two minutes.
_GRPC_OPTIONS = {"grpc.initial_reconnect_backoff_ms": 100, "grpc.max_reconnect_backoff_ms": 400}
_AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
_AWAY_STATUS = (502, 503, 504)

_log = structlog.get_logger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """How to reach one node. `grpc_port`: on the host in `rest_url`; None: all calls use REST."""

    rest_url: str
    grpc_port: int | None

    @classmethod
    def parse(cls, url: str) -> "NodeAddress":
        """Parses `http://`, `https://`, `grpc://` or, for gRPC over TLS, `grpcs://`. Raises ValueError."""
        where = urlsplit(url)
        if where.scheme not in ("http", "https", "grpc", "grpcs") or not where.hostname:
            raise ValueError(f"{url!r} must begin with http://, https://, grpc:// or grpcs:// and name a host")
        if where.scheme in ("http", "https"):
            return cls(url, None)
        host = f"[{where.hostname}]" if ":" in where.hostname else where.hostname
        scheme = "https" if where.scheme == "grpcs" else "http"
        return cls(f"{scheme}://{host}", where.port or 6334)

    @property
    def name(self) -> str:
        """Host and port, for messages; without a password."""
        where = urlsplit(self.rest_url)
        return f"{where.hostname}:{self.grpc_port or where.port or 6333}"

    def client(self, api_key: str | None, timeout: int, options: dict[str, Any]) -> AsyncQdrantClient:
        """Returns a client that connects at its first call; `timeout` in seconds."""
        return AsyncQdrantClient(
            url=self.rest_url,
            api_key=api_key,
            prefer_grpc=self.grpc_port is not None,
            grpc_port=self.grpc_port or 6334,
            timeout=timeout,
            # This probe uses REST even if only gRPC is open.
            check_compatibility=False,
            grpc_options=dict(options),
        )


def parse_addresses(index_url: str) -> tuple[NodeAddress, ...]:
    """Parses the addresses in a setting, separated by commas. Raises ValueError."""
    return tuple(NodeAddress.parse(url.strip()) for url in index_url.split(","))


def is_old(version: str, minimum: tuple[int, int] = MIN_VERSION) -> bool:
    """Whether a version is older than `minimum`. One that cannot be read is not."""
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    return bool(numbers) and numbers < minimum


class QdrantNodes:
    """Clients of all nodes, of which one is in use. It knows no collection."""

    def __init__(self, index_url: str, api_key: str | None, timeout: int) -> None:
        self._addresses = parse_addresses(index_url)
        self._clients = [address.client(api_key, timeout, _GRPC_OPTIONS) for address in self._addresses]
        self._in_use = 0

    @property
    def names(self) -> list[str]:
        """Host and port of each node, for messages."""
        return [address.name for address in self._addresses]

    async def ask(self, call: Callable[[AsyncQdrantClient], Awaitable[T]]) -> T:
        """Returns what `call` returns for the first node that answers, beginning with the one in use. If all are away,
        raises the error of the last one. An error from a node that is there is raised at once."""
        for left in reversed(range(len(self._clients))):
            used = self._in_use
            try:
                return await call(self._clients[used])
            except Exception as error:
                if not left or not _is_away(error):
                    raise
                # Unless a concurrent call has switched already.
                if self._in_use == used:
                    self._in_use = (used + 1) % len(self._clients)
                    _log.warning(
                        "index_node_away",
                        node=self._addresses[used].name,
                        next=self._addresses[self._in_use].name,
                        error=type(error).__name__,
                    )
        raise AssertionError("there is at least one node")

    async def close(self) -> None:
        for client in self._clients:
            await client.close()


def _is_away(error: Exception) -> bool:
    """Whether another node may answer: this one was not reached in time, or cannot serve now."""
    if isinstance(error, grpc.aio.AioRpcError):
        return error.code() in _AWAY
    if isinstance(error, UnexpectedResponse):
        return error.status_code in _AWAY_STATUS
    return isinstance(error, ResponseHandlingException | OSError)
