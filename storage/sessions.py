"""Sessions, their messages and what was used in them. One row a message: an append costs the same at any length."""

import json

from schemas import tokens
from schemas.auto_commit import AutoCommit
from storage import leftovers, message_rows, spaces
from storage.byte_limits import count_within
from storage.database import Row, Space, Tx
from storage.errors import AlreadyExists, NotFound
from storage.records import Message, Session, Usage

_COLUMNS = (
    "s.session_id, s.title, s.policy, s.compression_index, s.last_sequence, s.archived_sequence,"
    " s.created_at, s.updated_at, s.auto_commit, s.live_tokens"
)
_WITH_SUMMARY = f"""
SELECT {_COLUMNS}, COALESCE(a.abstract, '') AS abstract, COALESCE(a.overview, '') AS overview
FROM sessions s LEFT JOIN archives a
  ON a.account = s.account AND a.user_id = s.user_id AND a.session_id = s.session_id AND a.archive_index = (
    SELECT MAX(d.archive_index) FROM archives d
    WHERE d.account = s.account AND d.user_id = s.user_id AND d.session_id = s.session_id AND d.state = 'done')
WHERE s.account = $1 AND s.user_id = $2
"""


def _session(row: Row) -> Session:
    return Session(**dict(row))


async def create(
    tx: Tx, space: Space, session_id: str, title: str = "", policy: str = "{}", auto_commit: str = ""
) -> Session:
    """Raises AlreadyExists."""
    await spaces.ensure(tx, space)
    now = tx.now()
    made = await tx.execute(
        "INSERT INTO sessions (account, user_id, session_id, title, policy, auto_commit, created_at, updated_at)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $7) ON CONFLICT (account, user_id, session_id) DO NOTHING",
        space.account,
        space.user,
        session_id,
        title,
        policy,
        auto_commit,
        now,
    )
    if not made:
        raise AlreadyExists("session", session_id)
    await leftovers.clear_session(tx, space, session_id)
    return await get(tx, space, session_id)


async def get(tx: Tx, space: Space, session_id: str) -> Session:
    """With the views of its newest finished archive. Raises NotFound."""
    row = await tx.fetchrow(f"{_WITH_SUMMARY} AND s.session_id = $3", space.account, space.user, session_id)
    if row is None:
        raise NotFound("session", session_id)
    return _session(row)


async def get_or_create(tx: Tx, space: Space, session_id: str) -> tuple[Session, bool]:
    try:
        return await get(tx, space, session_id), False
    except NotFound:
        return await create(tx, space, session_id), True


async def update(
    tx: Tx,
    space: Space,
    session_id: str,
    *,
    title: str | None = None,
    policy: str | None = None,
    auto_commit: AutoCommit | None = None,
) -> Session:
    """Changes what is given, and when the session was changed last. Raises NotFound."""
    row = await tx.fetchrow(
        "SELECT title, policy, auto_commit, idle_at, said_at, last_sequence - archived_sequence AS live"
        " FROM sessions WHERE account = $1 AND user_id = $2 AND session_id = $3",
        space.account,
        space.user,
        session_id,
    )
    if row is None:
        raise NotFound("session", session_id)
    idle_at = row["idle_at"]
    if auto_commit is not None:
        idle_at = auto_commit.idle_at(row["said_at"], row["live"])
    await tx.execute(
        "UPDATE sessions SET title = $4, policy = $5, auto_commit = $6, idle_at = $7, updated_at = $8"
        " WHERE account = $1 AND user_id = $2 AND session_id = $3",
        space.account,
        space.user,
        session_id,
        row["title"] if title is None else title,
        row["policy"] if policy is None else policy,
        row["auto_commit"] if auto_commit is None else auto_commit.to_json(),
        idle_at,
        tx.now(),
    )
    return await get(tx, space, session_id)


async def page(tx: Tx, space: Space, after: tuple[int, str] | None, limit: int) -> list[Session]:
    """Latest activity first, after (updated_at, session_id) of the page before."""
    updated_at, session_id = after or (2**62, "")
    rows = await tx.fetch(
        f"{_WITH_SUMMARY} AND (s.updated_at < $3 OR (s.updated_at = $3 AND s.session_id > $4))"
        " ORDER BY s.updated_at DESC, s.session_id LIMIT $5",
        space.account,
        space.user,
        updated_at,
        session_id,
        limit,
    )
    return [_session(row) for row in rows]


async def messages_page(
    tx: Tx, space: Space, session_id: str, first: int, last: int, limit: int, most_bytes: int
) -> tuple[list[Message], bool]:
    """The first `limit` of the messages `first` to `last`, none that are erased, or as many of them as take about
    `most_bytes`, at least one; and whether others follow. Reads no others."""
    rows = await tx.fetch(
        "SELECT sequence, tokens FROM messages WHERE account = $1 AND user_id = $2 AND session_id = $3"
        f" AND sequence >= $4 AND sequence <= $5 AND erased = 0{leftovers.without('messages')} ORDER BY sequence"
        " LIMIT $6",
        space.account,
        space.user,
        session_id,
        first,
        last,
        limit + 1,
    )
    # The column counts the bytes of the stored parts.
    count = count_within([row["tokens"] * tokens.BYTES_A_TOKEN for row in rows[:limit]], most_bytes)
    if not count:
        return [], False
    end = rows[count - 1]["sequence"]
    return await messages_between(tx, space, session_id, first, end), count < len(rows)


