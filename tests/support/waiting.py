"""Waiting for what tells nobody."""

import time
from collections.abc import Callable
from typing import Any


def until(holds: Callable[[], Any]) -> None:
    """For what tells nobody: a signal to another process, a file that goes. Waits in a thread."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)
