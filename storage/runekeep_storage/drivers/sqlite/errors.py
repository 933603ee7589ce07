"""Maps errors of SQLite to errors of the store."""

import sqlite3
from json import JSONDecodeError
from typing import Final

import structlog

from runekeep_storage import telemetry
from runekeep_storage.damage import Damage
from runekeep_storage.errors import DatabaseDamaged, DataDamaged, StoreReadOnly, StoreUnavailable

_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_REFUSED_WRITE: Final = frozenset(
    {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN}
)
"""Result codes of writes that may have failed because a file or its file system is read-only. A write fails with an
input/output error if the file system became read-only while the file was open. A full disk is not among these."""
_PRIMARY_CODE: Final = 0xFF
"""The lowest byte of an extended result code: https://www.sqlite.org/rescode.html."""
_NO_TEXT: Final = "Could not decode to UTF-8"
"""Python's error for a text column that holds other bytes. The store writes none, so the page is damaged."""

_log = structlog.get_logger(__name__)


def store_error(error: BaseException, damage: Damage) -> BaseException:
    """Returns DatabaseDamaged for a damaged database file, and records it in `damage`; DataDamaged for a row that
    cannot be read; StoreReadOnly for a file that takes no writes; StoreUnavailable for one that cannot serve now;
    otherwise the error itself."""
    if is_damage(error):
        telemetry.DAMAGED_DATA.labels("database").inc()
        # Without the text of the error: it may quote a damaged row.
        damage.note("a call", getattr(error, "sqlite_errorname", "") or "a text that is no UTF-8")
        return DatabaseDamaged()
    if isinstance(error, JSONDecodeError):
        # The store wrote the text, so either the row is damaged or this code is wrong. Neither is a reason to refuse
        # all writes.
        telemetry.DAMAGED_DATA.labels("database").inc()
        _log.error("row_unreadable", error=error.msg)
        return DataDamaged("database", "row")
    if isinstance(error, sqlite3.Error) and primary_code(error) == sqlite3.SQLITE_READONLY:
        return StoreReadOnly(f"SQLite: {error}")
    return StoreUnavailable(f"SQLite: {error}") if isinstance(error, sqlite3.OperationalError) else error


def is_damage(error: BaseException) -> bool:
    """Returns whether this error of SQLite means that the file is damaged."""
    if not isinstance(error, sqlite3.Error):
        return False
    return primary_code(error) in _DAMAGE or str(error).startswith(_NO_TEXT)


def refused_write(error: sqlite3.Error) -> bool:
    """Returns whether this error of a write suggests that the database is read-only."""
    return primary_code(error) in _REFUSED_WRITE


def primary_code(error: sqlite3.Error) -> int:
    """Returns 0 for errors that come from Python and not from SQLite."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & _PRIMARY_CODE
