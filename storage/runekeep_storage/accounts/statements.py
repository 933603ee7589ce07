"""The SQL statements of accounts, API keys, the audit log and usage, one sentence each.

A statement confines itself to one account, unless OVER_ALL_ACCOUNTS names it.
`tests/unit/storage/test_statements.py` checks both.
"""

from collections.abc import Iterable
from functools import cache
from typing import Final

from runekeep_storage.drivers.common.statement_lists import places, rows
from runekeep_storage.spaces.statements import without
from runekeep_storage.tables import SLICES, Table

OVER_ALL_ACCOUNTS: Final = frozenset(
    {
        # Operators list accounts, keys and audited calls. A filter by account is one of several.
        "ACCOUNTS",
        "keys",
        "calls",
        # By one account, in a row that the statement itself makes.
        "ACCOUNT",
        # The server knows the limits of all accounts.
        "LIMITED_ACCOUNTS",
        "FULL_ACCOUNTS",
        # A key names its account, so it is looked up before the account is known.
        "KEY_OF_REQUEST",
        "ADD_KEY",
        "KEY",
        "KEY_WITH_DIGEST",
        "ROTATE_KEY",
        "REVOKE_KEY",
        "HAS_VALID_KEY",
        "set_used",
        # The server's own loops: they delete old calls and count usage.
        "DELETE_OLD_CALLS",
        "SPACES_WITH_MARKS",
    }
)
"""Statements on tables of accounts that read or change rows of any account."""

# Accounts

LIMITS: Final = ("calls_per_second", "concurrent_calls", "streams", "stored_bytes", "daily_tokens")
"""Columns of `account_limits`: the fields of `accounts.OwnLimits`."""
USAGE: Final = ("users", "sessions", "messages", "memories", "stored_bytes", "counted_at")
"""Columns of `account_usage`: the fields of `accounts.Usage`."""

_ACCOUNT: Final = (
    "SELECT n.account, "
    + ", ".join(f"l.{name} AS limit_{name}" for name in LIMITS)
    + ", "
    + ", ".join(f"u.{name} AS usage_{name}" for name in USAGE)
)
_JOINS: Final = (
    " LEFT JOIN account_limits l ON l.account = n.account LEFT JOIN account_usage u ON u.account = n.account"
)

ACCOUNTS = (
    f"{_ACCOUNT} FROM ("
    "SELECT account FROM (SELECT account FROM accounts WHERE account > $1 ORDER BY account LIMIT $2) a"
    " UNION SELECT account FROM (SELECT account FROM account_limits WHERE account > $1 ORDER BY account LIMIT $2) b"
    f") n{_JOINS} ORDER BY n.account LIMIT $2"
)
"""Reads a page of accounts with their limits and usage, by name."""

ACCOUNT = f"{_ACCOUNT} FROM (SELECT CAST($1 AS TEXT) AS account) n{_JOINS}"
"""Reads the limits and the usage of an account, which need not exist."""

SET_LIMITS = (
    f"INSERT INTO account_limits (account, {', '.join(LIMITS)}, updated_at)"
    f" VALUES ({places(1, len(LIMITS) + 2)})"
    " ON CONFLICT (account) DO UPDATE SET " + ", ".join(f"{name} = excluded.{name}" for name in (*LIMITS, "updated_at"))
)
"""Replaces the limits of an account."""

LIMITED_ACCOUNTS = (
    f"SELECT account, {', '.join(LIMITS)} FROM account_limits WHERE account > $1 ORDER BY account LIMIT $2"
)
"""Reads a page of accounts with limits of their own, by name."""

FULL_ACCOUNTS = (
    "SELECT u.account FROM account_usage u LEFT JOIN account_limits l ON l.account = u.account"
    " WHERE u.account > $1 AND COALESCE(l.stored_bytes, $2) > 0 AND u.stored_bytes >= COALESCE(l.stored_bytes, $2)"
    " ORDER BY u.account LIMIT $3"
)
"""Reads a page of accounts that have reached their own storage quota, or the usual one."""

