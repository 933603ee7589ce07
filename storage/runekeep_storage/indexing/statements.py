"""The SQL statements of indexing: the outbox, passages and their vectors, one sentence each. `change_statements` has
those of a change of the embedder.

A statement confines itself to one account, unless OVER_ALL_ACCOUNTS names it.
`tests/unit/storage/test_statements.py` checks both.
"""

from functools import cache
from typing import Final

from runekeep_schemas.recall_lines import MAX_READ_CHARACTERS
from runekeep_storage.drivers.common.statement_lists import SIZE, by_keys, places, rows
from runekeep_storage.spaces.statements import CHANGE_IS_OPEN, without, without_imports, without_locks
from runekeep_storage.tables import Table

OVER_ALL_ACCOUNTS: Final = frozenset(
    {
        # The relay of a server brings the index up to date for all accounts, one space after the other.
        "SPACES_WITH_ENTRIES",
        "SPACES_WITH_REVISIONS",
        "NEXT_SPACE_OF_ARCHIVES",
        "NEXT_SPACE_OF_MEMORIES",
        "NEXT_SPACE_OF_PASSAGES",
        "NEXT_SPACE_OF_NEW_MEMORIES",
        "NEXT_SPACE_OF_NEW_PASSAGES",
        "NEXT_SPACE_OF_LINES",
    }
)
"""Statements on tables of accounts that read or change rows of any account."""

_OF_USER: Final = "account = $1 AND user_id = $2"

# The outbox

_ENTRY: Final = "op, uri, version, point_id, task_id, first_sequence, last_sequence, due_at, revision, number"


@cache
def add_entries(count: int) -> str:
    """Adds entries."""
    row = f"($1, $2{', ?' * (_ENTRY.count(',') + 2)})"
    return f"INSERT INTO outbox (account, user_id, {_ENTRY}, takes) VALUES {rows(row, count, 3)}"


RESERVE_NUMBERS = f"UPDATE spaces SET outbox_number = outbox_number + $3 WHERE {_OF_USER} RETURNING outbox_number"
"""Reserves numbers of entries, and reads the last one of them."""

# Steps from one space to the next by the key. A space may have any number of entries; no revision reaches 2^62. If bare
# columns were compared, SQLite would look up the account only and read on. One IN instead of the two EXISTS gives wrong
# answers in some releases (3.40) once there are statistics.
_NEXT: Final = (
    f" FROM outbox o WHERE (o.account, o.user_id, o.revision) > ({{}}, {2**62})"
    " ORDER BY o.account, o.user_id, o.revision LIMIT 1"
)
_STEP: Final = _NEXT.format("w.account || '', w.user_id || ''")
_OF_SPACE: Final = "SELECT 1 FROM outbox o WHERE o.account = w.account AND o.user_id = w.user_id"
SPACES_WITH_ENTRIES = (
    "WITH RECURSIVE walk (step, account, user_id) AS ("
    f"SELECT 1, f.account, f.user_id FROM (SELECT o.account, o.user_id{_NEXT.format('$1, $2')}) f"
    f" UNION ALL SELECT w.step + 1, (SELECT o.account{_STEP}), (SELECT o.user_id{_STEP})"
    " FROM walk w WHERE w.account IS NOT NULL AND w.step < $3)"
    " SELECT w.account, w.user_id, s.index_id,"
    f" EXISTS ({_OF_SPACE} AND o.takes = 0) OR EXISTS ({_OF_SPACE} AND o.takes = 1 AND o.due_at <= $4) AS due"
    " FROM walk w JOIN spaces s ON s.account = w.account AND s.user_id = w.user_id ORDER BY w.step"
)
"""Reads the next spaces with entries, and whether an entry of each is due."""

SPACES_WITH_REVISIONS = (
    "SELECT account, user_id, index_id FROM spaces"
    " WHERE indexed_revision < revision AND (account, user_id) > ($1, $2) ORDER BY account, user_id LIMIT $3"
)
"""Reads the next spaces with revisions that the index lacks."""


def _due(takes: int, revision: str) -> str:
    return (
        f"SELECT * FROM (SELECT {_ENTRY}, takes FROM outbox WHERE {_OF_USER} AND takes = {takes}"
        f" AND due_at <= $3 AND revision <= {revision} ORDER BY due_at, revision, number LIMIT $4) kind_{takes}"
    )


DUE_ENTRIES = (
    f"SELECT {_ENTRY} FROM ({_due(0, '$5')} UNION ALL {_due(1, '$6')}) of_both ORDER BY takes, due_at, revision, number"
)
"""Reads due entries of a space, those that write points first."""


