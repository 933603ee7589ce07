"""Whether the write-ahead log beside a SQLite database belongs to it, as far as the database's own id tells.

SQLite takes any log with valid checksums, also one of another database, and writes its pages into the database when
the last connection closes. So this looks before a connection that may write is opened. A log that is cut short, or
gone, is a valid one for SQLite: what it lost is noticed by the marks of index and blobs, see `storage.guard`.
"""

import sqlite3
from pathlib import Path

from storage.errors import StoreLost

_FILE_ID = "SELECT file_id FROM store_identity"


def check_log(database: Path) -> None:
    """Raises StoreLost for a log of another database."""
    log = database.with_name(f"{database.name}-wal")
    if not database.exists() or not log.exists() or not log.stat().st_size:
        return
    # The first is what the file says without its log; both leave log and database as they are.
    alone, with_log = (_file_id(database, options) for options in ("mode=ro&immutable=1", "mode=ro"))
    if alone and with_log and alone != with_log:
        raise StoreLost(
            f"the write-ahead log {log} belongs to another database; with it, {database} would be destroyed. Bring back"
            " the log that belongs to it, or move this one away and start again: the server then says whether the"
            " database lacks what was committed"
        )


def _file_id(database: Path, options: str) -> str:
    """Empty where the database does not say: its schema is older, or it is damaged, which its opening tells."""
    try:
        connection = sqlite3.connect(f"{database.absolute().as_uri()}?{options}", uri=True)
        try:
            row = connection.execute(_FILE_ID).fetchone()
        finally:
            connection.close()
    except sqlite3.Error:
        return ""
    return str(row[0]) if row else ""