DAILY_TOKENS = "SELECT daily_tokens FROM account_limits WHERE account = $1"
"""Reads the tokens that an account may spend in a day."""


def _page(columns: str, table: str, conditions: Iterable[str], order: str) -> str:
    """Numbers the parameters of a page in order: those of its conditions, then its limit."""
    text = f"SELECT {columns} FROM {table} WHERE {' AND '.join(['1 = 1', *conditions])} ORDER BY {order} LIMIT ?"
    return rows(text, 1, 1)


# API keys

_KEY_COLUMNS: Final = (
    "key_id, scope, account, user_id, label, created_at, expires_at, revoked_at, rotated_at, previous_digest,"
    " previous_until, used_at, accounts"
)

KEY_OF_REQUEST = "SELECT key_id FROM api_keys WHERE request_id = $1"
"""Reads the id of the key that a request created."""

ADD_KEY = (
    "INSERT INTO api_keys (key_id, scope, account, user_id, label, digest, created_at, expires_at, request_id,"
    " accounts) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
)
"""Adds a key."""

KEY = f"SELECT {_KEY_COLUMNS} FROM api_keys WHERE key_id = $1"
"""Reads a key for operators."""

KEY_WITH_DIGEST = f"SELECT {_KEY_COLUMNS}, digest FROM api_keys WHERE key_id = $1"
"""Reads a key with the digest that authenticates its calls."""

ROTATE_KEY = (
    "UPDATE api_keys SET previous_digest = CASE WHEN $3 = 1 THEN digest ELSE '' END, previous_until = $4,"
    " digest = $2, rotated_at = $5"
    " WHERE key_id = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $5)"
)
"""Replaces the secret of a valid key, and keeps the current one for a while if $3 is 1."""

REVOKE_KEY = (
    "UPDATE api_keys SET revoked_at = $2, previous_digest = '', previous_until = 0"
    " WHERE key_id = $1 AND revoked_at IS NULL"
)
"""Revokes a key that is not revoked yet."""


@cache
def keys(over_all: bool, include_ended: bool, is_first: bool) -> str:
    """Reads a page of keys, newest first, of one account or over all of them; after a key unless `is_first`."""
    conditions = []
    if not over_all:
        conditions.append("account = ?")
    if not include_ended:
        conditions.append("revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?)")
    if not is_first:
        conditions.append("(created_at, key_id) < (?, ?)")
    return _page(_KEY_COLUMNS, "api_keys", conditions, "created_at DESC, key_id DESC")


HAS_VALID_KEY = (
    "SELECT 1 FROM api_keys WHERE scope = $1 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2) LIMIT 1"
)
"""Whether a valid key of a scope exists."""


def set_used(count: int) -> str:
    """Stores when keys were used, unless a later time is stored."""
    return (
        f"UPDATE api_keys SET used_at = $1 WHERE (used_at IS NULL OR used_at < $1) AND key_id IN ({places(2, count)})"
    )


# Audit log

_CALL_COLUMNS: Final = "sequence, created_at, method, actor, scope, account, user_id, subject, code, trace_id, peer"

BEGIN_CALL = (
    "INSERT INTO audit_events (account, user_id, created_at, method, actor, scope, subject, trace_id, peer)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING sequence"
)
"""Adds a call that begins."""

END_CALL = "UPDATE audit_events SET account = $1, subject = $2, code = $3 WHERE sequence = $4"
"""Stores the outcome of a call, and the account and the subject as they are known by then."""


@cache
def calls(over_all: bool, over_all_actors: bool, has_start: bool, has_end: bool, is_first: bool) -> str:
    """Reads a page of audited calls, newest first, in the given bounds; older than a call unless `is_first`."""
    conditions = []
    if not over_all:
        conditions.append("account = ?")
    if not over_all_actors:
        conditions.append("actor = ?")
    if has_start:
        conditions.append("created_at >= ?")
    if has_end:
        conditions.append("created_at < ?")
    if not is_first:
        conditions.append("sequence < ?")
    return _page(_CALL_COLUMNS, "audit_events", conditions, "sequence DESC")


