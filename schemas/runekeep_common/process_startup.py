"""Shortens the start and the end of a process, for which orchestrators and tests wait.

While Python loads modules it runs the garbage collector again and again, and once more at the end. That takes a quarter
of the start-up time and finds next to nothing.
"""

import gc
import sys


def begin() -> None:
    """Must run first in a process: structlog must not be loaded yet. `begun` follows."""
    gc.disable()
    # If rich is installed, structlog loads it to draw exceptions. No process of Runekeep does so; see
    # runekeep_server.telemetry.logs.
    sys.modules["rich"] = None  # type: ignore[assignment]  # the import system takes it for a module that is not there
    import structlog  # noqa: F401  # loaded now, while rich is not to be had

    del sys.modules["rich"]


def begun() -> None:
    """Enables garbage collection, except for existing objects, which stay until the end."""
    gc.freeze()
    gc.enable()


def end() -> None:
    """Must run last before a process exits. Exempts all objects from the final garbage collection."""
    gc.freeze()
