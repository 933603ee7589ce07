"""The SQL statements of spaces, locks, pending deletions and the progress of the index, one sentence each.

A statement confines itself to one account, unless OVER_ALL_ACCOUNTS names it.
`tests/unit/storage/test_statements.py` checks both.
"""

from typing import Final

OVER_ALL_ACCOUNTS: Final = frozenset(
    {
        # The server's own loops: they clean up, unlock and check the spaces of all accounts.
        "NEXT_WITH_LEFTOVERS",
        "NEXT_EXPIRY",
        "DELETED_SPACES",
        "NEXT_TO_CHECK",
        "SPACES_ELSEWHERE",
        # Figures of the whole store, without any text.
        "ARCHIVES_NOT_INDEXED",
        "REVISIONS_NOT_INDEXED",
        "OLDEST_REVISION_NOT_INDEXED",
    }
)
"""Statements on tables of accounts that read or change rows of any account."""

# Spaces

ADD_ACCOUNT = "INSERT INTO accounts (account, created_at) VALUES ($1, $2) ON CONFLICT (account) DO NOTHING"
"""Adds an account unless it exists."""

CHANGE_IS_OPEN: Final = "c.state IN ('running', 'paused')"
"""SQL condition: the change of the embedder, a row of `embedder_changes c`, is open."""

SEARCHED_MODEL: Final = (
    f"CASE WHEN {CHANGE_IS_OPEN} AND COALESCE(s.embedder_change, c.number) = c.number OR c.state = 'finishing'"
    f" THEN c.model WHEN {CHANGE_IS_OPEN} OR c.state = 'undoing' THEN c.source_model END"
)
"""SQL expression: the model that a space, a row of `spaces s`, is searched by while the embedder is being changed, by
`embedder_changes c`; else NULL. A space that does not exist yet is searched by the new embedder, see ADD_SPACE."""

ADD_SPACE = (
    "INSERT INTO spaces (account, user_id, created_at, checked_at, embedder_change) VALUES ($1, $2, $3, $3,"
    f" COALESCE((SELECT c.number FROM embedder_changes c WHERE c.slot = 0 AND {CHANGE_IS_OPEN}), 0))"
    " ON CONFLICT (account, user_id) DO NOTHING"
)
"""Adds a space unless it exists. While the embedder is being changed, it is searched by the new one at once."""

USERS = (
    "SELECT s.user_id, s.created_at FROM spaces s"
    " WHERE s.account = $1 AND s.user_id > $2 AND s.user_id >= $3 AND s.user_id < $4 AND ("
    "EXISTS (SELECT 1 FROM sessions n WHERE n.account = s.account AND n.user_id = s.user_id)"
    " OR EXISTS (SELECT 1 FROM memories m WHERE m.account = s.account AND m.user_id = s.user_id"
    " AND m.rev_to = 0 AND m.deleted = 0)"
    # Rows that an import has written, or that wait for their deletion.
    ") AND NOT EXISTS (SELECT 1 FROM shut_spaces i WHERE i.account = s.account AND i.user_id = s.user_id"
    " AND i.erasure_id = '') ORDER BY s.user_id LIMIT $5"
)
"""Reads a page of the users of an account, in a range of names, who have sessions or memories."""

HAS_SPACE = "SELECT 1 FROM spaces WHERE account = $1 AND user_id = $2"
"""Whether a space exists."""

REVISIONS = "SELECT revision, indexed_revision FROM spaces WHERE account = $1 AND user_id = $2"
"""Reads the revision of a space, and that of its index."""

REVISION_AT = (
    "SELECT COALESCE(MAX(revision), 0) AS revision FROM commits"
    " WHERE account = $1 AND user_id = $2 AND created_at <= $3"
)
"""Reads the newest revision that was made by a time."""

COUNT_LOSS = "UPDATE spaces SET losses = losses + 1 WHERE account = $1 AND user_id = $2"
"""Counts a deletion of data of a space."""

# Locks


def without_imports(table: str) -> str:
    """Returns an SQL condition to append: rows of that table that no import is writing. Background work skips those
    rows: it would derive data from half of an import, and would not derive it again when the rest has arrived."""
    return (
        f" AND NOT EXISTS (SELECT 1 FROM shut_spaces i WHERE i.account = {table}.account"
        f" AND i.user_id = {table}.user_id AND i.import_id <> '' LIMIT 1 OFFSET 0)"
    )


def without_locks(table: str) -> str:
    """Returns an SQL condition to append: rows of that table whose space is not locked."""
    return (
        f" AND NOT EXISTS (SELECT 1 FROM shut_spaces i WHERE i.account = {table}.account"
        f" AND i.user_id = {table}.user_id LIMIT 1 OFFSET 0)"
    )


