"""What becomes of requests that a writer commits together."""

import asyncio
from collections.abc import Iterable
from typing import Any

Outcome = tuple["asyncio.Future[Any]", Any, BaseException | None]
"""Who waits for it, and a value, or an error in its place."""


def settle(outcomes: Iterable[Outcome]) -> None:
    """Hands results over, on the loop that asked. A cancelled call has a future that is done already."""
    for future, value, error in outcomes:
        if future.done():
            continue
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)
