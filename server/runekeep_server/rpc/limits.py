"""Limits of each account in one server process, so that no account starves the others: calls per second, concurrent
calls and streams.

Each account has its own token bucket (https://en.wikipedia.org/wiki/Token_bucket) and counters. A call above a limit is
refused at once and delays nobody. Workers and admins have no limits: accounts wait for the results of workers, and
admins come to help. Health and reflection have separate limits. An account without open calls and with a full bucket
equals an unknown account, so it is removed.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from time import monotonic
from types import TracebackType
from typing import Final

from runekeep_server.protocol.errors import quota_exceeded, rate_limited
from runekeep_server.rpc.methods import METHODS
from runekeep_server.settings import LimitSettings
from runekeep_storage.accounts.accounts import OwnLimits

STREAMS: Final = frozenset(method.name for method in METHODS.values() if method.streams)
ADDING: Final = frozenset(method.name for method in METHODS.values() if method.stores_data)
"""Calls that store data; they are refused for an account at its quota. Reads, deletions, erasures and rollbacks go on.
So do commits: they process stored messages and free sessions of their backlog."""

BUSY_SECONDS = 0.5
"""Retry delay for a call that is refused because of concurrent calls, whose end nobody knows."""
MAX_SECONDS = 3600.0
"""Maximum retry delay; an account may be limited to one call in a thousand years."""
MAX_STREAM_SECONDS = 5.0
"""How long what a stream has sent may wait for the rate of its account, while it takes room."""
_SWEPT = 2
"""Accounts that each call checks for removal. More than one, so that idle accounts become fewer although a call may add
one. At most about twice as many accounts are kept as are active."""


@dataclass(slots=True)
class _Account:
    """Counters of an account. `tokens`: tokens in the bucket at the time `at`."""

    tokens: float
    at: float
    calls: int = 0
    streams: int = 0


class _Admitted:
    """Counts a call from its admission to its end."""

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
    """A call that is not counted."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


_FREE: Final = _Free()


class Limits:
    """The limits of all accounts. Use it on the event loop only. `clock` returns seconds and never goes back."""

    def __init__(self, settings: LimitSettings, clock: Callable[[], float] = monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._accounts: OrderedDict[str, _Account] = OrderedDict()
        """Ordered by the last call or check; the most recent account is last."""
        self._calls = 0
        """Unary calls in progress, of all accounts."""
        self._usual = OwnLimits(
            calls_per_second=settings.account_calls_per_second,
            concurrent_calls=settings.account_concurrent_calls,
            streams=settings.account_streams,
        )
        self._own: dict[str, OwnLimits] = {}
        self._full: Set[str] = frozenset()

    @property
    def accounts(self) -> int:
        """Number of accounts in memory."""
        return len(self._accounts)

    def set_accounts(self, own: Mapping[str, OwnLimits], full: Set[str]) -> None:
        """`own`: limits by account that replace those of the settings; None keeps the value of the settings. `full`:
        the accounts that are at their quota."""
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
        """Returns a context manager that counts the call: `with limits.admit(account, "SessionService/AddMessages"):`.

        `account` is None for workers and admins. Raises ApiError RATE_LIMITED with a retry delay, or QUOTA_EXCEEDED.
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

    def count_in_stream(self, account: str, method: str) -> float:
        """Counts what a stream of the account sends as one more call of `method`. Returns the seconds after which it
        may go on; if that is more than MAX_STREAM_SECONDS, nothing is counted. Raises ApiError QUOTA_EXCEEDED."""
        if account in self._full and method in ADDING:
            raise quota_exceeded(account)
        limits = self._own.get(account, self._usual)
        if not limits.calls_per_second:
            return 0.0
        # The stream itself keeps the account in memory.
        state = self._accounts[account]
        seconds = self._missing_seconds(state, limits, self._clock())
        if 0.0 < seconds <= MAX_STREAM_SECONDS:
            # Taken in advance, so that streams that wait go on one after the other, each woken once.
            state.tokens -= 1.0
        return seconds

    def _take(self, state: _Account, limits: OwnLimits, now: float) -> None:
        if seconds := self._missing_seconds(state, limits, now):
            raise rate_limited(
                f"The account makes more than {limits.calls_per_second:g} calls a second, which is its limit",
                seconds,
                "account_calls_per_second",
            )

    def _missing_seconds(self, state: _Account, limits: OwnLimits, now: float) -> float:
        """Takes a token and returns 0, or returns the seconds until there is one."""
        rate = limits.calls_per_second or 0.0
        state.tokens = min(state.tokens + (now - state.at) * rate, self._burst(limits))
        state.at = now
        if state.tokens < 1.0:
            return min((1.0 - state.tokens) / rate, MAX_SECONDS)
        state.tokens -= 1.0
        return 0.0

    def _burst(self, limits: OwnLimits) -> float:
        # At least one token, otherwise an account with a rate below one per burst could never call.
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
        """Removes the least recently checked accounts, if they are idle."""
        for _ in range(_SWEPT):
            account, state = next(iter(self._accounts.items()))
            if not state.calls and not state.streams and self._is_idle(account, state, now):
                del self._accounts[account]
            else:
                # The account may stay active for long, because of a stream or its own limits. Check others next.
                self._accounts.move_to_end(account)

    def _is_idle(self, account: str, state: _Account, now: float) -> bool:
        limits = self._own.get(account, self._usual)
        rate = limits.calls_per_second
        return not rate or state.tokens + (now - state.at) * rate >= self._burst(limits)
