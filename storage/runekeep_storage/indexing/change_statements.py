"""The SQL statements of a change of the embedder, one sentence each.

A statement confines itself to one account, unless OVER_ALL_ACCOUNTS names it.
`tests/unit/storage/test_statements.py` checks both.
"""

from functools import cache
from typing import Final

from runekeep_storage.indexing.statements import NEXT_OF_NEW, NEXT_OF_OLD, key_of, of_known_type
from runekeep_storage.spaces.statements import SEARCHED_MODEL, without
from runekeep_storage.tables import Table

OVER_ALL_ACCOUNTS: Final = frozenset(
    {
        # A change reaches the spaces of all accounts.
        "HIGHEST_CHANGE_OF_SPACES",
        "COUNT_SPACES_LEFT",
        "NEXT_SPACE_LEFT",
        "SPACES_AFTER",
    }
)
"""Statements on tables of accounts that read or change rows of any account."""

_OF_USER: Final = "account = $1 AND user_id = $2"

CHANGE = (
    "SELECT number, state, source_name, source_model, source_dimension, name, model, dimension, rows_per_second,"
    " started_at, state_at, total_rows, done_rows, rows_per_hour, holder, held_until, problem"
    " FROM embedder_changes WHERE slot = 0"
)
"""Reads the newest change."""

SEARCHED_MODEL_OF_SPACE = (
    f"SELECT {SEARCHED_MODEL} AS model FROM embedder_changes c"
    " LEFT JOIN spaces s ON s.account = $1 AND s.user_id = $2 WHERE c.slot = 0"
)
"""Reads the model that a space is searched by while the embedder is being changed."""

RESUME_CHANGE = "UPDATE embedder_changes SET rows_per_second = $1, state = 'running', state_at = $2 WHERE slot = 0"
"""Resumes the change at a rate."""

DELETE_CHANGE = "DELETE FROM embedder_changes WHERE slot = 0"
"""Deletes the newest change."""

START_CHANGE = (
    "INSERT INTO embedder_changes (slot, number, state, source_name, source_model, source_dimension, name, model,"
    " dimension, rows_per_second, started_at, state_at, total_rows)"
    " VALUES (0, $1, 'running', $2, $3, $4, $5, $6, $7, $8, $9, $10, -1)"
)
"""Starts a change."""

HIGHEST_CHANGE_OF_SPACES = "SELECT MAX(embedder_change) AS number FROM spaces"
"""Reads the highest number of a change that has reached a space."""

MOVE_CHANGE = "UPDATE embedder_changes SET state = $1, state_at = $2 WHERE slot = 0"
"""Stores the state of the change."""

END_CHANGE = (
    "UPDATE embedder_changes SET state = CASE state WHEN 'finishing' THEN 'finished' ELSE 'undone' END,"
    " state_at = $2, holder = '', held_until = 0, problem = ''"
    " WHERE slot = 0 AND number = $1 AND state IN ('finishing', 'undoing')"
)
"""Ends a change whose old vectors are dropped."""

FORGET_ENDED_CHANGE = f"{DELETE_CHANGE} AND state IN ('finished', 'undone')"
"""Deletes the newest change if it has ended."""

HOLD_CHANGE = (
    "UPDATE embedder_changes SET holder = $2, held_until = $3"
    " WHERE slot = 0 AND number = $1 AND (holder = $2 OR held_until < $4)"
)
"""Takes or renews the lease of a change."""

RELEASE_CHANGE = "UPDATE embedder_changes SET held_until = 0 WHERE slot = 0 AND holder = $1"
"""Ends the lease of a change."""

REPORT_CHANGE = (
    "UPDATE embedder_changes SET total_rows = $3, done_rows = $4, rows_per_hour = $5, problem = $6"
    " WHERE slot = 0 AND number = $1 AND holder = $2"
)
"""Stores the progress of a change."""

MAX_SPACES_LEFT: Final = 10_000
"""Maximum number of spaces that COUNT_SPACES_LEFT counts."""
COUNT_SPACES_LEFT = (
    f"SELECT COUNT(*) AS count FROM (SELECT 1 FROM spaces WHERE embedder_change < $1 LIMIT {MAX_SPACES_LEFT}) counted"
)
"""Counts spaces that a change has not reached."""

