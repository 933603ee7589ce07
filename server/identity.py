"""Who calls: an account's user, or an extractor worker. Known from the call's metadata, never from a request field.

In development mode the metadata is believed as it stands. That is safe only because settings refuse this mode on any
but a loopback address: whoever can call is on this machine.
"""

import random
import re
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass

from schemas.uris import IdKind, is_safe_id
from server.errors import unauthenticated
from storage.database import Space

ACCOUNT_KEY = "x-runekeep-account"
USER_KEY = "x-runekeep-user"
TRACE_KEY = "traceparent"
DEFAULT_ID = "default"

# https://www.w3.org/TR/trace-context/#traceparent-header; later versions may append fields.
_TRACEPARENT = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


@dataclass(frozen=True, slots=True)
class Trace:
    """Where a call stands in a W3C trace. Ids are lower case hex: 32 digits, 16 digits; `flags` 2 digits."""

    trace_id: str
    span_id: str
    flags: str

    @property
    def traceparent(self) -> str:
        """The header to pass on."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


@dataclass(frozen=True, slots=True)
class Caller:
    """A user of an account, in whose name a call is made."""

    account: str
    user: str
    trace: Trace


@dataclass(frozen=True, slots=True)
class Worker:
    """An extractor worker. It acts for no user: what it may read and write follows from the leases it holds."""

    trace: Trace


_principal: ContextVar[Caller | Worker] = ContextVar("principal")


def current_caller() -> Caller:
    """The user in whose name the call at hand is made. LookupError outside of one and in a worker's call."""
    principal = _principal.get()
    if not isinstance(principal, Caller):
        raise LookupError("this call is a worker's, not a user's")
    return principal


def caller_space() -> Space:
    """The space of the user in whose name the call at hand is made: all that the call may reach."""
    caller = current_caller()
    return Space(caller.account, caller.user)


def current_trace() -> Trace:
    """The trace of the call at hand, a user's or a worker's. LookupError outside of one."""
    return _principal.get().trace


def enter_principal(principal: Caller | Worker) -> None:
    """Make `principal` the one of the call at hand. Each call has a context of its own, so nothing is reset."""
    _principal.set(principal)


Metadata = Iterable[tuple[str, str | bytes]]


def development_caller(metadata: Metadata) -> Caller:
    """The caller that the metadata names, `default` where it names none. ApiError UNAUTHENTICATED for an unsafe id."""
    found = _read(metadata, (ACCOUNT_KEY, USER_KEY, TRACE_KEY))
    return Caller(
        account=_checked(found, ACCOUNT_KEY, IdKind.ACCOUNT),
        user=_checked(found, USER_KEY, IdKind.USER),
        trace=_trace(found.get(TRACE_KEY)),
    )


def development_worker(metadata: Metadata) -> Worker:
    """Whoever asks. A user named in the metadata is not looked at."""
    return Worker(_trace(_read(metadata, (TRACE_KEY,)).get(TRACE_KEY)))


def _read(metadata: Metadata, keys: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in metadata:
        # Two values would let what checks the first and what uses the last disagree.
        if key in keys and isinstance(value, str) and found.setdefault(key, value) != value:
            raise unauthenticated(f"The metadata holds {key} twice, with different values", "Send it once.")
    return found


def _checked(found: dict[str, str], key: str, kind: IdKind) -> str:
    value = found.get(key, DEFAULT_ID)
    if not is_safe_id(kind, value):
        raise unauthenticated(
            f"The metadata key {key} holds no {kind} id",
            "Use 1 to 128 ASCII letters, digits, dots, underscores and dashes that begin with a letter or digit"
            + (", but not memories, sessions, peers or skills." if kind is IdKind.USER else "."),
        )
    return value


def _trace(header: str | None) -> Trace:
    match = _TRACEPARENT.fullmatch(header) if header else None
    # Version 00 ends after the flags.
    if match and not (match[1] == "00" and match[5]):
        return Trace(trace_id=match[2], span_id=match[3], flags=match[4])
    return new_trace()


def new_trace() -> Trace:
    """The beginning of a trace, for what no call asked for."""
    # Ids that are unique, not secret. The lowest bit is set so that neither is ever all zeros.
    return Trace(
        trace_id=f"{random.getrandbits(128) | 1:032x}", span_id=f"{random.getrandbits(64) | 1:016x}", flags="00"
    )
