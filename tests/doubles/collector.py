"""A double of an OpenTelemetry collector: takes spans by OTLP over gRPC, and tells what it got.

with Collector() as collector:
    ... a process with OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint ...
    spans = collector.wait_for(lambda spans: any(span.name == "apply commit" for span in spans))
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1 import trace_pb2

WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class Span:
    """A span as it came. Ids in hexadecimal digits; `parent` empty: it begins its trace. Times in nanoseconds."""

    service: str
    name: str
    kind: str
    trace_id: str
    span_id: str
    parent: str
    attributes: Mapping[str, Any]
    failed: bool
    links: Sequence[str]
    """Trace ids."""
    start: int
    end: int


class Collector:
    """Listens from `with` on. `endpoint`: for OTEL_EXPORTER_OTLP_ENDPOINT."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.wire = b""
        """All that came, as it came: to look for what must not be in it."""
        self._came = threading.Condition()
        self._server = grpc.server(ThreadPoolExecutor(4))
        self._port = self._server.add_insecure_port("127.0.0.1:0")
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(_Service(self), self._server)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def environment(self) -> dict[str, str]:
        """Of a process that is to send its spans here, soon."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "50"}

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop(None).wait()

    def wait_for(self, there: Callable[[Sequence[Span]], bool]) -> list[Span]:
        """All spans, once `there` is content with them."""
        end = time.monotonic() + WAIT_SECONDS
        with self._came:
            while not there(self.spans):
                left = end - time.monotonic()
                assert left > 0, f"of the spans some never came; there are {sorted({one.name for one in self.spans})}"
                self._came.wait(left)
            return list(self.spans)

    def took(self, request: trace_service_pb2.ExportTraceServiceRequest) -> None:
        with self._came:
            self.wire += request.SerializeToString()
            for of_resource in request.resource_spans:
                about = _values(of_resource.resource.attributes)
                for of_scope in of_resource.scope_spans:
                    self.spans += [_span(span, about["service.name"]) for span in of_scope.spans]
            self._came.notify_all()


class _Service(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def Export(
        self, request: trace_service_pb2.ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> trace_service_pb2.ExportTraceServiceResponse:
        self._collector.took(request)
        return trace_service_pb2.ExportTraceServiceResponse()


def _span(span: trace_pb2.Span, service: str) -> Span:
    return Span(
        service=service,
        name=span.name,
        kind=trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        attributes=_values(span.attributes),
        failed=span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
        links=[link.trace_id.hex() for link in span.links],
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
    )


def _values(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind) if kind else None
