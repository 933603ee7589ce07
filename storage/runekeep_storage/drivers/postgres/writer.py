"""Write transactions on PostgreSQL: ordered by locks, and committed in groups.

All servers on one database take the same advisory locks, each as the first statement of its transaction:

- a transaction of one account takes the store's lock shared and the lock of the account's lane exclusively;
- any other, such as a claim, which chooses among the accounts, takes the store's lock exclusively.

So concurrent transactions belong to accounts of different lanes, and neither read nor change each other's rows. In READ
COMMITTED every statement sees what was committed before it, which includes all earlier holders of the lock.
Transactions are therefore serializable in the order of their locks, and none has to be retried. Each statement checks
that a transaction of one account changes no other account.

A server runs the requests that wait for a lane as one transaction, so that they share the locks and one sync to disk.
Requests that arrive meanwhile join it. Joint requests wait for each other before it begins
(`runekeep_storage.drivers.postgres.writer_shard_queue`).

Requests run without savepoints, because a savepoint costs each of them a round trip. Most failing requests fail before
they change anything, so nothing needs to be undone. If a request fails later, or PostgreSQL refuses one of its
statements, the whole group is rolled back and runs once more with savepoints, so that only that request fails: a
transaction may run again, see `runekeep_storage.database`.

All requests of a group share the time (`Tx.now`) of its start, which may be before a request that joined it was made.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, TypeVar
from zlib import crc32

import asyncpg
import structlog

from runekeep_storage import deadline, telemetry
from runekeep_storage.database import Tx
from runekeep_storage.drivers.common.write_outcomes import Outcome, settle
from runekeep_storage.drivers.common.write_requests import Joint, Request, end_of_part, in_time, run
from runekeep_storage.drivers.postgres import statements
from runekeep_storage.drivers.postgres.transaction import (
    LOCKS,
    PostgresTx,
    commit,
    is_gone,
    outset,
    roll_back,
    told,
    unreachable,
)
from runekeep_storage.drivers.postgres.writer_shard_queue import LaneQueue
from runekeep_storage.errors import StoreReadOnly, StoreUnavailable

T = TypeVar("T")

LANES = 8
"""Maximum number of account transactions that are open at once, over all servers. All servers must use the same
number."""
WRITERS = 6
"""Connections that the lanes of a server share."""
GROUP_LIMIT = 64
"""Maximum number of requests in one commit; bounds how long the first of them waits for the last."""
WAIT_SECONDS = 10.0
"""Limit of the wait for a free connection. The locks have the limit of any statement."""
WORK_SECONDS = 30.0
"""Time limit of a request, because it may wait for something outside the store. A batched call has up to four times
that."""
RETRY_SECONDS = 10.0
"""Time after which a group is given up that PostgreSQL keeps refusing."""

_STORE = 0

_AGAIN = (
    # Caused by manual locks on the tables, or by an engine that only speaks PostgreSQL's protocol.
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    # A migration by another server changed a table of a prepared statement.
    asyncpg.InvalidCachedStatementError,
)

log = structlog.get_logger(__name__)


_Run = Callable[[Any, PostgresTx, list[Request]], Awaitable[list[Outcome]]]


class _HalfDone(Exception):
    """A request failed after it had changed rows, broken the transaction or joined others, so the whole group fails."""

    def __init__(self, requests: list[Request], error: Exception) -> None:
        super().__init__(str(error))
        self.requests = requests
        self.error = error


class Writer:
    """The lanes of one server, over a pool of connections of their own. Without `clock` they use the database's
    clock."""

    def __init__(self, pool: Any, clock: Callable[[], int] | None) -> None:
        self._pool = pool
        self._clock = clock
        self._waiting: dict[int, LaneQueue] = {}
        self._running: dict[int, asyncio.Task[None]] = {}
        self.changes = 0
        """Number of transactions that changed rows."""

    async def write(
        self, work: Callable[[Tx], Awaitable[T]], account: str | None, joint: Joint[Any, T] | None = None
    ) -> T:
        """Returns the result of `work` once it is durable. `account` None: the transaction takes the store's lock.

        A call that is cancelled or late before its turn does not run. One whose turn has come runs to its end or to its
        deadline.
        """
        lane = _STORE if account is None else 1 + crc32(account.encode()) % LANES
        request = Request(work, account, asyncio.get_running_loop().create_future(), deadline.until(), joint)
        self._waiting.setdefault(lane, LaneQueue(GROUP_LIMIT)).put(request)
        if lane not in self._running:
            self._running[lane] = asyncio.create_task(self._run(lane))
        telemetry.WRITER_QUEUE.inc()
        try:
            answer: T = await request.future
        finally:
            telemetry.WRITER_QUEUE.dec()
        return answer

    def stop(self) -> None:
        """Cancels all waiting and running requests. Their callers get StoreUnavailable."""
        for task in self._running.values():
            task.cancel()
        # Not in the tasks: a cancelled task that has not started yet never runs, not even its cleanup.
        for waiting in self._waiting.values():
            settle([(request.future, None, StoreUnavailable("the store is closed")) for request in waiting])
            waiting.clear()

    async def _run(self, lane: int) -> None:
        waiting = self._waiting[lane]
        try:
            while waiting:
                await waiting.gather()
                group = waiting.take()
                try:
                    outcomes = await self._outcomes(lane, group) if group else []
                    waiting.answer(group)
                    settle(outcomes)
                except asyncio.CancelledError:
                    settle([(request.future, None, StoreUnavailable("the store was closed")) for request in group])
                    raise
        finally:
            del self._running[lane]

    async def _outcomes(self, lane: int, group: list[Request]) -> list[Outcome]:
        """Returns the outcome of each request. Retries while nothing was written and the group may still succeed.

        Requests that arrive while `group` waits for its locks or runs join it.
        """
        deadline = asyncio.get_running_loop().time() + RETRY_SECONDS
        tries = 0
        while True:
            error: BaseException
            try:
                return await self._group(lane, group)
            except _AGAIN as refused:
                tries += 1
                error = StoreUnavailable(f"PostgreSQL refused the transaction {tries} times: {refused}")
                log.warning("transaction_refused", tries=tries, requests=len(group), error=type(refused).__name__)
            except Exception as other:
                return [(request.future, None, other) for request in group]
            if asyncio.get_running_loop().time() > deadline:
                return [(request.future, None, error) for request in group]
            await asyncio.sleep(random.uniform(0, min(0.01 * 2**tries, 0.5)))

    async def _group(self, lane: int, group: list[Request]) -> list[Outcome]:
        try:
            return await self._transaction(lane, group, end_of_part, _bare)
        except _HalfDone as half:
            if len(group) == 1:
                return [(group[0].future, None, half.error)]
            telemetry.GROUPS_AGAIN.inc()
            if isinstance(half.error, StoreUnavailable) and len(half.requests) == 1:
                # Most likely it timed out. A second run with the same limit would make the others wait for it twice.
                settle([(half.requests[0].future, None, half.error)])
            return await self._transaction(lane, group, lambda _, start: start + 1, _in_savepoint)

    async def _transaction(
        self, lane: int, group: list[Request], end_of: Callable[[list[Request], int], int], run_part: _Run
    ) -> list[Outcome]:
        """Runs the group in parts. `end_of` returns the end of the part that begins at an index."""
        with unreachable("no connection"):
            async with asyncio.timeout(WAIT_SECONDS):
                connection = await self._pool.acquire()
        telemetry.CONNECTIONS.labels("write").inc()
        try:
            with unreachable("no transaction", connection):
                await connection.execute(f"BEGIN ISOLATION LEVEL READ COMMITTED;{_locks(lane)}")
                # After the locks, so that times never go back from one transaction to the next.
                began = await outset(connection, self._clock)
            waiting = self._waiting[lane]
            group += waiting.take(beside=len(group))
            outcomes: list[Outcome] = []
            notices: dict[str, None] = {}
            has_changed = False
            start = 0
            while start < len(group):
                end = end_of(group, start)
                # The wait for the locks may have been long.
                requests = in_time(group[start:end], outcomes)
                start = end
                if requests:
                    tx = PostgresTx(connection, began, requests[0].account)
                    done = await run_part(connection, tx, requests)
                    outcomes += done
                    has_changed |= tx.has_changed
                    if any(error is None for _, _, error in done):
                        notices |= tx.notices
                        began = tx.outset_of_next()
                group += waiting.take(beside=len(group))
            telemetry.GROUPS.observe(len(group))
            await commit(connection, notices)
            self.changes += has_changed
            return outcomes
        except BaseException:
            await roll_back(connection)
            raise
        finally:
            telemetry.CONNECTIONS.labels("write").dec()
            await self._pool.release(connection, timeout=WAIT_SECONDS)


async def _bare(connection: Any, tx: PostgresTx, requests: list[Request]) -> list[Outcome]:
    """Returns the outcomes of a part. Raises errors that fail the whole group, and _HalfDone if the part fails late."""
    try:
        done = await _outcomes(connection, tx, requests)
        if tx.is_torn:
            # The request swallowed an error. Check whether PostgreSQL saw it and aborted the transaction.
            with unreachable("a statement failed", connection):
                await connection.execute(statements.PING)
        return done
    except (*_AGAIN, StoreReadOnly):
        raise
    except Exception as error:
        if is_gone(connection):
            raise StoreUnavailable(f"PostgreSQL: the transaction broke: {told(error)}") from error
        if tx.is_torn or tx.has_changed or len(requests) > 1:
            raise _HalfDone(requests, _own(error)) from error
        return [(requests[0].future, None, error)]


async def _in_savepoint(connection: Any, tx: PostgresTx, requests: list[Request]) -> list[Outcome]:
    """Returns the outcomes of a part; if it fails, its changes are undone alone. Raises errors that fail the whole
    group."""
    with unreachable("a statement failed", connection):
        await connection.execute("SAVEPOINT request")
    try:
        done = await _outcomes(connection, tx, requests)
        with unreachable("a statement failed", connection):
            await connection.execute("RELEASE request")
        return done
    except (*_AGAIN, StoreReadOnly):
        raise
    except Exception as error:
        with unreachable(f"the transaction broke: {told(error)}", connection):
            await connection.execute("ROLLBACK TO request;RELEASE request")
        return [(request.future, None, _own(error)) for request in requests]


async def _outcomes(connection: Any, tx: PostgresTx, requests: list[Request]) -> list[Outcome]:
    # The longest deadline of the batch counts: a caller with an earlier one gets its answer by its own deadline.
    ends = [request.until for request in requests]
    until = None if None in ends else max(end for end in ends if end is not None)
    with unreachable("a transaction took too long", connection):
        async with asyncio.timeout(_work_seconds(until, len(requests))):
            return await run(tx, requests)


def _own(error: Exception) -> Exception:
    if isinstance(error, asyncpg.InFailedSQLTransactionError):
        return RuntimeError("a transaction swallowed an error of the store, and was not written")
    return error


def _work_seconds(until: float | None, requests: int) -> float:
    seconds = WORK_SECONDS * min(requests, 4)
    return seconds if until is None else min(seconds, until - monotonic())


def _locks(lane: int) -> str:
    if lane == _STORE:
        return statements.lock(LOCKS, _STORE)
    return f"{statements.lock_shared(LOCKS, _STORE)};{statements.lock(LOCKS, lane)}"
