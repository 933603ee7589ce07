"""The export of spans: what switches it on, and a collector that is away."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import structlog

from runekeep_common.telemetry import export, tracing
from tests.doubles.collector import Collector

MAX_SPANS = 64


@contextmanager
def silent() -> Iterator[str]:
    """Address of somebody who takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        taken: list[socket.socket] = []

        def take() -> None:
            while True:
                try:
                    taken.append(listening.accept()[0])
                except OSError:
                    return

        threading.Thread(target=take, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        for one in taken:
            one.close()


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", str(MAX_SPANS))
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", str(MAX_SPANS // 2))
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    return monkeypatch


async def test_what_is_left_at_the_end_reaches_the_collector(variables: pytest.MonkeyPatch) -> None:
    with Collector() as collector:
        variables.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        variables.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
        variables.setenv("OTEL_BSP_SCHEDULE_DELAY", "60000")
        traces = export.switch_on("runekeep-server", "server-1")
        with tracing.span("a"):
            pass
        assert not collector.spans
        await traces.close()
        (span,) = collector.spans
        assert (span.service, span.name) == ("runekeep-server", "a")
        assert b"server-1" in collector.wire and b"deployment.environment" in collector.wire
    assert not tracing.is_on()
    await traces.close()


@pytest.mark.parametrize(
    ("variables_said", "wanted"),
    [
        ({}, {"service.name": "runekeep-server", "service.instance.id": "server-1"}),
        (
            {"OTEL_RESOURCE_ATTRIBUTES": "team=tea%20%26%20search, service.name=mine,service.instance.id=one%2Ftwo"},
            {"team": "tea & search", "service.name": "mine", "service.instance.id": "one/two"},
        ),
        (
            {"OTEL_RESOURCE_ATTRIBUTES": "service.name=mine", "OTEL_SERVICE_NAME": "name"},
            {"service.name": "name", "service.instance.id": "server-1"},
        ),
    ],
)
async def test_what_the_environment_says_of_the_process_goes_before_our_words(
    variables: pytest.MonkeyPatch, variables_said: dict[str, str], wanted: dict[str, str]
) -> None:
    variables.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    for name, value in variables_said.items():
        variables.setenv(name, value)
    traces = export.switch_on("runekeep-server", "server-1")
    assert traces._exporting is not None
    told = dict(traces._exporting.provider.resource.attributes)
    await traces.close()
    assert {name: told[name] for name in wanted} == wanted
    assert told["service.version"] == export.release()


@pytest.mark.parametrize("away", ["silent", "refusing"])
async def test_a_collector_that_is_away_costs_spans_and_nothing_else(variables: pytest.MonkeyPatch, away: str) -> None:
    with silent() as address:
        endpoint = f"http://{address}" if away == "silent" else "http://127.0.0.1:1"
        variables.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        with structlog.testing.capture_logs() as lines:
            traces = export.switch_on("runekeep-server", "server-1")
            assert traces._exporting is not None
            for _ in range(50 * MAX_SPANS):
                with tracing.span("a"):
                    pass
            held = traces._exporting._processor._batch_processor._queue
            assert len(held) <= MAX_SPANS
            await traces.close()
        complaints = [line for line in lines if line["event"] == "traces_not_exported"]
        assert len(complaints) <= 1, "a line a minute"
        assert not [line for line in lines if line["log_level"] in ("error", "critical")]
    assert not tracing.is_on()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_SDK_DISABLED", "true"),
        ("OTEL_TRACES_EXPORTER", "none"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "no such compression"),
    ],
)
async def test_what_cannot_be_or_is_not_wanted_is_left_off(
    variables: pytest.MonkeyPatch, name: str, value: str
) -> None:
    variables.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    variables.setenv(name, value)
    with structlog.testing.capture_logs() as lines:
        traces = export.switch_on("runekeep-server", "server-1")
    assert not tracing.is_on()
    told = [line for line in lines if line["event"] == "traces_not_exported"]
    assert bool(told) == (name not in ("OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER")), (
        "what was asked for and is not done"
    )
    await traces.close()
