"""Where a call stands in a trace, by the W3C's header."""

import random
import re
from dataclasses import dataclass

from server.identity.metadata import Metadata, only_values

TRACE_KEY = "traceparent"
STATE_KEY = "tracestate"
_NEITHER_ZERO = 1 << 64 | 1
OWN_TRACE = "runekeep=own"
"""In the tracestate of a client of ours that traces nothing: it names the trace, for logs, and decides nothing."""

# https://www.w3.org/TR/trace-context/#traceparent-header; later versions may append fields.
_TRACEPARENT = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


@dataclass(frozen=True, slots=True)
class Trace:
    """Where a call stands in a W3C trace. Ids are lower case hex: 32 digits, 16 digits; `flags` 2 digits. `undecided`:
    nobody has said yet whether the trace is recorded, so that `flags` count for nothing."""

    trace_id: str
    span_id: str
    flags: str
    undecided: bool = False

    @property
    def traceparent(self) -> str:
        """The header to pass on."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


def trace_of(metadata: Metadata) -> Trace:
    """The trace that the caller's metadata continue, a new one where they name none. ApiError UNAUTHENTICATED for two
    that differ."""
    found = only_values(metadata, (TRACE_KEY, STATE_KEY))
    header = found.get(TRACE_KEY)
    match = _TRACEPARENT.fullmatch(header) if header else None
    # Version 00 ends after the flags.
    if match and not (match[1] == "00" and match[5]):
        undecided = found.get(STATE_KEY) == OWN_TRACE
        return Trace(trace_id=match[2], span_id=match[3], flags=match[4], undecided=undecided)
    return new_trace()


def new_trace() -> Trace:
    """The beginning of a trace, for what no call asked for."""
    # Ids that are unique, not secret. The lowest bit of each is set so that neither is ever all zeros.
    ids = f"{random.getrandbits(192) | _NEITHER_ZERO:048x}"
    return Trace(ids[:32], ids[32:], "00", True)
