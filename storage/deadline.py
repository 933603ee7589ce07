"""Until when the call at hand is waited for, told to everything that works for it.

A call that is cancelled takes its own awaits along. What it has left elsewhere, in the queue of a thread or of another
process, knows nothing of that; there the deadline goes with the work, and work that is too late is not begun.

Each call has a context of its own, and tasks that it starts inherit it: one that outlives its call says `outlive`.
"""

from contextvars import ContextVar
from time import monotonic

from storage.errors import DeadlinePassed

_until: ContextVar[float | None] = ContextVar("until", default=None)


def begin(seconds: float | None) -> None:
    """The call at hand is waited for that long; None: for as long as it takes."""
    _until.set(None if seconds is None else monotonic() + seconds)


def outlive() -> None:
    """What the task at hand does is not for the call that started it."""
    _until.set(None)


def until() -> float | None:
    """On the clock `time.monotonic`, which all processes of a machine share; None: there is no deadline."""
    return _until.get()


def remaining(most: float) -> float:
    """Seconds that are left, 0 at least and `most` at most."""
    end = _until.get()
    return most if end is None else min(max(end - monotonic(), 0.0), most)


def is_over(end: float | None) -> bool:
    """Whether a moment that `until` gave is past."""
    return end is not None and monotonic() >= end


def check(end: float | None) -> None:
    """Raises DeadlinePassed when a moment that `until` gave is past."""
    if is_over(end):
        raise DeadlinePassed
