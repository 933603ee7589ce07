"""The SQL statements of deletions and erasures, and the conditions of verification, one sentence each.

A statement confines itself to one account, unless OVER_ALL_ACCOUNTS names it.
`tests/unit/storage/test_statements.py` checks both.
"""

from collections.abc import Iterable
from typing import Final

from runekeep_schemas.turns.window import LAST_TURNS
from runekeep_storage.drivers.common.statement_lists import SIZE, places
from runekeep_storage.tables import BY_NAME

OVER_ALL_ACCOUNTS: Final = frozenset(
    {
        # The server's own loop: it completes the erasures of all accounts.
        "UNVERIFIED",
    }
)
"""Statements on tables of accounts that read or change rows of any account."""

_OF_USER: Final = "account = $1 AND user_id = $2"
_OF_SESSION: Final = f"{_OF_USER} AND session_id = $3"

# Receipts

_ERASURE_COLUMNS: Final = "erasure_id, scope, state, receipt, remains, created_at, verified_at"

STORE_ERASURE = (
    f"INSERT INTO erasures (account, user_id, {_ERASURE_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"
    " ON CONFLICT (account, user_id, erasure_id) DO UPDATE SET state = excluded.state, receipt = excluded.receipt,"
    " remains = excluded.remains, verified_at = excluded.verified_at"
)
"""Adds an erasure, or changes its state and its receipt."""

ERASURE = f"SELECT {_ERASURE_COLUMNS} FROM erasures WHERE {_OF_USER} AND erasure_id = $3"
"""Reads an erasure."""

ERASURES = (
    f"SELECT {_ERASURE_COLUMNS} FROM erasures WHERE {_OF_USER} AND (created_at, erasure_id) < ($3, $4)"
    " ORDER BY created_at DESC, erasure_id DESC LIMIT $5"
)
"""Reads a page of a user's erasures, newest first."""

UNVERIFIED = f"SELECT account, user_id, {_ERASURE_COLUMNS} FROM erasures WHERE verified_at = 0 ORDER BY created_at"
"""Reads the erasures that are not verified yet, oldest first."""

# Scopes

LOSSES = f"SELECT losses FROM spaces WHERE {_OF_USER}"
"""Reads how often data of a space was deleted."""

OUTBOX_NUMBER = f"SELECT outbox_number FROM spaces WHERE {_OF_USER}"
"""Reads the number of a space's last outbox entry."""

ENDS_OF_PEER = (
    f"SELECT session_id, MAX(sequence) AS last FROM messages WHERE {_OF_USER} AND peer_id = $3"
    " AND peer_id <> '' GROUP BY session_id"
)
"""Reads the last message of a peer in each session."""

HAS_MEMORY_OF_PEER = f"SELECT 1 FROM memories WHERE {_OF_USER} AND peer_id = $3 LIMIT 1"
"""Whether a memory is about a peer."""

URIS_OF_PEER = f"SELECT DISTINCT uri FROM memories WHERE {_OF_USER} AND peer_id = $3 LIMIT $4"
"""Reads the URIs of memories about a peer."""

HAS_SESSION = f"SELECT 1 FROM sessions WHERE {_OF_SESSION}"
"""Whether a session exists."""

HAS_TASK = f"SELECT 1 FROM tasks WHERE {_OF_SESSION} LIMIT 1"
"""Whether a session has a task."""

TASKS_OF_SESSION = f"SELECT task_id FROM tasks WHERE {_OF_SESSION} LIMIT $4"
"""Reads tasks of a session."""

TASKS_OF_KIND = f"SELECT task_id FROM tasks WHERE {_OF_SESSION} AND kind = $4"
"""Reads the tasks of a session that are of one kind."""

FIRST_VERSIONS = (
    f"SELECT uri, MIN(version) AS version FROM memory_sources WHERE {_OF_SESSION} GROUP BY uri ORDER BY uri LIMIT $4"
)
"""Reads the first version of each memory that came from a session."""

BLOBS_OF_SESSION = (
    f"SELECT blob FROM tool_outputs WHERE {_OF_SESSION}"
    f" UNION ALL SELECT blob FROM turn_artifacts WHERE {_OF_SESSION} AND blob <> ''"
)
"""Reads the blobs that tool outputs and turn memory of a session name."""

