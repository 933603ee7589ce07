"""The SQL statements of memories, their revisions and origins, and of the document tree, one sentence each.

A statement confines itself to one account, unless OVER_ALL_ACCOUNTS names it.
`tests/unit/storage/test_statements.py` checks both.
"""

from functools import cache
from typing import Final

from runekeep_schemas.turns.stored import BUCKET
from runekeep_storage.drivers.common.statement_lists import SIZE, by_keys, places, rows

OVER_ALL_ACCOUNTS: Final = frozenset[str]()
"""Statements on tables of accounts that read or change rows of any account."""

# Memories: row `m`

_USES: Final = (
    # A subquery, not a join: for a join, PostgreSQL may read all counts of the user to answer for a few memories.
    "COALESCE((SELECT c.uses FROM active_counts c WHERE c.account = m.account AND c.user_id = m.user_id"
    " AND c.uri = m.uri), 0)"
)
COLUMNS: Final = (
    "m.uri, m.version, m.memory_type, m.peer_id, m.fields, m.content, m.abstract, m.overview, m.sources, m.extractor,"
    " m.deleted, m.rev_from, m.rev_to, m.created_at, m.updated_at,"
    f" m.happened_at, m.tags, {_USES} AS active_count"
)
"""Columns that `memories.memory` needs."""
_OUTLINE_COLUMNS: Final = COLUMNS.replace(
    "m.fields, m.content, m.abstract, m.overview", "'{}' AS fields, '' AS content, '' AS abstract, '' AS overview"
)
"""COLUMNS without the texts, each of which may be megabytes long."""
_LISTED: Final = f"m.uri, m.memory_type, m.abstract, m.version, m.updated_at, {_USES} AS uses"
"""The columns of `records.Listed`."""
STORED_BYTES: Final = (
    "octet_length(m.content) + octet_length(m.fields) + octet_length(m.abstract) + octet_length(m.overview)"
    " + octet_length(m.sources)"
)
"""Expression for the approximate number of bytes that `memories.memory` reads."""
ALIVE_AT: Final = " AND m.deleted = 0 AND +m.rev_from <= $3 AND (+m.rev_to = 0 OR +m.rev_to > $3)"
"""Condition to append: the version is alive at revision $3.

The unary plus keeps engines from using an index on the revisions: half of a space is older than a typical revision, and
SQLite would read that half instead of looking up a list of URIs.
"""
_FROM: Final = " FROM memories m WHERE m.account = $1 AND m.user_id = $2"


def _alive(is_latest: bool, place: int) -> str:
    """Returns a condition to append: the version is alive at the revision of the parameter at `place`. For the newest
    revision there is no parameter, and the condition matches that of the index of current versions."""
    return " AND m.rev_to = 0" if is_latest else ALIVE_AT.replace("$3", f"${place}")


# Selects keys first, because the index of current versions contains them. For more columns SQLite would rather read all
# versions ever written.
_KEYS: Final = f"SELECT m.account, m.user_id, m.uri, m.version{_FROM}"


def _of_keys(keys: str) -> str:
    """Returns the FROM clause for memories whose keys the statement `keys` selects."""
    return (
        f"FROM ({keys}) k JOIN memories m ON m.account = k.account AND m.user_id = k.user_id AND m.uri = k.uri"
        " AND m.version = k.version"
    )


VERSION = f"SELECT {COLUMNS}{_FROM} AND m.uri = $3 AND m.version = $4"
"""Reads one version of a memory."""

VERSION_ALIVE = f"SELECT {COLUMNS}{_FROM}{ALIVE_AT} AND m.uri = $4"
"""Reads the version of a memory that is alive at a revision."""

VERSION_ALIVE_AND_NEWEST = (
    f"SELECT n.newest, {COLUMNS} FROM (SELECT COALESCE(MAX(version), 0) AS newest FROM memories"
    " WHERE account = $1 AND user_id = $2 AND uri = $4) n LEFT JOIN memories m"
    f" ON m.account = $1 AND m.user_id = $2{ALIVE_AT} AND m.uri = $4"
)
"""Reads the same, and the number of the memory's newest version."""

