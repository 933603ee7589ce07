"""The SQL statements of the PostgreSQL driver itself, one sentence each. Transactions and notices (BEGIN, NOTIFY) are
written where they are used.

A statement confines itself to one account, unless OVER_ALL_ACCOUNTS names it.
`tests/unit/storage/test_statements.py` checks both.
"""

from typing import Final

OVER_ALL_ACCOUNTS: Final = frozenset(
    {
        # Once for the requests of all accounts that are written together.
        "START",
    }
)
"""Statements on tables of accounts that read or change rows of any account."""

PING = "SELECT 1"
"""Reads a constant, to check a connection or a transaction."""

WRITABILITY = (
    "SELECT pg_is_in_recovery() AS standby, current_setting('default_transaction_read_only')::boolean AS read_only"
)
"""Whether the server is a standby, and whether its sessions are read-only by default."""

START = (
    # One query for both: few spaces are ever locked, and each call has to know.
    "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT) AS now,"
    " ARRAY(SELECT account || ' ' || user_id FROM shut_spaces) AS shut"
)
"""Reads the server's clock, in microseconds, and the locked spaces."""

ENSURE_DURABLE = (
    "SELECT set_config('synchronous_commit', 'local', true) WHERE current_setting('synchronous_commit') = 'off'"
)
"""Makes the commit of this transaction wait for the disk, if the setting would not."""

# PostgreSQL's own timeout (`transaction.SETTINGS`) misses a session that waits for its client between the preparation
# of a statement and its values: PostgreSQL considers that session active. All sessions have the same role, so this
# needs no extra rights.
END_STALLED = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND usename = current_user AND application_name = 'runekeep' AND state = 'active'
  AND wait_event = 'ClientRead' AND xact_start IS NOT NULL AND state_change < clock_timestamp() - INTERVAL '3 s'
"""
"""Ends the sessions of servers that stall in a transaction."""


def lock(locks: int, number: int) -> str:
    """Waits for an advisory lock until the end of the transaction."""
    return f"SELECT pg_advisory_xact_lock({locks}, {number})"


def lock_shared(locks: int, number: int) -> str:
    """Waits for an advisory lock that others may share, until the end of the transaction."""
    return f"SELECT pg_advisory_xact_lock_shared({locks}, {number})"


def try_lock(locks: int, number: int, is_shared: bool) -> str:
    """Takes an advisory lock for the session, unless another one has it. Returns whether it did."""
    return f"SELECT pg_try_advisory_lock{'_shared' if is_shared else ''}({locks}, {number})"
