"""Decides whose turn it is to get a job: principals take turns, and so do the workers of each principal.

Credits do not matter here: a worker that asks for a thousand jobs is served as often as one that asks for one.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from runekeep_server.extraction.connection import Connection

MAX_REMEMBERED: Final = 10_000
"""Principals and workers whose last turn is remembered; the least recently served are forgotten first."""


class Rotation:
    """The turns of one server's workers."""

    def __init__(self) -> None:
        self._turns = 0
        self._last: OrderedDict[tuple[str, ...], int] = OrderedDict()

    def add(self, connection: Connection) -> None:
        """Places a new worker, or a new name, behind the waiting ones."""
        for key in _keys(connection):
            self._last.setdefault(key, self._turns)
        self._forget()

    def record_turn(self, connection: Connection) -> None:
        self._turns += 1
        connection.last_turn = self._turns
        for key in _keys(connection):
            self._last[key] = self._turns
            self._last.move_to_end(key)
        self._forget()

    def choose(self, connections: Iterable[Connection]) -> Connection | None:
        """Returns the connection that has waited longest, or None."""
        return min(connections, key=self._order, default=None)

    def _order(self, connection: Connection) -> tuple[int, ...]:
        return *(self._last.get(key, 0) for key in _keys(connection)), connection.last_turn

    def _forget(self) -> None:
        while len(self._last) > MAX_REMEMBERED:
            self._last.popitem(last=False)


def _keys(connection: Connection) -> tuple[tuple[str, ...], ...]:
    worker = connection.worker_id
    return (worker.holder,), (worker.holder, worker.name)
