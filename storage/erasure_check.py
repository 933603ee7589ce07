"""The verifying pass of an erasure: what is left of it, looked for by what `Remains` names and by what nothing may be.

Nothing may be: a row of a session or a memory that is not there, an erased message that says something, an entry of a
diff whose version is gone, an answer to a request from before the erasure. Rows that came after the erasure are no
leftovers: the same peer may speak again, and a session be made anew under its name.
"""

import json
from collections.abc import Iterable, Iterator, Sequence

from schemas.recalling import Level
from storage import requests, shut_spaces
from storage.database import Row, Space, Tx
from storage.erased_traces import entries
from storage.erasures import Erasure, Kind, digest
from storage.feedback import said_in
from storage.statement_lists import filled, places

PAGE = 500

_OF_USER = "account = $1 AND user_id = $2"
# What is known by its session.
_OF_SESSIONS = (
    "messages",
    "archives",
    "passages",
    "turns",
    "turn_artifacts",
    "turn_tags",
    "tool_outputs",
    "recalled",
    "usages",
    "image_descriptions",
    "extraction_records",
)
_ANY_TEXT = "parts <> '[]' OR speaker <> '' OR peer_id <> '' OR turn_id <> '' OR shown <> '' OR outputs <> 0"


async def left(tx: Tx, space: Space, erasure: Erasure) -> dict[str, int]:
    """Rows by table that ought to be gone; empty when all is as it should be."""
    found: dict[str, int] = {}
    for table in _OF_SESSIONS:
        _add(found, table, await _of_no_session(tx, space, table))
    for table in ("task_events", "jobs"):
        _add(found, table, await _of_no_task(tx, space, table))
    _add(found, "shut_spaces", int(tx.is_shut(space) and await shut_spaces.is_deleted(tx, space)))
    _add(found, "messages", await _count(tx, space, "messages", f"erased = 1 AND ({_ANY_TEXT})"))
    _add(found, "passages", await _passages(tx, space))
    _add(found, "memory_sources", await _sources_of_nothing(tx, space))
    _add(found, "requests", await _answers(tx, space, erasure.created_at))
    _add(found, "outbox", await _outbox(tx, space))
    _add(found, "archives", await _diffs(tx, space) + await _views(tx, space, erasure))
    _add(found, "extraction_records", await _records(tx, space, erasure))
    _add(found, "memories", await _memories(tx, space, erasure))
    for table in ("active_counts", "usages"):
        _add(found, table, await _names(tx, space, table, erasure.remains.memories))
    _add(found, "image_descriptions", await _images(tx, space, erasure))
    _add(found, "turn_artifacts", await _turns(tx, space, erasure) + await _reactions(tx, space, erasure))
    _add(found, "extraction_records", await _records_of_turns(tx, space, erasure))
    _add(found, "messages", await _contexts(tx, space, erasure))
    if await _imported_since(tx, space, erasure):
        return {name: count for name, count in found.items() if name in ("requests", "outbox", "shut_spaces")}
    match erasure.kind:
        case Kind.USER:
            _add(found, "sessions", await _count(tx, space, "sessions", "created_at < $3", erasure.created_at))
            _add(found, "tasks", await _count(tx, space, "tasks", "created_at < $3", erasure.created_at))
            _add(found, "commits", await _count(tx, space, "commits", "revision <= $3", erasure.remains.revision))
        case Kind.SESSION:
            _add(found, "sessions", await _session(tx, space, "sessions", erasure))
            _add(found, "tasks", await _session(tx, space, "tasks", erasure))
        case Kind.PEER:
            _add(found, "messages", await _peer(tx, space, erasure))
        case Kind.MESSAGES:
            _add(found, "messages", await _messages(tx, space, erasure))
    return found


async def _imported_since(tx: Tx, space: Space, erasure: Erasure) -> bool:
    """Whether all rows that there are came by an import: it needs a user who has nothing, and brings back old times and
    names."""
    return bool(await _count(tx, space, "spaces", "imported_at > $3", erasure.created_at))


def _add(found: dict[str, int], table: str, count: int) -> None:
    if count:
        found[table] = found.get(table, 0) + count


async def _count(tx: Tx, space: Space, table: str, only: str, *args: object) -> int:
    condition = f" AND {only}" if only else ""
    row = await tx.fetchrow(
        f"SELECT COUNT(*) AS n FROM {table} WHERE {_OF_USER}{condition}", space.account, space.user, *args
    )
    return int(row["n"]) if row else 0


async def _of_no_session(tx: Tx, space: Space, table: str) -> int:
    """Not what is left of sessions that somebody deletes just now."""
    return await _count(
        tx,
        space,
        table,
        "session_id NOT IN (SELECT s.session_id FROM sessions s WHERE s.account = $1 AND s.user_id = $2"
        " UNION ALL SELECT l.session_id FROM leftovers l WHERE l.account = $1 AND l.user_id = $2)",
    )


async def _of_no_task(tx: Tx, space: Space, table: str) -> int:
    name = "job_id" if table == "jobs" else "task_id"
    return await _count(
        tx, space, table, f"{name} NOT IN (SELECT t.task_id FROM tasks t WHERE t.account = $1 AND t.user_id = $2)"
    )


