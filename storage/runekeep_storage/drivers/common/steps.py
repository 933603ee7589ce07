"""Runs a transaction without an event loop, in a thread."""

from collections.abc import Coroutine
from typing import Any, TypeVar, cast

T = TypeVar("T")


def step(work: Coroutine[Any, Any, T]) -> T:
    """Runs a transaction to its end without an event loop."""
    try:
        work.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    work.close()
    raise RuntimeError("a transaction waited for something outside the store")
