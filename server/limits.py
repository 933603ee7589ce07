"""Bounds of one server process, so that no account takes it from the others: calls a second, calls at a time, streams.

Each account has a token bucket of its own (https://en.wikipedia.org/wiki/Token_bucket) and counters of its own, so an
account at its limit is refused at once and waits in nobody's way. Workers and admins are under no account's limits:
what the first bring is what accounts wait for, and the others come to help. Health and reflection never get here.

Accounts that have no call open and could make all that they may at once are like those that were never seen: they are
forgotten.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from time import monotonic
from types import TracebackType
from typing import Final

from google.protobuf.descriptor import FileDescriptor

from runekeep.v1 import (
    admin_service_pb2,
    extractor_service_pb2,
    history_service_pb2,
    memory_service_pb2,
    session_service_pb2,
    space_service_pb2,
    task_service_pb2,
    turn_memory_service_pb2,
)
from server.errors import quota_exceeded, rate_limited
from server.settings import LimitSettings
from storage.accounts import OwnLimits

_FILES: Final[tuple[FileDescriptor, ...]] = (
    session_service_pb2.DESCRIPTOR,
    memory_service_pb2.DESCRIPTOR,
    history_service_pb2.DESCRIPTOR,
    task_service_pb2.DESCRIPTOR,
    turn_memory_service_pb2.DESCRIPTOR,
    space_service_pb2.DESCRIPTOR,
    extractor_service_pb2.DESCRIPTOR,
    admin_service_pb2.DESCRIPTOR,
)

STREAMS: Final = frozenset(
    f"{service.name}/{method.name}"
    for file in _FILES
    for service in file.services_by_name.values()
    for method in service.methods
    if method.client_streaming or method.server_streaming
)

ADDING: Final = frozenset(
    {
        "SessionService/CreateSession",
        "SessionService/AddMessages",
        "SessionService/RecordUsage",
        "MemoryService/WriteMemories",
        "TurnMemoryService/SubmitTurn",
        "TurnMemoryService/SubmitFeedback",
        "SpaceService/ImportSpace",
    }
)
"""What an account may not call that has stored as much as it may. What reads, deletes, erases or takes back goes on,
and so do commits: they make something of what is there already, and free sessions of what they have gathered."""

BUSY_SECONDS = 0.5
"""After which one may come again who was refused for calls under way, of which nobody knows when they end."""
LONGEST_SECONDS = 3600.0
"""For which anybody is sent away; an account may be allowed a call in a thousand years."""
_SWEPT = 2
"""Accounts that one call looks at to forget them; more than it may add, so that those that are idle become fewer. What
is remembered is at most about twice what is not idle."""


@dataclass(slots=True)
class _Account:
    """`tokens`: calls that may come at once, as of `at`."""

    tokens: float
    at: float
    calls: int = 0
    streams: int = 0


class _Admitted:
    """One call, from its admission to its end."""

    __slots__ = ("_account", "_limits", "_name", "_stream")

    def __init__(self, limits: "Limits", name: str, account: _Account, stream: bool) -> None:
        self._limits = limits
        self._name = name
        self._account = account
        self._stream = stream

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._limits._ended(self._name, self._account, self._stream)


class _Free:
    """A call that is counted nowhere."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


_FREE: Final = _Free()


