"""Opens what shows a server from outside: the export of its spans, and the address of its metrics."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from schemas.addresses import split_address
from schemas.telemetry import export, metrics
from schemas.telemetry.endpoint import MetricsEndpoint
from server.settings import Settings
from server.telemetry.standing import Points, StandingCollector, Standings
from storage.index.edge import EdgeIndex
from storage.store import Store

Hook = Callable[[], Awaitable[None]]

log = structlog.get_logger(__name__)


class Closing(Protocol):
    """Of `server.app.Lifecycle` what is needed here."""

    def on_close(self, hook: Hook) -> None: ...


class CannotListen(Exception):
    """The address of the metrics is taken, or none of this machine. The message says so, for the operator."""


def open_tracing(server_id: str, lifecycle: Closing) -> None:
    """To be called before anything else is opened: what is told to close first is closed last."""
    lifecycle.on_close(export.switch_on("runekeep-server", server_id).close)


def open_metrics(settings: Settings, store: Store, standings: Standings, lifecycle: Closing) -> None:
    """Serves them where the settings say, if they do. Raises CannotListen."""
    metrics.tell_build("server", export.release())
    if not settings.metrics_address:
        return
    host, port = split_address(settings.metrics_address)
    endpoint = MetricsEndpoint(host, port, metrics.REGISTRY)
    try:
        address = endpoint.start()
    except OSError as error:
        raise CannotListen(f"cannot listen on {settings.metrics_address}: {error.strerror}") from error
    index = store.index
    points = Points(index)
    shown: list[Collector] = [StandingCollector(standings, points, asyncio.get_running_loop())]
    if isinstance(index, EdgeIndex):
        # The embedded index works in a process of its own, whose memory and time are this server's too. While there is
        # none it is looked for under the number 0, which no process has.
        shown.append(ProcessCollector("runekeep_index", lambda: index.child_pid or 0, registry=None))
    for collector in shown:
        metrics.REGISTRY.register(collector)

    async def close() -> None:
        await asyncio.to_thread(endpoint.close)
        for collector in shown:
            metrics.REGISTRY.unregister(collector)
        await points.close()

    lifecycle.on_close(close)
    log.info("metrics_served", address=address)