NEWEST_VERSION = (
    "SELECT COALESCE(MAX(version), 0) AS version FROM memories WHERE account = $1 AND user_id = $2 AND uri = $3"
)
"""Reads the number of a memory's newest version, deletes included."""

CURRENT_VERSION = "SELECT version FROM memories WHERE account = $1 AND user_id = $2 AND uri = $3 AND rev_to = 0"
"""Reads the number of a memory's current version."""

SIZES_OF_VERSIONS = (
    f"SELECT m.version, {STORED_BYTES} AS size{_FROM} AND m.uri = $3 AND m.version < $4"
    " ORDER BY m.version DESC LIMIT $5"
)
"""Reads the sizes of versions of a memory, newest first."""

VERSIONS = f"SELECT {COLUMNS}{_FROM} AND m.uri = $3 AND m.version < $4 AND m.version >= $5 ORDER BY m.version DESC"
"""Reads versions of a memory, newest first."""


@cache
def versions_alive(columns: str) -> str:
    """Reads columns of given versions that are alive at a revision."""
    return f"SELECT {columns}{_FROM}{ALIVE_AT} AND m.uri IN ({places(4)}) AND m.version IN ({places(4 + SIZE)})"


BYTES_OF_CURRENT = (
    f"SELECT COALESCE(SUM({STORED_BYTES}), 0) AS size{_FROM} AND m.rev_to = 0 AND m.deleted = 0"
    f" AND m.uri IN ({places(3)})"
)
"""Sums the sizes of current memories."""

_VECTOR_COLUMNS: Final = "m.dense, m.dense_model, m.dense_next, m.dense_next_model"
_BESIDE_INDEX: Final = f"SELECT {_OUTLINE_COLUMNS}, {_VECTOR_COLUMNS}, m.sparse{_FROM} AND m.deleted = 0"
CURRENT_BESIDE_INDEX = f"{_BESIDE_INDEX} AND m.rev_to = 0 AND m.rev_from <= $3 AND m.rev_from > $4 LIMIT $5"
"""Reads current versions that an index may lack."""

# The unary plus keeps SQLite from the index by origin. Behind the index that would read the whole space.
ENDED_BESIDE_INDEX = (
    f"{_BESIDE_INDEX} AND m.rev_to > $3 AND m.rev_to <= $4 AND +m.rev_from <= $3 AND +m.rev_from > $5 LIMIT $6"
)
"""Reads superseded versions that an index may lack."""


@cache
def listing(is_latest: bool) -> str:
    """Reads directory entries for the memories between two URIs, by URI."""
    keys = f"{_KEYS} AND m.uri > $3 AND m.uri < $4{_alive(is_latest, 6)} ORDER BY m.uri LIMIT $5"
    return f"SELECT {_LISTED} {_of_keys(keys)} ORDER BY m.uri"


@cache
def files(is_latest: bool) -> str:
    """Reads the type, the fields and the content of memories."""
    keys = f"{_KEYS} AND m.uri IN ({places(3)}){_alive(is_latest, 3 + SIZE)}"
    return f"SELECT m.uri, m.memory_type, m.fields, m.content {_of_keys(keys)}"


EXISTING = f"SELECT m.uri{_FROM} AND m.uri IN ({places(3)}) AND m.rev_to = 0 AND m.deleted = 0"
"""Reads which memories exist."""


@cache
def last_change(is_latest: bool) -> str:
    """Reads when a memory between two URIs was last changed."""
    return (
        f"SELECT COALESCE(MAX(m.updated_at), 0) AS changed{_FROM} AND m.uri > $3 AND m.uri < $4{_alive(is_latest, 5)}"
    )


ACTIVE_COUNTS = f"SELECT uri, uses FROM active_counts WHERE account = $1 AND user_id = $2 AND uri IN ({places(3)})"
"""Reads how often memories were used."""

