"""Erasures, first part: the transactions that take rows away, after which nothing of it can be read any more.

What fits into one transaction goes in the one that asks for the erasure. Of more than that the space is shut, as for a
user who is deleted (`storage.shut_spaces`), and the rest follows in slices, which may be repeated: what is left to do
is what is still there. A server that dies over it leaves the row of the erasure, and the next one goes on.

All leased jobs of the user begin anew: their workers may have read what is erased. All kept answers to requests are
voided, and it is forgotten what sessions were given by Recall: both may name or quote it.
"""

import json
from collections.abc import Sequence
from dataclasses import replace

from schemas import failpoints
from storage import (
    blob_sweeps,
    deletion,
    erased_memories,
    erased_messages,
    jobs,
    leftovers,
    requests,
    sessions,
    shut_spaces,
    spaces,
)
from storage.database import Row, Space, Tx
from storage.erased_messages import REASON, Erased, of_memories, with_memories
from storage.erased_traces import out_of_tasks
from storage.erasures import Erasure, Kind, Receipt, Remains, Scope, State, digest, get, save
from storage.errors import NotFound
from storage.records import STORED_OUTPUT, Job
from storage.statement_lists import filled, places

ANSWERS = 500
"""Kept answers that one transaction voids."""
MEMORIES = 100
"""Memories that one transaction takes back."""
TASKS = 200
"""Tasks of a session that one transaction takes away."""

# By table, which of its rows.
_COUNTED = {
    "sessions": "",
    "messages": " AND erased = 0",
    "archives": "",
    "passages": "",
    "turns": "",
    "turn_artifacts": "",
    "tasks": "",
}
_OF_USER = "WHERE account = $1 AND user_id = $2"


async def begin(tx: Tx, space: Space, erasure_id: str, scope: Scope) -> tuple[Erasure, list[Job]]:
    """Makes what is in the scope unreadable; the erasure, and jobs that were cancelled or begin anew. Raises NotFound
    for a scope that holds nothing, which of a user is no error."""
    if scope.kind is Kind.USER:
        return await _user(tx, space, erasure_id)
    await spaces.lost(tx, space)
    erasure = Erasure(erasure_id, scope.kind, State.TAKING, Receipt(), await _covered(tx, space, scope), tx.now())
    erasure, ended, more = await _take(tx, space, erasure)
    if more:
        await shut_spaces.shut(tx, space, erasure_id)
    else:
        erasure = await _taken(tx, space, erasure)
    await save(tx, space, erasure)
    failpoints.reached(failpoints.ERASURE_BEFORE_COMMIT)
    return erasure, ended


async def go_on(tx: Tx, space: Space, erasure_id: str) -> bool:
    """Takes away some more of an erasure whose space is shut; whether there is more. The last time opens the space."""
    erasure = await get(tx, space, erasure_id)
    if erasure.state is not State.TAKING:
        return False
    if erasure.kind is Kind.USER:
        more = await shut_spaces.is_deleted(tx, space)
    else:
        erasure, _, more = await _take(tx, space, erasure)
        if not more:
            await shut_spaces.open_again(tx, space)
    await save(tx, space, erasure if more else await _taken(tx, space, erasure))
    return more


async def _taken(tx: Tx, space: Space, erasure: Erasure) -> Erasure:
    """From here on nobody looks for rows by the name of the peer."""
    peer = erasure.remains.peer_id
    row = await tx.fetchrow(f"SELECT outbox_number FROM spaces {_OF_USER}", space.account, space.user)
    remains = replace(
        erasure.remains, peer_id=digest(peer) if peer else "", outbox=row["outbox_number"] if row is not None else 0
    )
    return replace(erasure, state=State.REMOVING, remains=remains)


async def _user(tx: Tx, space: Space, erasure_id: str) -> tuple[Erasure, list[Job]]:
    untouched = not await _losses(tx, space)
    counts = {name: await _count(tx, space, name, only) for name, only in _COUNTED.items()}
    versions = await _count(tx, space, "memories")
    answers = await _count(tx, space, "requests", " AND digest <> ''")
    blobs = len(await blob_sweeps.named(tx, space))
    gone = await deletion.delete_user(tx, space, REASON)
    receipt = Receipt(
        **counts,
        memories=gone.memories,
        memory_versions=versions,
        answers=answers,
        blobs=blobs,
        cancelled=len(gone.cancelled),
    )
    shut = await shut_spaces.is_deleted(tx, space)
    remains = Remains(revision=await _revision(tx, space), nothing=untouched and receipt == Receipt())
    erasure = Erasure(erasure_id, Kind.USER, State.TAKING, receipt, remains, tx.now())
    if not shut:
        erasure = await _taken(tx, space, erasure)
    await save(tx, space, erasure)
    return erasure, gone.cancelled


