"""The SQL statements of turns, their memory and their jobs, one sentence each.

A statement confines itself to one account, unless OVER_ALL_ACCOUNTS names it.
`tests/unit/storage/test_statements.py` checks both.
"""

from functools import cache
from typing import Final

from runekeep_schemas.turns.feedback import MACHINE, USER
from runekeep_schemas.turns.stored import ASSISTANT_SIGNAL, FINGERPRINT, REACTION
from runekeep_storage.drivers.common.statement_lists import SIZE, places, rows
from runekeep_storage.spaces.statements import without

OVER_ALL_ACCOUNTS: Final = frozenset[str]()
"""Statements on tables of accounts that read or change rows of any account."""

# Turns

_TURN_COLUMNS: Final = "session_id, turn_id, sequence, last_sequence, started_at, ended_at, summary"
_TURN_OF_SESSION: Final = f"WHERE account = $1 AND user_id = $2 AND session_id = $3{without('turns')}"


@cache
def extend_turns(count: int) -> str:
    """Adds turns of an account, and moves the ends of those that exist."""
    return (
        "INSERT INTO turns (account, user_id, session_id, turn_id, sequence, last_sequence, started_at, ended_at)"
        f" VALUES {rows('($1, ?, ?, ?, ?, ?, ?, ?)', count, 2)}"
        " ON CONFLICT (account, user_id, session_id, turn_id)"
        " DO UPDATE SET last_sequence = excluded.last_sequence, ended_at = excluded.ended_at"
    )


TURN = f"SELECT {_TURN_COLUMNS} FROM turns {_TURN_OF_SESSION} AND turn_id = $4"
"""Reads a turn."""

TURNS = f"SELECT {_TURN_COLUMNS} FROM turns {_TURN_OF_SESSION} AND turn_id IN ({places(4)})"
"""Reads turns by id."""

TURNS_BEFORE = f"SELECT {_TURN_COLUMNS} FROM turns {_TURN_OF_SESSION} AND sequence < $4 ORDER BY sequence DESC LIMIT $5"
"""Reads turns before a message, newest first."""

FINGERPRINTED_TURNS_BEFORE = (
    f"SELECT {', '.join(f't.{name}' for name in _TURN_COLUMNS.split(', '))} FROM turn_artifacts f CROSS JOIN turns t"
    f" WHERE f.account = $1 AND f.user_id = $2 AND f.session_id = $3 AND f.kind = '{FINGERPRINT}' AND f.sequence < $4"
    " AND t.account = f.account AND t.user_id = f.user_id AND t.session_id = f.session_id AND t.turn_id = f.turn_id"
    f"{without('f')} ORDER BY f.sequence DESC LIMIT $5"
)
"""Reads turns with a fingerprint before a message, newest first."""

TURN_IDS_BETWEEN = (
    "SELECT DISTINCT turn_id FROM messages WHERE account = $1 AND user_id = $2 AND session_id = $3"
    " AND sequence >= $4 AND sequence <= $5"
)
"""Reads the ids of the turns of a range of messages."""

SET_SUMMARY = f"UPDATE turns SET summary = $5 {_TURN_OF_SESSION} AND turn_id = $4"
"""Replaces the summary of a turn."""

# Selects sequences first: the index `messages_of_turn` holds only those.
_SEQUENCES_OF_TURN: Final = (
    "SELECT sequence FROM messages WHERE account = $1 AND user_id = $2 AND session_id = $3 AND turn_id = $4"
    f" AND turn_id <> ''{without('messages')} ORDER BY sequence"
)


def _ends(columns: str) -> str:
    return (
        f"SELECT {columns} FROM (SELECT sequence FROM ({_SEQUENCES_OF_TURN} LIMIT $5) f"
        f" UNION SELECT sequence FROM ({_SEQUENCES_OF_TURN} DESC LIMIT $5) l) n CROSS JOIN messages m"
        " WHERE m.account = $1 AND m.user_id = $2 AND m.session_id = $3 AND m.sequence = n.sequence"
        " ORDER BY m.sequence"
    )


