"""What a restore of a backup brings back although it was taken away, as the store of before tells it."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from storage.backup import opened
from storage.backup_manifest import DATABASE, read_manifest
from storage.errors import StoreError
from storage.migrate import sqlite_schema

METHODS = (
    "SpaceService/EraseData",
    "MemoryService/DeleteUser",
    "SessionService/DeleteSession",
    "AdminService/RevokeApiKey",
    "AdminService/RotateApiKey",
)
"""Calls in the audit log after which something is gone, or a key is worth nothing any more."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_ERASURES = "SELECT erasure_id, created_at, account, user_id, scope AS what, '' AS subject FROM erasures"
_CALLS = (
    "SELECT sequence, created_at, account, user_id, method AS what, subject, code FROM audit_events"
    f" WHERE method IN ({', '.join('?' * len(METHODS))})"
)

_Row = sqlite3.Row
_Key = Callable[[_Row], tuple[Any, ...]]


class FormerUnreadable(StoreError):
    """The store of before, or the backup's, cannot be asked."""


@dataclass(frozen=True, slots=True)
class Since:
    """Something that was taken away after a backup. `what` is the scope of an erasure, or the method of a call in the
    audit log, whose `subject` says about what it was."""

    at: datetime
    account: str
    user: str
    what: str
    subject: str


def taken_away_since(backup: Path, former: Path) -> list[Since]:
    """What the store in the file `former`, which no server works on, says was taken away and the backup does not know
    to be gone, of all accounts, oldest first. Raises BackupInvalid, FormerUnreadable.

    Not by time alone: the row of a call is there before the call is served, so that of one which was under way when
    the snapshot was taken is older than it, and has no code in the backup.
    """
    since = (read_manifest(backup).snapshot_at - _EPOCH) // _MICROSECOND
    now, then = _told(former, immutable=False), _told(backup / DATABASE, immutable=True)
    erased = {_erasure(row) for row in then.erasures}
    done = {_call(row) for row in then.calls if row["code"]}
    rows = _unknown(now.erasures, _erasure, erased, since) + _unknown(now.calls, _call, done, since)
    found = [
        Since(_EPOCH + row["created_at"] * _MICROSECOND, row["account"], row["user_id"], row["what"], row["subject"])
        for row in rows
    ]
    return sorted(found, key=lambda one: one.at)


def _unknown(rows: list[_Row], key: _Key, known: set[tuple[Any, ...]], since: int) -> list[_Row]:
    return [row for row in rows if row["created_at"] >= since or key(row) not in known]


def _erasure(row: _Row) -> tuple[Any, ...]:
    return row["account"], row["user_id"], row["erasure_id"]


def _call(row: _Row) -> tuple[Any, ...]:
    return row["sequence"], row["created_at"], row["what"]


@dataclass(frozen=True, slots=True)
class _Told:
    erasures: list[_Row]
    calls: list[_Row]


def _told(database: Path, *, immutable: bool) -> _Told:
    try:
        if sqlite_schema(database) is None:
            raise FormerUnreadable(f"there is no store at {database}")
        with _connected(database, immutable=immutable) as connection:
            calls: list[_Row] = []
            # A store of a release before has no audit log.
            if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'audit_events'").fetchone():
                calls = connection.execute(_CALLS, METHODS).fetchall()
            return _Told(connection.execute(_ERASURES).fetchall(), calls)
    except sqlite3.Error as error:
        raise FormerUnreadable(f"{database} cannot be read: {error}") from error
    except OSError as error:
        raise FormerUnreadable(f"{error.filename or database}: {error.strerror}") from error


@contextlib.contextmanager
def _connected(database: Path, *, immutable: bool) -> Iterator[sqlite3.Connection]:
    if immutable:
        connection = opened(database)
    else:
        # Writable, so that SQLite takes in what a killed server left in its log.
        connection = sqlite3.connect(f"{database.absolute().as_uri()}?mode=rw", uri=True)
        connection.row_factory = sqlite3.Row
    with contextlib.closing(connection):
        yield connection