@cache
def drop_entries(count: int) -> str:
    """Deletes entries, and reads the numbers of those that existed."""
    # Two separate lists let the engine use the whole key.
    return (
        f"DELETE FROM outbox WHERE {_OF_USER} AND revision IN ({places(3, count)})"
        f" AND number IN ({places(3 + count, count)}) RETURNING number"
    )


_OF_ENTRY: Final = f"{_OF_USER} AND revision = $3 AND number = $4"
DROP_ENTRY = f"DELETE FROM outbox WHERE {_OF_ENTRY}"
"""Deletes an entry."""

DROP_ENTRY_UP_TO = f"{DROP_ENTRY} AND last_sequence < $5"
"""Deletes an entry for messages that are all before one."""

# Never back: another relay may have got further.
SHORTEN_ENTRY = f"UPDATE outbox SET first_sequence = $5 WHERE {_OF_ENTRY} AND first_sequence < $5"
"""Lets an entry for messages begin with a later one."""

DROP_WRITTEN_ENTRIES = f"DELETE FROM outbox WHERE {_OF_USER} AND revision > 0 AND revision <= $3 AND op = 'upsert'"
"""Deletes the entries for memories of a space that was written to the index as a whole."""

REMOVALS = f"SELECT {_ENTRY} FROM outbox WHERE {_OF_USER} AND takes = 1"
"""Reads the entries of a space that remove points."""

HAS_REMOVALS = f"SELECT 1 FROM outbox WHERE {_OF_USER} AND takes = 1 AND number <= $3 LIMIT 1"
"""Whether entries up to a number remove points."""

HAS_REMOVALS_OF_ERASED = (
    f"SELECT 1 FROM outbox WHERE {_OF_USER} AND takes = 1 AND number <= $3 AND revision = 0 LIMIT 1"
)
"""Whether entries up to a number remove points that no version has superseded."""

BEGIN_GRACE = f"UPDATE outbox SET due_at = $5 WHERE {_OF_USER} AND revision > $3 AND revision <= $4 AND takes = 1"
"""Sets when the points of superseded versions are removed."""

# Rows as points

MEMORY_COLUMNS: Final = (
    "account, user_id, uri, version, memory_type, peer_id, rev_from, sources, dense, dense_model, dense_next,"
    " dense_next_model, sparse, happened_at, tags, updated_at"
)
PASSAGE_COLUMNS: Final = (
    "account, user_id, session_id, sequence, archive_index, task_id, message_id, peer_id, content, dense, dense_model,"
    " dense_next, dense_next_model, sparse, created_at"
)
_MODELS: Final = "dense_model, CASE WHEN dense_next IS NULL THEN '' ELSE dense_next_model END AS next_model"
STALE_MEMORY_COLUMNS: Final = f"uri, version, rev_from, rev_to, {_MODELS}"
STALE_PASSAGE_COLUMNS: Final = f"session_id, sequence, task_id, 0 AS rev_to, {_MODELS}"


def key_of(table: Table) -> str:
    """Returns the columns of the table's key, within a space."""
    return ", ".join(table.key)


def _left_out(table: Table) -> str:
    return without("passages") if table.name == "passages" else ""


@cache
def rows_at(table: Table, columns: str, count: int) -> str:
    """Reads memories or passages by their keys, without those of deleted sessions."""
    return by_keys(f"SELECT {columns} FROM {table.name} WHERE {_OF_USER}", table.key, count, 3, _left_out(table))


MEMORIES_AT_REVISION = (
    f"SELECT {MEMORY_COLUMNS} FROM memories WHERE {_OF_USER} AND (uri, version) > ($3, $4)"
    " AND deleted = 0 AND rev_from <= $5 AND (rev_to = 0 OR rev_to > $5) ORDER BY uri, version LIMIT $6"
)
"""Reads the memories of a space at a revision, in slices."""

_PASSAGES_AFTER: Final = (
    f" FROM passages WHERE {_OF_USER}{without('passages')}"
    " AND (session_id, sequence) > ($3, $4) ORDER BY session_id, sequence LIMIT $5"
)
PASSAGES = f"SELECT {PASSAGE_COLUMNS}{_PASSAGES_AFTER}"
"""Reads the passages of a space, in slices."""

CURRENT_MEMORY_KEYS = (
    f"SELECT uri, version, rev_from FROM memories WHERE {_OF_USER}"
    " AND (uri, version) > ($3, $4) AND deleted = 0 AND rev_to = 0 ORDER BY uri, version LIMIT $5"
)
"""Reads the keys of the current memories of a space, in slices."""

