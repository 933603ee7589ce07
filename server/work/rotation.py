"""Decides whose turn it is to get a job: principals take turns, and so do the workers of each principal.

Credits do not matter here: a worker that asks for a thousand jobs is served as often as one that asks for one.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from server.work.connection import Connection

MAX_REMEMBERED: Final = 10_000
"""Principals and workers whose last turn is remembered; the least recently served are forgotten first."""


class Rotation:
    """The turns of one server's workers."""

    def __init__(self) -> None:
        self._turns = 0
        self._last: OrderedDict[tuple[str, ...], int] = OrderedDict()

    def joined(self, connection: Connection) -> None:
        """A new worker, or one with a new name, comes after those that wait."""
        for key in _keys(connection):
            self._last.setdefault(key, self._turns)
        self._forget()

    def served(self, connection: Connection) -> None:
        self._turns += 1
        connection.last_turn = self._turns
        for key in _keys(connection):
            self._last[key] = self._turns
            self._last.move_to_end(key)
        self._forget()

    def first(self, connections: Iterable[Connection]) -> Connection | None:
        """Returns the one of these that has waited longest."""
        return min(connections, key=self._order, default=None)

    def _order(self, connection: Connection) -> tuple[int, ...]:
        return *(self._last.get(key, 0) for key in _keys(connection)), connection.last_turn

    def _forget(self) -> None:
        while len(self._last) > MAX_REMEMBERED:
            self._last.popitem(last=False)


def _keys(connection: Connection) -> tuple[tuple[str, ...], ...]:
    return (connection.worker.actor,), (connection.worker.actor, connection.worker_id)
