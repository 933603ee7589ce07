"""Lists deletions that a restore would undo, according to the former store."""

import contextlib
import sqlite3
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from runekeep_storage.errors import StoreError
from runekeep_storage.migrations.migrate import sqlite_schema
from runekeep_storage.transfer import statements
from runekeep_storage.transfer.backup import opened
from runekeep_storage.transfer.backup_manifest import DATABASE, read_manifest

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_Row = sqlite3.Row
_Key = Callable[[_Row], tuple[Any, ...]]


class FormerUnreadable(StoreError):
    """The former store, or the backup's, cannot be read."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """A deletion after a backup. `what` is the scope of an erasure, or the method of a call in the audit log; `subject`
    is what the call was about."""

    at: datetime
    account: str
    user: str
    what: str
    subject: str


def deletions_since(backup: Path, former: Path, methods: Collection[str]) -> list[Deletion]:
    """Returns the deletions that the store in the file `former` knows and the backup does not, for all accounts, oldest
    first. No server may run on `former`. `methods`: the calls in the audit log that delete something or end a key.
    Raises BackupInvalid, FormerUnreadable.

    Time alone does not decide: the row of a call is written before the call is served. If a call was under way during
    the snapshot, its row is older than the snapshot and has no code in the backup.
    """
    since = (read_manifest(backup).snapshot_at - _EPOCH) // _MICROSECOND
    now, then = (
        _read_deletions(former, methods, immutable=False),
        _read_deletions(backup / DATABASE, methods, immutable=True),
    )
    erased = {_erasure(row) for row in then.erasures}
    done = {_call(row) for row in then.calls if row["code"]}
    rows = _unknown(now.erasures, _erasure, erased, since) + _unknown(now.calls, _call, done, since)
    found = [
        Deletion(_EPOCH + row["created_at"] * _MICROSECOND, row["account"], row["user_id"], row["what"], row["subject"])
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
class _RecordedDeletions:
    erasures: list[_Row]
    calls: list[_Row]


def _read_deletions(database: Path, methods: Collection[str], *, immutable: bool) -> _RecordedDeletions:
    try:
        if sqlite_schema(database) is None:
            raise FormerUnreadable(f"there is no store at {database}")
        with _connected(database, immutable=immutable) as connection:
            calls: list[_Row] = []
            # Stores of earlier releases have no audit log.
            if connection.execute(statements.HAS_AUDIT_LOG).fetchone():
                calls = [row for row in connection.execute(statements.CALLS) if row["what"] in methods]
            return _RecordedDeletions(connection.execute(statements.ERASURES).fetchall(), calls)
    except sqlite3.Error as error:
        raise FormerUnreadable(f"{database} cannot be read: {error}") from error
    except OSError as error:
        raise FormerUnreadable(f"{error.filename or database}: {error.strerror}") from error


@contextlib.contextmanager
def _connected(database: Path, *, immutable: bool) -> Iterator[sqlite3.Connection]:
    if immutable:
        connection = opened(database)
    else:
        # Writable, so that SQLite applies what a killed server left in its log.
        connection = sqlite3.connect(f"{database.absolute().as_uri()}?mode=rw", uri=True)
        connection.row_factory = sqlite3.Row
    with contextlib.closing(connection):
        yield connection
