"""The SQL statements of sessions, messages, archives and usages, one sentence each.

A statement confines itself to one account, unless OVER_ALL_ACCOUNTS names it.
`tests/unit/storage/test_statements.py` checks both.
"""

from functools import cache
from typing import Final

from runekeep_storage.drivers.common.statement_lists import by_keys, places, rows
from runekeep_storage.spaces.statements import without

# The server's own loop commits idle sessions of all accounts.
OVER_ALL_ACCOUNTS: Final = frozenset({"IDLE_SESSIONS", "NEXT_IDLE_SESSION"})
"""Statements on tables of accounts that read or change rows of any account."""

# Sessions

_SESSION_WITH_SUMMARY = """
SELECT s.session_id, s.title, s.policy, s.compression_index, s.last_sequence, s.archived_sequence, s.created_at,
  s.updated_at, s.auto_commit, s.live_tokens, COALESCE(a.abstract, '') AS abstract, COALESCE(a.overview, '') AS overview
FROM sessions s LEFT JOIN archives a
  ON a.account = s.account AND a.user_id = s.user_id AND a.session_id = s.session_id AND a.archive_index = (
    SELECT MAX(d.archive_index) FROM archives d
    WHERE d.account = s.account AND d.user_id = s.user_id AND d.session_id = s.session_id AND d.state = 'done')
WHERE s.account = $1 AND s.user_id = $2
"""

ADD_SESSION = (
    "INSERT INTO sessions (account, user_id, session_id, title, policy, auto_commit, created_at, updated_at)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $7) ON CONFLICT (account, user_id, session_id) DO NOTHING"
)
"""Adds a session unless there is one of that name."""

SESSION = f"{_SESSION_WITH_SUMMARY} AND s.session_id = $3"
"""Reads a session with the summary of its newest finished archive."""

SESSIONS = (
    f"{_SESSION_WITH_SUMMARY} AND (s.updated_at < $3 OR (s.updated_at = $3 AND s.session_id > $4))"
    " ORDER BY s.updated_at DESC, s.session_id LIMIT $5"
)
"""Reads a page of a user's sessions, latest activity first, with the same summaries."""

SETTINGS_OF_SESSION = (
    "SELECT title, policy, auto_commit, idle_at, said_at, last_sequence - archived_sequence AS live"
    " FROM sessions WHERE account = $1 AND user_id = $2 AND session_id = $3"
)
"""Reads what `update` may change, and how many messages are live."""

UPDATE_SESSION = (
    "UPDATE sessions SET title = $4, policy = $5, auto_commit = $6, idle_at = $7, updated_at = $8"
    " WHERE account = $1 AND user_id = $2 AND session_id = $3"
)
"""Changes the title, the policy and the rules of automatic commits of a session."""


@cache
def positions_of_sessions(count: int) -> str:
    """Reads how far sessions of an account have got, by user and id."""
    select = (
        "SELECT user_id, session_id, last_sequence, archived_sequence, auto_commit, live_tokens, said_at, idle_at"
        " FROM sessions WHERE account = $1"
    )
    return by_keys(select, ("user_id", "session_id"), count, 2)


@cache
def move_sessions(count: int) -> str:
    """Stores how far sessions of an account have got."""
    # An upsert, although all rows exist: for an UPDATE with a join, PostgreSQL may read every session of the account.
    return (
        "INSERT INTO sessions (account, updated_at, user_id, session_id, last_sequence, live_tokens, said_at, idle_at)"
        f" VALUES {rows('($1, $2, ?, ?, ?, ?, ?, ?)', count, 3)} ON CONFLICT (account, user_id, session_id)"
        " DO UPDATE SET last_sequence = excluded.last_sequence, live_tokens = excluded.live_tokens,"
        " said_at = excluded.said_at, idle_at = excluded.idle_at, updated_at = excluded.updated_at"
    )


IDLE_SESSIONS = (
    "SELECT idle_at, account, user_id, session_id FROM sessions WHERE idle_at > 0 AND idle_at <= $1"
    " AND (idle_at, account, user_id, session_id) > ($2, $3, $4, $5)"
    " ORDER BY idle_at, account, user_id, session_id LIMIT $6"
)
"""Reads sessions that have been idle for long enough, in slices."""

