"""Runs coroutines that never suspend, without an event loop."""

from collections.abc import Coroutine
from typing import Any, TypeVar, cast

T = TypeVar("T")


def run_without_event_loop(work: Coroutine[Any, Any, T]) -> T:
    """Runs `work` in the current thread and returns its result. Raises RuntimeError if it suspends."""
    try:
        work.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    work.close()
    raise RuntimeError("a transaction waited for something outside the store")
