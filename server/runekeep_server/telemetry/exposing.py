"""Starts the export of spans and the endpoint of the metrics."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from runekeep_common.addresses import split_address
from runekeep_common.telemetry import export, metrics
from runekeep_common.telemetry.endpoint import MetricsEndpoint
from runekeep_server.settings import Settings
from runekeep_server.telemetry.standing import BacklogCache, BacklogCollector, Points
from runekeep_storage.index.edge import EdgeIndex
from runekeep_storage.store import Store

Hook = Callable[[], Awaitable[None]]

log = structlog.get_logger(__name__)


class Closing(Protocol):
    """The part of `runekeep_server.app.Lifecycle` that this module needs."""

    is_serving: bool

    def on_close(self, hook: Hook) -> None: ...


class CannotListen(Exception):
    """The metrics address is in use, or is not an address of this machine. The message says so, for the operator."""


def open_tracing(server_id: str, lifecycle: Closing) -> None:
    """Starts the export of spans. Call it before anything else is opened: the first close hook runs last."""
    lifecycle.on_close(export.switch_on("runekeep-server", server_id).close)


def open_metrics(settings: Settings, store: Store, standings: BacklogCache, lifecycle: Closing) -> None:
    """Serves the metrics if the settings name an address. Raises CannotListen."""
    metrics.tell_build("server", export.release())
    if not settings.metrics_address:
        return
    host, port = split_address(settings.metrics_address)
    endpoint = MetricsEndpoint(host, port, metrics.REGISTRY, lambda: lifecycle.is_serving)
    try:
        address = endpoint.start()
    except OSError as error:
        raise CannotListen(f"cannot listen on {settings.metrics_address}: {error.strerror}") from error
    index = store.index
    points = Points(index)
    shown: list[Collector] = [BacklogCollector(standings, points, asyncio.get_running_loop())]
    if isinstance(index, EdgeIndex):
        # The embedded index runs in its own process, whose memory and CPU time count as this server's. 0 is a process
        # id that never exists, for the time without that process.
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
