"""Spans of this process, exported to a collector if OpenTelemetry's own variables configure one.

If tracing is off, which is the default, nothing of OpenTelemetry is loaded and a span costs a variable look-up. The
code that opens a span decides what it contains: never user content, never the text of an exception, which may quote it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, SpanContext, Tracer

Value = str | int | bool | float | Sequence[str]
Attributes = Mapping[str, Value]

MAX_LINKS: Final = 32
"""Maximum links of one span that works on many traces at once."""

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


class Kind(StrEnum):
    """The side of a call between processes that a span is on. The words are OpenTelemetry's."""

    INTERNAL = "INTERNAL"
    SERVER = "SERVER"
    CLIENT = "CLIENT"
    CONSUMER = "CONSUMER"


class Span:
    """An open span. This class is for a process that does not trace: it discards everything."""

    __slots__ = ()

    @property
    def traceparent(self) -> str:
        """W3C traceparent header, to continue the trace from here; empty without tracing."""
        return ""

    def set(self, name: str, value: Value) -> None:
        """Sets an attribute."""

    def fail(self, kind: str) -> None:
        """Marks the span as failed. `kind`: a word from a bounded set, such as a status code or a failure class."""

    def settle(self) -> None:
        """Marks the outcome as recorded: an exception that leaves the block changes nothing more."""


class _Recorded(Span):
    """A span of OpenTelemetry. One that is not sampled still has ids to pass on."""

    __slots__ = ("_span", "settled")

    def __init__(self, span: Any) -> None:
        self._span = span
        self.settled = False

    @property
    def traceparent(self) -> str:
        return _header(self._span.get_span_context())

    def set(self, name: str, value: Value) -> None:
        self._span.set_attribute(name, value)

    def fail(self, kind: str) -> None:
        from opentelemetry.trace import Status, StatusCode

        self.settled = True
        self._span.set_attribute("error.type", kind)
        self._span.set_status(Status(StatusCode.ERROR))

    def settle(self) -> None:
        self.settled = True


_OFF: Final = nullcontext(Span())
_tracer: Tracer | None = None
_wanted_ids: ContextVar[tuple[int, int]] = ContextVar("wanted_ids", default=(0, 0))


def trace_with(tracer: Tracer | None) -> None:
    """Makes spans with `tracer` from now on; with None it stops making spans."""
    global _tracer
    _tracer = tracer


def is_on() -> bool:
    """Returns whether this process traces, to skip costly preparations for a span."""
    return _tracer is not None


def wanted_ids() -> tuple[int, int]:
    """Returns the requested ids for the span being made: of its trace, if it starts one, and of the span itself; 0
    means any.
    """
    return _wanted_ids.get()


def span(
    name: str,
    kind: Kind = Kind.INTERNAL,
    attributes: Attributes | None = None,
    *,
    parent: str = "",
    links: Sequence[str] = (),
    trace_id: str = "",
    span_id: str = "",
    started_at: int | None = None,
    ended_at: int | None = None,
) -> AbstractContextManager[Span]:
    """Opens a span around a block, inside the span of the enclosing block.

    An exception that leaves the block marks the span as failed and records its class name. A cancellation is recorded
    but is no failure. `parent`: traceparent to continue from instead; `links`: traceparents of related spans;
    `trace_id`: id of the trace that the span starts, 32 hexadecimal digits; `span_id`: its own id, 16 digits;
    `started_at` and `ended_at`: microseconds since 1970, for work that started and ended before it was noticed. Do not
    use it in async generators, whose blocks are left in other contexts.
    """
    if _tracer is None:
        return _OFF
    return _recorded(_tracer, name, kind, attributes, parent, links, (trace_id, span_id), (started_at, ended_at))


def batch(name: str, traceparents: Sequence[str], attributes: Attributes | None = None) -> AbstractContextManager[Span]:
    """Opens a span for work that was requested in the traces of `traceparents`. With one trace the span is part of it;
    with several it starts its own trace and links to them.
    """
    if _tracer is None:
        return _OFF
    asked = [one for one in dict.fromkeys(traceparents) if one]
    if len(asked) == 1:
        return span(name, Kind.CONSUMER, attributes, parent=asked[0])
    return span(name, Kind.CONSUMER, attributes, links=asked[:MAX_LINKS])


def traceparent() -> str:
    """Returns the traceparent of the enclosing span; empty if there is none, or without tracing."""
    if _tracer is None:
        return ""
    from opentelemetry.trace import get_current_span

    return _header(get_current_span().get_span_context())


@contextmanager
def _recorded(
    tracer: Tracer,
    name: str,
    kind: Kind,
    attributes: Attributes | None,
    parent: str,
    links: Sequence[str],
    ids: tuple[str, str],
    times: tuple[int | None, int | None],
) -> Iterator[Span]:
    from opentelemetry import context, trace

    trace_id, span_id = (int(one or "0", 16) for one in ids)
    start_time, end_time = (None if time is None else time * 1000 for time in times)
    wanted = _wanted_ids.set((trace_id, span_id)) if trace_id or span_id else None
    try:
        made = tracer.start_span(
            name,
            context=_remote(parent) if parent else None,
            kind=trace.SpanKind[kind],
            attributes=dict(attributes or {}),
            links=_links(links),
            start_time=start_time,
        )
    finally:
        if wanted is not None:
            _wanted_ids.reset(wanted)
    recorded = _Recorded(made)
    token = context.attach(trace.set_span_in_context(made))
    try:
        yield recorded
    except (asyncio.CancelledError, GeneratorExit):
        if not recorded.settled:
            recorded.set("error.type", "cancelled")
        raise
    except BaseException as error:
        if not recorded.settled:
            recorded.fail(type(error).__name__)
        raise
    finally:
        context.detach(token)
        made.end(end_time)


def _remote(header: str) -> Context:
    from opentelemetry import trace
    from opentelemetry.context import Context

    found = _span_context(header)
    # Without a readable context the span starts a new trace, whatever encloses it.
    return trace.set_span_in_context(trace.NonRecordingSpan(found), Context()) if found is not None else Context()


def _links(headers: Sequence[str]) -> list[Link]:
    from opentelemetry.trace import Link

    return [Link(found) for header in headers if (found := _span_context(header)) is not None]


def _span_context(header: str) -> SpanContext | None:
    from opentelemetry.trace import SpanContext, TraceFlags

    match = _TRACEPARENT.match(header)
    if match is None:
        return None
    found = SpanContext(int(match[1], 16), int(match[2], 16), True, TraceFlags(int(match[3], 16)))
    return found if found.is_valid else None


def _header(found: SpanContext) -> str:
    if not found.is_valid:
        return ""
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{int(found.trace_flags):02x}"