NEXT_IDLE_SESSION = "SELECT MIN(idle_at) - $1 AS wait FROM sessions WHERE idle_at > 0 AND idle_at > $1"
"""Reads how long it is until the next session has been idle for long enough."""

IDLE_SINCE = (
    "SELECT idle_at, said_at, auto_commit FROM sessions WHERE account = $1 AND user_id = $2 AND session_id = $3"
)
"""Reads when a session becomes idle, and its rules."""

PUT_OFF_SESSIONS = (
    "UPDATE sessions SET idle_at = $3 WHERE account = $1 AND user_id = $2 AND idle_at > 0 AND idle_at < $3"
)
"""Makes the idle sessions of a user wait until a time."""

PUT_OFF_SESSION = "UPDATE sessions SET idle_at = $4 WHERE account = $1 AND user_id = $2 AND session_id = $3"
"""Makes a session wait until a time; 0: until its next message."""

# Messages


@cache
def insert_messages(count: int) -> str:
    """Adds messages to sessions of an account."""
    return (
        "INSERT INTO messages (account, added_at, user_id, session_id, sequence, message_id, role, peer_id, turn_id,"
        " speaker, tokens, shown, parts, outputs, calls, created_at)"
        f" VALUES {rows('($1, $2, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)', count, 3)}"
    )


@cache
def messages_by_id(count: int) -> str:
    """Reads messages of an account by user, session and id."""
    return by_keys("SELECT * FROM messages WHERE account = $1", ("user_id", "session_id", "message_id"), count, 2)


MESSAGES = (
    "SELECT * FROM messages WHERE account = $1 AND user_id = $2 AND session_id = $3"
    f" AND sequence >= $4 AND sequence <= $5 AND erased = 0{without('messages')}"
    " ORDER BY sequence LIMIT $6"
)
"""Reads messages of a session that are not erased, in order."""

SIZES_OF_MESSAGES = (
    "SELECT sequence, tokens FROM messages WHERE account = $1 AND user_id = $2 AND session_id = $3"
    f" AND sequence >= $4 AND sequence <= $5 AND erased = 0{without('messages')}"
    " ORDER BY sequence LIMIT $6"
)
"""Reads the sizes of messages of a session that are not erased, in order."""

SIZES_OF_NEWEST_MESSAGES = (
    "SELECT sequence, tokens FROM messages WHERE account = $1 AND user_id = $2 AND session_id = $3"
    " AND sequence >= $4 AND sequence <= $5 ORDER BY sequence DESC"
)
"""Reads the sizes of messages of a session, newest first, erased ones too."""

PEERS = (
    "SELECT peer_id FROM messages WHERE account = $1 AND user_id = $2 AND session_id = $3"
    " AND sequence >= $4 AND sequence <= $5 AND peer_id <> '' GROUP BY peer_id ORDER BY MIN(sequence)"
)
"""Reads the peers that sent messages, in order of their first message."""

MESSAGE_NAMES: Final = ("message_id", "peer_id", "turn_id", "speaker")
"""The columns with names of a message, which count as bytes of a context."""

OUTLINES_OF_MESSAGES = (
    f"SELECT sequence, tokens, {', '.join(MESSAGE_NAMES)} FROM messages"
    " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND sequence >= $4 AND sequence < $5"
    " ORDER BY sequence DESC LIMIT $6"
)
"""Reads the sizes and names of messages of a session, newest first."""

CONTEXT_MESSAGES = (
    "SELECT * FROM messages WHERE account = $1 AND user_id = $2 AND session_id = $3"
    " AND sequence >= $4 AND sequence <= $5 AND erased = 0 ORDER BY sequence"
)
"""Reads messages of a context in order."""

COUNT_FROM = "SELECT last_sequence - $4 + 1 AS n FROM sessions WHERE account = $1 AND user_id = $2 AND session_id = $3"
"""Counts the messages of a session from a sequence on, erased ones too."""