ENDS = _ends("m.*")
"""Reads the first and the last messages of a turn, in order."""
SIZES_OF_ENDS = _ends("m.sequence, m.tokens")
"""Reads the sizes of the same messages."""
OUTLINES_OF_ENDS = _ends(
    "m.role, substr(m.parts, 1, $6) AS head,"
    " substr(m.parts, CASE WHEN length(m.parts) > $6 + $7 THEN length(m.parts) - $7 + 1 ELSE $6 + 1 END) AS tail,"
    " CASE WHEN length(m.parts) > $6 + $7 THEN 1 ELSE 0 END AS is_cut"
)
"""Reads the first and the last characters of the same messages."""

# Artifacts and their tags

_ARTIFACT_KEY: Final = ("account", "user_id", "session_id", "kind", "name")
ARTIFACT_COLUMNS: Final = (
    "session_id",
    "kind",
    "name",
    "turn_id",
    "sequence",
    "text",
    "blob",
    "hosted_uri",
    "version",
    "origin",
    "reaction",
    "said_at",
    "updated_at",
)
"""The columns that `artifacts.artifact` reads."""
ARTIFACT_VALUES: Final = tuple(name for name in ARTIFACT_COLUMNS if name not in _ARTIFACT_KEY)
"""The columns that PUT_ARTIFACT writes after the key."""
_ARTIFACT_OF_KIND: Final = (
    f"SELECT {', '.join(ARTIFACT_COLUMNS)} FROM turn_artifacts"
    f" WHERE account = $1 AND user_id = $2 AND session_id = $3 AND kind = $4{without('turn_artifacts')}"
)
PUT_ARTIFACT = (
    f"INSERT INTO turn_artifacts ({', '.join((*_ARTIFACT_KEY, *ARTIFACT_VALUES))})"
    f" VALUES ({places(1, len(_ARTIFACT_KEY) + len(ARTIFACT_VALUES))}) ON CONFLICT ({', '.join(_ARTIFACT_KEY)})"
    f" DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in ARTIFACT_VALUES)}"
)
"""Stores an artifact in place of the one with its key."""

ARTIFACT = f"{_ARTIFACT_OF_KIND} AND name = $5"
"""Reads an artifact."""

ARTIFACTS = f"{_ARTIFACT_OF_KIND} AND name IN ({places(5)})"
"""Reads artifacts of a kind by name."""

NEWEST_ARTIFACTS = f"{_ARTIFACT_OF_KIND} ORDER BY said_at DESC, name"
"""Reads all artifacts of a kind of a session, latest change first."""

DELETE_ARTIFACT = (
    "DELETE FROM turn_artifacts WHERE account = $1 AND user_id = $2 AND session_id = $3 AND kind = $4 AND name = $5"
)
"""Deletes an artifact."""

# Uses the index `turn_tags_of_artifact`: the sequence of an artifact never changes.
_TAGS_OF_ARTIFACT: Final = (
    "WHERE account = $1 AND user_id = $2 AND session_id = $3 AND sequence = $4 AND kind = $5 AND name = $6"
)

TAGS = f"SELECT tag, promoted, said_at FROM turn_tags {_TAGS_OF_ARTIFACT}"
"""Reads the tags of an artifact."""

DELETE_TAGS = f"DELETE FROM turn_tags {_TAGS_OF_ARTIFACT}"
"""Deletes the tags of an artifact."""


def add_tags(count: int) -> str:
    """Adds tags to an artifact."""
    return (
        "INSERT INTO turn_tags (account, user_id, session_id, sequence, kind, name, said_at, tag, promoted)"
        f" VALUES {rows('($1, $2, $3, $4, $5, $6, $7, ?, ?)', count, 8)}"
    )


