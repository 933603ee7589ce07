"""Tracks the account that the current task works for, so that accounts take turns in shared queues.

Each call has its own context, which the tasks that it starts inherit. Work of no account, such as that of the relay and
of workers, counts as the work of one account.

Heavy work also rests. One interpreter and one writer of SQLite serve all accounts, so a request of megabytes delays
every call that arrives during it. While other accounts call, heavy work therefore rests after each piece for several
times the duration of the piece. An account that calls alone never rests.
"""

import asyncio
import os
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from functools import partial
from threading import Lock, get_native_id
from time import monotonic
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

HEAVY_REST: Final = 3
"""Rest after heavy work, as a multiple of its duration, so that it gets at most a quarter of the time."""
LONG_REST: Final = 12
"""Rest after work that cannot be split and delays every other call by more than about 10 ms: a request of 3 MB holds
SQLite's writer for some 25 ms. At a quarter of the time, 3 % of the calls of others would wait that long."""
MAX_REST_SECONDS: Final = 1.0
"""Longest rest. A piece that took longer than a third of this mostly waited, for example for an unavailable store."""
_FREE_REST_SECONDS: Final = 0.3
"""Rest that an account may owe before it has to rest, so that occasional heavy work does not rest at all."""
_PRESENT_SECONDS: Final = 1.0
"""An account counts as active for this long after a call."""

_account: ContextVar[str] = ContextVar("account", default="")
_latest: list[tuple[str, float]] = []
"""The last two accounts that called, with the times of their latest calls, the most recent first."""


def begin(account: str) -> None:
    """Sets the account that the current call works for."""
    _account.set(account)


def current() -> str:
    """Returns the account that the current call works for; empty if there is none."""
    return _account.get()


def note_call() -> None:
    """Records that the account of the current call has called."""
    account = current()
    _latest[:] = [(account, monotonic()), *(one for one in _latest if one[0] != account)][:2]


def do_others_call() -> bool:
    """Returns whether an account other than that of the current call has called within the last second."""
    account, since = current(), monotonic() - _PRESENT_SECONDS
    return any(name != account and at > since for name, at in _latest)


async def rest_after(seconds: float, rest: float = HEAVY_REST) -> None:
    """Rests after a piece of heavy work that took `seconds` for the multiple `rest` of them, if other accounts call."""
    if do_others_call():
        await asyncio.sleep(min(rest * seconds, MAX_REST_SECONDS))


class FairThreads(ThreadPoolExecutor):
    """A pool of threads with a queue for each account; accounts take turns. One account gets at most all threads but
    one, so that another account need not wait for its work to end. `nice` is added to the nice value of the
    threads on Linux, for work that keeps processors busy."""

    def __init__(self, threads: int, name: str, *, nice: int = 0) -> None:
        super().__init__(threads, thread_name_prefix=name, initializer=partial(lower_priority, nice))
        self._threads_in_all = threads
        self._threads_of_account = max(1, threads - 1)
        self._lock = Lock()
        self._waiting: OrderedDict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = OrderedDict()
        self._running: Counter[str] = Counter()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            self._waiting.setdefault(current(), deque()).append((future, partial(fn, *args, **kwargs)))
            self._start_next()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._lock:
            waiting = [(account, *entry) for account, queue in self._waiting.items() for entry in queue]
            self._waiting.clear()
            for account, future, work in waiting:
                if cancel_futures:
                    future.cancel()
                else:
                    self._start(account, future, work)
        super().shutdown(wait, cancel_futures=cancel_futures)

    def _start_next(self) -> None:
        while self._running.total() < self._threads_in_all:
            account = next((one for one in self._waiting if self._running[one] < self._threads_of_account), None)
            if account is None:
                return
            queue = self._waiting.pop(account)
            future, work = queue.popleft()
            if queue:
                # Behind all other accounts that wait.
                self._waiting[account] = queue
            self._start(account, future, work)

    def _start(self, account: str, future: Future[Any], work: Callable[[], Any]) -> None:
        self._running[account] += 1
        super().submit(self._run, account, future, work)

    def _run(self, account: str, future: Future[Any], work: Callable[[], Any]) -> None:
        try:
            if future.set_running_or_notify_cancel():
                try:
                    result = work()
                except BaseException as error:
                    future.set_exception(error)
                    # The error refers to this frame, which refers to the future, which refers to the error.
                    del future
                else:
                    future.set_result(result)
        finally:
            with self._lock:
                self._running[account] -= 1
                if not self._running[account]:
                    del self._running[account]
                self._start_next()


