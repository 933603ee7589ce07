"""The SQL statements of the history of memories, one sentence each. A row `m` is a version of a memory.

A statement confines itself to one account, unless OVER_ALL_ACCOUNTS names it.
`tests/unit/storage/test_statements.py` checks both.
"""

from functools import cache
from typing import Final

from runekeep_common.times import DAY_US
from runekeep_storage.drivers.common.statement_lists import places
from runekeep_storage.memories.statements import ALIVE_AT, COLUMNS, STORED_BYTES
from runekeep_storage.spaces.statements import without

OVER_ALL_ACCOUNTS: Final = frozenset[str]()
"""Statements on tables of accounts that read or change rows of any account."""

# Revisions


@cache
def revisions(is_of_memory: bool) -> str:
    """Reads a page of revisions, newest first; only those that made or ended a version of the memory $5, if
    `is_of_memory`."""
    which = "revision < $3"
    if is_of_memory:
        of_uri = "FROM memories WHERE account = $1 AND user_id = $2 AND uri = $5"
        # The unary plus keeps engines from reading all revisions in the order of their index. `rev_to` also finds
        # revisions whose version was erased: the version that they ended still exists.
        which = f"+revision < $3 AND revision IN (SELECT rev_from {of_uri} UNION SELECT rev_to {of_uri})"
    return (
        "SELECT revision, origin, job_id, session_id, archive_index, rolled_back, created_at FROM commits"
        f" WHERE account = $1 AND user_id = $2 AND {which}"
        " ORDER BY revision DESC LIMIT $4"
    )


ROLLED_BACK_BY = (
    "SELECT rolled_back, MAX(revision) AS newest FROM commits WHERE account = $1 AND user_id = $2"
    f" AND rolled_back > 0 AND rolled_back IN ({places(3)}) GROUP BY rolled_back"
)
"""Reads the newest revisions that took others back."""

COUNT_MADE = (
    "SELECT m.rev_from, COUNT(*) AS made, SUM(m.deleted) AS deletes,"
    # A version that replaces another begins where that one ends.
    " SUM(CASE WHEN m.deleted = 0 AND m.version > 1 AND EXISTS (SELECT 1 FROM memories b"
    " WHERE b.account = m.account AND b.user_id = m.user_id AND b.uri = m.uri AND b.version = m.version - 1"
    " AND b.rev_to = m.rev_from) THEN 1 ELSE 0 END) AS updates"
    " FROM memories m WHERE m.account = $1 AND m.user_id = $2"
    f" AND m.rev_from IN ({places(3)}) GROUP BY m.rev_from"
)
"""Counts the versions, the deletes and the updates that revisions made."""

COUNT_ENDED = (
    "SELECT m.rev_to, COUNT(*) AS ended FROM memories m WHERE m.account = $1 AND m.user_id = $2"
    f" AND m.rev_to IN ({places(3)}) AND NOT EXISTS (SELECT 1 FROM memories b"
    " WHERE b.account = m.account AND b.user_id = m.user_id AND b.uri = m.uri AND b.version = m.version + 1"
    " AND b.rev_from = m.rev_to) AND m.deleted = 0 GROUP BY m.rev_to"
)
"""Counts the versions that revisions ended without a successor."""

# What each day brought

MAX_COUNTED: Final = 100_000
"""Maximum number of rows that each of the two statements counts: a tenth of a second on one core."""

MESSAGES_BY_DAY = (
    f"SELECT c.at / {DAY_US} AS day, COUNT(*) AS number FROM (SELECT m.added_at AS at FROM sessions s JOIN messages m"
    " ON m.account = s.account AND m.user_id = s.user_id AND m.session_id = s.session_id"
    " WHERE s.account = $1 AND s.user_id = $2 AND s.updated_at >= $3 AND m.added_at >= $3 AND m.erased = 0"
    f" LIMIT {MAX_COUNTED}) c GROUP BY 1"
)
"""Counts the messages that arrived since a time, by day since 1970."""

VERSIONS_BY_DAY = (
    f"SELECT v.at / {DAY_US} AS day, COUNT(*) AS number FROM (SELECT c.created_at AS at FROM commits c JOIN memories m"
    " ON m.account = c.account AND m.user_id = c.user_id AND m.rev_from = c.revision"
    " WHERE c.account = $1 AND c.user_id = $2 AND c.revision > $3 AND c.created_at >= $4"
    f" LIMIT {MAX_COUNTED}) v GROUP BY 1"
)
"""Counts the versions of memories that revisions after one wrote since a time, by day since 1970."""

# What differs between two revisions