TAGS_OF_ARTIFACTS = (
    f"WITH k (session_id, sequence, kind, name) AS (VALUES {rows('(?, CAST(? AS BIGINT), ?, ?)', SIZE, 3)})"
    " SELECT t.session_id, t.kind, t.name, t.tag FROM k CROSS JOIN turn_tags t WHERE t.account = $1"
    " AND t.user_id = $2 AND t.session_id = k.session_id AND t.sequence = k.sequence AND t.kind = k.kind"
    " AND t.name = k.name"
)
"""Reads the tags of artifacts."""


def artifacts_by_tags(others: int, is_of_session: bool) -> str:
    """Reads a page of the artifacts that have the tag $3 and `others` more, which are the parameters from $9 on, latest
    first; only of the session that the last parameter names, if `is_of_session`."""
    # With an OFFSET, as in `spaces.statements.without`: without statistics, PostgreSQL would plan a join that compares
    # every pair.
    has_others = "".join(
        " AND EXISTS (SELECT 1 FROM turn_tags o WHERE o.account = t.account AND o.user_id = t.user_id"
        f" AND o.tag = ${place} AND o.said_at = t.said_at AND o.session_id = t.session_id"
        " AND o.kind = t.kind AND o.name = t.name LIMIT 1 OFFSET 0)"
        for place in range(9, 9 + others)
    )
    return (
        f"SELECT {', '.join(f'a.{name}' for name in ARTIFACT_COLUMNS)} FROM turn_tags t CROSS JOIN turn_artifacts a"
        " WHERE t.account = $1 AND t.user_id = $2 AND t.tag = $3"
        " AND (t.said_at, t.session_id, t.kind, t.name) < ($4, $5, $6, $7)"
        " AND a.account = t.account AND a.user_id = t.user_id AND a.session_id = t.session_id AND a.kind = t.kind"
        f" AND a.name = t.name{without('t')}{has_others}"
        f"{f' AND t.session_id = ${9 + others}' if is_of_session else ''}"
        " ORDER BY t.said_at DESC, t.session_id DESC, t.kind DESC, t.name DESC LIMIT $8"
    )


def count_tagged(is_of_session: bool) -> str:
    """Counts the artifacts that have a tag, up to a limit; only of the session $5, if `is_of_session`."""
    return (
        "SELECT COUNT(*) AS n FROM (SELECT 1 FROM turn_tags WHERE account = $1 AND user_id = $2 AND tag = $3"
        f"{' AND session_id = $5' if is_of_session else ''} LIMIT $4) s"
    )


# Fingerprints

NEXT_TURN_VERSION = (
    "UPDATE sessions SET turn_version = turn_version + 1, title = CASE WHEN title = '' THEN $4 ELSE title END"
    " WHERE account = $1 AND user_id = $2 AND session_id = $3 RETURNING turn_version"
)
"""Takes the next version of a session's fingerprints, and titles a session without a title."""

VERSIONS_OF_FINGERPRINTS = (
    "SELECT turn_version, covered_version FROM sessions WHERE account = $1 AND user_id = $2 AND session_id = $3"
)
"""Reads the version of a session's last fingerprint change, and that in its buckets."""

CHANGED_FINGERPRINTS = (
    "SELECT turn_id, sequence, said_at FROM turn_artifacts WHERE account = $1 AND user_id = $2 AND session_id = $3"
    f" AND kind = '{FINGERPRINT}' AND version > $4{without('turn_artifacts')} ORDER BY version DESC LIMIT $5"
)
"""Reads the turns whose fingerprint changed after a version, latest change first."""


def fingerprints_column(column: str) -> str:
    """Reads a column about fingerprints from a session."""
    return f"SELECT {column} FROM sessions WHERE account = $1 AND user_id = $2 AND session_id = $3"


_UNCOVERED: Final = (
    f"FROM turn_artifacts WHERE account = $1 AND user_id = $2 AND session_id = $3 AND kind = '{FINGERPRINT}'"
    " AND version > (SELECT s.covered_version FROM sessions s"
    " WHERE s.account = $1 AND s.user_id = $2 AND s.session_id = $3)"
)

