"""The first part of erasures: transactions that remove rows, after which nothing erased can be read any more.

What fits into one transaction is removed in the one that requests the erasure. For more, the space is locked, as for a
deleted user (`runekeep_storage.spaces.space_locks`), and the rest follows in slices, which may be repeated: what is
left to do is what still exists. If a server dies in between, the row of the erasure stays and the next server
continues.

All leased jobs of the user are requeued, because their workers may have read what is erased. All stored responses are
voided, and the record of what Recall gave sessions is deleted, because both may name or quote it.
"""

import json
from collections.abc import Sequence
from dataclasses import replace

from runekeep_common import failpoints
from runekeep_storage.blobs import sweeps
from runekeep_storage.database import Row, Space, Tx
from runekeep_storage.drivers.common import idempotent_requests
from runekeep_storage.drivers.common.statement_lists import filled
from runekeep_storage.erasure import deletion, memories, messages, statements
from runekeep_storage.erasure.derived_data import is_proposed, out_of_proposals, out_of_tasks
from runekeep_storage.erasure.messages import REASON, Erased, of_memories, with_memories
from runekeep_storage.erasure.receipts import (
    Erasure,
    Kind,
    Receipt,
    Remains,
    Scope,
    State,
    digest,
    get,
    save,
)
from runekeep_storage.errors import NotFound
from runekeep_storage.jobs import asks, jobs, retention
from runekeep_storage.records import STORED_OUTPUT, Job
from runekeep_storage.sessions import sessions
from runekeep_storage.spaces import pending_deletions, space_locks, spaces
from runekeep_storage.tables import TABLES, Statement

ANSWERS = 500
"""Maximum number of stored responses that one transaction voids."""
MEMORIES = 100
"""Maximum number of memories that one transaction takes back."""
TASKS = 200
"""Maximum number of a session's tasks that one transaction deletes."""

_COUNTED = [table for table in TABLES if table.is_in_receipts]


async def begin(tx: Tx, space: Space, erasure_id: str, scope: Scope) -> tuple[Erasure, list[Job]]:
    """Makes everything in the scope unreadable. Returns the erasure, and the jobs that were cancelled or requeued.
    Raises NotFound for an empty scope, except for a user."""
    if scope.kind is Kind.USER:
        return await _user(tx, space, erasure_id)
    await spaces.lost(tx, space)
    erasure = Erasure(erasure_id, scope.kind, State.TAKING, Receipt(), await _covered(tx, space, scope), tx.now())
    erasure, ended, more = await _take(tx, space, erasure)
    if more:
        await space_locks.lock(tx, space, erasure_id)
    else:
        erasure = await _taken(tx, space, erasure)
    await save(tx, space, erasure)
    failpoints.reached(failpoints.ERASURE_BEFORE_COMMIT)
    return erasure, ended


async def go_on(tx: Tx, space: Space, erasure_id: str) -> bool:
    """Removes some more of an erasure whose space is locked. Returns whether there is more. The last call unlocks the
    space."""
    erasure = await get(tx, space, erasure_id)
    if erasure.state is not State.TAKING:
        return False
    if erasure.kind is Kind.USER:
        more = await space_locks.is_deleted(tx, space)
    else:
        erasure, _, more = await _take(tx, space, erasure)
        if not more:
            await space_locks.unlock(tx, space)
    await save(tx, space, erasure if more else await _taken(tx, space, erasure))
    return more


async def _taken(tx: Tx, space: Space, erasure: Erasure) -> Erasure:
    """Moves the erasure to REMOVING. From then on nobody looks for rows by the peer's name."""
    peer = erasure.remains.peer_id
    row = await tx.fetchrow(statements.OUTBOX_NUMBER, space.account, space.user)
    remains = replace(
        erasure.remains, peer_id=digest(peer) if peer else "", outbox=row["outbox_number"] if row is not None else 0
    )
    return replace(erasure, state=State.REMOVING, remains=remains)


async def _user(tx: Tx, space: Space, erasure_id: str) -> tuple[Erasure, list[Job]]:
    untouched = not await _losses(tx, space)
    counts = {table.name: await deletion.count(tx, space, table.name, table.current) for table in _COUNTED}
    versions = await deletion.count(tx, space, "memories")
    answers = await deletion.count(tx, space, "requests", statements.IS_NOT_VOID)
    blobs = len(await sweeps.named(tx, space))
    gone = await deletion.delete_user(tx, space, REASON)
    receipt = Receipt(
        **counts,
        memories=gone.memories,
        memory_versions=versions,
        answers=answers,
        blobs=blobs,
        cancelled=len(gone.cancelled),
    )
    shut = await space_locks.is_deleted(tx, space)
    revision, _ = await spaces.revisions(tx, space)
    remains = Remains(revision=revision, nothing=untouched and receipt == Receipt())
    erasure = Erasure(erasure_id, Kind.USER, State.TAKING, receipt, remains, tx.now())
    if not shut:
        erasure = await _taken(tx, space, erasure)
    await save(tx, space, erasure)
    return erasure, gone.cancelled


async def _covered(tx: Tx, space: Space, scope: Scope) -> Remains:
    """Returns what the scope holds now, for the later verification. Raises NotFound if that is nothing."""
    revision, _ = await spaces.revisions(tx, space)
    match scope.kind:
        case Kind.PEER:
            of_peer = (space.account, space.user, scope.peer_id)
            rows = await tx.fetch(statements.ENDS_OF_PEER, *of_peer)
            memory = await tx.fetchrow(statements.HAS_MEMORY_OF_PEER, *of_peer)
            if not rows and memory is None and not await is_proposed(tx, space, scope.peer_id):
                raise NotFound("peer", scope.peer_id)
            ends = {row["session_id"]: row["last"] for row in rows}
            return Remains(peer_id=scope.peer_id, ends=ends, revision=revision)
        case Kind.SESSION:
            try:
                session = await sessions.get(tx, space, scope.session_id)
            except NotFound:
                # The memories and tasks of a deleted session outlive it.
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
    """Returns whether there is a task of the session, or a pending deletion of it."""
    key = (space.account, space.user, scope.session_id)
    task = await tx.fetchrow(statements.HAS_TASK, *key)
    return task is not None or await pending_deletions.of_space(tx, space, scope.session_id)


