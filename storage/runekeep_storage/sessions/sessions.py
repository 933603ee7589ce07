"""Sessions, their messages, and the contexts and skills used in them. Each message is one row, so an append costs the
same at any length."""

import json

from runekeep_common import tokens
from runekeep_schemas.auto_commit_rules import AutoCommit
from runekeep_storage import message_rows
from runekeep_storage.database import Row, Space, Tx
from runekeep_storage.drivers.common.byte_limits import count_within
from runekeep_storage.errors import AlreadyExists, NotFound
from runekeep_storage.records import Message, Session, Usage
from runekeep_storage.sessions import statements
from runekeep_storage.spaces import pending_deletions, spaces


def _session(row: Row) -> Session:
    return Session(**dict(row))


async def create(
    tx: Tx, space: Space, session_id: str, title: str = "", policy: str = "{}", auto_commit: str = ""
) -> Session:
    """Creates a session. Raises AlreadyExists."""
    await spaces.ensure(tx, space)
    now = tx.now()
    made = await tx.execute(
        statements.ADD_SESSION,
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
    await pending_deletions.clear_session(tx, space, session_id)
    return await get(tx, space, session_id)


async def get(tx: Tx, space: Space, session_id: str) -> Session:
    """Returns a session with the abstract and overview of its newest finished archive. Raises NotFound."""
    row = await tx.fetchrow(statements.SESSION, space.account, space.user, session_id)
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
    """Changes the given columns, and the time of the last change. Raises NotFound."""
    row = await tx.fetchrow(statements.SETTINGS_OF_SESSION, space.account, space.user, session_id)
    if row is None:
        raise NotFound("session", session_id)
    idle_at = row["idle_at"]
    if auto_commit is not None:
        idle_at = auto_commit.idle_at(row["said_at"], row["live"])
    await tx.execute(
        statements.UPDATE_SESSION,
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
    """Returns sessions, latest activity first, after (updated_at, session_id) of the previous page."""
    updated_at, session_id = after or (2**62, "")
    rows = await tx.fetch(statements.SESSIONS, space.account, space.user, updated_at, session_id, limit)
    return [_session(row) for row in rows]


async def messages_page(
    tx: Tx, space: Space, session_id: str, first: int, last: int, limit: int, most_bytes: int
) -> tuple[list[Message], bool]:
    """Returns the first messages of `first` to `last` that are not erased: up to `limit`, or as many as take about
    `most_bytes`, at least one; and whether more follow. Reads no other messages' parts."""
    rows = await tx.fetch(statements.SIZES_OF_MESSAGES, space.account, space.user, session_id, first, last, limit + 1)
    # The column counts the bytes of the stored parts.
    count = count_within([row["tokens"] * tokens.BYTES_A_TOKEN for row in rows[:limit]], most_bytes)
    if not count:
        return [], False
    end = rows[count - 1]["sequence"]
    return await messages_between(tx, space, session_id, first, end), count < len(rows)


async def first_within(tx: Tx, space: Space, session_id: str, first: int, last: int, most_bytes: int) -> int:
    """Returns the sequence from which the messages up to `last` take about `most_bytes`, not below `first`. Always
    includes the last message."""
    rows = await tx.fetch(statements.SIZES_OF_NEWEST_MESSAGES, space.account, space.user, session_id, first, last)
    count = count_within([row["tokens"] * tokens.BYTES_A_TOKEN for row in rows], most_bytes)
    return first if count == len(rows) else int(rows[count - 1]["sequence"])


async def messages_between(
    tx: Tx, space: Space, session_id: str, first: int, last: int, limit: int = 2**31
) -> list[Message]:
    """Returns messages `first` to `last`, both included, oldest first, without erased ones."""
    rows = await tx.fetch(statements.MESSAGES, space.account, space.user, session_id, first, last, limit)
    return [message_rows.message(row) for row in rows]


async def peers_between(tx: Tx, space: Space, session_id: str, first: int, last: int) -> list[str]:
    """Returns the peers who sent messages `first` to `last`, in the order of their first message."""
    rows = await tx.fetch(statements.PEERS, space.account, space.user, session_id, first, last)
    return [row["peer_id"] for row in rows]


async def tool_output(tx: Tx, space: Space, session_id: str, tool_id: str) -> tuple[str, int] | None:
    """Returns (blob, length in characters) of a tool output that was moved to a blob; None if there is none."""
    row = await tx.fetchrow(statements.TOOL_OUTPUT, space.account, space.user, session_id, tool_id)
    return (row["blob"], row["length"]) if row else None


async def tool_ids(tx: Tx, space: Space, session_id: str) -> list[str]:
    """Returns the ids of the session's tool calls whose outputs were moved to blobs, sorted."""
    rows = await tx.fetch(statements.TOOL_IDS, space.account, space.user, session_id)
    return [row["tool_id"] for row in rows]


async def record_usage(tx: Tx, space: Space, session_id: str, usages: list[Usage]) -> tuple[int, int]:
    """Records usages. Returns how many contexts and skills were recorded since the last commit, including these. Raises
    NotFound."""
    await get(tx, space, session_id)
    row = await tx.fetchrow(statements.LAST_USAGE, space.account, space.user, session_id)
    number = row["number"] if row else 0
    for offset, usage in enumerate(usages, 1):
        await tx.execute(
            statements.ADD_USAGE,
            space.account,
            space.user,
            session_id,
            number + offset,
            usage.kind,
            usage.uri,
            json.dumps(usage.body, ensure_ascii=False),
        )
    counted = await tx.fetchrow(statements.COUNT_USAGES, space.account, space.user, session_id)
    assert counted is not None, "a count is there whatever it is of"
    contexts = int(counted["contexts"])
    return contexts, int(counted["everything"]) - contexts


async def used_uris(tx: Tx, space: Space, session_id: str, archive_index: int) -> list[str]:
    """Returns the distinct URIs of the contexts and skills that belong to a commit, sorted."""
    rows = await tx.fetch(statements.USED_URIS, space.account, space.user, session_id, archive_index)
    return [row["uri"] for row in rows]


async def usages_page(
    tx: Tx, space: Space, session_id: str, archive_index: int, after: int, limit: int, most_bytes: int
) -> tuple[list[Usage], int]:
    """Returns usages that belong to a commit, after number `after`: up to `limit`, or as many as take about
    `most_bytes`, at least one. Also returns the number of the last one, or 0 if no more follow. Reads no other bodies.
    """
    rows = await tx.fetch(
        statements.SIZES_OF_USAGES,
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
    found = await tx.fetch(statements.USAGES, space.account, space.user, session_id, archive_index, after, end)
    usages = [Usage(row["kind"], row["uri"], json.loads(row["body"])) for row in found]
    return usages, end if count < len(rows) else 0
