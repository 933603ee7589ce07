"""Copies SQLite's write-ahead log into the database in a thread, so that no caller's commit waits for it.

SQLite would do it at the end of a commit that leaves the log 1,000 pages long. It also syncs the database then, so this
commit takes several times as long as others, and all writes wait for it.
"""

import contextlib
import sqlite3
import threading
from collections.abc import Callable
from typing import Final

import structlog

DUE_COMMITS: Final = 8
"""Commits after which the log is copied. Their pages stay within MAX_PAGES even if each stores the largest request."""
MAX_PAGES: Final = 8000
"""Size of the log, in pages, from which the writer itself copies the rest of the log after each commit. SQLite can
restart the log only when all of it is copied, and under steady writes the thread may never find such a moment."""
_PAUSE_SECONDS: Final = 0.25
"""Pause between two copies, because each syncs the disk twice."""

_log = structlog.get_logger(__name__)


class Checkpointer:
    """Copies the log through its own connection, which `connect` opens. Holds `alone` meanwhile, because SQLite refuses
    a second concurrent checkpoint."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self.alone = threading.Lock()
        self._connect = connect
        self._commits = 0
        self._is_due = threading.Event()
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="sqlite-checkpoints", daemon=True)
        self._thread.start()

    def count_commit(self) -> None:
        """Call it after each commit."""
        self._commits += 1
        if self._commits >= DUE_COMMITS:
            self._commits = 0
            self._is_due.set()

    def close(self) -> None:
        """Waits for a running checkpoint and closes the connection."""
        self._is_closed.set()
        self._is_due.set()
        self._thread.join()

    def _work(self) -> None:
        connection: sqlite3.Connection | None = None
        failures = 0
        while self._is_due.wait() and not self._is_closed.is_set():
            self._is_due.clear()
            try:
                with self.alone:
                    connection = connection or self._connect()
                    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                failures = 0
            except sqlite3.Error as error:
                # The log keeps what is not copied, and the writer finds out by itself about a disk that fails.
                failures += 1
                if failures.bit_count() == 1:
                    _log.warning("checkpoint_failed", failures=failures, error=str(error))
            self._is_closed.wait(_PAUSE_SECONDS)
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()
