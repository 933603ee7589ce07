"""The environment of child processes that handle untrusted data."""

import os

_NEEDED_VARIABLES = frozenset({"HOME", "LANG", "PATH", "TMPDIR", "TZ"})
_NEEDED_PREFIXES = ("DYLD_", "LC_", "LD_", "MALLOC_", "PYTHON")


def child_environment() -> dict[str, str]:
    """Returns the variables that a process needs to find its libraries, without the server's keys and addresses."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _NEEDED_VARIABLES or name.startswith(_NEEDED_PREFIXES)
    }