def lower_priority(nice: int) -> None:
    """Lowers the priority of the current thread: `nice` is added to the nice value of the process. Does nothing except
    on Linux, because elsewhere it would lower the priority of the process."""
    if nice and sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, get_native_id(), os.getpriority(os.PRIO_PROCESS, os.getpid()) + nice)


class FairSlots:
    """Slots with a queue for each account; accounts take turns. For use on one event loop. An account gets at most
    `each` of the `total` slots. Work takes as many slots as its weight, but never more than an account may have.

    `rest`: while other accounts call, slots stay taken after the work for this multiple of its duration, except for the
    first _FREE_REST_SECONDS. The caller does not wait for that.
    """

    def __init__(self, total: int, each: int, *, rest: float = 0) -> None:
        self._total = total
        self._each = min(each, total)
        self._rest = rest
        self._rested_at: dict[str, float] = {}
        """The time at which each account has rested for all of its work."""
        self._free = total
        self._held: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[tuple[asyncio.Future[None], int]]] = OrderedDict()

    @asynccontextmanager
    async def take(self, weight: int = 1) -> AsyncIterator[Callable[[int], None]]:
        """Waits for slots for the account of the current call, and holds them until the end of the block. Yields a
        function that reduces the weight and releases the slots beyond it."""
        account, held = current(), min(weight, self._each)
        await self._acquire(account, held)
        began = monotonic()

        def keep(smaller: int) -> None:
            nonlocal held
            if smaller < held:
                self._release(account, held - smaller)
                held = smaller

        try:
            yield keep
        finally:
            if (seconds := self._rest_after(account, monotonic() - began)) > 0:
                asyncio.get_running_loop().call_later(seconds, self._release, account, held)
            else:
                self._release(account, held)

    async def hold(self, weight: int) -> Callable[[], None]:
        """Waits for slots as `take` does. Returns the function that releases them; call it once."""
        account, held = current(), min(weight, self._each)
        await self._acquire(account, held)
        return partial(self._release, account, held)

    def _rest_after(self, account: str, seconds: float) -> float:
        """Returns how long an account must rest after it worked for `seconds`."""
        if not self._rest or not do_others_call():
            return 0.0
        now = monotonic()
        self._rested_at = {name: at for name, at in self._rested_at.items() if at > now}
        rested_at = self._rested_at.get(account, now) + min(self._rest * seconds, MAX_REST_SECONDS)
        self._rested_at[account] = rested_at
        return min(rested_at - now - _FREE_REST_SECONDS, MAX_REST_SECONDS)

    async def _acquire(self, account: str, weight: int) -> None:
        if not self._waiting and weight <= self._free and self._held[account] + weight <= self._each:
            self._free -= weight
            self._held[account] += weight
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(account, deque()).append((granted, weight))
        self._grant()
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self._release(account, weight)
            else:
                granted.cancel()
                self._grant()
            raise

    def _release(self, account: str, weight: int) -> None:
        self._free += weight
        self._held[account] -= weight
        if not self._held[account]:
            del self._held[account]
        self._grant()

    def _grant(self) -> None:
        """Gives free slots to waiting accounts in turn. Skips an account that holds its maximum. Does not skip one that
        needs more slots than are free, because heavy work would wait forever."""
        while self._waiting:
            for account, queue in list(self._waiting.items()):
                while queue and queue[0][0].done():
                    queue.popleft()
                if not queue:
                    del self._waiting[account]
            fits = (one for one, queue in self._waiting.items() if self._held[one] + queue[0][1] <= self._each)
            turn = next(fits, None)
            if turn is None or self._waiting[turn][0][1] > self._free:
                return
            queue = self._waiting.pop(turn)
            granted, weight = queue.popleft()
            if queue:
                self._waiting[turn] = queue
            self._free -= weight
            self._held[turn] += weight
            granted.set_result(None)