async def _covered(tx: Tx, space: Space, scope: Scope) -> Remains:
    """What the scope holds now, by which it is verified later. Raises NotFound when that is nothing."""
    revision = await _revision(tx, space)
    match scope.kind:
        case Kind.PEER:
            rows = await tx.fetch(
                f"SELECT session_id, MAX(sequence) AS last FROM messages {_OF_USER} AND peer_id = $3"
                " AND peer_id <> '' GROUP BY session_id",
                space.account,
                space.user,
                scope.peer_id,
            )
            memory = await tx.fetchrow(
                f"SELECT 1 FROM memories {_OF_USER} AND peer_id = $3 LIMIT 1", space.account, space.user, scope.peer_id
            )
            if not rows and memory is None:
                raise NotFound("peer", scope.peer_id)
            ends = {row["session_id"]: row["last"] for row in rows}
            return Remains(peer_id=scope.peer_id, ends=ends, revision=revision)
        case Kind.SESSION:
            try:
                session = await sessions.get(tx, space, scope.session_id)
            except NotFound:
                # Its memories and tasks outlive a session that is deleted.
                if not (await _came_from(tx, space, scope.session_id, 1) or await _is_left(tx, space, scope)):
                    raise
                return Remains(session_id=scope.session_id, revision=revision)
            ends = {scope.session_id: session.last_sequence}
            return Remains(session_id=scope.session_id, ends=ends, revision=revision)
        case _:
            await sessions.get(tx, space, scope.session_id)
            ids = tuple(dict.fromkeys(scope.message_ids))
            there = await _there(tx, space, scope.session_id, ids)
            for message_id in ids:
                if message_id not in there:
                    raise NotFound("message", message_id)
            return Remains(session_id=scope.session_id, message_ids=ids, revision=revision)


async def _is_left(tx: Tx, space: Space, scope: Scope) -> bool:
    """Whether there is a task of a session, or what is left of it."""
    key = (space.account, space.user, scope.session_id)
    task = await tx.fetchrow(f"SELECT 1 FROM tasks {_OF_USER} AND session_id = $3 LIMIT 1", *key)
    return task is not None or await leftovers.of_space(tx, space, scope.session_id)


async def _there(tx: Tx, space: Space, session_id: str, message_ids: Sequence[str]) -> set[str]:
    """Those of the messages that the session has, erased ones among them."""
    found: set[str] = set()
    for some in filled(message_ids):
        rows = await tx.fetch(
            f"SELECT message_id FROM messages {_OF_USER} AND session_id = $3 AND message_id IN ({places(4)})",
            space.account,
            space.user,
            session_id,
            *some,
        )
        found |= {row["message_id"] for row in rows}
    return found


async def _let_go(tx: Tx, space: Space) -> list[Job]:
    """Has every leased job of the user begin anew, and what is told of their attempts taken out of open ones."""
    let_go = []
    open_jobs = await jobs.open_of(tx, space)
    for job_id in open_jobs:
        job = await jobs.get(tx, job_id)
        if job.state == "leased":
            await jobs.requeue(tx, job, None, delay=0, counts=None)
            let_go.append(job)
    await out_of_tasks(tx, space, open_jobs)
    return let_go


async def _take(tx: Tx, space: Space, erasure: Erasure) -> tuple[Erasure, list[Job], bool]:
    """Takes away a slice of each kind; jobs that this cancelled or has begin anew, and whether there may be more."""
    # Each time: until all of it is gone, a worker may read what goes with the next slice.
    ended = {job.job_id: job for job in await _let_go(tx, space)}
    await tx.execute(f"DELETE FROM recalled {_OF_USER}", space.account, space.user)
    answers = await requests.void(tx, space, most=ANSWERS)
    receipt = erasure.receipt.plus(Receipt(answers=answers))
    match erasure.kind:
        case Kind.PEER:
            erased, more = await _peer(tx, space, erasure.remains)
        case Kind.SESSION:
            erased, more = await _session(tx, space, erasure.remains)
        case _:
            erased, more = await _messages(tx, space, erasure.remains)
    ended |= {job.job_id: job for job in erased.cancelled}
    receipt = receipt.plus(erased.receipt).plus(Receipt(cancelled=len(ended)))
    taken = replace(erasure, receipt=receipt, remains=erased.remains)
    return taken, list(ended.values()), more or answers >= ANSWERS


async def _messages(tx: Tx, space: Space, remains: Remains) -> tuple[Erased, bool]:
    some = await erased_messages.named(tx, space, remains.session_id, remains.message_ids, erased_messages.SLICE)
    erased = await _erase(tx, space, some, remains)
    return erased, len(some) >= erased_messages.SLICE


