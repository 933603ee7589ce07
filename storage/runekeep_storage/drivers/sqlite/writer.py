"""SQLite's writer: runs waiting requests one after another and commits them together.

They run in one transaction without savepoints, because with a savepoint SQLite copies every page before it changes it,
which is most of the work of a group in which no request fails. Most failing requests fail before they change anything,
so nothing needs to be undone. If a request fails later, the whole group is rolled back and runs once more with
savepoints: a transaction may run again, see `runekeep_storage.database`.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Sequence

from runekeep_storage import telemetry
from runekeep_storage.damage import Damage
from runekeep_storage.database import Space
from runekeep_storage.drivers.common.without_event_loop import run_without_event_loop
from runekeep_storage.drivers.common.write_outcomes import Outcome
from runekeep_storage.drivers.common.write_requests import Request, in_parts, in_time, run
from runekeep_storage.drivers.sqlite import statements
from runekeep_storage.drivers.sqlite.errors import is_damage, store_error
from runekeep_storage.drivers.sqlite.transaction import SqliteTx


class _WriteTx(SqliteTx):
    """A request's share of a group. `shut`: the locked spaces of the whole group; changes to them (`told`) apply when
    the request has ended."""

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
    """A request failed after it had changed rows or joined others, so the whole group fails."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class Writing:
    """Runs groups of requests on the writer's connection."""

    def __init__(self, connection: sqlite3.Connection, clock: Callable[[], int], damage: Damage) -> None:
        self._connection = connection
        self._clock = clock
        self._damage = damage
        self._shut: set[Space] = set()
        self._changes_before = 0

    @property
    def has_changed(self) -> bool:
        """Whether the latest group changed rows, or tried to."""
        return self._connection.total_changes != self._changes_before

    def commit(self, group: Sequence[Request]) -> list[Outcome]:
        """Returns the outcome of each transaction. Raises sqlite3.Error or DatabaseDamaged if nothing was written."""
        self._changes_before = self._connection.total_changes
        try:
            return self._run(in_parts(group), self._bare)
        except _HalfDone as half:
            self._connection.execute("ROLLBACK")
            if len(group) == 1:
                return [(group[0].future, None, half.error)]
            telemetry.GROUPS_AGAIN.inc()
            return self._run(([request] for request in group), self._in_savepoint)

    def _run(
        self, parts: Iterable[Sequence[Request]], run: Callable[[Sequence[Request]], list[Outcome]]
    ) -> list[Outcome]:
        outcomes: list[Outcome] = []
        self._connection.execute("BEGIN IMMEDIATE")
        # One query for the whole group: few spaces are ever locked, and each call has to know.
        shut = self._connection.execute(statements.SHUT_SPACES)
        self._shut = {Space(account, user) for account, user in shut}
        for part in parts:
            requests = in_time(part, outcomes)
            if requests:
                outcomes += run(requests)
        # Nothing may be written to a file that is known to be damaged; this group may have found the damage.
        self._damage.check()
        self._connection.execute("COMMIT")
        return outcomes

    def roll_back(self) -> None:
        """Rolls back any open transaction."""
        with contextlib.suppress(sqlite3.Error):
            self._connection.execute("ROLLBACK")

    def _bare(self, requests: Sequence[Request]) -> list[Outcome]:
        """Raises _HalfDone if a request fails after it changed rows: without a savepoint the changes cannot be
        undone."""
        changes = self._connection.total_changes
        try:
            return self._outcomes(requests)
        except (Exception, asyncio.CancelledError) as error:
            self._check_open(error)
            if self._connection.total_changes != changes or len(requests) > 1:
                raise _HalfDone(store_error(error, self._damage)) from error
            return [(requests[0].future, None, store_error(error, self._damage))]

    def _in_savepoint(self, requests: Sequence[Request]) -> list[Outcome]:
        """Undoes only the changes of these requests if they fail."""
        self._connection.execute("SAVEPOINT request")
        try:
            done = self._outcomes(requests)
        except (Exception, asyncio.CancelledError) as error:
            self._check_open(error)
            self._connection.execute("ROLLBACK TO request")
            self._connection.execute("RELEASE request")
            return [(request.future, None, store_error(error, self._damage)) for request in requests]
        self._connection.execute("RELEASE request")
        return done

    def _outcomes(self, requests: Sequence[Request]) -> list[Outcome]:
        tx = _WriteTx(self._connection, self._clock, self._shut)
        done = run_without_event_loop(run(tx, requests))
        for space, is_shut in tx.told.items():
            (self._shut.add if is_shut else self._shut.discard)(space)
        return done

    def _check_open(self, error: BaseException) -> None:
        if not self._connection.in_transaction and not is_damage(error):
            # A full disk makes SQLite roll back the whole group, so its commit must not be tried.
            rolled_back = sqlite3.OperationalError(f"the transaction was rolled back: {error}")
            if isinstance(error, sqlite3.Error):
                rolled_back.sqlite_errorcode = error.sqlite_errorcode
            raise rolled_back from error
