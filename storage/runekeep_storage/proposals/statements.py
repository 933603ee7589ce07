"""The SQL statements of proposals, one sentence each.

A statement confines itself to one account, unless OVER_ALL_ACCOUNTS names it.
`tests/unit/storage/test_statements.py` checks both.
"""

from typing import Final

OVER_ALL_ACCOUNTS: Final = frozenset[str]()
"""Statements on tables of accounts that read or change rows of any account."""

_COLUMNS: Final = (
    "session_id, task_id, archive_index, plan, extractor, operations, open_count, open_bytes, revision, edition,"
    " created_at"
)
"""Columns that `proposals.Proposal` needs, in the order of INSERT."""
_OF_USER: Final = "FROM proposals WHERE account = $1 AND user_id = $2"

INSERT = (
    f"INSERT INTO proposals (account, user_id, {_COLUMNS})"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"
)
"""Adds a proposal."""

GET = f"SELECT {_COLUMNS} {_OF_USER} AND task_id = $3"
"""Reads the proposal of a task."""

PAGE = (
    f"SELECT {_COLUMNS} {_OF_USER} AND ($3 = '' OR session_id = $3) AND open_count >= $4"
    " AND (created_at < $5 OR (created_at = $5 AND task_id > $6)) ORDER BY created_at DESC, task_id LIMIT $7"
)
"""Reads a page of proposals with at least $4 open operations, newest first."""

UPDATE = (
    "UPDATE proposals SET operations = $5, open_count = $6, open_bytes = $7, revision = $8, edition = edition + 1"
    " WHERE account = $1 AND user_id = $2 AND task_id = $3 AND edition = $4"
)
"""Changes a proposal that is still at edition $4."""

OPEN_TOTALS = f"SELECT COUNT(*) AS proposals, COALESCE(SUM(open_bytes), 0) AS bytes {_OF_USER} AND open_count > 0"
"""Counts the open proposals of a user and their bytes."""