class Limits:
    """What each account may still do. Used on the event loop alone. `clock`: seconds that never go back."""

    def __init__(self, settings: LimitSettings, clock: Callable[[], float] = monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._accounts: OrderedDict[str, _Account] = OrderedDict()
        """The one that was served or looked at last stands last."""
        self._calls = 0
        """Unary calls of all accounts under way."""
        self._usual = OwnLimits(
            calls_per_second=settings.account_calls_per_second,
            concurrent_calls=settings.account_concurrent_calls,
            streams=settings.account_streams,
        )
        self._own: dict[str, OwnLimits] = {}
        self._full: Set[str] = frozenset()

    @property
    def accounts(self) -> int:
        """Accounts that are remembered."""
        return len(self._accounts)

    def set_accounts(self, own: Mapping[str, OwnLimits], full: Set[str]) -> None:
        """`own`: limits in place of those of the settings, by account; what is None in them is that of the settings.
        `full`: the accounts that have stored as much as they may."""
        self._own = {account: self._with_usual(limits) for account, limits in own.items()}
        self._full = full

    def _with_usual(self, own: OwnLimits) -> OwnLimits:
        usual = self._usual
        return replace(
            own,
            calls_per_second=usual.calls_per_second if own.calls_per_second is None else own.calls_per_second,
            concurrent_calls=usual.concurrent_calls if own.concurrent_calls is None else own.concurrent_calls,
            streams=usual.streams if own.streams is None else own.streams,
        )

    def admit(self, account: str | None, method: str) -> _Admitted | _Free:
        """Counts a call for as long as it is entered; `with limits.admit(account, "SessionService/AddMessages"):`.

        `account` None: a worker or an admin. Raises ApiError RATE_LIMITED with the time to come again, QUOTA_EXCEEDED.
        """
        if account is None:
            return _FREE
        stream = method in STREAMS
        if not stream and 0 < self._settings.concurrent_calls <= self._calls:
            raise rate_limited("This server has as many calls under way as it takes", BUSY_SECONDS, "concurrent_calls")
        if account in self._full and method in ADDING:
            raise quota_exceeded(account)
        limits = self._own.get(account, self._usual)
        now = self._clock()
        if len(self._accounts) > _SWEPT:
            self._sweep(now)
        state = self._accounts.get(account)
        if state is None:
            state = _Account(self._burst(limits), now)
        if stream:
            if limits.streams and state.streams >= limits.streams:
                raise rate_limited(
                    f"The account has {state.streams} streams open, which is its limit", BUSY_SECONDS, "account_streams"
                )
        elif limits.concurrent_calls and state.calls >= limits.concurrent_calls:
            raise rate_limited(
                f"The account has {state.calls} calls under way, which is its limit",
                BUSY_SECONDS,
                "account_concurrent_calls",
            )
        if limits.calls_per_second:
            self._take(state, limits, now)
        if stream:
            state.streams += 1
        else:
            state.calls += 1
            self._calls += 1
        self._accounts[account] = state
        self._accounts.move_to_end(account)
        return _Admitted(self, account, state, stream)

    def _take(self, state: _Account, limits: OwnLimits, now: float) -> None:
        rate = limits.calls_per_second or 0.0
        state.tokens = min(state.tokens + (now - state.at) * rate, self._burst(limits))
        state.at = now
        if state.tokens < 1.0:
            raise rate_limited(
                f"The account makes more than {rate:g} calls a second, which is its limit",
                min((1.0 - state.tokens) / rate, LONGEST_SECONDS),
                "account_calls_per_second",
            )
        state.tokens -= 1.0

    def _burst(self, limits: OwnLimits) -> float:
        # One at least: whoever may make a call every ten seconds may make one.
        return max((limits.calls_per_second or 0.0) * self._settings.account_burst_seconds, 1.0)

    def _ended(self, account: str, state: _Account, stream: bool) -> None:
        if stream:
            state.streams -= 1
        else:
            state.calls -= 1
            self._calls -= 1
        if not state.calls and not state.streams and self._is_idle(account, state, self._clock()):
            self._accounts.pop(account, None)

    def _sweep(self, now: float) -> None:
        """Forgets accounts that were looked at least lately, where that changes nothing for them."""
        for _ in range(_SWEPT):
            account, state = next(iter(self._accounts.items()))
            if not state.calls and not state.streams and self._is_idle(account, state, now):
                del self._accounts[account]
            else:
                # It may stay so for long, by a stream or by limits of its own; others behind it are looked at next.
                self._accounts.move_to_end(account)

    def _is_idle(self, account: str, state: _Account, now: float) -> bool:
        limits = self._own.get(account, self._usual)
        rate = limits.calls_per_second
        return not rate or state.tokens + (now - state.at) * rate >= self._burst(limits)
