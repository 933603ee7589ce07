"""What a process of ours spares at its start and at its end, which orchestrators and tests wait for.

While modules are loaded Python looks through all that it has for garbage, again and again, and once more at the end: a
quarter of a start's work, and there is next to none.
"""

import gc
import sys


def begin() -> None:
    """The first thing that a process does: structlog must not be loaded yet. `begun` follows."""
    gc.disable()
    # structlog loads rich where it is installed, to draw exceptions with it. No process of ours does; see server.logs.
    sys.modules["rich"] = None  # type: ignore[assignment]  # the import system takes it for a module that is not there
    import structlog  # noqa: F401

    del sys.modules["rich"]


def begun() -> None:
    """From now on garbage is looked for, but never among what is there already, which stays to the end."""
    gc.freeze()
    gc.enable()


def end() -> None:
    """The last thing that a process does before it exits: what it has goes all at once."""
    gc.freeze()