async def _peer(tx: Tx, space: Space, remains: Remains) -> tuple[Erased, bool]:
    some = await erased_messages.of_peer(tx, space, remains.peer_id, erased_messages.SLICE)
    erased = await _erase(tx, space, some, remains)
    if len(some) >= erased_messages.SLICE:
        return erased, True
    rows = await tx.fetch(
        f"SELECT DISTINCT uri FROM memories {_OF_USER} AND peer_id = $3 LIMIT $4",
        space.account,
        space.user,
        remains.peer_id,
        MEMORIES,
    )
    taken = await erased_memories.take_back(tx, space, {row["uri"]: 0 for row in rows})
    both = Erased(erased.receipt.plus(of_memories(taken)), with_memories(erased.remains, taken), erased.cancelled)
    return both, len(rows) >= MEMORIES


async def _erase(tx: Tx, space: Space, some: Sequence[Row], remains: Remains) -> Erased:
    return await erased_messages.erase(tx, space, some, remains) if some else Erased(Receipt(), remains, [])


async def _session(tx: Tx, space: Space, remains: Remains) -> tuple[Erased, bool]:
    """Memories first: once the session is gone, all that is left is known by its name alone."""
    session_id = remains.session_id
    firsts = await _came_from(tx, space, session_id, MEMORIES)
    taken = await erased_memories.take_back(tx, space, firsts)
    receipt, remains, cancelled = of_memories(taken), with_memories(remains, taken), list[Job]()
    if len(firsts) >= MEMORIES:
        return Erased(receipt, remains, cancelled), True
    key = (space.account, space.user, session_id)
    if await tx.fetchrow(f"SELECT 1 FROM sessions {_OF_USER} AND session_id = $3", *key):
        counts = {
            name: await _count(tx, space, name, f" AND session_id = $3{_COUNTED[name]}", session_id)
            for name in _COUNTED
            if name != "tasks"
        }
        blobs = await _blobs(tx, space, session_id)
        cancelled = await deletion.delete_session(tx, space, session_id, REASON)
        unnamed = blobs - await blob_sweeps.named(tx, space) if blobs else blobs
        receipt = receipt.plus(Receipt(**counts, blobs=len(unnamed)))
    tasks = await tx.fetch(f"SELECT task_id FROM tasks {_OF_USER} AND session_id = $3 LIMIT {TASKS}", *key)
    for row in tasks:
        for table, column in (
            ("extraction_records", "task_id"),
            ("task_events", "task_id"),
            ("jobs", "job_id"),
            ("tasks", "task_id"),
        ):
            await tx.execute(
                f"DELETE FROM {table} {_OF_USER} AND {column} = $3", space.account, space.user, row["task_id"]
            )
    receipt = receipt.plus(Receipt(tasks=len(tasks)))
    return Erased(receipt, remains, cancelled), len(tasks) >= TASKS


async def _came_from(tx: Tx, space: Space, session_id: str, limit: int) -> dict[str, int]:
    """By URI the first version of each memory that names a message of the session as its source, up to a limit."""
    rows = await tx.fetch(
        f"SELECT uri, MIN(version) AS version FROM memory_sources {_OF_USER} AND session_id = $3"
        " GROUP BY uri ORDER BY uri LIMIT $4",
        space.account,
        space.user,
        session_id,
        limit,
    )
    return {row["uri"]: row["version"] for row in rows}


async def _blobs(tx: Tx, space: Space, session_id: str) -> set[str]:
    """Those that the session names."""
    key = (space.account, space.user, session_id)
    rows = await tx.fetch(
        f"SELECT blob FROM tool_outputs {_OF_USER} AND session_id = $3"
        f" UNION ALL SELECT blob FROM turn_artifacts {_OF_USER} AND session_id = $3 AND blob <> ''",
        *key,
    )
    said = await tx.fetch(f"SELECT parts FROM messages {_OF_USER} AND session_id = $3 AND outputs > 0", *key)
    return {row["blob"] for row in rows} | {
        part[STORED_OUTPUT] for row in said for part in json.loads(row["parts"]) if STORED_OUTPUT in part
    }


async def _losses(tx: Tx, space: Space) -> int:
    """How often data was taken away."""
    row = await tx.fetchrow(f"SELECT losses FROM spaces {_OF_USER}", space.account, space.user)
    return int(row["losses"]) if row else 0


async def _revision(tx: Tx, space: Space) -> int:
    row = await tx.fetchrow(f"SELECT revision FROM spaces {_OF_USER}", space.account, space.user)
    return int(row["revision"]) if row else 0


async def _count(tx: Tx, space: Space, table: str, only: str = "", *args: str) -> int:
    row = await tx.fetchrow(f"SELECT COUNT(*) AS n FROM {table} {_OF_USER}{only}", space.account, space.user, *args)
    return int(row["n"]) if row else 0