PASSAGE_KEYS = f"SELECT session_id, sequence, task_id{_PASSAGES_AFTER}"
"""Reads the keys of the passages of a space, in slices."""

WITHOUT_LINES: Final = "line_vectors = NULL, line_vectors_model = ''"
_HAS_OTHER_VECTOR: Final = "dense IS NOT NULL AND dense_model <> $3"


@cache
def with_other_vectors(table: Table) -> str:
    """Reads keys in slices, and whether each row has a vector of another embedder."""
    return (
        f"SELECT {key_of(table)}, CASE WHEN {_HAS_OTHER_VECTOR} THEN 1 ELSE 0 END AS other FROM {table.name}"
        f" WHERE {_OF_USER} AND ({key_of(table)}) > ($4, $5) ORDER BY {key_of(table)} LIMIT $6"
    )


@cache
def forget_other_vectors(table: Table) -> str:
    """Removes the vectors of other embedders from a range of rows."""
    lines = f", {WITHOUT_LINES}" if table.name == "memories" else ""
    return (
        f"UPDATE {table.name} SET dense = NULL, dense_model = ''{lines} WHERE {_OF_USER} AND {_HAS_OTHER_VECTOR}"
        f" AND ({key_of(table)}) > ($4, $5) AND ({key_of(table)}) <= ($6, $7)"
    )


# Walks over the spaces


def _next_space(table: str, condition: str, column: str, behind_all: str) -> str:
    """Returns a statement for `space_walk.waiting_spaces`: the first space after ($1, $2) with rows of the table that
    meet the condition. It needs a partial index on account, user and `column`; no value of `column` may be above
    `behind_all`."""
    is_imported = (
        "EXISTS (SELECT 1 FROM shut_spaces i"
        " WHERE i.account = r.account AND i.user_id = r.user_id AND i.import_id <> '')"
    )
    # With plain parameters SQLite would search by account only. Without the column it would read all rows of the space.
    return (
        f"SELECT r.account, r.user_id, {is_imported} AS is_imported FROM {table} r"
        f" WHERE (r.account, r.user_id, r.{column}) > ($1 || '', $2 || '', {behind_all}) AND {condition}"
        f" ORDER BY r.account, r.user_id, r.{column} LIMIT 1"
    )


DENSE: Final = (
    "dense IS NULL AND (dense_next IS NULL"
    " OR NOT EXISTS (SELECT 1 FROM embedder_changes WHERE slot = 0 AND state = 'finishing'))"
)
"""Rows without a vector by the store's embedder. While a change is being finished, it moves there from `dense_next`."""
NEXT_OF_OLD: Final = "dense_next IS NULL AND dense_next_model = ''"
"""Rows, written before the change began, without a vector of the new embedder."""
NEXT_OF_NEW: Final = "dense_next IS NULL AND dense_next_model <> ''"
"""Rows, written since the change began, without a vector of the new embedder. A partial index covers them."""

NEXT_SPACE_OF_ARCHIVES = _next_space("archives", "passages_indexed = 0", "created_at", str(2**62))
"""Reads the next space with archives whose passages are not in the index yet."""

NEXT_SPACE_OF_MEMORIES = _next_space("memories", "dense IS NULL AND deleted = 0 AND rev_to = 0", "uri", "'~'")
"""Reads the next space with memories without a vector."""

NEXT_SPACE_OF_PASSAGES = _next_space("passages", "dense IS NULL", "session_id", "'~'")
"""Reads the next space with passages without a vector."""

NEXT_SPACE_OF_NEW_MEMORIES = _next_space("memories", f"{NEXT_OF_NEW} AND deleted = 0 AND rev_to = 0", "uri", "'~'")
"""Reads the next space with memories, written since the change began, without a vector of the new embedder."""

NEXT_SPACE_OF_NEW_PASSAGES = _next_space("passages", NEXT_OF_NEW, "session_id", "'~'")
"""Reads the next space with passages, written since the change began, without a vector of the new embedder."""

# Only of memories that have a vector of their own: an endpoint that is away for those is not asked for lines too.
_LACKS_LINES: Final = "line_vectors IS NULL AND dense IS NOT NULL AND deleted = 0 AND rev_to = 0"
NEXT_SPACE_OF_LINES = _next_space("memories", _LACKS_LINES, "uri", "'~'")
"""Reads the next space with memories without vectors of their lines."""

# Missing vectors


