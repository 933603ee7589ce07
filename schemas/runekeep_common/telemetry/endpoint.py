"""Serves the metrics to Prometheus, and the health to HTTP probes.

A small HTTP server in threads, so that the event loop never waits for it.
"""

import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

PATH: Final = "/metrics"
HEALTH_PATH: Final = "/healthz"
IDLE_SECONDS: Final = 10.0
"""A silent scraper is disconnected after this time."""

_log = structlog.get_logger(__name__)


class MetricsEndpoint:
    """Serves `/metrics` and `/healthz` at `host` and `port`, 0 for a free one, from `start` to `close`.

    `is_serving`: whether `/healthz` answers 200, otherwise 503; it is called in another thread.

    There is no authentication: everybody who reaches the address may read. So bind it to a loopback address or a
    private network.
    """

    def __init__(
        self, host: str, port: int, registry: CollectorRegistry, is_serving: Callable[[], bool] = lambda: True
    ) -> None:
        self._host = host
        self._port = port
        self._registry = registry
        self._is_serving = is_serving
        self._server: ThreadingHTTPServer | None = None

    def start(self) -> str:
        """Starts the server. Returns the address that it listens on, as `host:port`. Raises OSError."""
        registry, is_serving = self._registry, self._is_serving

        class Handler(BaseHTTPRequestHandler):
            timeout = IDLE_SECONDS

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path == HEALTH_PATH:
                    status = HTTPStatus.OK if is_serving() else HTTPStatus.SERVICE_UNAVAILABLE
                    self._answer(status, "text/plain", b"serving\n" if status == HTTPStatus.OK else b"not serving\n")
                elif path == PATH:
                    encoder, content_type = choose_encoder(self.headers.get("Accept") or "")
                    self._answer(HTTPStatus.OK, content_type, encoder(registry))
                else:
                    self.send_error(
                        HTTPStatus.NOT_FOUND, explain=f"The metrics are at {PATH}, the health is at {HEALTH_PATH}."
                    )

            def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Logs nothing: a line per scrape would be useless."""

        self._server = _Server((self._host, self._port), Handler)
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()
        port = self._server.server_address[1]
        return f"[{self._host}]:{port}" if ":" in self._host else f"{self._host}:{port}"

    def close(self) -> None:
        """Stops accepting requests, without waiting for a running one. May take half a second, so do not call it on the
        event loop.
        """
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        if ":" in address[0]:
            import socket

            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores a scraper that hangs up or stays silent. Logs only the class of any other error."""
        error = sys.exception()
        if not isinstance(error, (ConnectionError, TimeoutError)):
            _log.error("metrics_not_shown", error=type(error).__name__)
