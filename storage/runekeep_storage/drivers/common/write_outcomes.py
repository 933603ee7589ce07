"""Outcomes of requests that a writer commits together."""

import asyncio
from collections.abc import Iterable
from typing import Any

Outcome = tuple["asyncio.Future[Any]", Any, BaseException | None]
"""The future of the caller, and a value or an error."""


def settle(outcomes: Iterable[Outcome]) -> None:
    """Resolves the futures, on the loop that created them. Skips futures that are done, because a cancelled call has
    one."""
    for future, value, error in outcomes:
        if future.done():
            continue
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)
