"""Checks whether the write-ahead log beside a SQLite database belongs to it, judging by the database's own id.

SQLite accepts any log with valid checksums, even that of another database, and writes its pages into the database when
the last connection closes. So this check runs before a connection that may write is opened. SQLite accepts a truncated
or missing log as valid; the marks of the index and the blobs reveal that loss, see
`runekeep_storage.identity.store_guard`.
"""

import sqlite3
from pathlib import Path

from runekeep_storage.drivers.sqlite import statements
from runekeep_storage.errors import StoreLost


def check_log(database: Path) -> None:
    """Raises StoreLost for a log of another database."""
    log = database.with_name(f"{database.name}-wal")
    if not database.exists() or not log.exists() or not log.stat().st_size:
        return
    # The first is the id in the file without its log. Both reads leave the log and the database unchanged.
    alone, with_log = (_file_id(database, options) for options in ("mode=ro&immutable=1", "mode=ro"))
    if alone and with_log and alone != with_log:
        raise StoreLost(
            f"the write-ahead log {log} belongs to another database; with it, {database} would be destroyed. Bring back"
            " the log that belongs to it, or move this one away and start again: the server then says whether the"
            " database lacks what was committed"
        )


def _file_id(database: Path, options: str) -> str:
    """Returns an empty id if the database has none: its schema is older, or it is damaged, which opening it reports."""
    try:
        connection = sqlite3.connect(f"{database.absolute().as_uri()}?{options}", uri=True)
        try:
            row = connection.execute(statements.FILE_ID).fetchone()
        finally:
            connection.close()
    except sqlite3.Error:
        return ""
    return str(row[0]) if row else ""