PARTS_WITH_OUTPUTS = f"SELECT parts FROM messages WHERE {_OF_SESSION} AND outputs > 0"
"""Reads the parts of the messages of a session that name blobs."""

# Whole sessions and users

ARCHIVES_OF_SESSION = f"SELECT task_id, first_sequence, last_sequence FROM archives WHERE {_OF_SESSION}"
"""Reads the archives of a session."""

HAS_ARTIFACT = f"SELECT 1 FROM turn_artifacts WHERE {_OF_SESSION} AND kind = $4 LIMIT 1"
"""Whether a session has turn memory of one kind."""

DELETE_RECALLED = f"DELETE FROM recalled WHERE {_OF_USER}"
"""Deletes the record of what Recall gave the sessions of a user."""

COUNT_DELETION = f"UPDATE spaces SET revision = revision + 1, losses = losses + 1 WHERE {_OF_USER}"
"""Raises the revision of a space, and counts a deletion of its data."""

DELETE_SPACE_USAGE = f"DELETE FROM space_usage WHERE {_OF_USER}"
"""Deletes the counts of what a user has stored."""


def delete_with_session(table: str) -> str:
    """Deletes the rows of a session from a table."""
    return f"DELETE FROM {table} WHERE {_OF_SESSION}"


def first_rows(table: str, columns: str, only: str, order: str) -> str:
    """Reads the first rows of a user in a table that meet a condition."""
    return f"SELECT {columns} FROM {table} WHERE {_OF_USER} AND {only} ORDER BY {order} LIMIT $3"


def delete_first_rows(table: str, only: str, key: Iterable[str]) -> str:
    """Deletes the rows of a user in a table that meet a condition, up to a key."""
    names = tuple(key)
    up_to = f"({', '.join(names)}) <= ({places(3, len(names))})"
    return f"DELETE FROM {table} WHERE {_OF_USER} AND {only} AND {up_to}"


# Messages

_MESSAGE_COLUMNS: Final = "session_id, sequence, message_id, turn_id, parts, tokens"
_ANY_TEXT: Final = " OR ".join(f"{name} NOT IN ('', '[]')" for name in BY_NAME["messages"].texts)
_NO_TEXTS: Final = ", ".join(f"{name} = '{'[]' if name == 'parts' else ''}'" for name in BY_NAME["messages"].texts)

MESSAGES_OF_PEER = (
    f"SELECT {_MESSAGE_COLUMNS} FROM messages WHERE {_OF_USER} AND peer_id = $3 AND peer_id <> ''"
    " ORDER BY session_id, sequence LIMIT $4"
)
"""Reads the next messages of a peer, in any session."""

MESSAGES_TO_ERASE = (
    f"SELECT {_MESSAGE_COLUMNS} FROM messages WHERE {_OF_SESSION} AND erased = 0 AND message_id IN ({places(4)})"
    " ORDER BY sequence"
)
"""Reads messages by id that are not erased yet."""

MESSAGE_IDS = f"SELECT message_id FROM messages WHERE {_OF_SESSION} AND message_id IN ({places(4)})"
"""Reads those ids of messages that exist, including erased ones."""

EMPTY_MESSAGES = (
    f"UPDATE messages SET erased = 1, outputs = 0, tokens = 0, {_NO_TEXTS}"
    f" WHERE {_OF_SESSION} AND sequence IN ({places(4)})"
)
"""Removes all texts of messages."""

ARCHIVED_SEQUENCE = f"SELECT archived_sequence FROM sessions WHERE {_OF_SESSION}"
"""Reads the last archived message of a session."""

SUBTRACT_LIVE_TOKENS = (
    # If no live message is left that says something, nothing waits to be committed.
    "UPDATE sessions SET live_tokens = live_tokens - $4, idle_at = CASE WHEN EXISTS (SELECT 1 FROM messages m"
    " WHERE m.account = $1 AND m.user_id = $2 AND m.session_id = $3 AND m.sequence > $5 AND m.erased = 0)"
    f" THEN idle_at ELSE 0 END WHERE {_OF_SESSION}"
)
"""Subtracts the tokens of erased messages from those of a session that are not archived."""