ADD_USE = (
    "INSERT INTO active_counts (account, user_id, uri, uses) VALUES ($1, $2, $3, 1)"
    " ON CONFLICT (account, user_id, uri) DO UPDATE SET uses = active_counts.uses + 1"
)
"""Counts one more use of a memory."""

# Directories of memories


def _directory(row: str) -> str:
    """Returns an expression for the directory of a row's URI, with its trailing slash. It must match the expression in
    the indexes literally."""
    return f"rtrim({row}uri, replace({row}uri, '/', ''))"


def _name(row: str) -> str:
    """Returns an expression for the name of a URI in its directory. It must match the expression in the indexes
    literally."""
    return f"substr({row}uri, length({_directory(row)}) + 1)"


def _first_directory(condition: str) -> str:
    return (
        f"SELECT {_directory('m.')}{_FROM} AND m.rev_to = 0 AND {_directory('m.')} {condition}"
        f" AND {_directory('m.')} < $4 ORDER BY {_directory('m.')} LIMIT 1"
    )


# Steps from one directory to the next by the index, however many memories lie between them.
DIRECTORIES = (
    f"WITH RECURSIVE walk (step, directory) AS (SELECT 1, ({_first_directory('>= $3')})"
    f" UNION ALL SELECT w.step + 1, ({_first_directory('> w.directory')}) FROM walk w"
    " WHERE w.directory IS NOT NULL AND w.step < $5)"
    " SELECT directory FROM walk WHERE directory IS NOT NULL ORDER BY step"
)
"""Reads the first directories between two URIs that directly hold memories."""

LEADING_DIRECTORIES: Final = 8
"""Directories that `leading` takes."""


NEWEST_OF_TYPE = (
    f"SELECT m.uri, m.fields, m.abstract, m.happened_at{_FROM} AND m.rev_to = 0 AND {_directory('m.')} = $3"
    " AND m.deleted = 0 AND m.memory_type = $4 AND octet_length(m.fields) + octet_length(m.abstract) <= $5"
    f" ORDER BY m.updated_at DESC, {_name('m.')} LIMIT $6"
)
"""Reads the memories of a directory and a type that changed last, without those whose fields and abstract have too many
bytes."""


@cache
def leading(each: int) -> str:
    """Reads the newest and the most used memories of directories, `each` of both."""
    parts = []
    for place in range(3, 3 + LEADING_DIRECTORIES):
        parts.append(
            f"SELECT * FROM (SELECT {_LISTED}{_FROM} AND m.rev_to = 0"
            f" AND {_directory('m.')} = ${place} ORDER BY m.updated_at DESC, {_name('m.')}"
            f" LIMIT {each}) newest_{place}"
        )
        parts.append(
            f"SELECT {_LISTED} FROM (SELECT a.account, a.user_id, a.uri FROM active_counts a WHERE a.account = $1"
            f" AND a.user_id = $2 AND {_directory('a.')} = ${place} ORDER BY a.uses DESC, {_name('a.')} LIMIT {each})"
            f" used_{place} JOIN memories m ON m.account = used_{place}.account AND m.user_id = used_{place}.user_id"
            f" AND m.uri = used_{place}.uri AND m.rev_to = 0"
        )
    return " UNION ALL ".join(parts)


def _count(condition: str) -> str:
    return f"SELECT COUNT(*) AS number FROM (SELECT 1 AS one{_FROM} AND m.rev_to = 0 AND {condition} LIMIT $4) c"


COUNT_BELOW = _count("m.uri > $3 || '/' AND m.uri < $3 || '0'")
"""Counts memories below a directory, at any depth."""

# The ORDER BY matches the index. Without it SQLite chooses another index, which reads all memories of the user.
COUNT_WITHIN = _count(f"{_directory('m.')} = $3 || '/' ORDER BY m.updated_at DESC, {_name('m.')}")
"""Counts memories directly in a directory."""

# Revisions

NEXT_REVISION = (
    "UPDATE spaces SET revision = revision + 1, outbox_number = outbox_number + $3"
    " WHERE account = $1 AND user_id = $2 RETURNING revision, outbox_number"
)
"""Takes the next revision of a space, and numbers for its outbox entries."""