LOCK = (
    "INSERT INTO shut_spaces (account, user_id, erasure_id) VALUES ($1, $2, $3)"
    " ON CONFLICT (account, user_id) DO NOTHING"
)
"""Locks a space for a deletion or an erasure, unless it is locked."""

LOCK_FOR_IMPORT = "INSERT INTO shut_spaces (account, user_id, import_id, import_until) VALUES ($1, $2, $3, $4)"
"""Locks a space for an import until a time."""

RENEW_IMPORT = "UPDATE shut_spaces SET import_until = $4 WHERE account = $1 AND user_id = $2 AND import_id = $3"
"""Extends the lock of an import."""

EXPIRE_IMPORT = (
    "UPDATE shut_spaces SET import_id = '', import_until = 0 WHERE account = $1 AND user_id = $2"
    " AND import_id <> '' AND (import_id = $3 OR import_until <= $4)"
)
"""Turns the lock of an import that ended or expired into that of a deletion."""

COUNT_EXPIRED_IMPORT = (
    "UPDATE spaces SET revision = revision + 1, losses = losses + 1 WHERE account = $1 AND user_id = $2"
)
"""Raises the revision of a space whose import ended, and counts a deletion of its data."""

UNLOCK = "DELETE FROM shut_spaces WHERE account = $1 AND user_id = $2"
"""Unlocks a space."""

IS_DELETED = "SELECT 1 FROM shut_spaces WHERE account = $1 AND user_id = $2 AND erasure_id = '' AND import_id = ''"
"""Whether a space is locked for a deletion."""

NEXT_EXPIRY = "SELECT MIN(import_until) - $1 AS wait FROM shut_spaces WHERE import_id <> ''"
"""Reads how long it is until the first lock of an import expires."""

DELETED_SPACES = (
    "SELECT account, user_id FROM shut_spaces WHERE erasure_id = '' AND (import_id = '' OR import_until <= $1)"
    " ORDER BY account, user_id"
)
"""Reads the spaces that wait for their deletion, expired imports among them."""

# Pending deletions


def without(table: str) -> str:
    """Returns an SQL condition to append: rows of one of `tables.SLICES` whose session is not deleted."""
    # With an OFFSET, PostgreSQL evaluates the subquery for each row. Without one it plans a join and overestimates the
    # leftovers so much that it would rather read and sort all rows than stop at a LIMIT.
    return (
        f" AND NOT EXISTS (SELECT 1 FROM leftovers l WHERE l.account = {table}.account"
        f" AND l.user_id = {table}.user_id AND l.session_id = {table}.session_id LIMIT 1 OFFSET 0)"
    )


LEAVE_SESSION = (
    "INSERT INTO leftovers (account, user_id, session_id) VALUES ($1, $2, $3)"
    " ON CONFLICT (account, user_id, session_id) DO NOTHING"
)
"""Marks a deleted session for cleanup."""

LEAVE_SESSIONS = (
    "INSERT INTO leftovers (account, user_id, session_id)"
    " SELECT account, user_id, session_id FROM sessions WHERE account = $1 AND user_id = $2 AND session_id <= $3"
    " ON CONFLICT (account, user_id, session_id) DO NOTHING"
)
"""Marks the sessions of a user up to one, by name, for cleanup."""

NEXT_WITH_LEFTOVERS = (
    "SELECT account, user_id FROM leftovers l WHERE (account, user_id) > ($1, $2) AND NOT EXISTS ("
    " SELECT 1 FROM shut_spaces s WHERE s.account = l.account AND s.user_id = l.user_id)"
    " ORDER BY account, user_id LIMIT 1"
)
"""Reads the next space with leftovers that is not locked."""

HAS_LEFTOVERS = "SELECT 1 FROM leftovers WHERE account = $1 AND user_id = $2 AND ($3 = '' OR session_id = $3) LIMIT 1"
"""Whether leftovers remain of a session, or of any session of a user."""

IS_LEFT = "SELECT 1 FROM leftovers WHERE account = $1 AND user_id = $2 AND session_id = $3"
"""Whether a session is marked for cleanup."""

LEFT_SESSIONS = "SELECT session_id FROM leftovers WHERE account = $1 AND user_id = $2 ORDER BY session_id LIMIT $3"
"""Reads the sessions of a user that are marked for cleanup."""


def delete_slice(table: str) -> str:
    """Deletes the first rows of a deleted session from a table."""
    return (
        f"DELETE FROM {table} WHERE account = $1 AND user_id = $2 AND session_id = $3 AND sequence <= ("
        f" SELECT MAX(s.sequence) FROM (SELECT sequence FROM {table}"
        "   WHERE account = $1 AND user_id = $2 AND session_id = $3 ORDER BY sequence LIMIT $4) s)"
    )


