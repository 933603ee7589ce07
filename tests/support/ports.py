"""Ports for servers that have to be told theirs before they listen, or that come back to the one that they had."""

import contextlib
import random
import socket

PORTS = range(20_000, 30_000)
"""Below those that the system hands out, so that nobody is given the port of a server that is dead for a while."""


def free_port() -> int:
    """A port that a process can be given again and again."""
    # Not of `random` itself, which a test may have seeded like another process's.
    for port in random.SystemRandom().sample(PORTS, 100):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no free port")