DELETE_OLD_CALLS = (
    "DELETE FROM audit_events WHERE sequence IN"
    " (SELECT sequence FROM audit_events WHERE created_at < $1 ORDER BY created_at LIMIT $2)"
)
"""Deletes the oldest calls from before a time."""

# Usage

_OF_SPACE: Final = "x.account = s.account AND x.user_id = s.user_id"
_SOME_SESSIONS: Final = f"(SELECT x.updated_at, x.turn_version FROM sessions x WHERE {_OF_SPACE} LIMIT $4) y"

SPACES_WITH_MARKS = (
    "SELECT s.account, s.user_id, s.revision, s.losses, s.imported_at,"
    f" (SELECT COUNT(*) FROM {_SOME_SESSIONS}) AS session_count,"
    f" (SELECT COALESCE(MAX(y.updated_at), 0) FROM {_SOME_SESSIONS}) AS changed_at,"
    f" (SELECT COALESCE(SUM(y.turn_version), 0) FROM {_SOME_SESSIONS}) AS turn_versions,"
    f" (SELECT COALESCE(MAX(x.due_at), 0) FROM blob_sweeps x WHERE {_OF_SPACE}) AS swept_at,"
    " COALESCE(u.mark, '') AS mark, u.sessions, u.messages, u.memories, u.stored_bytes"
    " FROM spaces s LEFT JOIN space_usage u ON u.account = s.account AND u.user_id = s.user_id"
    " WHERE (s.account, s.user_id) > ($1, $2) ORDER BY s.account, s.user_id LIMIT $3"
)
"""Reads the next spaces with their last counts, and what their marks are made of: at most $4 sessions of each."""

SESSIONS_AFTER = (
    "SELECT session_id, updated_at, turn_version FROM sessions"
    " WHERE account = $1 AND user_id = $2 AND session_id > $3 ORDER BY session_id LIMIT $4"
)
"""Reads the next sessions of a space, for its mark."""


def row_sizes(table: Table, is_first: bool, limit: int) -> str:
    """Reads the next rows of a space in a table: their keys, their bytes, and whether they count. They follow the key
    from $3 on, unless `is_first`."""
    keys = ", ".join(table.key)
    size = " + ".join(f"octet_length({column})" for column in table.sizes)
    behind = "" if is_first else f" AND ({keys}) > ({places(3, len(table.key))})"
    left_out = without(table.name) if table.name in SLICES else ""
    return (
        f"SELECT {keys}, {size} AS size, CASE WHEN {table.current} THEN 1 ELSE 0 END AS one FROM {table.name}"
        f" WHERE account = $1 AND user_id = $2{behind}{left_out} ORDER BY {keys} LIMIT {limit}"
    )


STORE_SPACE_USAGE = (
    "INSERT INTO space_usage (account, user_id, mark, sessions, messages, memories, stored_bytes)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (account, user_id) DO UPDATE SET mark = excluded.mark,"
    " sessions = excluded.sessions, messages = excluded.messages, memories = excluded.memories,"
    " stored_bytes = excluded.stored_bytes"
)
"""Stores the usage of a space, with its mark."""

STORE_ACCOUNT_USAGE = (
    "INSERT INTO account_usage (account, users, sessions, messages, memories, stored_bytes, counted_at)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (account) DO UPDATE SET users = excluded.users,"
    " sessions = excluded.sessions, messages = excluded.messages, memories = excluded.memories,"
    " stored_bytes = excluded.stored_bytes, counted_at = excluded.counted_at"
)
"""Stores the usage of an account."""

COUNT_DUE = "SELECT due_at FROM usage_counts WHERE slot = 1"
"""Reads when accounts are counted next."""

ADD_COUNT = "INSERT INTO usage_counts (slot, due_at) VALUES (1, 0) ON CONFLICT (slot) DO NOTHING"
"""Makes the first count due."""

TAKE_COUNT = "UPDATE usage_counts SET due_at = $1 WHERE slot = 1 AND due_at <= $2"
"""Takes a count that is due, unless another server has."""

GO_ON_COUNTING = "UPDATE usage_counts SET due_at = $1 WHERE slot = 1"
"""Postpones the next count while one is running."""
