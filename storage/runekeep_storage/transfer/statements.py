"""The SQL statements of exports, imports, backups and diagnostics, one sentence each.

A statement confines itself to one account, unless OVER_ALL_ACCOUNTS names it.
`tests/unit/storage/test_statements.py` checks both.
"""

from collections.abc import Iterable
from functools import cache
from typing import Final

from runekeep_storage.drivers.common.statement_lists import places
from runekeep_storage.spaces.statements import without
from runekeep_storage.tables import SLICES, Export, Table
from runekeep_storage.transfer.exports.rows import FORMS

OVER_ALL_ACCOUNTS: Final = frozenset(
    {
        # A worker names a job by its id alone, so an import must not reuse one of any account.
        "KNOWN_JOBS",
        # Operators back up and restore whole stores.
        "SPACES",
        "ERASURES",
        "CALLS",
        # The doctor looks at users of any account.
        "COUNT_OF_SPACES",
        "SOME_SPACES",
    }
)
"""Statements on tables of accounts that read or change rows of any account."""

_OF_USER: Final = "account = $1 AND user_id = $2"

# The moment of an export

MOMENT = f"SELECT revision, losses FROM spaces WHERE {_OF_USER}"
"""Reads the revision of a space, and how often its data was deleted."""

LOSSES = f"SELECT losses FROM spaces WHERE {_OF_USER}"
"""Reads how often data of a space was deleted."""

COUNT_MESSAGES = f"SELECT CAST(COALESCE(SUM(last_sequence), 0) AS BIGINT) AS n FROM sessions WHERE {_OF_USER}"
"""Counts the messages of a space."""

COUNT_MEMORIES = (
    "SELECT COUNT(*) AS versions, CAST(COALESCE(SUM(CASE WHEN rev_to = 0 THEN 1 ELSE 0 END), 0) AS BIGINT) AS now"
    f" FROM memories WHERE {_OF_USER}"
)
"""Counts the versions of the memories of a space, and the newest ones among them."""

LATE: Final = ("abstract", "overview", "diff")
"""Columns of archives that are exported later: what their commits wrote."""


def _exported(table: Table, columns: str, is_first: bool) -> str:
    assert isinstance(table.exported, Export)
    key = FORMS[table.name].key
    names = ", ".join(key)
    left_out = without(table.name) if table.name in SLICES else ""
    behind = "" if is_first else f" AND ({names}) > ({places(4, len(key))})"
    return (
        f"SELECT {columns} FROM {table.name} WHERE {_OF_USER} AND {table.exported.only}{left_out}{behind}"
        f" ORDER BY {names} LIMIT $3"
    )


def exported_rows(table: Table, is_first: bool) -> str:
    """Reads the next rows of a space in a table that are exported; after a key from $4 on, unless `is_first`."""
    late = LATE if table.name == "archives" else ()
    return _exported(table, ", ".join(name for name in FORMS[table.name].columns if name not in late), is_first)


def exported_sizes(table: Table, is_first: bool) -> str:
    """Reads the approximate bytes of the same rows, in the same order."""
    assert isinstance(table.exported, Export)
    return _exported(table, f"{table.exported.size} AS size", is_first)


# What an export reads later

_MESSAGES: Final = (
    f"FROM messages WHERE {_OF_USER} AND session_id = $3 AND sequence >= $4 AND sequence <= $5"
    " ORDER BY sequence LIMIT $6"
)

MESSAGE_TOKENS = f"SELECT tokens {_MESSAGES}"
"""Reads the sizes of a range of messages."""

MESSAGES = f"SELECT {', '.join(FORMS['messages'].columns)} {_MESSAGES}"
"""Reads a range of messages."""

ORIGIN_BYTES: Final = 80
"""Approximate size of a message that a memory came from."""


def _versions(columns: str, is_current: bool) -> str:
    only = " AND deleted = 0 AND (rev_to = 0 OR rev_to > $3)" if is_current else ""
    return (
        f"SELECT {columns} FROM memories WHERE {_OF_USER} AND rev_from <= $3{only} AND (uri, version) > ($4, $5)"
        " ORDER BY uri, version LIMIT $6"
    )


@cache
def versions(is_current: bool) -> str:
    """Reads the next versions of memories up to a revision; only those that were alive then, if `is_current`."""
    return _versions(", ".join(FORMS["memories"].columns), is_current)


@cache
def version_sizes(is_current: bool) -> str:
    """Reads the approximate bytes of the same versions, without their origins if `is_current`."""
    size = "octet_length(content) + octet_length(fields)"
    if not is_current:
        # A run is one row here and becomes one for each of its messages. With `version =` SQLite reads all rows of the
        # user.
        size += (
            f" + {ORIGIN_BYTES} * COALESCE((SELECT CAST(SUM(o.last_sequence - o.first_sequence + 1) AS BIGINT)"
            " FROM memory_sources o WHERE o.account = $1 AND o.user_id = $2 AND o.uri = memories.uri"
            " AND o.version >= memories.version AND o.version <= memories.version), 0)"
        )
    return _versions(f"{size} AS size", is_current)


COMMITS = (
    f"SELECT {', '.join(FORMS['commits'].columns)} FROM commits"
    f" WHERE {_OF_USER} AND revision > $3 AND revision <= $4 ORDER BY revision LIMIT $5"
)
"""Reads the next commits up to a revision."""