async def _there(tx: Tx, space: Space, session_id: str, message_ids: Sequence[str]) -> set[str]:
    """Returns those of the messages that the session has, including erased ones."""
    found: set[str] = set()
    for some in filled(message_ids):
        rows = await tx.fetch(statements.MESSAGE_IDS, space.account, space.user, session_id, *some)
        found |= {row["message_id"] for row in rows}
    return found


async def _let_go(tx: Tx, space: Space) -> list[Job]:
    """Requeues every leased job of the user, and removes what open jobs store about their attempts. Returns the
    requeued jobs."""
    let_go = []
    open_jobs = await jobs.open_of(tx, space)
    # An answer may quote what is erased, until its caller has read it.
    await asks.forget_ended(tx, space)
    for job_id in open_jobs:
        job = await jobs.get(tx, job_id)
        if job.state == "leased":
            await jobs.requeue(tx, job, None, delay=0, counts=None)
            let_go.append(job)
    await out_of_tasks(tx, space, open_jobs)
    return let_go


async def _take(tx: Tx, space: Space, erasure: Erasure) -> tuple[Erasure, list[Job], bool]:
    """Removes a slice of each kind. Returns the erasure, the jobs that were cancelled or requeued, and whether there
    may be more."""
    # For every slice: until everything is gone, a worker may read what the next slice removes.
    ended = {job.job_id: job for job in await _let_go(tx, space)}
    await tx.execute(statements.DELETE_RECALLED, space.account, space.user)
    answers = await idempotent_requests.void(tx, space, most=ANSWERS)
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
    some = await messages.named(tx, space, remains.session_id, remains.message_ids, messages.SLICE)
    erased = await _erase(tx, space, some, remains)
    return erased, len(some) >= messages.SLICE


async def _peer(tx: Tx, space: Space, remains: Remains) -> tuple[Erased, bool]:
    await out_of_proposals(tx, space, remains.peer_id)
    some = await messages.of_peer(tx, space, remains.peer_id, messages.SLICE)
    erased = await _erase(tx, space, some, remains)
    if len(some) >= messages.SLICE:
        return erased, True
    rows = await tx.fetch(statements.URIS_OF_PEER, space.account, space.user, remains.peer_id, MEMORIES)
    taken = await memories.take_back(tx, space, {row["uri"]: 0 for row in rows})
    both = Erased(erased.receipt.plus(of_memories(taken)), with_memories(erased.remains, taken), erased.cancelled)
    return both, len(rows) >= MEMORIES


async def _erase(tx: Tx, space: Space, some: Sequence[Row], remains: Remains) -> Erased:
    return await messages.erase(tx, space, some, remains) if some else Erased(Receipt(), remains, [])


async def _session(tx: Tx, space: Space, remains: Remains) -> tuple[Erased, bool]:
    """Memories first: once the session is gone, only its name identifies the rest."""
    session_id = remains.session_id
    firsts = await _came_from(tx, space, session_id, MEMORIES)
    taken = await memories.take_back(tx, space, firsts)
    receipt, remains, cancelled = of_memories(taken), with_memories(remains, taken), list[Job]()
    if len(firsts) >= MEMORIES:
        return Erased(receipt, remains, cancelled), True
    key = (space.account, space.user, session_id)
    if await tx.fetchrow(statements.HAS_SESSION, *key):
        counts = {
            table.name: await deletion.count(tx, space, table.name, statements.is_in_session(table.current), session_id)
            for table in _COUNTED
            if not isinstance(table.session, Statement)
        }
        blobs = await _blobs(tx, space, session_id)
        cancelled = await deletion.delete_session(tx, space, session_id, REASON)
        unnamed = blobs - await sweeps.named(tx, space) if blobs else blobs
        receipt = receipt.plus(Receipt(**counts, blobs=len(unnamed)))
    tasks = await tx.fetch(statements.TASKS_OF_SESSION, *key, TASKS)
    for row in tasks:
        await retention.forget_task(tx, space, row["task_id"])
    receipt = receipt.plus(Receipt(tasks=len(tasks)))
    return Erased(receipt, remains, cancelled), len(tasks) >= TASKS


async def _came_from(tx: Tx, space: Space, session_id: str, limit: int) -> dict[str, int]:
    """Returns the first version of each memory that names a message of the session as its source, by URI, at most
    `limit`."""
    rows = await tx.fetch(statements.FIRST_VERSIONS, space.account, space.user, session_id, limit)
    return {row["uri"]: row["version"] for row in rows}


async def _blobs(tx: Tx, space: Space, session_id: str) -> set[str]:
    """Returns the blobs that the session names."""
    key = (space.account, space.user, session_id)
    rows = await tx.fetch(statements.BLOBS_OF_SESSION, *key)
    said = await tx.fetch(statements.PARTS_WITH_OUTPUTS, *key)
    return {row["blob"] for row in rows} | {
        part[STORED_OUTPUT] for row in said for part in json.loads(row["parts"]) if STORED_OUTPUT in part
    }


async def _losses(tx: Tx, space: Space) -> int:
    """Returns how often data of the space was deleted."""
    row = await tx.fetchrow(statements.LOSSES, space.account, space.user)
    return int(row["losses"]) if row else 0
