"""SQLite driver: one writer thread with group commit, a few reader threads, write-ahead log, synchronous=FULL.

The writer commits all waiting requests together, see `runekeep_storage.drivers.sqlite.writer`. A request that fails
never fails its neighbours, and one sync to disk serves them all.

Requests that nobody waits for any more do not start, and running reads are interrupted; a write that has begun is
finished.
"""

import asyncio
import contextlib
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from json import JSONDecodeError
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import structlog

from runekeep_storage import deadline, telemetry
from runekeep_storage.damage import Damage
from runekeep_storage.database import Heard, Row, Tx, answers
from runekeep_storage.drivers.common.fair_turns import FairThreads
from runekeep_storage.drivers.common.transactions import Transactions
from runekeep_storage.drivers.common.without_event_loop import run_without_event_loop
from runekeep_storage.drivers.common.write_outcomes import Outcome, settle
from runekeep_storage.drivers.common.write_queue import WriteQueue
from runekeep_storage.drivers.common.write_requests import Joint, Request
from runekeep_storage.drivers.sqlite.checkpoints import MAX_PAGES, Checkpointer
from runekeep_storage.drivers.sqlite.errors import is_damage, refused_write, store_error
from runekeep_storage.drivers.sqlite.file_lock import DatabaseLock
from runekeep_storage.drivers.sqlite.transaction import SqliteTx
from runekeep_storage.drivers.sqlite.writer import Writing
from runekeep_storage.errors import DatabaseDamaged, DeadlinePassed, StoreReadOnly, StoreUnavailable

P = ParamSpec("P")
T = TypeVar("T")

GROUP_LIMIT = 256
"""Maximum number of requests in one commit; bounds how long the first of them waits for the last."""
READERS = 2
"""Reads of one account at a time. There is one more thread, for other accounts."""
RESCUE = "Restore a backup: docs/operate/errors.md, DATA_DAMAGED."
LOCK_SECONDS = 10.0
"""How long a killed process may take to release the database."""
_INTERRUPT_SECONDS = 0.02
"""SQLite forgets an interrupt that comes between two statements, so it is repeated."""

log = structlog.get_logger(__name__)


def _connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=512)
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA busy_timeout=10000")
    connection.execute("PRAGMA cache_size=-16000")
    # Debian's build of SQLite overwrites the pages of deleted rows with zeros by default, so that deleting a megabyte
    # takes longer than storing it, and all writes wait. `purge` removes data for good.
    connection.execute("PRAGMA secure_delete=FAST")
    if sqlite3.sqlite_version_info < (3, 43):
        connection.create_function("octet_length", 1, _octets, deterministic=True)
    if read_only:
        connection.execute("PRAGMA query_only=ON")
    return connection


def _octets(value: str | bytes) -> int:
    return len(value.encode()) if isinstance(value, str) else len(value)


class _Reading:
    """A read that its caller may abandon. Otherwise two slow reads would block all others."""

    def __init__(self) -> None:
        self._until = deadline.until()
        self._left = False
        self._connection: sqlite3.Connection | None = None
        # Held around an interrupt: it must not reach the next read on the connection.
        self._interrupting = threading.Lock()

    def begin(self, connection: sqlite3.Connection) -> None:
        self.go_on()
        self._connection = connection

    def end(self) -> None:
        with self._interrupting:
            self._connection = None

    def go_on(self) -> None:
        """Raises DeadlinePassed if nobody waits for the read any more."""
        if self._left or deadline.is_over(self._until):
            raise DeadlinePassed

    def leave(self, loop: asyncio.AbstractEventLoop) -> None:
        """Makes the read end soon, even in the middle of a statement."""
        self._left = True
        with self._interrupting:
            if self._connection is not None:
                self._connection.interrupt()
                loop.call_later(_INTERRUPT_SECONDS, self.leave, loop)


class _ReadTx(SqliteTx):
    """A read transaction that ends between two statements once its caller has abandoned it."""

    def __init__(self, connection: sqlite3.Connection, clock: Callable[[], int], reading: _Reading) -> None:
        super().__init__(connection, clock)
        self._reading = reading

    async def fetch(self, sql: str, *args: Any) -> list[Row]:
        self._reading.go_on()
        return await super().fetch(sql, *args)

    async def fetchrow(self, sql: str, *args: Any) -> Row | None:
        self._reading.go_on()
        return await super().fetchrow(sql, *args)


@dataclass(slots=True)
class _Purge:
    future: "asyncio.Future[None]"


@dataclass(slots=True)
class _TrialWrite:
    future: "asyncio.Future[None]"


class _Stop:
    """Tells the writer to end."""


def system_clock() -> int:
    return time.time_ns() // 1000


def _settle_all(outcomes: Sequence[Outcome]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[Outcome]] = {}
    for outcome in outcomes:
        by_loop.setdefault(outcome[0].get_loop(), []).append(outcome)
    for loop, settled in by_loop.items():
        # The loop may have been closed meanwhile.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, settled)


