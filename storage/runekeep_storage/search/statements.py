"""The SQL statements of search: what it may not find yet, and what recall has given, one sentence each.

A statement confines itself to one account, unless OVER_ALL_ACCOUNTS names it.
`tests/unit/storage/test_statements.py` checks both.
"""

from typing import Final

from runekeep_storage.drivers.common.statement_lists import SIZE, places, rows
from runekeep_storage.indexing.passages import SLICE
from runekeep_storage.indexing.statements import DENSE, NEXT_OF_NEW, of_known_type
from runekeep_storage.spaces.statements import CHANGE_IS_OPEN, SEARCHED_MODEL, without

OVER_ALL_ACCOUNTS: Final = frozenset[str]()
"""Statements on tables of accounts that read or change rows of any account."""

# What the index lacks

MAX_COUNTED: Final = 10_000
"""Maximum number of rows of a kind that BACKLOG counts. If there are more, it reports this number."""


def _counted(select: str) -> str:
    return f"(SELECT COUNT(*) FROM (SELECT 1 FROM {select} LIMIT {MAX_COUNTED}) counted)"


# Messages of an archive without a passage. For an archive that is indexed in slices, the remaining ones.
_MESSAGES_LEFT: Final = (
    f"CASE WHEN a.last_sequence - a.first_sequence < {SLICE} THEN a.last_sequence - a.first_sequence + 1"
    " ELSE a.last_sequence - COALESCE((SELECT p.sequence FROM passages p WHERE p.account = a.account"
    " AND p.user_id = a.user_id AND p.session_id = a.session_id AND p.sequence >= a.first_sequence"
    " AND p.sequence <= a.last_sequence AND p.task_id = a.task_id ORDER BY p.sequence DESC LIMIT 1),"
    " a.first_sequence - 1) END"
)
# Points that must be written once more. Points of a revision are not counted here, because they are behind the
# watermark.
_UNSENT: Final = "outbox WHERE account = $1 AND user_id = $2 AND takes = 0 AND due_at = 0 AND revision = 0"
_UNSENT_PASSAGES: Final = f"{_UNSENT} AND op = 'passage'"
_UNSENT_MEMORIES: Final = f"{_UNSENT} AND op = 'upsert'"
# Whether the space is searched by the new embedder.
_IS_SWITCHED: Final = (
    "EXISTS (SELECT 1 FROM embedder_changes c JOIN spaces w ON w.embedder_change = c.number"
    f" WHERE c.slot = 0 AND {CHANGE_IS_OPEN} AND w.account = $1 AND w.user_id = $2)"
)
# Whether the embedder is being changed from `none`. A space that is not switched is searched by words alone then.
_IS_FIRST_EMBEDDER: Final = (
    f"EXISTS (SELECT 1 FROM embedder_changes c WHERE c.slot = 0 AND {CHANGE_IS_OPEN} AND c.source_dimension = 0)"
)
_LACKS_SEARCHED: Final = (
    f"(CASE WHEN {_IS_SWITCHED} THEN {NEXT_OF_NEW} WHEN {_IS_FIRST_EMBEDDER} THEN FALSE ELSE {DENSE} END)"
)


def _memories_without(lacking: str) -> str:
    return (
        f"memories WHERE account = $1 AND user_id = $2 AND {lacking} AND deleted = 0 AND rev_to = 0{of_known_type(3)}"
    )


def _passages_without(lacking: str) -> str:
    return f"passages WHERE account = $1 AND user_id = $2 AND {lacking} AND $3 <> ''{without('passages')}"


def _counted_either(if_switched: str, otherwise: str) -> str:
    # Two statements, because each has an index of its own.
    return (
        f"CASE WHEN {_IS_SWITCHED} THEN {_counted(if_switched)} WHEN {_IS_FIRST_EMBEDDER} THEN 0"
        f" ELSE {_counted(otherwise)} END"
    )


_UNDENSE_PASSAGES: Final = _counted_either(_passages_without(NEXT_OF_NEW), _passages_without(DENSE))
_UNDENSE_MEMORIES: Final = _counted_either(_memories_without(NEXT_OF_NEW), _memories_without(DENSE))

BACKLOG = (
    "SELECT w.messages, w.oldest, w.imported_at,"
    f" {_UNDENSE_PASSAGES} + {_counted(_UNSENT_PASSAGES)} AS undense_passages,"
    f" {_UNDENSE_MEMORIES} + {_counted(_UNSENT_MEMORIES)} AS undense_memories"
    f" FROM (SELECT COALESCE(SUM({_MESSAGES_LEFT}), 0) AS messages, MIN(a.created_at) AS oldest,"
    "  COALESCE((SELECT imported_at FROM spaces WHERE account = $1 AND user_id = $2), 0) AS imported_at"
    "  FROM archives a WHERE a.account = $1 AND a.user_id = $2 AND a.passages_indexed = 0) w"
)
"""Reads one row with the columns that `backlog.of_row` needs, for account, user and known types."""

SEARCH_START = (
    f"SELECT i.index_id AS of_store, s.revision, s.indexed_revision, s.index_id, b.*, {SEARCHED_MODEL} AS model"
    f" FROM ({BACKLOG}) b LEFT JOIN search_index i ON i.slot = 0"
    " LEFT JOIN spaces s ON s.account = $1 AND s.user_id = $2"
    " LEFT JOIN embedder_changes c ON c.slot = 0"
)
"""Reads the progress of the index with a space, its backlog, and the model that it is searched by while the embedder is
being changed."""