HAS_MESSAGE_BETWEEN = (
    f"SELECT 1 FROM messages WHERE {_OF_SESSION} AND sequence >= $4 AND sequence <= $5 AND erased = 0 LIMIT 1"
)
"""Whether a range of messages has one that is not erased."""

HAS_OPEN_JOB = f"SELECT 1 FROM jobs WHERE {_OF_USER} AND job_id = $3 AND state IN ('pending', 'leased')"
"""Whether a task has a job that is pending or leased."""

DELETE_OUTPUT = f"DELETE FROM tool_outputs WHERE {_OF_SESSION} AND tool_id = $4 AND blob = $5"
"""Deletes the output of a tool call if it is still stored in a blob."""

PASSAGES = f"SELECT sequence, task_id FROM passages WHERE {_OF_SESSION} AND sequence IN ({places(4)})"
"""Reads the passages of messages."""

DELETE_VECTORS_OF_PASSAGES = (
    "UPDATE passages SET dense = NULL, dense_model = '', dense_next = NULL"
    f" WHERE {_OF_SESSION} AND sequence IN ({places(4)})"
)
"""Deletes the vectors of passages."""


def delete_in_session(table: str, column: str) -> str:
    """Deletes the rows of a session from a table by the values of a column."""
    return f"DELETE FROM {table} WHERE {_OF_SESSION} AND {column} IN ({places(4)})"


# Messages that show memories

_MESSAGE: Final = f"{_OF_SESSION} AND sequence = $4"

SHOWN = f"SELECT session_id, sequence, shown FROM messages WHERE {_OF_USER} AND shown <> ''"
"""Reads which memories the messages of a user show."""

MESSAGE_PARTS = f"SELECT parts, tokens FROM messages WHERE {_MESSAGE}"
"""Reads the parts of a message."""

SET_MESSAGE_PARTS = f"UPDATE messages SET parts = $5, tokens = $6, shown = $7 WHERE {_MESSAGE}"
"""Replaces the parts of a message."""

SUBTRACT_TOKENS_OF_MESSAGE = (
    f"UPDATE sessions SET live_tokens = live_tokens - $5 WHERE {_OF_SESSION} AND archived_sequence < $4"
)
"""Subtracts the tokens that a message has lost, if it is not archived."""

# Memories

_VERSIONS: Final = f"SELECT * FROM memories WHERE {_OF_USER} AND uri = $3 AND version"
_OF_VERSIONS: Final = f"{_OF_USER} AND uri = $3 AND version >= $4 AND version <= $5"

VERSIONS_FROM = f"{_VERSIONS} >= $4 ORDER BY version"
"""Reads the versions of a memory from one on."""

VERSION_BEFORE = f"{_VERSIONS} < $4 ORDER BY version DESC LIMIT 1"
"""Reads the last version of a memory before one."""

ARCHIVE_OF_REVISION = f"SELECT session_id, archive_index FROM commits WHERE {_OF_USER} AND revision = $3"
"""Reads the archive whose commit made a revision."""

DELETE_VERSIONS = f"DELETE FROM memories WHERE {_OF_VERSIONS}"
"""Deletes versions of a memory."""

DELETE_UPSERTS = f"DELETE FROM outbox WHERE {_OF_VERSIONS} AND op = 'upsert'"
"""Deletes the entries that would write versions of a memory to the index."""

# What archives and tasks say

_ARCHIVE: Final = f"{_OF_SESSION} AND archive_index = $4"
_BETWEEN: Final = f"{_OF_SESSION} AND last_sequence >= $4 AND first_sequence <= $5"
_OF_TASKS: Final = f"{_OF_USER} AND task_id IN ({places(3)})"
_AFTER_TASKS: Final = 3 + SIZE
"""Number of the first parameter after those of `_OF_TASKS`."""
_KEPT: Final = {"task_events": " AND kind <> 'state'"}
"""Conditions on rows with texts, by table: events of other kinds have none."""

ARCHIVES_BETWEEN = (
    f"SELECT archive_index, task_id, first_sequence, last_sequence FROM archives WHERE {_BETWEEN}"
    " ORDER BY archive_index"
)
"""Reads the archives that overlap a range of messages."""

TASKS_BETWEEN = f"SELECT task_id FROM archives WHERE {_BETWEEN}"
"""Reads the tasks of the archives that overlap a range of messages."""

