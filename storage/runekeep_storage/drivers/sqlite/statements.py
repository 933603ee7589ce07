"""The SQL statements of the SQLite driver itself, one sentence each. Transactions and settings (BEGIN, PRAGMA) are
written where they are used.

A statement confines itself to one account, unless OVER_ALL_ACCOUNTS names it.
`tests/unit/storage/test_statements.py` checks both.
"""

from typing import Final

OVER_ALL_ACCOUNTS: Final = frozenset(
    {
        # Once for the requests of all accounts that are written together.
        "SHUT_SPACES",
        # Of the store.
        "FILE_ID",
    }
)
"""Statements on tables of accounts that read or change rows of any account."""

IS_SHUT = "SELECT 1 FROM shut_spaces WHERE account = $1 AND user_id = $2"
"""Whether a space is locked."""

SHUT_SPACES = "SELECT account, user_id FROM shut_spaces"
"""Reads the locked spaces."""

FILE_ID = "SELECT file_id FROM store_identity"
"""Reads the id that a database file shares with its write-ahead log."""