UNCOVERED = f"SELECT version, text {_UNCOVERED} ORDER BY version LIMIT $4"
"""Reads the fingerprints that are not in the session's buckets yet, the oldest change first."""

COUNT_UNCOVERED = f"SELECT COUNT(*) AS n {_UNCOVERED}"
"""Counts the fingerprints that are not in the session's buckets yet."""

COVER = (
    "UPDATE sessions SET covered_version = $4, covered_at = COALESCE((SELECT a.updated_at FROM turn_artifacts a"
    f" WHERE a.account = $1 AND a.user_id = $2 AND a.session_id = $3 AND a.kind = '{FINGERPRINT}'"
    " AND a.version <= $4 ORDER BY a.version DESC LIMIT 1), $5)"
    " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND covered_version < $4"
)
"""Moves the version of fingerprints in a session's buckets, never back."""


def _tagged(columns: str, tag: str, is_of_session: bool) -> str:
    behind, order = "(said_at, session_id, sequence) < ($4, $7, $5)", "said_at DESC, session_id DESC, sequence DESC"
    if is_of_session:
        behind, order = "session_id = $7 AND (said_at, sequence) < ($4, $5)", "said_at DESC, sequence DESC"
    return (
        f"SELECT said_at, session_id, sequence, {columns} FROM turn_tags"
        f" WHERE account = $1 AND user_id = $2 AND tag = {tag} AND said_at >= $3 AND {behind}"
        f"{without('turn_tags')} ORDER BY {order} LIMIT $6"
    )


ALL_SIGNALS = _tagged("name, promoted", f"'{ASSISTANT_SIGNAL}'", is_of_session=False)
"""Reads a page of what the assistant promoted in all sessions, latest first."""


def signals(tags: int, is_of_session: bool) -> str:
    """Reads a page of what the assistant promoted in turns that have one of `tags` tags, which are the parameters from
    $8 on, latest first; only of one session, if `is_of_session`."""
    # First finds the page in an index that holds only these columns, then reads the rows.
    found = " UNION ".join(
        f"SELECT * FROM ({_tagged('name', f'${8 + number}', is_of_session)}) b{number}" for number in range(tags)
    )
    return (
        f"SELECT p.said_at, p.session_id, p.name, p.promoted FROM (SELECT * FROM ({found}) u"
        " ORDER BY said_at DESC, session_id DESC, sequence DESC LIMIT $6) t CROSS JOIN turn_tags p"
        f" WHERE p.account = $1 AND p.user_id = $2 AND p.tag = '{ASSISTANT_SIGNAL}' AND p.said_at = t.said_at"
        f" AND p.session_id = t.session_id AND p.kind = '{FINGERPRINT}' AND p.name = t.name"
        " ORDER BY t.said_at DESC, t.session_id DESC, t.sequence DESC"
    )


# Reactions: row `r`

COUNT_OTHERS = (
    "SELECT COUNT(*) AS n FROM turn_artifacts WHERE account = $1 AND user_id = $2 AND session_id = $3"
    " AND turn_id = $4 AND origin <> '' AND origin = $5 AND name <> $6"
)
"""Counts the reactions of an origin to a turn, except one."""

REACTIONS_OF_ORIGIN = (
    "SELECT kind, name, sequence, text, updated_at FROM turn_artifacts WHERE account = $1 AND user_id = $2"
    " AND session_id = $3 AND origin <> '' AND origin = $4"
)
"""Reads the reactions of an origin in a session."""