DIFF = f"SELECT task_id, diff FROM archives WHERE {_ARCHIVE}"
"""Reads the diff of an archive, and its task."""


def set_diff(is_emptied: bool) -> str:
    """Replaces the diff of an archive, and its views if `is_emptied`."""
    return f"UPDATE archives SET diff = $5{', abstract = $6, overview = $6' if is_emptied else ''} WHERE {_ARCHIVE}"


def texts_of_tasks(table: str, column: str) -> str:
    """Reads the different texts of tasks in a column."""
    return f"SELECT DISTINCT {column} AS text FROM {table} WHERE {_OF_TASKS}{_KEPT.get(table, '')}"


def replace_text(table: str, column: str) -> str:
    """Replaces a text of tasks in a column by another one."""
    return (
        f"UPDATE {table} SET {column} = ${_AFTER_TASKS + 1}"
        f" WHERE {_OF_TASKS}{_KEPT.get(table, '')} AND {column} = ${_AFTER_TASKS}"
    )


FORGET_FAILURES = (
    f"UPDATE jobs SET failures = '[]', repair = '' WHERE {_OF_USER} AND job_id IN ({places(3)})"
    " AND (failures <> '[]' OR repair <> '')"
)
"""Removes what the next attempt of jobs would be told about earlier ones."""


def delete_with_tasks(table: str) -> str:
    """Deletes the rows of tasks from a table."""
    return f"DELETE FROM {table} WHERE {_OF_TASKS}"


PROPOSALS_LIKE = (
    f"SELECT task_id, operations FROM proposals WHERE {_OF_USER} AND operations LIKE $3 ESCAPE '!' ORDER BY task_id"
)
"""Finds the proposals about a peer, and more: SQLite's LIKE ignores case, and a text may quote such a name."""

READERS_SINCE = (
    f"SELECT task_id FROM extraction_records WHERE {_OF_USER} AND base_revision >= $3"
    f" UNION SELECT task_id FROM proposals WHERE {_OF_USER} AND revision >= $3"
)
"""Reads the tasks whose attempts, or whose reviewers, may have read a revision."""


def delete_with_memories(table: str) -> str:
    """Deletes the rows that name memories from a table."""
    return f"DELETE FROM {table} WHERE {_OF_USER} AND uri IN ({places(3)})"


RESULTS_WITH_URIS = f"SELECT task_id, result FROM tasks WHERE {_OF_USER} AND result LIKE '%://%'"
"""Reads the results of tasks that name a URI."""

SET_RESULT = f"UPDATE tasks SET result = $4 WHERE {_OF_USER} AND task_id = $3"
"""Replaces the result of a task."""

# Turns

_TURN: Final = f"{_OF_SESSION} AND turn_id = $4"
_ARTIFACTS: Final = "SELECT kind, name, sequence, text FROM turn_artifacts"
_ENDS_OF_TURN: Final = f"SELECT sequence, created_at FROM messages WHERE {_TURN} AND turn_id <> ''"

ARTIFACTS_OF_TURN = (
    f"{_ARTIFACTS} WHERE {_OF_SESSION} AND kind = $5 AND name = $4"
    f" UNION ALL {_ARTIFACTS} WHERE {_TURN} AND origin <> ''"
)
"""Reads the fingerprint of a turn, and what was said in it about other turns."""

ARTIFACTS_OF_KINDS = f"{_ARTIFACTS} WHERE {_OF_SESSION} AND kind IN ($4, $5)"
"""Reads the artifacts of a session that are of two kinds."""


def delete_artifact(table: str) -> str:
    """Deletes the rows of an artifact from a table."""
    return f"DELETE FROM {table} WHERE {_OF_SESSION} AND sequence = $4 AND kind = $5 AND name = $6"


RANGE_OF_TURN = f"SELECT sequence, last_sequence FROM turns WHERE {_TURN}"
"""Reads the first and the last message of a turn."""

TURNS_AFTER = f"SELECT turn_id FROM turns WHERE {_OF_SESSION} AND sequence > $4 ORDER BY sequence LIMIT {LAST_TURNS}"
"""Reads the turns after one whose workers were shown it."""

