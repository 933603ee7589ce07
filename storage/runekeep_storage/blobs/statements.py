"""The SQL statements about blobs: sweeps, and the rows that name blobs, one sentence each.

A statement confines itself to one account, unless OVER_ALL_ACCOUNTS names it.
`tests/unit/storage/test_statements.py` checks both.
"""

from typing import Final

from runekeep_storage.spaces.statements import without

OVER_ALL_ACCOUNTS: Final = frozenset(
    {
        # The server's own loops: they sweep and read the blobs of all accounts.
        "NEXT_SWEEP",
        "SPACES_AFTER",
    }
)
"""Statements on tables of accounts that read or change rows of any account."""

# Sweeps

ASK_FOR_SWEEP = (
    "INSERT INTO blob_sweeps (account, user_id, due_at, expected_at) VALUES ($1, $2, $3, $4)"
    " ON CONFLICT (account, user_id) DO UPDATE SET asked = blob_sweeps.asked + 1,"
    " due_at = CASE WHEN blob_sweeps.due_at < excluded.due_at THEN blob_sweeps.due_at ELSE excluded.due_at END,"
    " expected_at = CASE WHEN blob_sweeps.expected_at > excluded.expected_at"
    " THEN blob_sweeps.expected_at ELSE excluded.expected_at END"
)
"""Marks a space for a sweep. The earliest due time counts, and the latest expected blob."""

NEXT_SWEEP = (
    "SELECT account, user_id, asked FROM blob_sweeps b WHERE due_at <= $1 AND NOT EXISTS ("
    "   SELECT 1 FROM leftovers l WHERE l.account = b.account AND l.user_id = b.user_id)"
    " AND NOT EXISTS (SELECT 1 FROM shut_spaces s WHERE s.account = b.account AND s.user_id = b.user_id"
    "   AND s.import_id <> '')"
    " ORDER BY due_at LIMIT 1"
)
"""Reads the first space whose sweep is due, unless it has leftovers or is being imported."""

_OF_SWEEP: Final = "account = $1 AND user_id = $2 AND asked = $3"

END_SWEEP = f"DELETE FROM blob_sweeps WHERE {_OF_SWEEP} AND expected_at <= $4"
"""Removes the mark of a sweep, unless another one was requested or a blob is still expected."""

DELAY_SWEEP_FOR_EXPECTED = f"UPDATE blob_sweeps SET due_at = expected_at + $4 WHERE {_OF_SWEEP}"
"""Postpones a sweep to the end of the grace period of an expected blob."""

DELAY_SWEEP = f"UPDATE blob_sweeps SET due_at = $4 WHERE {_OF_SWEEP}"
"""Postpones a sweep, unless another one was requested."""

# Rows that name blobs

BLOBS_OF_OUTPUTS = "SELECT blob FROM tool_outputs WHERE account = $1 AND user_id = $2"
"""Reads the blobs that tool outputs of a space name."""

BLOBS_OF_BUCKETS = (
    "SELECT a.blob FROM turn_tags t CROSS JOIN turn_artifacts a WHERE t.account = $1 AND t.user_id = $2"
    " AND t.tag = $3 AND a.account = t.account AND a.user_id = t.user_id AND a.session_id = t.session_id"
    f" AND a.kind = t.kind AND a.name = t.name{without('t')}"
)
"""Reads the blobs that buckets of a space name."""

PARTS_WITH_OUTPUTS = (
    f"SELECT parts FROM messages WHERE account = $1 AND user_id = $2 AND outputs > 0{without('messages')}"
)
"""Reads the parts of the messages of a space that name blobs."""

SPACES_AFTER = (
    "SELECT account, user_id FROM spaces WHERE (account, user_id) > ($1, $2) ORDER BY account, user_id LIMIT $3"
)
"""Reads the next spaces, in order."""

OUTPUTS_AFTER = (
    "SELECT session_id, tool_id, blob FROM tool_outputs WHERE account = $1 AND user_id = $2"
    f" AND (session_id, tool_id) > ($3, $4){without('tool_outputs')} ORDER BY session_id, tool_id LIMIT $5"
)
"""Reads the next tool outputs of a space, with their blobs."""

BUCKETS_AFTER = (
    # In the order of the key, so that no page has to start at the first row.
    "SELECT session_id, kind, name, blob FROM turn_artifacts WHERE account = $1 AND user_id = $2"
    f" AND (session_id, kind, name) > ($3, $4, $5) AND kind = $6{without('turn_artifacts')}"
    " ORDER BY session_id, kind, name LIMIT $7"
)
"""Reads the next buckets of a space, with their blobs."""
