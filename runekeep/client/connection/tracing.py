"""Continues traces of the application in the server.

If the application has loaded OpenTelemetry, each call gets a span from its tracer provider, and its metadata names the
span; this module loads nothing. Otherwise a call starts a new trace, by which you find it in the server's log, and the
server decides whether to record it.
"""

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from google.protobuf.message import Message

from runekeep.methods import method_of

Metadata = tuple[tuple[str, str], ...]

_API: Final = "opentelemetry.trace"
# Marks a trace without a sampling decision. Without the mark the server would not record it.
_UNDECIDED: Final = ("tracestate", "runekeep=own")


@contextmanager
def trace_call(request: Message, address: str) -> Iterator[Metadata]:
    """Traces one call with its repeats, and yields its metadata. `address`: the server's."""
    api = sys.modules.get(_API)
    if api is None:
        yield _new_trace()
        return
    called = method_of(request.DESCRIPTOR)
    method = f"{called.containing_service.full_name}/{called.name}"
    where = urlsplit(address if "://" in address else f"//{address}")
    attributes: dict[str, str | int] = {
        "rpc.system.name": "grpc",
        "rpc.method": method,
        "server.address": where.hostname or "",
    }
    if where.port:
        attributes["server.port"] = where.port
    with api.get_tracer("runekeep").start_as_current_span(
        method,
        kind=api.SpanKind.CLIENT,
        attributes=attributes,
        # Texts of errors may contain names that the caller gave.
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield _headers(api, span) or _new_trace()
        except BaseException as error:
            code = str(getattr(error, "code", type(error).__name__))
            span.set_attribute("error.type", code)
            span.set_attribute("rpc.response.status_code", code)
            span.set_status(api.Status(api.StatusCode.ERROR))
            raise
        span.set_attribute("rpc.response.status_code", "OK")


def stream_headers() -> Metadata:
    """Returns the metadata of a stream: the application's current span, or a new trace."""
    api = sys.modules.get(_API)
    return (_headers(api, api.get_current_span()) if api is not None else ()) or _new_trace()


def _headers(api: Any, span: Any) -> Metadata:
    """Returns the headers of a span; none if it has no ids, because there is no tracer provider."""
    context = span.get_span_context()
    if not context.is_valid:
        return ()
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
    state = context.trace_state.to_header()
    return (("traceparent", parent), *((("tracestate", state),) if state else ()))


def _new_trace() -> Metadata:
    # The lowest bits are set so that neither id is ever all zeros.
    trace_id, span_id = random.getrandbits(128) | 1, random.getrandbits(64) | 1
    return ("traceparent", f"00-{trace_id:032x}-{span_id:016x}-00"), _UNDECIDED