async def _passages(tx: Tx, space: Space) -> int:
    return await _count(
        tx,
        space,
        "passages",
        "EXISTS (SELECT 1 FROM messages m WHERE m.account = $1 AND m.user_id = $2 AND m.session_id ="
        " passages.session_id AND m.sequence = passages.sequence AND m.erased = 1)",
    )


async def _sources_of_nothing(tx: Tx, space: Space) -> int:
    """Of memories that are not there, and runs of messages of which one was erased since they were written."""
    return await _count(
        tx,
        space,
        "memory_sources",
        "(NOT EXISTS (SELECT 1 FROM memories v WHERE v.account = $1 AND v.user_id = $2 AND v.uri = memory_sources.uri)"
        " OR EXISTS (SELECT 1 FROM messages m WHERE m.account = $1 AND m.user_id = $2"
        " AND m.session_id = memory_sources.session_id AND m.message_id = memory_sources.message_id AND m.erased = 1)"
        " OR memory_sources.erased < (SELECT COUNT(*) FROM messages m, sessions x WHERE m.account = $1"
        " AND m.user_id = $2 AND m.session_id = memory_sources.session_id"
        " AND m.sequence >= memory_sources.first_sequence AND m.sequence <= memory_sources.last_sequence"
        " AND m.erased = 1 AND x.account = $1 AND x.user_id = $2"
        " AND x.session_id = m.session_id AND x.created_at = memory_sources.session_created_at))",
    )


async def _answers(tx: Tx, space: Space, before: int) -> int:
    return await _count(
        tx,
        space,
        "requests",
        "digest <> '' AND created_at < $3 AND method <> $4 AND method <> $5",
        before,
        *requests.OUTLIVE,
    )


async def _outbox(tx: Tx, space: Space) -> int:
    """What brings versions into the index that are not there."""
    return await _count(
        tx,
        space,
        "outbox",
        "op = 'upsert' AND NOT EXISTS (SELECT 1 FROM memories v WHERE v.account = $1 AND v.user_id = $2"
        " AND v.uri = outbox.uri AND v.version = outbox.version)",
    )


async def _pages(tx: Tx, space: Space, table: str, columns: str, key: tuple[str, str], only: str = "") -> Iterator[Row]:
    """All rows of a table that a condition lets through, read by its key."""
    found: list[Row] = []
    after: tuple[str, int] = ("", -1)
    while True:
        rows = await tx.fetch(
            f"SELECT {', '.join(key)}, {columns} FROM {table} WHERE {_OF_USER} AND ({', '.join(key)}) > ($3, $4){only}"
            f" ORDER BY {', '.join(key)} LIMIT {PAGE}",
            space.account,
            space.user,
            *after,
        )
        found += rows
        if len(rows) < PAGE:
            return iter(found)
        after = rows[-1][key[0]], rows[-1][key[1]]


async def _diffs(tx: Tx, space: Space) -> int:
    """Entries whose version is not there."""
    count = 0
    only = " AND diff LIKE '%\"version\"%'"
    for row in await _pages(tx, space, "archives", "diff", ("session_id", "archive_index"), only):
        for entry in entries(row["diff"]):
            there = await tx.fetchrow(
                f"SELECT 1 FROM memories WHERE {_OF_USER} AND uri = $3 AND version = $4",
                space.account,
                space.user,
                entry["uri"],
                entry["version"],
            )
            count += there is None
    return count


async def _views(tx: Tx, space: Space, erasure: Erasure) -> int:
    """Archives that held an erased message and were summed up before the erasure."""
    return await _of_tasks(tx, space, "archives", "(abstract <> '' OR overview <> '') AND done_at", erasure)


async def _records(tx: Tx, space: Space, erasure: Erasure) -> int:
    """Of attempts from before the erasure at archives that held an erased message."""
    return await _of_tasks(tx, space, "extraction_records", "ended_at", erasure)


async def _of_tasks(tx: Tx, space: Space, table: str, time: str, erasure: Erasure) -> int:
    """Of these archives alone: what was made of others between an earlier erasure and this one is no leftover."""
    count = 0
    for some in filled(erasure.remains.tasks):
        only = f"{time} < $3 AND task_id IN ({places(4)})"
        count += await _count(tx, space, table, only, erasure.created_at, *some)
    return count


async def _memories(tx: Tx, space: Space, erasure: Erasure) -> int:
    """Versions from before the erasure that are in its scope."""
    remains, count = erasure.remains, 0
    gone, messages = set(remains.memories), set(remains.message_ids)
    only = f" AND rev_from <= {remains.revision}"
    for row in await _pages(tx, space, "memories", "peer_id, sources, deleted", ("uri", "version"), only):
        named = [source for source in json.loads(row["sources"]) if source["session"] == remains.session_id]
        count += (
            erasure.kind is Kind.USER
            or (erasure.kind is Kind.PEER and digest(row["peer_id"]) == remains.peer_id)
            or digest(row["uri"]) in gone
            or (erasure.kind is Kind.SESSION and bool(named))
            or any(source["message_id"] in messages for source in named)
        )
    return count


