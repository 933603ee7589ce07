"""The address of the metrics."""

import http.client
import socket
import urllib.request
from collections.abc import Iterable

import pytest
import structlog
from prometheus_client import CollectorRegistry, Counter, Metric
from prometheus_client.registry import Collector

from runekeep_common.addresses import split_address
from runekeep_common.telemetry.endpoint import MetricsEndpoint
from tests.support.scrapes import scraped


def registry() -> CollectorRegistry:
    made = CollectorRegistry()
    Counter("things_total", "Things.", registry=made).inc(3)
    return made


def test_it_serves_text_and_open_metrics_until_it_is_closed() -> None:
    endpoint = MetricsEndpoint("127.0.0.1", 0, registry())
    address = endpoint.start()
    try:
        assert scraped(address)["things_total", {}] == 3
        request = urllib.request.Request(
            f"http://{address}/metrics?x=1", headers={"Accept": "application/openmetrics-text; version=1.0.0"}
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            assert response.headers["Content-Type"].startswith("application/openmetrics-text")
            assert response.read().endswith(b"# EOF\n")
    finally:
        endpoint.close()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://{address}/metrics", timeout=30)


def test_a_scraper_that_keeps_silent_keeps_nobody_waiting() -> None:
    endpoint = MetricsEndpoint("127.0.0.1", 0, registry())
    address = endpoint.start()
    try:
        silent = [socket.create_connection(split_address(address)) for _ in range(20)]
        assert scraped(address)["things_total", {}] == 3
        for one in silent:
            one.close()
    finally:
        endpoint.close()


def test_an_address_that_is_taken_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        MetricsEndpoint("127.0.0.1", taken.getsockname()[1], registry()).start()


class Failing(Collector):
    """Metrics that cannot be had."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        raise self._error


@pytest.mark.parametrize(
    ("error", "told"),
    [(ValueError("of user ann"), ["ValueError"]), (ConnectionResetError(), []), (TimeoutError(), [])],
)
def test_a_scrape_that_fails_here_is_told_by_its_kind_and_one_that_fails_there_is_not(
    error: Exception, told: list[str]
) -> None:
    shown = registry()
    shown.register(Failing(error))
    endpoint = MetricsEndpoint("127.0.0.1", 0, shown)
    address = endpoint.start()
    try:
        with structlog.testing.capture_logs() as lines, pytest.raises(http.client.RemoteDisconnected):
            urllib.request.urlopen(f"http://{address}/metrics", timeout=30)
    finally:
        endpoint.close()
    assert lines == [{"event": "metrics_not_shown", "error": kind, "log_level": "error"} for kind in told]
