"""What an error of SQLite means to callers of the store."""

import sqlite3
from typing import Final

import structlog

from storage import telemetry
from storage.errors import DataDamaged, StoreUnavailable

_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_PRIMARY_CODE: Final = 0xFF
"""The lowest byte of an extended result code: https://www.sqlite.org/rescode.html."""
_NO_TEXT: Final = "Could not decode to UTF-8"
"""Python's error for a text column that holds other bytes. The store writes none, so the page is damaged."""

_log = structlog.get_logger(__name__)


def store_error(error: BaseException) -> BaseException:
    """Returns DataDamaged for a database file that is damaged, StoreUnavailable for one that cannot serve now, else the
    error itself."""
    if _is_damage(error):
        telemetry.DAMAGED_DATA.labels("database").inc()
        # Without the text of the error: it may quote a damaged row.
        _log.error("database_damaged", code=getattr(error, "sqlite_errorname", ""))
        return DataDamaged("database", "the store's database file")
    return StoreUnavailable(f"SQLite: {error}") if isinstance(error, sqlite3.OperationalError) else error


def _is_damage(error: BaseException) -> bool:
    if not isinstance(error, sqlite3.Error):
        return False
    code = getattr(error, "sqlite_errorcode", None) or 0
    return code & _PRIMARY_CODE in _DAMAGE or str(error).startswith(_NO_TEXT)
