"""Carries the deadline of the current call to everything that works for it.

Cancelling a call cancels its own awaits, but not the work that it left in the queue of a thread or of another process.
So the deadline goes with that work, and late work is not started.

Each call has its own context, which its tasks inherit. A task that outlives its call must call `ignore_deadline`.
"""

from contextvars import ContextVar
from time import monotonic

from runekeep_storage.errors import DeadlinePassed

_until: ContextVar[float | None] = ContextVar("until", default=None)


def begin(seconds: float | None) -> None:
    """Sets the deadline of the current call, in seconds from now; None: no deadline."""
    _until.set(None if seconds is None else monotonic() + seconds)


def ignore_deadline() -> None:
    """Removes the deadline from the current task, because the task outlives the call that started it."""
    _until.set(None)


def until() -> float | None:
    """Returns the deadline on the clock `time.monotonic`, which all processes of a machine share; None: no deadline."""
    return _until.get()


def remaining(most: float) -> float:
    """Returns the seconds that are left, between 0 and `most`."""
    end = _until.get()
    return most if end is None else min(max(end - monotonic(), 0.0), most)


def is_over(end: float | None) -> bool:
    """Returns whether a deadline from `until` is past."""
    return end is not None and monotonic() >= end


def check(end: float | None) -> None:
    """Raises DeadlinePassed if a deadline from `until` is past."""
    if is_over(end):
        raise DeadlinePassed