def _matching(turns: int, is_of_session: bool) -> str:
    """Returns the SQL after FROM for reactions from $3 on and before $4, $5, $6; only of the session $7, if
    `is_of_session`, and only of `turns` of its turns, which are the parameters from $8 on, if there are any.

    Each combination of filters has an index that covers all columns of `r`: without statistics SQLite may choose any
    other.
    """
    source = "turn_artifacts r"
    # One upper bound: with two, SQLite might start the scan at either.
    where = (
        "WHERE r.account = $1 AND r.user_id = $2 AND r.origin <> '' AND r.said_at >= $3"
        f" AND (r.said_at, r.session_id, r.name) < ($4, $5, $6){without('r')}"
    )
    if is_of_session:
        where += " AND r.session_id = $7"
    if turns:
        source = f"(WITH k (turn_id) AS (VALUES {rows('(?)', turns, 8)}) SELECT turn_id FROM k) k CROSS JOIN {source}"
        where += " AND r.turn_id = k.turn_id"
    return f"{source} {where}"


def reactions(turns: int, is_of_session: bool) -> str:
    """Reads a page of reactions with the fingerprints of their turns, newest first. The last parameter limits it."""
    limit = 7 + is_of_session + turns
    return (
        "SELECT a.session_id, a.text, (SELECT f.text FROM turn_artifacts f WHERE f.account = a.account"
        f" AND f.user_id = a.user_id AND f.session_id = a.session_id AND f.kind = '{FINGERPRINT}'"
        " AND f.name = a.turn_id) AS fingerprint"
        f" FROM (SELECT r.said_at, r.session_id, r.name FROM {_matching(turns, is_of_session)}"
        f" ORDER BY r.said_at DESC, r.session_id DESC, r.name DESC LIMIT ${limit}) p"
        " CROSS JOIN turn_artifacts a WHERE a.account = $1 AND a.user_id = $2 AND a.session_id = p.session_id"
        f" AND a.kind = '{REACTION}' AND a.name = p.name ORDER BY p.said_at DESC, p.session_id DESC, p.name DESC"
    )


_COUNTED: Final = ", ".join(
    f"COALESCE(SUM(CASE WHEN {condition} THEN 1 ELSE 0 END), 0) AS {name}"
    for name, condition in (
        ('"user"', f"r.origin = '{USER}'"),
        ("machine", f"r.origin = '{MACHINE}'"),
        ("ok", "r.reaction = 'ok'"),
        ("not_ok", "r.reaction = 'not_ok'"),
        ("neutral", "r.reaction IN ('neutral', 'none')"),
    )
)


def count_reactions(turns: int, is_of_session: bool) -> str:
    """Counts reactions by origin and by kind."""
    return f"SELECT COUNT(*) AS total, {_COUNTED} FROM {_matching(turns, is_of_session)}"


# Jobs about turns

PENDING_JOB_OF_LANE = (
    "SELECT job_id, plan FROM jobs WHERE account = $1 AND user_id = $2 AND lane = $3 AND state = 'pending'"
    " ORDER BY lane_sequence LIMIT 1"
)
"""Reads the first pending job of a lane, with its plan."""

# Uses the index of open jobs, which SQLite takes only if the statement repeats its condition.
PENDING_JOB_OF_SESSION = (
    "SELECT job_id FROM jobs WHERE account = $1 AND user_id = $2 AND kind = $3 AND session_id = $4"
    " AND state IN ('pending', 'leased') AND state = 'pending' ORDER BY lane_sequence LIMIT 1"
)
"""Reads the first pending job of a kind of a session."""

PLANS_LIKE = (
    "SELECT job_id, plan FROM jobs WHERE account = $1 AND user_id = $2 AND lane >= $3 AND lane < $4 AND plan LIKE $5"
)
"""Reads the plans of jobs in a range of lanes that are like a pattern."""

SET_PLAN = "UPDATE jobs SET plan = $4 WHERE account = $1 AND user_id = $2 AND job_id = $3"
"""Replaces the plan of a job."""

HAS_SESSION = "SELECT 1 FROM sessions WHERE account = $1 AND user_id = $2 AND session_id = $3"
"""Whether a session exists."""
