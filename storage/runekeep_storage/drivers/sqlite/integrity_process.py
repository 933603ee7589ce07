"""Checks a SQLite file: `python -I -S integrity_process.py quick|full FILE`, with the standard library only.

It is a separate process because SQLite before 3.41 walks through a table's pages in one step that nothing interrupts:
the server kills this process when its time is over. The process ends when its input does, so it does not outlive a
server that was killed. It prints one line for each checked part: a JSON array of problems.
"""

import json
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator

MAX_PROBLEMS = 3
"""Problems reported of each part; the first one is enough to act."""
MAX_PAUSE_SECONDS = 60.0
_PAUSE = 3
"""After each table a full check pauses, without a snapshot, for this many times the duration of the table's check."""


def main() -> None:
    """Raises sqlite3.Error for a file that cannot be opened."""
    what, path = sys.argv[1:]
    threading.Thread(target=_end_with_input, daemon=True).start()
    connection = sqlite3.connect(f"file:{_quoted(path)}?mode=ro", uri=True, isolation_level=None, timeout=30)
    for problems in _quick(connection) if what == "quick" else _full(connection):
        print(json.dumps(problems), flush=True)


def _quick(connection: sqlite3.Connection) -> Iterator[list[str]]:
    yield _problems(connection, f"PRAGMA quick_check({MAX_PROBLEMS})")


def _full(connection: sqlite3.Connection) -> Iterator[list[str]]:
    """Checks each table separately, so that no snapshot lasts long: a snapshot keeps the write-ahead log from being
    truncated. Pages that belong to no table come last."""
    os.nice(19)
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
    for table in tables:
        began = time.monotonic()
        yield _problems(connection, f"PRAGMA integrity_check({table})")
        time.sleep(min(_PAUSE * (time.monotonic() - began), MAX_PAUSE_SECONDS))
    yield from _quick(connection)


def _problems(connection: sqlite3.Connection, pragma: str) -> list[str]:
    try:
        found = [str(row[0]) for row in connection.execute(pragma)]
    except sqlite3.DatabaseError as error:
        # SQLite's result codes; only these say that the file is damaged.
        if error.sqlite_errorname.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            return [str(error)]
        raise
    return [] if found == ["ok"] else found[:MAX_PROBLEMS]


def _end_with_input() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


def _quoted(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")


if __name__ == "__main__":
    main()