JOBS_OF_LANES = f"SELECT job_id FROM jobs WHERE {_OF_USER} AND lane IN ({places(3)})"
"""Reads the jobs of lanes."""

JOBS_OF_LANE = f"SELECT job_id, state FROM jobs WHERE {_OF_USER} AND lane = $3"
"""Reads the jobs of a lane with their states."""

FIRST_OF_TURN = f"{_ENDS_OF_TURN} ORDER BY sequence LIMIT 1"
"""Reads the first message of a turn that is left."""

LAST_OF_TURN = f"{_ENDS_OF_TURN} ORDER BY sequence DESC LIMIT 1"
"""Reads the last message of a turn that is left."""

DELETE_TURN = f"DELETE FROM turns WHERE {_TURN}"
"""Deletes a turn."""

SHORTEN_TURN = (
    f"UPDATE turns SET sequence = $5, started_at = $6, last_sequence = $7, ended_at = $8, summary = '' WHERE {_TURN}"
)
"""Limits a turn to the messages that are left, and deletes its summary."""

RESET_COVERAGE = f"UPDATE sessions SET covered_version = 0, covered_at = 0 WHERE {_OF_SESSION}"
"""Lets all fingerprints of a session be folded again."""

DELETE_TITLE = f"UPDATE sessions SET title = '' WHERE {_OF_SESSION} AND title = $4"
"""Deletes the title of a session if it is a given one."""

# Counts: statements of `count` take a condition, whose parameters begin with $3


def count(table: str, only: str) -> str:
    """Counts the rows of a user in a table that meet a condition."""
    return f"SELECT COUNT(*) AS n FROM {table} WHERE {_OF_USER} AND {only}"


def is_in_session(only: str) -> str:
    """Rows of the session $3 that meet a condition."""
    return f"session_id = $3 AND {only}"


IS_NOT_VOID: Final = "digest <> ''"
"""Responses that are not voided."""
IS_IMPORTED_SINCE: Final = "imported_at > $3"
"""Spaces that were imported after a time."""

# What verification looks for. $3 is the time of the erasure, $4 a session

HAS_NO_SESSION: Final = (
    "session_id NOT IN (SELECT s.session_id FROM sessions s WHERE s.account = $1 AND s.user_id = $2"
    " UNION ALL SELECT l.session_id FROM leftovers l WHERE l.account = $1 AND l.user_id = $2)"
)
"""Rows of sessions that do not exist, and whose deletion has ended."""


def has_no_task(column: str) -> str:
    """Rows of tasks that do not exist."""
    return f"{column} NOT IN (SELECT t.task_id FROM tasks t WHERE t.account = $1 AND t.user_id = $2)"