@cache
def touched(is_from_first: bool) -> str:
    """Reads URIs in a range whose memories have a version that began or ended between two revisions, by URI.
    `is_from_first`: the earlier revision is 0."""
    if is_from_first:
        # Every version began after revision 0, so the key is read in order until the limit is reached.
        return (
            "SELECT DISTINCT uri FROM memories WHERE account = $1 AND user_id = $2 AND uri > $5 AND uri < $6"
            " AND +rev_from > $3 AND +rev_from <= $4 ORDER BY uri LIMIT $7"
        )
    # `|| ''` keeps planners from the key. They would read the whole space, or a large directory, in key order for a
    # few revisions.
    within = "SELECT uri FROM memories WHERE account = $1 AND user_id = $2 AND (uri || '') > $5 AND (uri || '') < $6"
    return (
        f"WITH made AS MATERIALIZED ({within} AND rev_from > $3 AND rev_from <= $4"
        # A version that ended without a successor was left by an erasure.
        f" UNION ALL {within} AND rev_to > $3 AND rev_to <= $4)"
        " SELECT DISTINCT uri FROM made ORDER BY uri LIMIT $7"
    )


IS_TOUCHED = (
    "SELECT 1 AS found FROM memories WHERE account = $1 AND user_id = $2 AND uri = $3"
    " AND ((+rev_from > $4 AND +rev_from <= $5) OR (+rev_to > $4 AND +rev_to <= $5)) LIMIT 1"
)
"""Whether a version of a memory began or ended between two revisions."""

VERSIONS_ALIVE = (
    f"SELECT {COLUMNS} FROM memories m WHERE m.account = $1 AND m.user_id = $2{ALIVE_AT} AND m.uri IN ({places(4)})"
)
"""Reads the versions of memories that are alive at a revision."""

SIZES_ALIVE = (
    f"SELECT m.uri, {STORED_BYTES} AS size FROM memories m WHERE m.account = $1 AND m.user_id = $2"
    f"{ALIVE_AT} AND m.uri IN ({places(4)})"
)
"""Reads the sizes of the versions of memories that are alive at a revision."""

LAST_DELETES = (
    "SELECT uri, MAX(version) AS version FROM memories WHERE account = $1 AND user_id = $2 AND deleted = 1"
    # For the unary plus see `ALIVE_AT`.
    f" AND +rev_from <= $3 AND uri IN ({places(4)}) GROUP BY uri"
)
"""Reads the last deletes of memories up to a revision."""

# What came from a message

SEQUENCE_OF_MESSAGE = (
    "SELECT sequence FROM messages WHERE account = $1 AND user_id = $2 AND session_id = $3 AND message_id = $4"
    f" AND erased = 0{without('messages')}"
)
"""Reads the sequence of a message by its id."""

VERSION_NAMING = (
    "SELECT version, sources FROM memories WHERE account = $1 AND user_id = $2 AND uri = $3 AND version > $4"
    " AND version < $5 AND sources LIKE $6 ESCAPE '!' ORDER BY version DESC LIMIT 1"
)
"""Reads the newest version of a memory, between two, whose sources are like a pattern."""

# Rollbacks

REVISIONS_OF_SESSION = (
    "SELECT revision FROM commits WHERE account = $1 AND user_id = $2 AND session_id = $3"
    " AND origin IN ('commit', 'proposal') AND created_at >= $4 ORDER BY revision DESC"
)
"""Reads the revisions that commits of a session and their proposals made since a time, newest first."""

ROLLBACKS_SINCE = (
    "SELECT revision, rolled_back FROM commits WHERE account = $1 AND user_id = $2 AND rolled_back > 0"
    " AND revision > $3 ORDER BY revision DESC"
)
"""Reads the rollbacks after a revision with the revisions that they took back, newest first."""

OPEN_COMMITS_OF_SESSION = (
    "SELECT COUNT(*) AS n FROM archives WHERE account = $1 AND user_id = $2 AND session_id = $3 AND state = 'pending'"
)
"""Counts the commits of a session that are not finished."""

_FROM: Final = "FROM memories m WHERE m.account = $1 AND m.user_id = $2"

URIS_OF_REVISION = f"SELECT m.uri {_FROM} AND m.rev_from = $3"
"""Reads the URIs of the memories that a revision wrote."""

VERSIONS_OF_REVISION = f"SELECT {COLUMNS} {_FROM} AND m.rev_from = $3 AND m.uri IN ({places(4)}) ORDER BY m.uri"
"""Reads versions that a revision wrote."""

VERSIONS_ENDED_BY = (
    f"SELECT {COLUMNS}, m.dense, m.dense_model, m.sparse {_FROM} AND m.deleted = 0"
    f" AND m.rev_to = $3 AND m.uri IN ({places(4)})"
)
"""Reads versions that a revision ended, with their vectors."""

NEWEST_VERSIONS = (
    f"SELECT {COLUMNS} {_FROM} AND m.uri IN ({places(3)})"
    " AND m.version = (SELECT MAX(n.version) FROM memories n"
    " WHERE n.account = m.account AND n.user_id = m.user_id AND n.uri = m.uri)"
)
"""Reads the newest versions of memories, deletes included."""

LATER_REVISIONS = f"SELECT m.rev_from {_FROM} AND m.uri = $3 AND m.version > $4 ORDER BY m.version LIMIT $5"
"""Reads the revisions that wrote a memory after a version."""