NEXT_SPACE_LEFT = (
    "SELECT embedder_change, account, user_id FROM spaces"
    " WHERE (embedder_change, account, user_id) > ($1, $2, $3) AND embedder_change < $4"
    " ORDER BY embedder_change, account, user_id LIMIT 1"
)
"""Reads the next space that a change has not reached."""

SPACES_AFTER = (
    "SELECT account, user_id FROM spaces WHERE (account, user_id) > ($1, $2) ORDER BY account, user_id LIMIT $3"
)
"""Reads spaces, in slices."""

# Vectors of the new embedder

_MEMORIES: Final = f"FROM memories WHERE {_OF_USER} AND deleted = 0 AND rev_to = 0{of_known_type(3)}"
_PASSAGES: Final = f"FROM passages WHERE {_OF_USER}"
_COUNTS: Final = "SELECT COUNT(*) AS total, COUNT(dense_next) AS done"

COUNT_MEMORIES = f"{_COUNTS} {_MEMORIES}"
"""Counts the memories of a space that get vectors, and those that have one by the new embedder."""

COUNT_PASSAGES = f"{_COUNTS} {_PASSAGES}"
"""Counts the same of passages."""

LACKS_OLD = (
    f"SELECT (EXISTS (SELECT 1 {_MEMORIES} AND {NEXT_OF_OLD})"
    f" OR EXISTS (SELECT 1 {_PASSAGES} AND {NEXT_OF_OLD}{without('passages')})) AS lacking"
)
"""Whether rows of a space, written before the change began, lack vectors of the new embedder."""


@cache
def lacks_new(tolerated: int) -> str:
    """Whether the index lacks more new vectors of a space than are tolerated, or an import fills the space."""
    # An index holds the new rows.
    more = f"LIMIT 1 OFFSET {tolerated}"
    return (
        f"SELECT (EXISTS (SELECT 1 FROM shut_spaces WHERE {_OF_USER} AND import_id <> '')"
        f" OR EXISTS (SELECT 1 FROM outbox WHERE {_OF_USER} AND takes = 0 AND revision = 0 {more})"
        f" OR EXISTS (SELECT 1 {_MEMORIES} AND {NEXT_OF_NEW} {more})"
        f" OR EXISTS (SELECT 1 {_PASSAGES} AND {NEXT_OF_NEW}{without('passages')} {more})) AS lacking"
    )


SWITCH_SPACE = f"UPDATE spaces SET embedder_change = $3 WHERE {_OF_USER}"
"""Lets a space be searched by the new embedder."""


@cache
def keys_after(table: Table) -> str:
    """Reads keys of memories or passages of a space, in slices."""
    return (
        f"SELECT {key_of(table)} FROM {table.name} WHERE {_OF_USER} AND ({key_of(table)}) > ($3, $4)"
        f" ORDER BY {key_of(table)} LIMIT $5"
    )


# A row written since the change was finished has the vector of the new embedder in `dense` already.
_HAS_NEW: Final = "dense IS NOT NULL AND dense_model = $7"
_MOVED: Final = (
    f"dense = CASE WHEN {_HAS_NEW} THEN dense WHEN dense_next_model = $7 THEN dense_next END,"
    f" dense_model = CASE WHEN ({_HAS_NEW}) OR (dense_next_model = $7 AND dense_next IS NOT NULL) THEN $7 ELSE '' END, "
)
_KEPT_LINES: Final = (
    "line_vectors = CASE WHEN line_vectors_model = $7 THEN line_vectors END,"
    " line_vectors_model = CASE WHEN line_vectors_model = $7 THEN $7 ELSE '' END, "
)


@cache
def drop_vectors(table: Table, is_finished: bool) -> str:
    """Drops the vectors that are no longer kept from a range of rows, and moves those of a finished change."""
    has_lines = table.name == "memories"
    return (
        f"UPDATE {table.name} SET {_MOVED if is_finished else ''}{_KEPT_LINES if has_lines else ''}"
        f"dense_next = NULL, dense_next_model = ''"
        f" WHERE {_OF_USER} AND ({key_of(table)}) > ($3, $4) AND ({key_of(table)}) <= ($5, $6)"
        " AND (dense_model <> $7 OR dense_next_model <> '' OR dense_next IS NOT NULL"
        f"{' OR (line_vectors IS NOT NULL AND line_vectors_model <> $7)' if has_lines else ''})"
    )