async def _names(tx: Tx, space: Space, table: str, gone: Sequence[str]) -> int:
    """Rows that name a memory that is gone and was not made anew."""
    if not gone:
        return 0
    rows = await tx.fetch(
        f"SELECT DISTINCT t.uri FROM {table} t WHERE t.account = $1 AND t.user_id = $2 AND NOT EXISTS ("
        " SELECT 1 FROM memories v WHERE v.account = $1 AND v.user_id = $2 AND v.uri = t.uri)",
        space.account,
        space.user,
    )
    digests = set(gone)
    return sum(digest(row["uri"]) in digests for row in rows)


async def _images(tx: Tx, space: Space, erasure: Erasure) -> int:
    return await _in_sessions(
        tx, space, "image_descriptions", "digest", erasure.remains.images.items(), erasure.created_at
    )


async def _turns(tx: Tx, space: Space, erasure: Erasure) -> int:
    return await _in_sessions(
        tx,
        space,
        "turn_artifacts",
        "turn_id",
        erasure.remains.turns.items(),
        erasure.created_at,
        "updated_at",
    )


async def _reactions(tx: Tx, space: Space, erasure: Erasure) -> int:
    """About other turns, from before the erasure, which quote one that lost a message."""
    count = 0
    for session_id, turn_ids in erasure.remains.turns.items():
        rows = await said_in(tx, space, session_id, turn_ids)
        count += sum(row["updated_at"] < erasure.created_at for row in rows)
    return count


async def _records_of_turns(tx: Tx, space: Space, erasure: Erasure) -> int:
    """Of attempts from before the erasure whose workers were shown a turn that lost a message."""
    count = 0
    for of_sessions in (erasure.remains.turns, erasure.remains.later):
        for session_id, turn_ids in of_sessions.items():
            for some in filled(turn_ids):
                count += await _count(
                    tx,
                    space,
                    "extraction_records",
                    "ended_at < $4 AND task_id IN (SELECT t.task_id FROM tasks t WHERE t.account = $1"
                    f" AND t.user_id = $2 AND t.session_id = $3 AND t.turn_id IN ({places(5)}))",
                    session_id,
                    erasure.created_at,
                    *some,
                )
    return count


async def _contexts(tx: Tx, space: Space, erasure: Erasure) -> int:
    """Messages from before the erasure that show what a memory said that lost versions, or name one that is gone."""
    cut, gone = set(erasure.remains.cut), set(erasure.remains.memories)
    if not cut:
        return 0
    rows = await tx.fetch(
        f"SELECT shown FROM messages WHERE {_OF_USER} AND shown <> '' AND added_at < $3",
        space.account,
        space.user,
        erasure.created_at,
    )
    return sum(
        any(
            digest(uri) in gone or (level >= Level.ABSTRACT and digest(uri) in cut)
            for uri, level in json.loads(row["shown"]).items()
        )
        for row in rows
    )


async def _in_sessions(
    tx: Tx,
    space: Space,
    table: str,
    column: str,
    values: Iterable[tuple[str, Sequence[str]]],
    before: int,
    time: str = "created_at",
) -> int:
    count = 0
    for session_id, some_values in values:
        for some in filled(some_values):
            count += await _count(
                tx,
                space,
                table,
                f"session_id = $3 AND {time} < $4 AND {column} IN ({places(5)})",
                session_id,
                before,
                *some,
            )
    return count


async def _session(tx: Tx, space: Space, table: str, erasure: Erasure) -> int:
    return await _count(
        tx, space, table, "session_id = $3 AND created_at < $4", erasure.remains.session_id, erasure.created_at
    )


async def _peer(tx: Tx, space: Space, erasure: Erasure) -> int:
    """Messages of the peer that were there then."""
    rows = await tx.fetch(
        f"SELECT DISTINCT peer_id FROM messages WHERE {_OF_USER} AND peer_id <> ''", space.account, space.user
    )
    count = 0
    for peer_id in (row["peer_id"] for row in rows if digest(row["peer_id"]) == erasure.remains.peer_id):
        for session_id, last in erasure.remains.ends.items():
            count += await _count(
                tx,
                space,
                "messages",
                "peer_id = $3 AND peer_id <> '' AND session_id = $4 AND sequence <= $5 AND EXISTS ("
                " SELECT 1 FROM sessions s WHERE s.account = $1 AND s.user_id = $2 AND s.session_id = $4"
                " AND s.created_at < $6)",
                peer_id,
                session_id,
                last,
                erasure.created_at,
            )
    return count


async def _messages(tx: Tx, space: Space, erasure: Erasure) -> int:
    count = 0
    for some in filled(erasure.remains.message_ids):
        count += await _count(
            tx,
            space,
            "messages",
            f"erased = 0 AND session_id = $3 AND message_id IN ({places(5)}) AND EXISTS ("
            " SELECT 1 FROM sessions s WHERE s.account = $1 AND s.user_id = $2 AND s.session_id = $3"
            " AND s.created_at < $4)",
            erasure.remains.session_id,
            erasure.created_at,
            *some,
        )
    return count