IS_OLDER: Final = "created_at < $3"
"""Rows from before the erasure."""
IS_OLDER_IN_SESSION: Final = f"{IS_OLDER} AND session_id = $4"
"""Rows of a session from before the erasure."""
IS_UP_TO_REVISION: Final = "revision <= $3"
"""Revisions up to one."""
IS_ERASED_WITH_CONTENT: Final = f"erased = 1 AND (outputs <> 0 OR {_ANY_TEXT})"
"""Erased messages that have content."""
IS_PASSAGE_OF_ERASED: Final = (
    "EXISTS (SELECT 1 FROM messages m WHERE m.account = $1 AND m.user_id = $2 AND m.session_id ="
    " passages.session_id AND m.sequence = passages.sequence AND m.erased = 1)"
)
"""Passages of erased messages."""
IS_STALE_SOURCE: Final = (
    "(NOT EXISTS (SELECT 1 FROM memories v WHERE v.account = $1 AND v.user_id = $2 AND v.uri = memory_sources.uri)"
    " OR EXISTS (SELECT 1 FROM messages m WHERE m.account = $1 AND m.user_id = $2"
    " AND m.session_id = memory_sources.session_id AND m.message_id = memory_sources.message_id AND m.erased = 1)"
    " OR memory_sources.erased < (SELECT COUNT(*) FROM messages m, sessions x WHERE m.account = $1"
    " AND m.user_id = $2 AND m.session_id = memory_sources.session_id"
    " AND m.sequence >= memory_sources.first_sequence AND m.sequence <= memory_sources.last_sequence"
    " AND m.erased = 1 AND x.account = $1 AND x.user_id = $2"
    " AND x.session_id = m.session_id AND x.created_at = memory_sources.session_created_at))"
)
"""Sources of memories that do not exist, and runs of messages of which one was erased after the run was written."""
IS_OLDER_RESPONSE: Final = f"{IS_NOT_VOID} AND {IS_OLDER} AND method <> $4 AND method <> $5"
"""Responses from before the erasure, except those of two methods."""
IS_STALE_UPSERT: Final = (
    "op = 'upsert' AND NOT EXISTS (SELECT 1 FROM memories v WHERE v.account = $1 AND v.user_id = $2"
    " AND v.uri = outbox.uri AND v.version = outbox.version)"
)
"""Entries of the outbox that write versions that do not exist."""
HAS_VERSIONS: Final = "diff LIKE '%\"version\"%'"
"""Archives whose diff names a version."""
IS_OLDER_SUMMARY: Final = f"(abstract <> '' OR overview <> '') AND done_at < $3 AND task_id IN ({places(4)})"
"""Archives of tasks that were summarized before the erasure."""
IS_OLDER_RECORD: Final = f"ended_at < $3 AND task_id IN ({places(4)})"
"""Attempts at tasks from before the erasure."""
IS_OLDER_PROPOSAL: Final = f"{IS_OLDER} AND task_id IN ({places(4)})"
"""Proposals of tasks from before the erasure."""
WAS_WRITTEN_UP_TO: Final = "rev_from <= $5"
"""Versions of memories up to a revision."""
IS_OLDER_IMAGE: Final = f"{IS_OLDER_IN_SESSION} AND digest IN ({places(5)})"
"""Descriptions of images from before the erasure."""
IS_OLDER_ARTIFACT: Final = f"updated_at < $3 AND session_id = $4 AND turn_id IN ({places(5)})"
"""Artifacts of turns from before the erasure."""
IS_OLDER_TURN_RECORD: Final = (
    "ended_at < $3 AND task_id IN (SELECT t.task_id FROM tasks t WHERE t.account = $1 AND t.user_id = $2"
    f" AND t.session_id = $4 AND t.turn_id IN ({places(5)}))"
)
"""Attempts from before the erasure whose tasks are about turns."""
_SESSION_WAS_THERE: Final = (
    "session_id = $4 AND EXISTS (SELECT 1 FROM sessions s WHERE s.account = $1 AND s.user_id = $2"
    " AND s.session_id = $4 AND s.created_at < $3)"
)
IS_OF_PEER: Final = f"{_SESSION_WAS_THERE} AND peer_id = $5 AND peer_id <> '' AND sequence <= $6"
"""Messages of a peer, up to one, of a session that existed at the erasure."""
IS_NOT_ERASED: Final = f"erased = 0 AND {_SESSION_WAS_THERE} AND message_id IN ({places(5)})"
"""Messages by id that are not erased, of a session that existed at the erasure."""


def rows_after(table: str, key: Iterable[str], columns: str, only: str, limit: int) -> str:
    """Reads the next rows of a user in a table that meet a condition, after a key of a text and a number."""
    names = ", ".join(key)
    return (
        f"SELECT {names}, {columns} FROM {table} WHERE {_OF_USER}"
        f" AND ({names}) > ($3, $4) AND {only} ORDER BY {names} LIMIT {limit}"
    )


HAS_VERSION = f"SELECT 1 FROM memories WHERE {_OF_USER} AND uri = $3 AND version = $4"
"""Whether a version of a memory exists."""


def missing_memories(table: str) -> str:
    """Reads the URIs in a table whose memories do not exist."""
    return (
        f"SELECT DISTINCT t.uri FROM {table} t WHERE t.account = $1 AND t.user_id = $2 AND NOT EXISTS ("
        " SELECT 1 FROM memories v WHERE v.account = $1 AND v.user_id = $2 AND v.uri = t.uri)"
    )


SHOWN_BEFORE = f"SELECT shown FROM messages WHERE {_OF_USER} AND shown <> '' AND added_at < $3"
"""Reads which memories the messages from before a time show."""

PEERS = f"SELECT DISTINCT peer_id FROM messages WHERE {_OF_USER} AND peer_id <> ''"
"""Reads the peers of a user's messages."""