ADD_REVISION = (
    "INSERT INTO commits (account, user_id, revision, origin, job_id, session_id, archive_index, rolled_back,"
    " created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"
)
"""Stores the origin of a revision."""

REVISION_MADE_AT = (
    "SELECT created_at FROM commits WHERE account = $1 AND user_id = $2 AND revision <= $3"
    " ORDER BY revision DESC LIMIT 1"
)
"""Reads when the newest revision up to a number was made."""


@cache
def versions_of(count: int) -> str:
    """Reads the numbers of the current and of the newest version of memories."""
    # Two index lookups for each memory, because a memory may have any number of versions.
    return (
        "SELECT column1 AS uri, (SELECT m.version FROM memories m"
        " WHERE m.account = $1 AND m.user_id = $2 AND m.uri = column1 AND m.rev_to = 0) AS version,"
        " (SELECT MAX(m.version) FROM memories m"
        " WHERE m.account = $1 AND m.user_id = $2 AND m.uri = column1) AS newest"
        f" FROM (VALUES {rows('(CAST(? AS TEXT))', count, 3)}) AS k"
    )


_VERSION_COLUMNS: Final = (
    "uri, version, memory_type, peer_id, fields, content, abstract, overview, sources, deleted, rev_to, dense,"
    " dense_model, dense_next, dense_next_model, sparse, happened_at, tags, created_at"
)
"""Columns whose values differ among the versions of a revision, in the order of `revisions._own`."""


@cache
def insert_versions(count: int) -> str:
    """Adds versions of one revision."""
    row = f"($1, $2, $3, $4, $5{', ?' * (_VERSION_COLUMNS.count(',') + 1)})"
    return (
        f"INSERT INTO memories (account, user_id, rev_from, extractor, updated_at, {_VERSION_COLUMNS})"
        f" VALUES {rows(row, count, 6)}"
    )


@cache
def end_versions(count: int) -> str:
    """Ends current versions at a revision, and drops the vectors of their lines."""
    # All rows exist, so this only updates. For an UPDATE with a list PostgreSQL may read every memory of the user.
    return (
        f"INSERT INTO memories (account, user_id, rev_to, uri, version) VALUES {rows('($1, $2, $3, ?, ?)', count, 4)}"
        " ON CONFLICT (account, user_id, uri, version) DO UPDATE SET rev_to = excluded.rev_to,"
        " line_vectors = NULL, line_vectors_model = ''"
        " RETURNING uri, created_at, rev_from"
    )


FINISH_ARCHIVE = (
    "UPDATE archives SET state = 'done', abstract = $5, overview = $6, diff = $7, revision = $8, done_at = $9"
    " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND archive_index = $4"
)
"""Stores the summary and the revision of an archive whose commit is done."""

STORE_PLAN = "UPDATE jobs SET plan = $4 WHERE account = $1 AND user_id = $2 AND job_id = $3"
"""Stores with a job about turns what its worker was given."""

# Origins: rows `o` of memory_sources, `x` of sessions

_OF_SESSION_NOW: Final = (
    "o.session_created_at = x.created_at AND x.account = o.account AND x.user_id = o.user_id"
    " AND x.session_id = o.session_id"
)
"""Condition: the sequences of `o` belong to the session `x`."""
_OF_SESSION: Final = "account = $1 AND user_id = $2 AND session_id = $3"


_INTO_ORIGINS: Final = (
    "INSERT INTO memory_sources (account, user_id, session_id, message_id, uri, version, first_sequence,"
    " last_sequence, session_created_at, erased)"
)
_SAME_SESSION: Final = "memory_sources.session_created_at = excluded.session_created_at"
_LONGER: Final = "memory_sources.last_sequence > excluded.last_sequence"
# A conflicting row belongs to an earlier session of the same name or was written by an earlier release. The older
# version wins: an erasure may then delete more than necessary, but never less. Of runs of one session the longer stays.
_ON_CONFLICT: Final = (
    " ON CONFLICT (account, user_id, session_id, message_id, uri) DO UPDATE SET"
    " version = CASE WHEN memory_sources.version < excluded.version"
    " THEN memory_sources.version ELSE excluded.version END,"
    f" erased = CASE WHEN {_SAME_SESSION} AND {_LONGER} THEN memory_sources.erased ELSE excluded.erased END,"
    f" last_sequence = CASE WHEN {_SAME_SESSION} AND {_LONGER}"
    " THEN memory_sources.last_sequence ELSE excluded.last_sequence END,"
    " first_sequence = excluded.first_sequence, session_created_at = excluded.session_created_at"
)


