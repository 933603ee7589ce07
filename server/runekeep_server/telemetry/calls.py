"""Metrics and spans of calls, for every call of a service of the contract."""

from contextlib import AbstractContextManager
from functools import cache
from time import perf_counter
from types import TracebackType
from typing import Final

from prometheus_client import Counter, Histogram

from runekeep_common.telemetry import metrics, tracing
from runekeep_common.telemetry.tracing import Kind, Span
from runekeep_server.identity.traces import Trace

UNTRACED: Final = frozenset({"ExtractorService/Work", "SessionService/StreamMessages"})
"""Streams that last for days: a span of one would end too late to be useful, and contain thousands of jobs or appends.
Each job on them has its own spans."""

_PACKAGE: Final = "runekeep.v1."
# Codes that count as server errors: https://opentelemetry.io/docs/specs/semconv/rpc/grpc/ attributes all others to the
# caller.
_FAULTS: Final = frozenset(
    {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
)  # fmt: skip

SECONDS = metrics.histogram(
    "runekeep_rpc_seconds", "Calls with one answer, by `method` and gRPC `code`.", ["method", "code"]
)
STREAMS = metrics.counter(
    "runekeep_rpc_streams_total",
    "Calls with a stream that have ended, by `method` and gRPC `code`.",
    ["method", "code"],
)
IN_FLIGHT = metrics.gauge(
    "runekeep_rpc_in_flight", "Calls under way, by `kind`: `unary`, or `stream` with streams open.", ["kind"]
)
ERRORS = metrics.counter(
    "runekeep_rpc_errors_total",
    "Calls that ended in an error, by its stable `reason`: refused limits are RATE_LIMITED and QUOTA_EXCEEDED.",
    ["reason"],
)

APPENDS = metrics.counter(
    "runekeep_rpc_stream_appends_total", "Appends that StreamMessages acknowledged, by gRPC `code`.", ["code"]
)

AUDITED = metrics.counter("runekeep_audit_calls_total", "Calls that the audit log has, by `method`.", ["method"])


# Cached, because looking a metric up by its labels costs more than counting. The sets of methods and codes are small.
@cache
def _seconds(method: str, code: str) -> Histogram:
    return SECONDS.labels(method, code)


@cache
def _streams(method: str, code: str) -> Counter:
    return STREAMS.labels(method, code)


@cache
def _appends(code: str) -> Counter:
    return APPENDS.labels(code)


def count_appends(count: int, code: str, reason: str = "") -> None:
    """Counts appends of a stream that are acknowledged with this code, and with this stable reason of an error."""
    _appends(code).inc(count)
    if reason:
        ERRORS.labels(reason).inc(count)


class _InFlight:
    """Counts calls in progress of one kind, on the event loop only. A gauge would take a lock for each step."""

    __slots__ = ("count",)

    def __init__(self, kind: str) -> None:
        self.count = 0
        IN_FLIGHT.labels(kind).set_function(lambda: self.count)


_UNARY, _STREAM = _InFlight("unary"), _InFlight("stream")
_NO_SPAN: Final = Span()


class Call:
    """One call in progress, as a context manager."""

    __slots__ = ("_began", "_entered", "_in_flight", "_method", "_span", "_stream")

    def __init__(self, method: str, *, stream: bool) -> None:
        self._method = method
        self._stream = stream
        self._in_flight = _STREAM if stream else _UNARY
        self._began = perf_counter()
        self._span = _NO_SPAN
        self._entered: AbstractContextManager[Span] | None = None

    def __enter__(self) -> "Call":
        self._in_flight.count += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._entered is not None:
                self._entered.__exit__(kind, error, trace)
        finally:
            self._in_flight.count -= 1

    def continues(self, trace: Trace) -> Trace:
        """Begins the call's span in the caller's trace. Returns the trace context of the span, or `trace` without
        tracing."""
        if not tracing.is_on() or self._method in UNTRACED:
            return trace
        name = _PACKAGE + self._method
        about = {"rpc.system.name": "grpc", "rpc.method": name}
        # A caller that only provided a trace id leaves the sampling decision to this server.
        parent, trace_id = ("", trace.trace_id) if trace.undecided else (trace.traceparent, "")
        entered = tracing.span(name, Kind.SERVER, about, parent=parent, trace_id=trace_id)
        self._span = entered.__enter__()
        self._entered = entered
        return _trace_of(self._span.traceparent)

    def made_for(self, account: str) -> None:
        """Sets the account of the call. Spans never contain users: erasing a user cannot reach the tracing backend."""
        self._span.set("runekeep.account", account)

    def audited(self) -> None:
        """Counts a call in the audit log."""
        AUDITED.labels(self._method).inc()

    def ended(self, code: str, reason: str = "") -> None:
        """Records the end of the call. Call it once, with the name of the gRPC code and the stable reason of an
        error."""
        if self._stream:
            _streams(self._method, code).inc()
        else:
            _seconds(self._method, code).observe(perf_counter() - self._began)
        if reason:
            ERRORS.labels(reason).inc()
            self._span.set("runekeep.error.reason", reason)
        self._span.set("rpc.response.status_code", code)
        if code in _FAULTS:
            self._span.fail(code)
        else:
            self._span.settle()


def observe(method: str, *, stream: bool) -> Call:
    """Returns the observation of one call. `method`: service and method without the package. It must exist: callers
    could invent unlimited names. `stream`: whether requests or answers are a stream."""
    return Call(method, stream=stream)


def _trace_of(traceparent: str) -> Trace:
    _, trace_id, span_id, flags = traceparent.split("-")
    return Trace(trace_id, span_id, flags)