def of_known_type(place: int) -> str:
    """Returns a condition to append: memories of one of the types in the parameter at `place`, see
    `missing_vectors.known_types`."""
    return f" AND ${place} LIKE '%,' || memory_type || ',%'"


_BEFORE: Final = (
    "(SELECT b.content FROM passages b WHERE b.account = passages.account AND b.user_id = passages.user_id"
    " AND b.session_id = passages.session_id AND b.sequence = passages.sequence - 1)"
)


@cache
def memories_lacking(lacking: str) -> str:
    """Reads memories without a vector. `lacking`: one of the conditions above."""
    # No partial index covers NEXT_OF_OLD, so its rows are read in the order of the primary key.
    after = " AND (uri, version) > ($5, $6) ORDER BY uri, version" if lacking == NEXT_OF_OLD else ""
    return (
        f"SELECT {MEMORY_COLUMNS}, fields FROM memories WHERE {_OF_USER} AND {lacking} AND deleted = 0 AND rev_to = 0"
        f"{of_known_type(3)}{without_imports('memories')}{after} LIMIT $4"
    )


@cache
def passages_lacking(lacking: str) -> str:
    """Reads passages without a vector, and the text of the passage before each."""
    after = " AND (session_id, sequence) > ($4, $5)" if lacking == NEXT_OF_OLD else ""
    return (
        f"SELECT {PASSAGE_COLUMNS}, {_BEFORE} AS before FROM passages WHERE {_OF_USER}"
        f" AND {lacking}{without('passages')}{without_imports('passages')}{after}"
        " ORDER BY session_id, sequence LIMIT $3"
    )


@cache
def fill_memory(is_next: bool) -> str:
    """Stores the vector of a version that lacks it, and reads where the version ended."""
    column = "dense_next" if is_next else "dense"
    return (
        f"UPDATE memories SET {column} = $5, {column}_model = $6 WHERE {_OF_USER} AND uri = $3 AND version = $4"
        f" AND rev_from = $7 AND {column} IS NULL RETURNING rev_to AS gone"
    )


@cache
def fill_passage(is_next: bool) -> str:
    """Stores the vector of a passage that lacks it, if its text and the text before are the same."""
    column = "dense_next" if is_next else "dense"
    return (
        f"UPDATE passages SET {column} = $5, {column}_model = $6 WHERE {_OF_USER} AND session_id = $3 AND sequence = $4"
        f" AND task_id = $7 AND {column} IS NULL AND COALESCE({_BEFORE}, '') = $8 AND content = $9 RETURNING 0 AS gone"
    )


_READ: Final = ", ".join(
    f"substr({name}, 1, {MAX_READ_CHARACTERS}) AS {name}" for name in ("abstract", "content", "overview")
)
MEMORIES_LACKING_LINES = (
    f"SELECT account, user_id, uri, version, rev_from, peer_id, {_READ} FROM memories"
    f" WHERE {_OF_USER} AND {_LACKS_LINES} AND uri > $3{without_locks('memories')} ORDER BY uri LIMIT $4"
)
"""Reads memories without vectors of their lines, unless a deletion, an erasure or an import has locked the space."""

FILL_LINES = (
    f"UPDATE memories SET line_vectors = $6, line_vectors_model = $7 WHERE {_OF_USER} AND uri = $3 AND version = $4"
    f" AND rev_from = $5 AND {_LACKS_LINES}"
)
"""Stores the vectors of the lines of a memory that lacks them."""

# Passages of archives

_OF_ARCHIVE: Final = f"{_OF_USER} AND session_id = $3 AND archive_index = $4 AND task_id = $5"

IS_ARCHIVE_INDEXED = f"SELECT passages_indexed FROM archives WHERE {_OF_ARCHIVE}"
"""Reads whether the passages of an archive are in the index."""

MARK_INDEXED = f"UPDATE archives SET passages_indexed = 1 WHERE {_OF_ARCHIVE}"
"""Marks an archive whose passages are in the index."""

ARCHIVES_WITHOUT_PASSAGES = (
    "SELECT session_id, archive_index, first_sequence, last_sequence, task_id, created_at FROM archives"
    f" WHERE {_OF_USER} AND passages_indexed = 0{without_imports('archives')} ORDER BY created_at LIMIT $3"
)
"""Reads the oldest archives whose passages are not in the index yet."""

OPEN_ARCHIVES = f"SELECT task_id, first_sequence, last_sequence FROM archives WHERE {_OF_USER} AND passages_indexed = 0"
"""Reads the messages of all archives whose passages are not in the index yet."""

