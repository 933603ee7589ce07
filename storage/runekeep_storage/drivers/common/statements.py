"""The SQL statements of stored responses, one sentence each.

A statement confines itself to one account, unless OVER_ALL_ACCOUNTS names it.
`tests/unit/storage/test_statements.py` checks both.
"""

from functools import cache
from typing import Final

from runekeep_storage.drivers.common.statement_lists import by_keys, rows

OVER_ALL_ACCOUNTS: Final = frozenset(
    {
        # The server's own loop: it deletes old responses of all accounts.
        "DELETE_OLD_RESPONSES",
    }
)
"""Statements on tables of accounts that read or change rows of any account."""


@cache
def responses(count: int) -> str:
    """Reads stored responses of an account by user, method and request id, and whether their sessions are deleted."""
    select = (
        "SELECT user_id, method, request_id, digest, response, created_at,"
        " EXISTS (SELECT 1 FROM leftovers l WHERE l.account = requests.account AND l.user_id = requests.user_id"
        "   AND l.session_id = requests.session_id) AS is_left FROM requests WHERE account = $1"
    )
    return by_keys(select, ("user_id", "method", "request_id"), count, 2)


@cache
def store_responses(count: int) -> str:
    """Stores responses to users of an account; replaces earlier ones."""
    return (
        "INSERT INTO requests (account, created_at, user_id, method, request_id, digest, response, session_id)"
        f" VALUES {rows('($1, $2, ?, ?, ?, ?, ?, ?)', count, 3)} ON CONFLICT (account, user_id, method, request_id)"
        " DO UPDATE SET digest = excluded.digest, response = excluded.response, created_at = excluded.created_at,"
        " session_id = excluded.session_id"
    )


VOID_RESPONSES = (
    "UPDATE requests SET digest = $5, response = $6, session_id = '' WHERE account = $1 AND user_id = $2"
    " AND (method, request_id) IN (SELECT method, request_id FROM requests"
    "   WHERE account = $1 AND user_id = $2 AND method <> $3 AND method <> $4 AND digest <> $5 LIMIT $7)"
)
"""Empties responses to a user, except those of two methods, and keeps their ids."""

# Matches the index `requests_of_session`, so that PostgreSQL uses it even without statistics.
_OF_SESSION: Final = "account = $1 AND user_id = $2 AND session_id = $3 AND session_id <> ''"

RESPONSES_OF_SESSION = (
    f"SELECT method, request_id FROM requests WHERE {_OF_SESSION} ORDER BY method, request_id LIMIT $4"
)
"""Reads the keys of the first responses that belong to a session."""

VOID_RESPONSES_OF_SESSION = (
    f"UPDATE requests SET digest = $6, response = $7, session_id = '' WHERE {_OF_SESSION}"
    " AND (method, request_id) <= ($4, $5)"
)
"""Empties the responses that belong to a session, up to a key, and keeps their ids."""

DELETE_OLD_RESPONSES = (
    "DELETE FROM requests WHERE (account, user_id, method, request_id) IN"
    " (SELECT account, user_id, method, request_id FROM requests WHERE created_at < $1 LIMIT $2)"
)
"""Deletes responses from before a time."""