@cache
def insert_origins(count: int) -> str:
    """Stores runs of messages that memories came from."""
    return f"{_INTO_ORIGINS} VALUES {rows('($1, $2, ?, ?, ?, ?, ?, ?, ?, ?)', count, 3)}{_ON_CONFLICT}"


COPY_ORIGINS = (
    f"{_INTO_ORIGINS} SELECT account, user_id, session_id, message_id, $4, CAST($5 AS bigint), first_sequence,"
    " last_sequence, session_created_at, erased FROM memory_sources WHERE account = $1 AND user_id = $2 AND uri = $3"
    f" AND version > 0{_ON_CONFLICT}"
)
"""Stores the messages that any version of a memory came from as those of a version of another memory."""

SESSIONS_CREATED_AT = (
    f"SELECT session_id, created_at FROM sessions WHERE account = $1 AND user_id = $2 AND session_id IN ({places(3)})"
)
"""Reads when sessions were created."""


@cache
def stored_origins(count: int) -> str:
    """Reads the runs that memories came from."""
    of_space = (
        "SELECT uri, session_id, first_sequence, last_sequence, session_created_at FROM memory_sources"
        " WHERE account = $1 AND user_id = $2"
    )
    # Without a range of versions SQLite reads all rows of the user.
    return by_keys(of_space, ("uri",), count, 4, behind=" AND version > 0") + " LIMIT $3"


@cache
def sequences_of_messages(count: int) -> str:
    """Reads the sequences of messages by session and id."""
    of_space = "SELECT session_id, message_id, sequence FROM messages WHERE account = $1 AND user_id = $2"
    return by_keys(of_space, ("session_id", "message_id"), count, 3)


ORIGINS_BETWEEN = (
    "SELECT o.uri, o.version, o.first_sequence, o.last_sequence FROM memory_sources o, sessions x"
    " WHERE o.account = $1 AND o.user_id = $2 AND o.session_id = $3"
    " AND o.first_sequence >= $4 AND o.first_sequence <= $5 AND o.last_sequence >= $6"
    f" AND {_OF_SESSION_NOW}"
)
"""Reads the runs of a session that begin or end in a block and may hold a message of it."""

MEMORIES_OF_MESSAGE = (
    "SELECT n.uri, MIN(n.version) AS version FROM ("
    f" SELECT uri, version FROM memory_sources WHERE {_OF_SESSION} AND message_id = $4 AND uri > $7"
    " UNION ALL SELECT o.uri, o.version FROM memory_sources o, sessions x"
    " WHERE o.account = $1 AND o.user_id = $2 AND o.session_id = $3"
    " AND o.first_sequence >= $5 AND o.first_sequence <= $6 AND o.last_sequence >= $6"
    f" AND {_OF_SESSION_NOW} AND o.uri > $7) n GROUP BY n.uri ORDER BY n.uri LIMIT $8"
)
"""Reads the memories that came from a message, each with its first such version."""

VERSIONS_OF_MESSAGES = f"SELECT uri, version FROM memory_sources WHERE {_OF_SESSION} AND message_id IN ({places(4)})"
"""Reads versions that came from messages, by the id in their rows."""