async def first_within(tx: Tx, space: Space, session_id: str, first: int, last: int, most_bytes: int) -> int:
    """The sequence from which on the messages up to `last` take about `most_bytes`, not below `first`; that of the last
    one where it is larger."""
    rows = await tx.fetch(
        "SELECT sequence, tokens FROM messages WHERE account = $1 AND user_id = $2 AND session_id = $3"
        " AND sequence >= $4 AND sequence <= $5 ORDER BY sequence DESC",
        space.account,
        space.user,
        session_id,
        first,
        last,
    )
    count = count_within([row["tokens"] * tokens.BYTES_A_TOKEN for row in rows], most_bytes)
    return first if count == len(rows) else int(rows[count - 1]["sequence"])


async def messages_between(
    tx: Tx, space: Space, session_id: str, first: int, last: int, limit: int = 2**31
) -> list[Message]:
    """Messages `first` to `last`, both included, oldest first; none that are erased."""
    rows = await tx.fetch(
        "SELECT * FROM messages WHERE account = $1 AND user_id = $2 AND session_id = $3"
        f" AND sequence >= $4 AND sequence <= $5 AND erased = 0{leftovers.without('messages')} ORDER BY sequence"
        " LIMIT $6",
        space.account,
        space.user,
        session_id,
        first,
        last,
        limit,
    )
    return [message_rows.message(row) for row in rows]


async def peers_between(tx: Tx, space: Space, session_id: str, first: int, last: int) -> list[str]:
    """Peers who said messages `first` to `last`, in the order of their first one."""
    rows = await tx.fetch(
        "SELECT peer_id FROM messages WHERE account = $1 AND user_id = $2 AND session_id = $3"
        " AND sequence >= $4 AND sequence <= $5 AND peer_id <> '' GROUP BY peer_id ORDER BY MIN(sequence)",
        space.account,
        space.user,
        session_id,
        first,
        last,
    )
    return [row["peer_id"] for row in rows]


async def tool_output(tx: Tx, space: Space, session_id: str, tool_id: str) -> tuple[str, int] | None:
    """(blob, length in characters) of an output kept apart."""
    row = await tx.fetchrow(
        "SELECT blob, length FROM tool_outputs"
        " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND tool_id = $4",
        space.account,
        space.user,
        session_id,
        tool_id,
    )
    return (row["blob"], row["length"]) if row else None


async def tool_ids(tx: Tx, space: Space, session_id: str) -> list[str]:
    """Tools of a session whose outputs are kept apart, by name."""
    rows = await tx.fetch(
        "SELECT tool_id FROM tool_outputs WHERE account = $1 AND user_id = $2 AND session_id = $3 ORDER BY tool_id",
        space.account,
        space.user,
        session_id,
    )
    return [row["tool_id"] for row in rows]


async def record_usage(tx: Tx, space: Space, session_id: str, usages: list[Usage]) -> tuple[int, int]:
    """Contexts and skills recorded since the last commit, with these. Raises NotFound."""
    await get(tx, space, session_id)
    row = await tx.fetchrow(
        "SELECT COALESCE(MAX(number), 0) AS number FROM usages WHERE account = $1 AND user_id = $2 AND session_id = $3",
        space.account,
        space.user,
        session_id,
    )
    number = row["number"] if row else 0
    for offset, usage in enumerate(usages, 1):
        await tx.execute(
            "INSERT INTO usages (account, user_id, session_id, number, kind, uri, body)"
            " VALUES ($1, $2, $3, $4, $5, $6, $7)",
            space.account,
            space.user,
            session_id,
            number + offset,
            usage.kind,
            usage.uri,
            json.dumps(usage.body, ensure_ascii=False),
        )
    counted = await tx.fetchrow(
        "SELECT COUNT(*) AS everything, COALESCE(SUM(CASE WHEN kind = 'context' THEN 1 ELSE 0 END), 0) AS contexts"
        " FROM usages WHERE account = $1 AND user_id = $2 AND session_id = $3 AND archive_index = 0",
        space.account,
        space.user,
        session_id,
    )
    assert counted is not None, "a count is there whatever it is of"
    contexts = int(counted["contexts"])
    return contexts, int(counted["everything"]) - contexts


async def used_uris(tx: Tx, space: Space, session_id: str, archive_index: int) -> list[str]:
    """URIs of the contexts and skills that a commit took, each once, in order."""
    rows = await tx.fetch(
        "SELECT DISTINCT uri FROM usages"
        " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND archive_index = $4 ORDER BY uri",
        space.account,
        space.user,
        session_id,
        archive_index,
    )
    return [row["uri"] for row in rows]


async def usages_page(
    tx: Tx, space: Space, session_id: str, archive_index: int, after: int, limit: int, most_bytes: int
) -> tuple[list[Usage], int]:
    """Usages that a commit took, behind number `after`: `limit` of them, or as many as take about `most_bytes`, at
    least one; and the number of the last one, 0 when there are no more behind it. Reads no others."""
    within = "account = $1 AND user_id = $2 AND session_id = $3 AND archive_index = $4 AND number > $5"
    rows = await tx.fetch(
        f"SELECT number, octet_length(body) AS size FROM usages WHERE {within} ORDER BY number LIMIT $6",
        space.account,
        space.user,
        session_id,
        archive_index,
        after,
        limit + 1,
    )
    count = count_within([row["size"] for row in rows[:limit]], most_bytes)
    if not count:
        return [], 0
    end = rows[count - 1]["number"]
    found = await tx.fetch(
        f"SELECT kind, uri, body FROM usages WHERE {within} AND number <= $6 ORDER BY number",
        space.account,
        space.user,
        session_id,
        archive_index,
        after,
        end,
    )
    usages = [Usage(row["kind"], row["uri"], json.loads(row["body"])) for row in found]
    return usages, end if count < len(rows) else 0
