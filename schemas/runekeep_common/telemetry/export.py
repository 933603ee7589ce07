"""Exports the spans of this process to a collector, in a separate thread.

A collector that is away costs only the spans: a bounded queue drops what it cannot hold, errors are logged as one line
a minute, and the end of the process waits only briefly.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final

import structlog

from runekeep_common.telemetry import tracing

if TYPE_CHECKING:
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.id_generator import IdGenerator

FLUSH_SECONDS: Final = 1.5
"""Seconds at the end of the process for the remaining spans to reach the collector."""
CLOSE_SECONDS: Final = 1.0
"""Seconds after that for the exporter to give up."""
COMPLAINTS_SECONDS: Final = 60.0

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_EXTRA: Final = "pip install 'runekeep[telemetry]'"

_log = structlog.get_logger(__name__)


class Tracing:
    """The export of spans, from `switch_on` to `close`. It does nothing unless a collector is configured."""

    def __init__(self, exporting: _Exporting | None = None) -> None:
        self._exporting = exporting

    async def close(self) -> None:
        """Sends the remaining spans, for at most FLUSH_SECONDS and CLOSE_SECONDS, and stops making spans."""
        exporting, self._exporting = self._exporting, None
        if exporting is None:
            return
        tracing.trace_with(None)
        done = asyncio.Event()
        loop = asyncio.get_running_loop()
        # The loop's own pool would wait for its threads when it closes, however long they take.
        threading.Thread(target=exporting.end, args=(loop, done), name="traces-end", daemon=True).start()
        try:
            async with asyncio.timeout(FLUSH_SECONDS + CLOSE_SECONDS):
                await done.wait()
        except TimeoutError:
            _log.warning("traces_left_behind", seconds=FLUSH_SECONDS + CLOSE_SECONDS)


def switch_on(service: str, instance: str) -> Tracing:
    """Starts tracing if the environment names a collector.

    `service` is the process's name unless OTEL_SERVICE_NAME gives another; `instance` distinguishes processes of one
    name. Errors are logged, not raised: a process also serves without traces.
    """
    if tracing.is_on() or not _is_asked_for(os.environ):
        return Tracing()
    try:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        _log.warning("traces_not_exported", missing=error.name, todo=_EXTRA)
        return Tracing()
    _quieten()
    try:
        exporter = OTLPSpanExporter()
        exporting = _Exporting(_provider(service, instance), BatchSpanProcessor(exporter), exporter)
    except Exception as error:
        # OpenTelemetry cannot read a value. Its error text is not logged, because it may hold a header with a key.
        _log.warning("traces_not_exported", error=type(error).__name__, todo="look at the OTEL_ variables")
        return Tracing()
    tracing.trace_with(exporting.provider.get_tracer("runekeep", release()))
    _log.info("traces_exported", service=exporting.service)
    return Tracing(exporting)


def release() -> str:
    """Returns the version of the installed distribution; empty in a checkout that is not installed."""
    try:
        return version("runekeep")
    except PackageNotFoundError:
        return ""


def _is_asked_for(environment: Mapping[str, str]) -> bool:
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if environment.get("OTEL_TRACES_EXPORTER", "otlp") not in ("", "otlp"):
        return False
    if not any(environment.get(name) for name in _ENDPOINTS):
        return False
    protocol = next(filter(None, (environment.get(name) for name in _PROTOCOLS)), "grpc")
    if protocol != "grpc":
        _log.warning("traces_not_exported", protocol=protocol, todo="only OTLP over grpc is spoken")
    return protocol == "grpc"


def _provider(service: str, instance: str) -> TracerProvider:
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider

    ours = {"service.name": service, "service.version": release(), "service.instance.id": instance}
    # If both set an attribute, `create` would prefer ours over the environment's.
    said = OTELResourceDetector().detect().attributes
    about = {name: value for name, value in ours.items() if name not in said}
    # Not the process's global provider: spans of libraries are not ours, and may hold content.
    return TracerProvider(resource=Resource.create(about), id_generator=_ids(), shutdown_on_exit=False)


def _ids() -> IdGenerator:
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class Ids(RandomIdGenerator):
        """Random ids, unless the code that opens a span sets them."""

        def generate_trace_id(self) -> int:
            return tracing.wanted_ids()[0] or super().generate_trace_id()

        def generate_span_id(self) -> int:
            return tracing.wanted_ids()[1] or super().generate_span_id()

    return Ids()


class _Exporting:
    """The parts of OpenTelemetry that must be shut down in order."""

    def __init__(self, provider: TracerProvider, processor: BatchSpanProcessor, exporter: OTLPSpanExporter) -> None:
        self.provider = provider
        self._processor = processor
        self._exporter = exporter
        provider.add_span_processor(processor)

    @property
    def service(self) -> str:
        return str(self.provider.resource.attributes["service.name"])

    def end(self, loop: asyncio.AbstractEventLoop, done: asyncio.Event) -> None:
        """Shuts down, in a thread of its own. Spans that cannot be sent in time are dropped."""
        flush = threading.Thread(target=self._processor.force_flush, name="traces-flush", daemon=True)
        flush.start()
        flush.join(FLUSH_SECONDS)
        # The exporter goes first: the processor would wait for it for half a minute.
        self._exporter.shutdown()
        self._processor.shutdown()  # type: ignore[no-untyped-call]  # without types
        try:
            loop.call_soon_threadsafe(done.set)
        except RuntimeError:
            # The loop was closed meanwhile, so nobody waits any more.
            return


class _Complaints(logging.Handler):
    """Logs OpenTelemetry's warnings and errors in the log of the process, at most one line a minute."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._since = 0
        self._not_before = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        self._since += 1
        if time.monotonic() < self._not_before:
            return
        self._not_before = time.monotonic() + COMPLAINTS_SECONDS
        complaints, self._since = self._since, 0
        _log.warning("traces_not_exported", complaints=complaints, says=record.getMessage()[:300])


def _quieten() -> None:
    library = logging.getLogger("opentelemetry")
    if not any(isinstance(handler, _Complaints) for handler in library.handlers):
        library.addHandler(_Complaints())
    library.propagate = False
    library.setLevel(logging.WARNING)