def _purged(connection: sqlite3.Connection, folder: Path, damage: Damage) -> StoreUnavailable | None:
    """Purges the database. Returns the error if that failed."""
    try:
        damage.check()
        needed, free = _room(connection), shutil.disk_usage(folder).free
        if free < needed:
            log.error("store_purge_refused", free_bytes=free, needed_bytes=needed)
            return StoreUnavailable(f"SQLite was not purged: that needs {needed} bytes of free space, {free} are there")
        connection.execute("VACUUM")
        busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except DatabaseDamaged as error:
        return error
    except (sqlite3.Error, OSError) as error:
        # The log may be as large as the database by now, and would stay so.
        with contextlib.suppress(sqlite3.Error):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if is_damage(error) and isinstance(failure := store_error(error, damage), DatabaseDamaged):
            return failure
        return StoreUnavailable(f"SQLite could not be purged: {error}")
    return StoreUnavailable("SQLite could not be purged: readers held its log for too long") if busy else None


def _try_to_write(connection: sqlite3.Connection) -> StoreReadOnly | None:
    """Rewrites a page unchanged. Returns why that failed; None for a failure that does not suggest a read-only file."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        connection.execute(f"PRAGMA user_version={version}")
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        # A disk that fails may refuse this too; the writer must go on.
        with contextlib.suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        if refused_write(error):
            return StoreReadOnly(f"the SQLite database takes no writes: {error}")
    return None


def _room(connection: sqlite3.Connection) -> int:
    """Returns the bytes that a purge needs temporarily: it copies live data to a temporary file, and from there to the
    log."""
    pages, unused, size = (
        int(connection.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    return 2 * (pages - unused) * size


class SqliteDatabase(Transactions):
    """See runekeep_storage.database.Database. `path` is the database file; its folder must exist."""

    def __init__(self, path: Path, *, clock: Callable[[], int] = system_clock) -> None:
        self._path = path
        # SQLite puts its log beside the file that a symbolic link points to.
        self._folder = Path(os.path.realpath(path)).parent
        self._clock = clock
        self.damage = Damage()
        self._lock = DatabaseLock(path)
        self._requests: WriteQueue[Request | _Purge | _TrialWrite | _Stop] = WriteQueue(GROUP_LIMIT)
        self._writer: threading.Thread | None = None
        self._checkpointer: Checkpointer | None = None
        self._readers: FairThreads | None = None
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._changes = 0
        self._write_was_refused = False
        """Set when a write failed as on a read-only file, until a trial write succeeds."""

    async def open(self) -> None:
        opening = asyncio.ensure_future(asyncio.to_thread(self._open))
        try:
            connection = await asyncio.shield(opening)
        except asyncio.CancelledError:
            # Let a running migration end first: releasing the lock now would drop SQLite's locks too.
            with contextlib.suppress(Exception):
                (await opening).close()
            self._lock.release()
            raise
        except BaseException:
            self._lock.release()
            raise
        self._connections.append(connection)
        self._checkpointer = Checkpointer(partial(_connect, self._path, read_only=False))
        self._writer = threading.Thread(
            target=self._write_loop, args=(connection, self._checkpointer), name="sqlite-writer", daemon=True
        )
        self._writer.start()
        self._readers = FairThreads(READERS + 1, "sqlite-reader")

    async def claim(self) -> None:
        """Takes the lock of the file, as `open` does, for code that must look at the file before it is opened."""
        await asyncio.to_thread(self._claim)

    def _claim(self) -> None:
        self._lock.acquire(LOCK_SECONDS)
        if not os.access(self._folder, os.W_OK | os.X_OK):
            raise StoreReadOnly(f"{self._path}: its folder may not be written to, and SQLite keeps its log there")

    def _open(self) -> sqlite3.Connection:
        """Returns the writer's connection, to a file that this process owns and can write to."""
        from runekeep_storage.migrations.migrate import migrate_sqlite, sqlite_schema

        self._claim()
        try:
            if self.damage.finding is not None:
                schema = sqlite_schema(self._path)
                if schema is None or not schema.is_served():
                    problem = f"{self.damage.finding.problem}. Its schema cannot be migrated. {RESCUE}"
                    raise DatabaseDamaged(str(self._path), problem)
            migrate_sqlite(self._path)
            connection = _connect(self._path, read_only=False)
            connection.execute(f"PRAGMA wal_autocheckpoint={MAX_PAGES}")
        except sqlite3.Error as error:
            if is_damage(error):
                raise DatabaseDamaged(str(self._path), f"{error}. {RESCUE}") from error
            raise StoreUnavailable(f"cannot open {self._path}: {error}") from error
        # Nothing is written to a damaged file any more.
        refused = None if self.damage.finding is not None else _try_to_write(connection)
        if refused is not None:
            connection.close()
            raise StoreReadOnly(f"{self._path}: {refused}")
        return connection

    async def probe(self) -> None:
        await self.read_global(answers)
        if os.statvfs(self._folder).f_flag & os.ST_RDONLY:
            raise StoreReadOnly(f"the file system of {self._path} is mounted read-only")
        if self._write_was_refused and self._writer is not None:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._requests.put(_TrialWrite(future))
            await future

    async def _write(
        self, work: Callable[[Tx], Awaitable[T]], account: str | None, joint: Joint[Any, T] | None = None
    ) -> T:
        """One writer serves all accounts."""
        if self._writer is None:
            raise StoreUnavailable("the store is closed")
        self.damage.check()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with telemetry.Transaction(writes=True):
            self._requests.put(Request(work, None, future, deadline.until(), joint))
            telemetry.WRITER_QUEUE.set(len(self._requests))
            return await future

    async def _read(self, work: Callable[[Tx], Awaitable[T]]) -> T:
        if self._readers is None:
            raise StoreUnavailable("the store is closed")

        reading = _Reading()

        def run() -> T:
            connection = self._reader_connection()
            reading.begin(connection)
            try:
                connection.execute("BEGIN")
                coroutine = work(_ReadTx(connection, self._clock, reading))
                return run_without_event_loop(cast(Coroutine[Any, Any, T], coroutine))
            finally:
                reading.end()
                # An error may have ended the transaction already; callers must see that error.
                if connection.in_transaction:
                    connection.execute("COMMIT")

        loop = asyncio.get_running_loop()
        with telemetry.Transaction(writes=False):
            try:
                return await loop.run_in_executor(self._readers, run)
            except asyncio.CancelledError:
                reading.leave(loop)
                raise
            except (sqlite3.DatabaseError, JSONDecodeError) as error:
                raise store_error(error, self.damage) from error

    async def listen(self, heard: Heard) -> None:
        """Never calls `heard`: no other server uses this store."""

    async def hold_index(self, *, alone: bool) -> None:
        """Holds nothing: the lock of the database keeps other servers out."""

    async def purge(self) -> None:
        """Rewrites the database without deleted data, and empties the write-ahead log.

        Overwriting deleted rows (`secure_delete`) is not enough: split pages keep copies of rows that moved to the
        neighbouring page (seen with SQLite 3.40). Writers wait meanwhile. Raises StoreUnavailable, also if the disk has
        too little free space.
        """
        if self._writer is None:
            raise StoreUnavailable("the store is closed")
        self.damage.check()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._requests.put(_Purge(future))
        await future

    @property
    def left_to_operator(self) -> tuple[str, ...]:
        return ()

    @property
    def changes(self) -> int:
        return self._changes

    async def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            # `write` refuses from here on: a request behind this mark would wait forever.
            self._requests.put(_Stop())
            await asyncio.to_thread(writer.join)
        if self._checkpointer is not None:
            await asyncio.to_thread(self._checkpointer.close)
            self._checkpointer = None
        readers, self._readers = self._readers, None
        if readers is not None:
            await asyncio.to_thread(readers.shutdown)
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        self._lock.release()

    def _reader_connection(self) -> sqlite3.Connection:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = _connect(self._path, read_only=True)
            self._local.connection = connection
            self._connections.append(connection)
        return cast(sqlite3.Connection, connection)

    def _write_loop(self, connection: sqlite3.Connection, checkpointer: Checkpointer) -> None:
        writing = Writing(connection, self._clock, self.damage)
        while True:
            group: list[Request] = []
            for one in self._requests.take():
                if isinstance(one, Request):
                    group.append(one)
                    continue
                self._commit(writing, group, checkpointer)
                group = []
                if isinstance(one, _Stop):
                    return
                if isinstance(one, _Purge):
                    failure: StoreUnavailable | DatabaseDamaged | None
                    with checkpointer.alone:
                        failure = _purged(connection, self._path.parent, self.damage)
                else:
                    failure = _try_to_write(connection)
                    self._write_was_refused = failure is not None
                _settle_all([(one.future, None, failure)])
            self._commit(writing, group, checkpointer)

    def _commit(self, writing: Writing, group: Sequence[Request], checkpointer: Checkpointer) -> None:
        if not group:
            return
        telemetry.WRITER_QUEUE.set(len(self._requests))
        telemetry.GROUPS.observe(len(group))
        try:
            outcomes = writing.commit(group)
            if writing.has_changed:
                self._changes += 1
                checkpointer.count_commit()
        except (sqlite3.Error, DatabaseDamaged) as error:
            writing.roll_back()
            self._write_was_refused |= isinstance(error, sqlite3.Error) and refused_write(error)
            failure = store_error(error, self.damage)
            if not isinstance(failure, DatabaseDamaged):
                log.error("store_commit_failed", error=str(error), requests=len(group))
            if not isinstance(failure, DatabaseDamaged | StoreReadOnly):
                failure = StoreUnavailable(f"SQLite could not commit: {error}")
            outcomes = [(request.future, None, failure) for request in group]
        self._write_was_refused |= any(isinstance(failed, StoreReadOnly) for _, _, failed in outcomes)
        self._requests.answer()
        _settle_all(outcomes)