INDEXED_ARCHIVES = f"SELECT task_id FROM archives WHERE {_OF_USER} AND passages_indexed = 1"
"""Reads the commits whose passages are in the index."""

LAST_PASSAGE = (
    f"SELECT sequence FROM passages WHERE {_OF_ARCHIVE} AND sequence >= $6 AND sequence <= $7"
    " ORDER BY sequence DESC LIMIT 1"
)
"""Reads the last passage of an archive."""


@cache
def add_passages(count: int) -> str:
    """Adds passages of an archive, and reads the numbers of those that were new."""
    return (
        "INSERT INTO passages (account, user_id, session_id, archive_index, task_id, sequence, message_id, peer_id,"
        " content, dense, dense_model, dense_next, dense_next_model, sparse, created_at) VALUES"
        f" {rows('($1, $2, $3, $4, $5, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)', count, 6)}"
        " ON CONFLICT (account, user_id, session_id, sequence) DO NOTHING RETURNING sequence"
    )


_OF_SESSION: Final = f"{_OF_USER} AND session_id = $3"

ERASED_MESSAGES = (
    f"SELECT sequence FROM messages WHERE {_OF_SESSION} AND sequence >= $4 AND sequence <= $5 AND erased = 1"
)
"""Reads which messages of a range are erased."""


@cache
def passages_at(count: int) -> str:
    """Reads passages by session and sequence."""
    columns = "session_id, sequence, archive_index, message_id, peer_id, content, created_at, task_id"
    select = f"SELECT {columns} FROM passages WHERE {_OF_USER}"
    return by_keys(select, ("session_id", "sequence"), count, 3, without("passages"))


ARCHIVED_BY = (
    f"SELECT session_id, archive_index FROM archives WHERE {_OF_USER} AND created_at <= $3"
    f" AND session_id IN ({places(4)}) AND archive_index IN ({places(4 + SIZE)})"
)
"""Reads which archives were made by a time."""

# Passages with captions

MADE_UP_TO = (
    "SELECT CASE WHEN a.passages_indexed = 1 THEN a.last_sequence ELSE COALESCE((SELECT MAX(p.sequence)"
    " FROM passages p WHERE p.account = $1 AND p.user_id = $2 AND p.session_id = $3"
    " AND p.sequence >= a.first_sequence AND p.sequence <= a.last_sequence), 0) END AS made"
    " FROM archives a WHERE a.account = $1 AND a.user_id = $2 AND a.session_id = $3 AND a.archive_index = $5"
    " AND a.task_id = $4"
)
"""Reads up to which message the passages of an archive are made."""

# The name of the model for `dense_next` stays: the row waits for that vector too.
_WITHOUT_VECTORS: Final = "dense = NULL, dense_model = '', dense_next = NULL"

REWRITE_PASSAGE = (
    f"UPDATE passages SET content = $6, sparse = $7, {_WITHOUT_VECTORS} WHERE {_OF_SESSION} AND task_id = $4"
    " AND sequence = $5"
)
"""Changes the text of a passage, and removes its vectors."""

CAPTIONED_MESSAGE = (
    f"SELECT message_id, peer_id, created_at FROM messages WHERE {_OF_SESSION} AND sequence = $4 AND erased = 0"
)
"""Reads the message of a passage that is missing."""

# A row without a vector names the model that it waits for.
ADD_CAPTIONED_PASSAGE = (
    "INSERT INTO passages (account, user_id, session_id, task_id, sequence, archive_index, message_id, peer_id,"
    " content, sparse, created_at, dense_next_model) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,"
    f" COALESCE((SELECT c.model FROM embedder_changes c WHERE c.slot = 0 AND {CHANGE_IS_OPEN}), ''))"
)
"""Adds the passage of a message that had no words before its image was described."""

FORGET_VECTORS = f"UPDATE passages SET {_WITHOUT_VECTORS} WHERE {_OF_SESSION} AND sequence = $4"
"""Removes the vectors of a passage."""

# Traces

TRACES_OF_REVISIONS = (
    "SELECT j.traceparent FROM commits c"
    " JOIN jobs j ON j.account = c.account AND j.user_id = c.user_id AND j.job_id = c.job_id"
    " WHERE c.account = $1 AND c.user_id = $2 AND c.revision >= $3 AND c.revision <= $4 AND c.job_id <> ''"
    " ORDER BY c.revision LIMIT $5"
)
"""Reads the traces of the jobs that made revisions."""

TRACE_OF_JOB = f"SELECT traceparent FROM jobs WHERE {_OF_USER} AND job_id = $3"
"""Reads the trace of a job."""