MESSAGES_OF_VERSIONS = (
    "SELECT DISTINCT o.uri, o.version, o.session_id, COALESCE(m.message_id, o.message_id) AS message_id"
    f" FROM memory_sources o LEFT JOIN sessions x ON {_OF_SESSION_NOW}"
    " LEFT JOIN messages m ON m.account = x.account AND m.user_id = x.user_id AND m.session_id = x.session_id"
    " AND m.sequence >= o.first_sequence AND m.sequence <= o.last_sequence AND m.erased = 0"
    " WHERE o.account = $1 AND o.user_id = $2 AND (o.uri, o.version) >= ($3, $4) AND (o.uri, o.version) <= ($5, $6)"
    " ORDER BY 1, 2, 3, 4"
)
"""Reads the messages that versions of memories came from."""

FORGET_ORIGINS = "DELETE FROM memory_sources WHERE account = $1 AND user_id = $2 AND uri = $3 AND version >= $4"
"""Deletes the origins of a memory from a version on."""

# The document tree

_ARCHIVE_UPDATED: Final = "CASE WHEN a.done_at > 0 THEN a.done_at ELSE a.created_at END"


@cache
def sessions_of_tree(is_one: bool) -> str:
    """Reads sessions as directories, by id; only the one of $5 if `is_one`."""
    return (
        "SELECT s.session_id, s.updated_at, s.compression_index, COALESCE((SELECT a.abstract FROM archives a"
        " WHERE a.account = s.account AND a.user_id = s.user_id AND a.session_id = s.session_id AND a.state = 'done'"
        " ORDER BY a.archive_index DESC LIMIT 1), '') AS abstract,"
        f" COALESCE((SELECT {_ARCHIVE_UPDATED} FROM archives a WHERE a.account = s.account AND a.user_id = s.user_id"
        " AND a.session_id = s.session_id ORDER BY a.archive_index DESC LIMIT 1), 0) AS archived_at,"
        " CASE WHEN EXISTS (SELECT 1 FROM turn_artifacts b WHERE b.account = s.account AND b.user_id = s.user_id"
        f" AND b.session_id = s.session_id AND b.kind = '{BUCKET}') THEN 1 ELSE 0 END AS buckets"
        " FROM sessions s WHERE s.account = $1 AND s.user_id = $2 AND s.session_id > $3"
        f"{' AND s.session_id = $5' if is_one else ''} ORDER BY s.session_id LIMIT $4"
    )


SESSION_NAMES = "SELECT session_id FROM sessions WHERE account = $1 AND user_id = $2 ORDER BY session_id LIMIT $3"
"""Reads the ids of a user's sessions, sorted."""

LAST_ACTIVITY = "SELECT COALESCE(MAX(updated_at), 0) AS active FROM sessions WHERE account = $1 AND user_id = $2"
"""Reads when a session of a user was last changed."""

ARCHIVES_OF_TREE = (
    f"SELECT archive_index, abstract, state, {_ARCHIVE_UPDATED} AS updated_at FROM archives a"
    " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND archive_index >= $4"
    " ORDER BY archive_index LIMIT $5"
)
"""Reads archives as directories, from an index on."""

ARCHIVES_BETWEEN = (
    "SELECT archive_index, first_sequence, last_sequence FROM archives"
    " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND last_sequence >= $4 AND first_sequence <= $5"
    " ORDER BY archive_index"
)
"""Reads where the archives of a range of messages begin and end."""

COUNT_LINES = (
    "SELECT COUNT(*) AS lines FROM messages WHERE account = $1 AND user_id = $2 AND session_id = $3"
    " AND sequence >= $4 AND sequence < $5 AND erased = 0"
)
"""Counts the lines of a message log before a sequence."""

LINES_BEFORE = (
    "SELECT sequence FROM messages WHERE account = $1 AND user_id = $2 AND session_id = $3"
    " AND sequence >= $4 AND sequence < $5 AND erased = 0 ORDER BY sequence DESC LIMIT $6"
)
"""Reads the sequences of lines before a sequence, newest first."""

BUCKETS_FROM = (
    "SELECT name FROM turn_artifacts WHERE account = $1 AND user_id = $2 AND session_id = $3 AND kind = $4"
    " AND name >= $5 ORDER BY name LIMIT $6"
)
"""Reads the names of a session's memory buckets, from one on."""