ARCHIVE_LEFT = (
    "SELECT a.first_sequence, a.last_sequence,"
    f" CASE WHEN a.passages_indexed = 1 THEN 0 ELSE {_MESSAGES_LEFT} END AS unmade"
    " FROM archives a WHERE a.account = $1 AND a.user_id = $2 AND a.session_id = $3 AND a.archive_index = $4"
    " AND a.task_id = $5"
)
"""Reads where the archive of a commit begins and ends, and counts its messages without a passage."""

COUNT_PASSAGES = (
    "SELECT COUNT(*) AS waiting FROM passages WHERE account = $1 AND user_id = $2 AND session_id = $3"
    " AND sequence >= $4 AND sequence <= $5"
)
"""Counts the passages of a range of messages."""

COUNT_WAITING_PASSAGES = (
    "SELECT (SELECT COUNT(*) FROM passages WHERE account = $1 AND user_id = $2 AND session_id = $3"
    " AND sequence >= $4 AND sequence <= $5"
    f" AND {_LACKS_SEARCHED} AND $6 <> '')"
    f" + (SELECT COUNT(*) FROM {_UNSENT_PASSAGES} AND uri = $3 AND version >= $4 AND version <= $5) AS waiting"
)
"""Counts the passages of a range of messages whose vectors are not in the index yet."""

COUNT_VERSIONS = (
    "SELECT COUNT(*) AS waiting FROM memories m"
    " WHERE account = $1 AND user_id = $2 AND rev_to = 0 AND rev_from = $3 AND deleted = 0"
)
"""Counts the versions of a revision that are still current."""

COUNT_WAITING_VERSIONS = (
    f"{COUNT_VERSIONS} AND (({_LACKS_SEARCHED}{of_known_type(4)})"
    f" OR EXISTS (SELECT 1 FROM {_UNSENT_MEMORIES} AND uri = m.uri AND version = m.version))"
)
"""Counts those of them whose vectors are not in the index yet."""

INDEXED_UP_TO = (
    "SELECT last_sequence, archived_sequence, (SELECT MIN(first_sequence) FROM archives WHERE account = $1"
    " AND user_id = $2 AND session_id = $3 AND passages_indexed = 0) AS waiting"
    " FROM sessions WHERE account = $1 AND user_id = $2 AND session_id = $3"
)
"""Reads how far a session has got, and where its first archive without passages begins."""

_MESSAGES_AT: Final = (
    "FROM messages WHERE account = $1 AND user_id = $2 AND session_id = $3"
    f" AND sequence IN ({places(4)}) AND erased = 0{without('messages')}"
)
MESSAGES_AT = f"SELECT * {_MESSAGES_AT}"
"""Reads messages of a session by sequence."""
MESSAGE_IDS_AT = f"SELECT sequence, message_id {_MESSAGES_AT}"
"""Reads their ids alone."""

MESSAGE_AND_ARCHIVED = (
    "SELECT m.*, s.archived_sequence FROM messages m JOIN sessions s ON s.account = m.account"
    " AND s.user_id = m.user_id AND s.session_id = m.session_id"
    " WHERE m.account = $1 AND m.user_id = $2 AND m.session_id = $3 AND m.message_id = $4"
    f"{without('m')}"
)
"""Reads a message by its id, erased or not, and how far its session is archived."""

# What recall has given

SESSION_POSITION = (
    "SELECT last_sequence, archived_sequence FROM sessions WHERE account = $1 AND user_id = $2 AND session_id = $3"
)
"""Reads how far a session has got."""

NEWEST_OF_USER = (
    "SELECT parts FROM messages WHERE account = $1 AND user_id = $2 AND session_id = $3 AND sequence > $4"
    " AND role = 'user' AND erased = 0 ORDER BY sequence DESC LIMIT $5"
)
"""Reads the newest messages in the role of the user after a sequence."""

SHOWN = (
    "SELECT shown, added_at FROM messages WHERE account = $1 AND user_id = $2 AND session_id = $3 AND sequence > $4"
    " AND shown <> ''"
)
"""Reads what messages after a sequence show."""

GIVEN_VERSIONS = (
    "SELECT name, version FROM recalled WHERE account = $1 AND user_id = $2 AND session_id = $3 AND sequence > $4"
    " LIMIT $5"
)
"""Reads names that were given while messages after a sequence were live, with their versions."""

GIVEN = (
    "SELECT name, version, level FROM recalled"
    " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND sequence > $4"
    f" AND name IN ({places(5)})"
)
"""Reads the same for some names, with their levels."""


def _existing(table: str, first: str, second: str) -> str:
    # Two separate lists let the engine use the whole key. Combinations that were not asked for do no harm.
    return (
        f"SELECT {first} AS name, {second} AS number FROM {table} WHERE account = $1 AND user_id = $2"
        f" AND {first} IN ({places(3)}) AND {second} IN ({places(3 + SIZE)})"
    )


MEMORIES_THERE = _existing("memories", "uri", "version")
"""Reads which versions of memories exist."""

PASSAGES_THERE = _existing("passages", "session_id", "sequence") + without("passages")
"""Reads which passages exist."""

FORGET_GIVEN = "DELETE FROM recalled WHERE account = $1 AND user_id = $2 AND session_id = $3 AND sequence <= $4"
"""Deletes what was given up to a sequence."""


def store_given(count: int) -> str:
    """Stores what is given. A deeper level of the same version stays."""
    return (
        "INSERT INTO recalled (account, user_id, session_id, sequence, name, version, level)"
        f" VALUES {rows('($1, $2, $3, $4, ?, ?, ?)', count, 5)}"
        " ON CONFLICT (account, user_id, session_id, name)"
        " DO UPDATE SET version = excluded.version, level = excluded.level, sequence = excluded.sequence"
        " WHERE recalled.version <> excluded.version OR recalled.level <= excluded.level"
    )
