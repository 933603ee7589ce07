"""Traces that an application begins go on in the server.

Where the application has loaded OpenTelemetry, each call gets a span from its tracer provider, and the server is told
of it; nothing is loaded for that here. Else a call names a trace of its own, by which the lines of a server's log are
found, and leaves to the server whether it is recorded.
"""

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final
from urllib.parse import urlsplit

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

Metadata = tuple[tuple[str, str], ...]

_API: Final = "opentelemetry.trace"
# Marks a trace that nobody has decided about: without it a server would take it for one that is not to be recorded.
_OWN: Final = ("tracestate", "runekeep=own")


@contextmanager
def outgoing(request: Message, address: str) -> Iterator[Metadata]:
    """Around one call, its repeats among it; what is to go with it as metadata. `address`: the server's."""
    api = sys.modules.get(_API)
    if api is None:
        yield _own()
        return
    method = _method(request.DESCRIPTOR)
    where = urlsplit(address if "://" in address else f"//{address}")
    about: dict[str, str | int] = {
        "rpc.system.name": "grpc",
        "rpc.method": method,
        "server.address": where.hostname or "",
    }
    if where.port:
        about["server.port"] = where.port
    with api.get_tracer("runekeep").start_as_current_span(
        method,
        kind=api.SpanKind.CLIENT,
        attributes=about,
        # The texts of errors are the server's answers, and may name what the caller named.
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield _headers(api, span) or _own()
        except BaseException as error:
            code = str(getattr(error, "code", type(error).__name__))
            span.set_attribute("error.type", code)
            span.set_attribute("rpc.response.status_code", code)
            span.set_status(api.Status(api.StatusCode.ERROR))
            raise
        span.set_attribute("rpc.response.status_code", "OK")


def around() -> Metadata:
    """What goes with a stream: the application's span around it, or a trace of its own."""
    api = sys.modules.get(_API)
    return (_headers(api, api.get_current_span()) if api is not None else ()) or _own()


def _headers(api: Any, span: Any) -> Metadata:
    """Of a span that has ids; one of an application without a tracer provider has none."""
    context = span.get_span_context()
    if not context.is_valid:
        return ()
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
    state = context.trace_state.to_header()
    return (("traceparent", parent), *((("tracestate", state),) if state else ()))


def _own() -> Metadata:
    # The lowest bits are set so that neither id is ever all zeros.
    trace_id, span_id = random.getrandbits(128) | 1, random.getrandbits(64) | 1
    return ("traceparent", f"00-{trace_id:032x}-{span_id:016x}-00"), _OWN


@cache
def _method(asked: Descriptor) -> str:
    """The method that takes such requests: in the contract each has a type of its own."""
    for service in asked.file.services_by_name.values():
        for method in service.methods:
            if method.input_type.full_name == asked.full_name:
                return f"{service.full_name}/{method.name}"
    raise LookupError(f"no method of {asked.file.name} takes {asked.full_name}")
