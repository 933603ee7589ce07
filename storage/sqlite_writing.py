"""The writer of SQLite: requests that wait, run one after another and committed together.

They run in one transaction without marks between them, since a savepoint has SQLite copy every page before it is
changed: of a group in which nobody fails that is most of the work. A request that fails before it has changed anything,
as most do that fail, leaves nothing to be taken back. Where one fails later the whole group is rolled back and run once
more, this time in savepoints: a transaction may be run anew, see `storage.database`.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, cast

from storage import deadline, telemetry
from storage.database import Space, Tx
from storage.errors import DeadlinePassed, StoreUnavailable
from storage.outcomes import Outcome
from storage.sqlite_tx import SqliteTx, step


@dataclass(slots=True)
class Request:
    run: Callable[[Tx], Awaitable[Any]]
    future: "asyncio.Future[Any]"
    until: float | None


class _WriteTx(SqliteTx):
    """A request's share of a group. `shut`: the spaces that are shut, for the whole group; what it tells of them counts
    from its end on."""

    def __init__(self, connection: sqlite3.Connection, clock: Callable[[], int], shut: set[Space]) -> None:
        super().__init__(connection, clock)
        self._shut = shut
        self.told: dict[Space, bool] = {}

    def is_shut(self, space: Space) -> bool:
        return space in self._shut

    def tell_shut(self, space: Space) -> None:
        self.told[space] = True

    def tell_open(self, space: Space) -> None:
        self.told[space] = False


class _HalfDone(Exception):
    """A request failed that had changed rows, so that it took its neighbours with it."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class Writing:
    """Groups of requests on the connection of the writer."""

    def __init__(self, connection: sqlite3.Connection, clock: Callable[[], int]) -> None:
        self._connection = connection
        self._clock = clock
        self._shut: set[Space] = set()

    def commit(self, group: Sequence[Request]) -> list[Outcome]:
        """What became of each of them. Raises sqlite3.Error when nothing was written."""
        try:
            return self._run(group, self._bare)
        except _HalfDone as half:
            self._connection.execute("ROLLBACK")
            if len(group) == 1:
                return [(group[0].future, None, half.error)]
            telemetry.GROUPS_AGAIN.inc()
            return self._run(group, self._in_savepoint)

    def _run(self, group: Sequence[Request], one: Callable[[Request], Outcome]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        self._connection.execute("BEGIN IMMEDIATE")
        # Seldom any: at once for all of them, for each call has to know.
        shut = self._connection.execute("SELECT account, user_id FROM shut_spaces")
        self._shut = {Space(account, user) for account, user in shut}
        for request in group:
            if request.future.done():
                continue
            if deadline.is_over(request.until):
                outcomes.append((request.future, None, DeadlinePassed()))
            else:
                outcomes.append(one(request))
        self._connection.execute("COMMIT")
        return outcomes

    def roll_back(self) -> None:
        """Leaves no transaction open."""
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute("ROLLBACK")

    def _bare(self, request: Request) -> Outcome:
        """Raises _HalfDone for one that fails with rows changed: without a savepoint they cannot be changed back."""
        changes = self._connection.total_changes
        try:
            return self._outcome(request)
        except (Exception, asyncio.CancelledError) as error:
            self._check_open(error)
            if self._connection.total_changes != changes:
                raise _HalfDone(_told(error)) from error
            return request.future, None, _told(error)

    def _in_savepoint(self, request: Request) -> Outcome:
        """Whatever it changed, one that fails does so alone."""
        self._connection.execute("SAVEPOINT request")
        try:
            done = self._outcome(request)
        except (Exception, asyncio.CancelledError) as error:
            self._check_open(error)
            self._connection.execute("ROLLBACK TO request")
            self._connection.execute("RELEASE request")
            return request.future, None, _told(error)
        self._connection.execute("RELEASE request")
        return done

    def _outcome(self, request: Request) -> Outcome:
        tx = _WriteTx(self._connection, self._clock, self._shut)
        value = step(cast(Coroutine[Any, Any, Any], request.run(tx)))
        for space, is_shut in tx.told.items():
            (self._shut.add if is_shut else self._shut.discard)(space)
        return request.future, value, None

    def _check_open(self, error: BaseException) -> None:
        if not self._connection.in_transaction:
            # A full disk makes SQLite roll back the whole group; the commit of it must not be tried.
            raise sqlite3.OperationalError(f"the transaction was rolled back: {error}") from error


def _told(error: BaseException) -> BaseException:
    return StoreUnavailable(f"SQLite: {error}") if isinstance(error, sqlite3.OperationalError) else error
