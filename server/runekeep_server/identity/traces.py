"""Reads and creates W3C trace contexts."""

import random
import re
from dataclasses import dataclass

from runekeep_server.identity.metadata import Metadata, only_values

TRACE_KEY = "traceparent"
STATE_KEY = "tracestate"
_NEITHER_ZERO = 1 << 64 | 1
OWN_TRACE = "runekeep=own"
"""Value of `tracestate` that our client sends if it does not trace: it provides a trace id for logs and makes no
sampling decision."""

# https://www.w3.org/TR/trace-context/#traceparent-header; later versions may append fields.
_TRACEPARENT = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


@dataclass(frozen=True, slots=True)
class Trace:
    """The position of a call in a W3C trace. `trace_id` has 32 lower-case hexadecimal digits, `span_id` 16, `flags` 2.
    `undecided`: nobody has made a sampling decision yet, so `flags` are ignored."""

    trace_id: str
    span_id: str
    flags: str
    undecided: bool = False

    @property
    def traceparent(self) -> str:
        """The value of the header to pass on."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


def trace_of(metadata: Metadata) -> Trace:
    """Returns the trace that the metadata continues, or a new one. Raises ApiError UNAUTHENTICATED for two different
    ones."""
    found = only_values(metadata, (TRACE_KEY, STATE_KEY))
    header = found.get(TRACE_KEY)
    match = _TRACEPARENT.fullmatch(header) if header else None
    # Version 00 ends after the flags.
    if match and not (match[1] == "00" and match[5]):
        undecided = found.get(STATE_KEY) == OWN_TRACE
        return Trace(trace_id=match[2], span_id=match[3], flags=match[4], undecided=undecided)
    return new_trace()


def new_trace() -> Trace:
    """Returns a new trace, for work that no call requested."""
    # Ids must be unique, not secret. The lowest bit of each is set, so that neither is all zeros.
    ids = f"{random.getrandbits(192) | _NEITHER_ZERO:048x}"
    return Trace(ids[:32], ids[32:], "00", True)