COUNT_ERASED = (
    "SELECT COUNT(*) AS n FROM messages m WHERE account = $1 AND user_id = $2 AND session_id = $3 AND erased = 1"
    " AND (sequence >= $4 OR EXISTS (SELECT 1 FROM archives a WHERE a.account = m.account"
    "   AND a.user_id = m.user_id AND a.session_id = m.session_id AND a.state IN ($5, $6)"
    "   AND a.first_sequence <= m.sequence AND a.last_sequence >= m.sequence))"
)
"""Counts erased messages from a sequence on, or in archives of two states."""

_MESSAGE_OF_SESSION: Final = "account = $1 AND user_id = $2 AND session_id = $3 AND erased = 0"
_MAY_HOLD_CALLS: Final = "calls IS NULL AND parts LIKE '%\"tool\"%'"
# As the index `messages_with_calls` has it, which is used only for this exact condition and for `sequence + 0`.
_HOLDS_CALLS: Final = f"calls <> '' OR {_MAY_HOLD_CALLS}"

NAMES_OF_CALLS = (
    f"SELECT sequence, calls, tokens FROM messages WHERE {_MESSAGE_OF_SESSION} AND sequence + 0 > $4"
    f" AND ({_HOLDS_CALLS}) ORDER BY sequence + 0 LIMIT $5"
)
"""Reads the names of tool calls, by message, in order."""

NAMES_LIKE = (
    f"SELECT sequence, calls, tokens FROM messages WHERE {_MESSAGE_OF_SESSION} AND sequence < $4"
    f" AND (calls LIKE $5 OR {_MAY_HOLD_CALLS}) ORDER BY sequence DESC LIMIT $6"
)
"""Reads the names of tool calls like a pattern, by message, newest first."""

MESSAGE = f"SELECT * FROM messages WHERE {_MESSAGE_OF_SESSION} AND sequence = $4"
"""Reads a message that is not erased."""


def unlisted_calls(descending: bool) -> str:
    """Reads messages that may hold tool calls and do not list them."""
    return (
        f"SELECT * FROM messages WHERE {_MESSAGE_OF_SESSION} AND sequence >= $4 AND sequence <= $5"
        f" AND {_MAY_HOLD_CALLS} ORDER BY sequence {'DESC' if descending else 'ASC'}"
    )


STORE_TOOL_OUTPUT = (
    "INSERT INTO tool_outputs (account, user_id, session_id, tool_id, blob, length)"
    " VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (account, user_id, session_id, tool_id)"
    " DO UPDATE SET blob = excluded.blob, length = excluded.length"
)
"""Stores where a large output of a tool is."""

TOOL_OUTPUT = (
    "SELECT blob, length FROM tool_outputs WHERE account = $1 AND user_id = $2 AND session_id = $3 AND tool_id = $4"
)
"""Reads where a large output of a tool is."""

TOOL_IDS = "SELECT tool_id FROM tool_outputs WHERE account = $1 AND user_id = $2 AND session_id = $3 ORDER BY tool_id"
"""Reads the ids of a session's large tool outputs."""

STORE_DESCRIPTION = (
    "INSERT INTO image_descriptions (account, user_id, session_id, digest, description, created_at)"
    " VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (account, user_id, session_id, digest)"
    " DO UPDATE SET description = excluded.description, created_at = excluded.created_at"
)
"""Stores what an image shows."""

DESCRIPTIONS_DIGESTS: Final = 16
"""Digests that DESCRIPTIONS takes."""
DESCRIPTIONS = (
    "SELECT digest, description FROM image_descriptions WHERE account = $1 AND user_id = $2"
    f" AND digest IN ({places(3, DESCRIPTIONS_DIGESTS)}) ORDER BY created_at"
)
"""Reads descriptions of images by their digests, in all sessions of a user, oldest first."""

# Archives

_ARCHIVE_COLUMNS: Final = (
    "session_id, archive_index, first_sequence, last_sequence, state, abstract, overview, diff, task_id, revision,"
    " created_at, done_at"
)
_WITHOUT_DIFF: Final = _ARCHIVE_COLUMNS.replace("diff", "'' AS diff")