SIZES_OF_LEFT_MESSAGES = (
    "SELECT sequence, tokens FROM messages WHERE account = $1 AND user_id = $2 AND session_id = $3"
    " AND sequence > $4 ORDER BY sequence LIMIT $5"
)
"""Reads the sizes of the first messages of a deleted session."""

DELETE_MESSAGES = "DELETE FROM messages WHERE account = $1 AND user_id = $2 AND session_id = $3 AND sequence <= $4"
"""Deletes the first messages of a deleted session."""

FORGET_SESSION = "DELETE FROM leftovers WHERE account = $1 AND user_id = $2 AND session_id = $3"
"""Ends the cleanup of a deleted session."""

# Progress of the index

INDEX_OF_STORE = "SELECT index_id FROM search_index WHERE slot = 0"
"""Reads the id of the index that searches use."""

ADOPT_INDEX = (
    "INSERT INTO search_index (slot, index_id) VALUES (0, $1)"
    " ON CONFLICT (slot) DO UPDATE SET index_id = excluded.index_id"
)
"""Stores the id of the index that searches use."""

PROGRESS = (
    "SELECT o.searched, s.revision, s.indexed_revision, s.index_id"
    " FROM (SELECT COALESCE((SELECT index_id FROM search_index WHERE slot = 0), '') AS searched) o"
    " LEFT JOIN spaces s ON s.account = $1 AND s.user_id = $2"
)
"""Reads how far the index has got with a space, and the id of the index that searches use."""

JOIN_INDEX = "UPDATE spaces SET index_id = $3 WHERE account = $1 AND user_id = $2 AND index_id = ''"
"""Assigns an index to a space that has none."""

MOVE_WATERMARK = "UPDATE spaces SET indexed_revision = $3 WHERE account = $1 AND user_id = $2"
"""Stores the revision of a space that the index has."""

SPACE_WRITTEN = (
    "UPDATE spaces SET index_id = $3, checked_at = $4 WHERE account = $1 AND user_id = $2 AND index_id <> $3"
)
"""Assigns an index to a space that was written to it as a whole."""

SPACES_ELSEWHERE = (
    "SELECT index_id, account, user_id FROM spaces WHERE (index_id, account, user_id) > ($1, $2, $3)"
    # The end bounds the first column only: with an end inside that index, PostgreSQL would read all of its
    # spaces.
    " AND index_id < $4 ORDER BY index_id, account, user_id LIMIT $5"
)
"""Reads spaces that are in other indexes, in slices."""

NEXT_TO_CHECK = (
    "SELECT account, user_id, checked_at FROM spaces WHERE checked_at <= $1 AND index_id = $2"
    " ORDER BY checked_at LIMIT 1"
)
"""Reads the space that was compared with the index longest ago."""

CLAIM_CHECK = "UPDATE spaces SET checked_at = $4 WHERE account = $1 AND user_id = $2 AND checked_at = $3"
"""Takes the comparison of a space with the index, unless another server has."""

SET_CHECKED = "UPDATE spaces SET checked_at = $3 WHERE account = $1 AND user_id = $2"
"""Stores when a space was compared with the index."""

# What the index lacks


def _waiting_since(table: str) -> str:
    """Returns SQL for the time at which a row of the table began to wait. Imported rows are much older than their
    arrival."""
    return f"CASE WHEN s.imported_at > {table}.created_at THEN s.imported_at ELSE {table}.created_at END"


ARCHIVES_NOT_INDEXED = (
    "SELECT COUNT(*) AS n, COALESCE(SUM(messages), 0) AS messages,"
    f" COALESCE(MIN({_waiting_since('waiting')}), 0) AS oldest"
    " FROM (SELECT account, user_id, last_sequence - first_sequence + 1 AS messages, created_at FROM archives"
    "  WHERE passages_indexed = 0 ORDER BY created_at LIMIT $1) waiting"
    " LEFT JOIN spaces s ON s.account = waiting.account AND s.user_id = waiting.user_id"
)
"""Counts archives without passages in the index, and their messages."""

REVISIONS_NOT_INDEXED = (
    "SELECT COALESCE(SUM(lacking), 0) AS n FROM"
    " (SELECT revision - indexed_revision AS lacking FROM spaces"
    "  WHERE indexed_revision < revision LIMIT $1) behind"
)
"""Counts revisions that the index lacks, over all users."""

OLDEST_REVISION_NOT_INDEXED = (
    f"SELECT COALESCE(MIN({_waiting_since('c')}), 0) AS oldest FROM"
    " (SELECT account, user_id, indexed_revision, imported_at FROM spaces"
    "  WHERE indexed_revision < revision LIMIT $1) s"
    " JOIN commits c ON c.account = s.account AND c.user_id = s.user_id AND c.revision = s.indexed_revision + 1"
)
"""Reads when the oldest revision was made that the index lacks."""