LATE_OF_ARCHIVE = f"SELECT {', '.join(LATE)} FROM archives WHERE {_OF_USER} AND session_id = $3 AND archive_index = $4"
"""Reads what a commit wrote about its archive."""

NAMES_BLOB = f"SELECT 1 FROM turn_artifacts WHERE {_OF_USER} AND session_id = $3 AND kind = $4 AND blob = $5 LIMIT 1"
"""Whether turn memory of one kind in a session is stored in a blob."""

# Imports


def has_rows(table: str) -> str:
    """Whether a user has rows in a table."""
    return f"SELECT 1 FROM {table} WHERE {_OF_USER} LIMIT 1"


REVISION = f"SELECT revision FROM spaces WHERE {_OF_USER}"
"""Reads the revision of a space."""

RESERVE_REVISIONS = f"UPDATE spaces SET revision = $3 WHERE {_OF_USER}"
"""Stores the revision that a space will have after an import."""


def add_rows(table: str, columns: Iterable[str], count: int) -> str:
    """Adds rows of a user to a table, except those whose key exists."""
    names = tuple(columns)
    values = ", ".join(f"($1, $2, {places(3 + len(names) * at, len(names))})" for at in range(count))
    return f"INSERT INTO {table} (account, user_id, {', '.join(names)}) VALUES {values} ON CONFLICT DO NOTHING"


KNOWN_JOBS = f"SELECT job_id FROM jobs WHERE job_id IN ({places(1)})"
"""Reads those of the ids that jobs have."""

ADD_ENDED_JOB = (
    "INSERT INTO jobs (account, user_id, job_id, kind, lane, session_id, archive_index, plan, priority, state,"
    " created_at, lane_sequence) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,"
    "   1 + (SELECT COALESCE(MAX(j.lane_sequence), 0) FROM jobs j"
    "     WHERE j.account = $1 AND j.user_id = $2 AND j.lane = $5))"
)
"""Adds a job that has failed or was cancelled, at the end of its lane."""

END_IMPORT = (
    f"UPDATE spaces SET index_id = $3, imported_at = $4, embedder_change = 0 WHERE {_OF_USER} RETURNING revision"
)
"""Marks an imported space for indexing."""

# Backups

SPACES = "SELECT account, user_id FROM spaces ORDER BY account, user_id"
"""Reads all spaces of a store."""

ERASURES = "SELECT erasure_id, created_at, account, user_id, scope AS what, '' AS subject FROM erasures"
"""Reads all erasures of a store."""

HAS_AUDIT_LOG = "SELECT 1 FROM sqlite_master WHERE name = 'audit_events'"
"""Whether a database file has an audit log."""

CALLS = "SELECT sequence, created_at, account, user_id, method AS what, subject, code FROM audit_events"
"""Reads all audited calls of a store."""

# Samples of talk, for the doctor

COUNT_OF_SPACES = "SELECT COUNT(*) AS n FROM spaces"
"""Counts the spaces of a store."""

SOME_SPACES = (
    "SELECT account, user_id FROM spaces s WHERE NOT EXISTS (SELECT 1 FROM shut_spaces i"
    " WHERE i.account = s.account AND i.user_id = s.user_id) ORDER BY random() LIMIT $1"
)
"""Reads some spaces of all accounts, chosen at random, without those that are imported or deleted."""

NEWEST_SESSIONS = (
    "SELECT session_id FROM sessions WHERE account = $1 AND user_id = $2 ORDER BY updated_at DESC, session_id LIMIT $3"
)
"""Reads the newest sessions of a space."""

NEWEST_MESSAGES = (
    "SELECT CASE WHEN length(parts) <= $4 THEN parts ELSE '[]' END AS parts FROM messages"
    " WHERE account = $1 AND user_id = $2 AND session_id = $3 ORDER BY sequence DESC LIMIT $5"
)
"""Reads the newest messages of a session. Of those that are too long it returns no parts."""

# Diagnostics of PostgreSQL

READ_PRIVILEGE: Final = "SELECT"
"""Name of the privilege to read a table."""
PRIVILEGES: Final = (READ_PRIVILEGE, "INSERT", "UPDATE", "DELETE")
"""Privileges that a server needs on each table."""

CLOCK = "SELECT extract(epoch FROM clock_timestamp())::float8"
"""Reads the server's clock, in seconds."""

SERVER_FACTS = (
    "SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int AS number,"
    " current_setting('server_encoding') AS encoding, current_user AS role,"
    " current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int AS most,"
    " has_schema_privilege(current_schema(), 'CREATE') AS may_migrate,"
    " pg_is_in_recovery() OR current_setting('default_transaction_read_only')::bool AS read_only,"
    " (SELECT datcollate FROM pg_database WHERE datname = current_database()) AS collation"
)
"""Reads the version and the settings of the server."""

LACKING_PRIVILEGES = (
    "SELECT tablename, privilege FROM pg_tables, unnest($1::text[]) AS privilege"
    " WHERE schemaname = current_schema() AND tablename = ANY($2)"
    " AND NOT has_table_privilege(quote_ident(schemaname) || '.' || quote_ident(tablename), privilege)"
    " ORDER BY tablename, privilege"
)
"""Reads which of the privileges the role lacks on tables."""