ARCHIVE_MESSAGES = (
    "UPDATE sessions SET compression_index = compression_index + 1, archived_sequence = $4, updated_at = $5,"
    # Recount the few that stay, so that the sum is exact even if it was wrong before.
    " live_tokens = (SELECT CAST(COALESCE(SUM(m.tokens), 0) AS BIGINT) FROM messages m"
    "   WHERE m.account = $1 AND m.user_id = $2 AND m.session_id = $3 AND m.sequence > $4),"
    " idle_at = CASE WHEN $6 = 1 THEN idle_at ELSE 0 END"
    " WHERE account = $1 AND user_id = $2 AND session_id = $3 RETURNING compression_index"
)
"""Moves the end of a session's archived messages, and counts one more archive."""

ADD_ARCHIVE = (
    "INSERT INTO archives (account, user_id, session_id, archive_index, first_sequence, last_sequence, task_id,"
    " created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"
)
"""Adds an archive."""

ARCHIVE_USAGES = (
    "UPDATE usages SET archive_index = $4 WHERE account = $1 AND user_id = $2 AND session_id = $3 AND archive_index = 0"
)
"""Assigns the usages since the last commit to an archive."""

ARCHIVE = (
    f"SELECT {_ARCHIVE_COLUMNS} FROM archives"
    " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND archive_index = $4"
)
"""Reads an archive."""

ARCHIVES = (
    f"SELECT {_WITHOUT_DIFF} FROM archives WHERE account = $1 AND user_id = $2 AND session_id = $3"
    " AND archive_index < $4 ORDER BY archive_index DESC LIMIT $5"
)
"""Reads a page of a session's archives without their diffs, newest first."""

ARCHIVES_IN_STATE = (
    "SELECT archive_index, first_sequence, last_sequence FROM archives"
    " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND state = $4 AND archive_index < $5"
    " ORDER BY archive_index DESC LIMIT $6"
)
"""Reads where archives in a state begin and end, newest first."""

COUNT_ARCHIVED = (
    "SELECT COALESCE(SUM(last_sequence - first_sequence + 1), 0) AS n FROM archives"
    " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND state IN ($4, $5)"
)
"""Counts the messages of archives in two states."""

NEWEST_OVERVIEW = (
    "SELECT archive_index, overview FROM archives WHERE account = $1 AND user_id = $2 AND session_id = $3"
    " AND state = 'done' ORDER BY archive_index DESC LIMIT 1"
)
"""Reads the overview of the newest finished archive."""

# Usages of contexts and skills

_USAGE_OF_ARCHIVE: Final = "account = $1 AND user_id = $2 AND session_id = $3 AND archive_index = $4 AND number > $5"

ADD_USAGE = (
    "INSERT INTO usages (account, user_id, session_id, number, kind, uri, body) VALUES ($1, $2, $3, $4, $5, $6, $7)"
)
"""Adds a usage to a session."""

LAST_USAGE = (
    "SELECT COALESCE(MAX(number), 0) AS number FROM usages WHERE account = $1 AND user_id = $2 AND session_id = $3"
)
"""Reads the number of a session's last usage."""

COUNT_USAGES = (
    "SELECT COUNT(*) AS everything, COALESCE(SUM(CASE WHEN kind = 'context' THEN 1 ELSE 0 END), 0) AS contexts"
    " FROM usages WHERE account = $1 AND user_id = $2 AND session_id = $3 AND archive_index = 0"
)
"""Counts the usages since the last commit, and those of contexts among them."""

USED_URIS = (
    "SELECT DISTINCT uri FROM usages"
    " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND archive_index = $4 ORDER BY uri"
)
"""Reads the distinct URIs of the usages of an archive."""

SIZES_OF_USAGES = (
    f"SELECT number, octet_length(body) AS size FROM usages WHERE {_USAGE_OF_ARCHIVE} ORDER BY number LIMIT $6"
)
"""Reads the sizes of the usages of an archive after a number."""

USAGES = f"SELECT kind, uri, body FROM usages WHERE {_USAGE_OF_ARCHIVE} AND number <= $6 ORDER BY number"
"""Reads the usages of an archive between two numbers."""
