"""Erases messages. Only the position and id of each remain, so that sequences have no gaps and nobody can add a message
under the same id again. Everything derived from the messages is erased with them."""

import json
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace

from runekeep_storage.blobs import sweeps
from runekeep_storage.database import Row, Space, Tx
from runekeep_storage.drivers.common.statement_lists import filled
from runekeep_storage.erasure import derived_data, memories, statements
from runekeep_storage.erasure import turns as erased_turns
from runekeep_storage.erasure.memories import TakenBack
from runekeep_storage.erasure.receipts import Receipt, Remains, digest
from runekeep_storage.erasure.turns import TakenTurns
from runekeep_storage.indexing import outbox
from runekeep_storage.indexing.outbox import Entry
from runekeep_storage.indexing.points import passage_point
from runekeep_storage.jobs import jobs
from runekeep_storage.memories import origins
from runekeep_storage.records import STORED_OUTPUT, Job
from runekeep_storage.sessions.image_descriptions import digest_of_url

SLICE = 200
"""Maximum number of messages that one transaction erases: some 100 ms of SQLite's writer."""
REASON = "its messages were erased"


@dataclass(frozen=True, slots=True)
class Erased:
    """What one transaction erased. `remains`: the remains including its additions; `cancelled`: jobs without anything
    left to do."""

    receipt: Receipt
    remains: Remains
    cancelled: list[Job]


async def of_peer(tx: Tx, space: Space, peer_id: str, limit: int) -> list[Row]:
    """Returns the next messages of a peer, in any session."""
    return await tx.fetch(statements.MESSAGES_OF_PEER, space.account, space.user, peer_id, limit)


async def named(tx: Tx, space: Space, session_id: str, message_ids: Sequence[str], limit: int) -> list[Row]:
    """Returns those of the messages that are not erased yet, at most `limit`."""
    found: list[Row] = []
    for some in filled(message_ids):
        found += await tx.fetch(statements.MESSAGES_TO_ERASE, space.account, space.user, session_id, *some)
        if len(found) >= limit:
            break
    return found[:limit]


async def erase(tx: Tx, space: Space, messages: Sequence[Row], remains: Remains) -> Erased:
    """Erases messages, of any sessions, with everything that came from them."""
    receipt, cancelled = Receipt(messages=len(messages)), list[Job]()
    firsts: dict[str, int] = {}
    for session_id in dict.fromkeys(row["session_id"] for row in messages):
        some = [row for row in messages if row["session_id"] == session_id]
        found = await origins.first_versions(tx, space, session_id, some)
        firsts |= {uri: min(first, firsts.get(uri, first)) for uri, first in found.items()}
    taken = await memories.take_back(tx, space, firsts)
    for session_id in dict.fromkeys(row["session_id"] for row in messages):
        some = [row for row in messages if row["session_id"] == session_id]
        of_session = await _of_session(tx, space, session_id, some, firsts)
        receipt = receipt.plus(of_session.receipt)
        cancelled += of_session.cancelled
        remains = _joined(remains, of_session.remains)
    await sweeps.ask(tx, space)
    return Erased(receipt.plus(of_memories(taken)), with_memories(remains, taken), cancelled)


def of_memories(taken: TakenBack) -> Receipt:
    return Receipt(memories=taken.ended, memory_versions=taken.versions, reverted=taken.reverted)


def with_memories(remains: Remains, taken: TakenBack) -> Remains:
    gone = dict.fromkeys((*remains.memories, *map(digest, taken.gone)))
    cut = dict.fromkeys((*remains.cut, *map(digest, taken.cut)))
    revision = max(remains.revision, taken.revision - 1)
    return replace(remains, memories=tuple(gone), cut=tuple(cut), revision=revision)


def _joined(remains: Remains, more: Remains) -> Remains:
    def merged(one: dict[str, list[str]], other: dict[str, list[str]]) -> dict[str, list[str]]:
        return {key: list(dict.fromkeys([*one.get(key, []), *other.get(key, [])])) for key in {**one, **other}}

    return replace(
        remains,
        turns=merged(remains.turns, more.turns),
        later=merged(remains.later, more.later),
        images=merged(remains.images, more.images),
        tasks=tuple(dict.fromkeys((*remains.tasks, *more.tasks))),
    )


async def _of_session(tx: Tx, space: Space, session_id: str, messages: Sequence[Row], firsts: dict[str, int]) -> Erased:
    parts = [part for row in messages for part in json.loads(row["parts"])]
    sequences = [row["sequence"] for row in messages]
    archives = await _archives(tx, space, session_id, sequences)
    passages = await _passages(tx, space, session_id, sequences, archives)
    outputs = {(part["tool_id"], part[STORED_OUTPUT]) for part in parts if STORED_OUTPUT in part}
    images = sorted({digest_of_url(part["url"]) for part in parts if part["type"] == "image"})
    await _remove(tx, space, session_id, "image_descriptions", "digest", images)
    await _empty(tx, space, session_id, messages)
    blobs = await _outputs(tx, space, session_id, outputs)
    turn_ids = sorted({row["turn_id"] for row in messages} - {""})
    turns = await erased_turns.take_away(tx, space, session_id, turn_ids, REASON)
    tasks = await derived_data.out_of_archives(
        tx, space, [(session_id, row["archive_index"]) for row in archives], firsts, emptied=True
    )
    cancelled = await _cancel_empty(tx, space, session_id, archives)
    await derived_data.out_of_tasks(tx, space, tasks)
    remains = Remains(
        turns={session_id: turn_ids} if turn_ids else {},
        later={session_id: turns.later} if turns.later else {},
        images={session_id: images} if images else {},
        tasks=tuple(row["task_id"] for row in archives),
    )
    return Erased(_receipt(passages, blobs, turns), remains, [*turns.cancelled, *cancelled])


def _receipt(passages: int, blobs: int, turns: TakenTurns) -> Receipt:
    return Receipt(passages=passages, blobs=blobs, turns=turns.turns, turn_artifacts=turns.artifacts)


async def _archives(tx: Tx, space: Space, session_id: str, sequences: Sequence[int]) -> list[Row]:
    """Returns the archives that hold one of the messages."""
    rows = await tx.fetch(
        statements.ARCHIVES_BETWEEN,
        space.account,
        space.user,
        session_id,
        min(sequences),
        max(sequences),
    )
    return [row for row in rows if any(_holds(row, sequence) for sequence in sequences)]


def _holds(archive: Row, sequence: int) -> bool:
    return bool(archive["first_sequence"] <= sequence <= archive["last_sequence"])


async def _passages(tx: Tx, space: Space, session_id: str, sequences: Sequence[int], archives: Iterable[Row]) -> int:
    """Deletes the passages of the messages. Their points are removed whether or not a row exists yet."""
    points = [
        passage_point(space, archive["task_id"], sequence)
        for archive in archives
        for sequence in sequences
        if _holds(archive, sequence)
    ]
    await outbox.remove(tx, space, points)
    await _forget_leads(tx, space, session_id, sequences)
    return await _remove(tx, space, session_id, "passages", "sequence", sequences)


async def _forget_leads(tx: Tx, space: Space, session_id: str, sequences: Sequence[int]) -> None:
    """Deletes the vectors of the following passages, which also cover the end of these messages. The index loses them
    in the next step of the relay, with or without an embedder; new ones are made as for rows that never had one."""
    again: list[Entry] = []
    for some in filled({sequence + 1 for sequence in sequences}.difference(sequences)):
        key = (space.account, space.user, session_id, *some)
        rows = await tx.fetch(statements.PASSAGES, *key)
        await tx.execute(statements.DELETE_VECTORS_OF_PASSAGES, *key)
        again += [
            Entry(
                "passage",
                uri=session_id,
                version=row["sequence"],
                point_id=passage_point(space, row["task_id"], row["sequence"]),
            )
            for row in rows
        ]
    if again:
        await outbox.add(tx, space, 0, again)


async def _outputs(tx: Tx, space: Space, session_id: str, outputs: Set[tuple[str, str]]) -> int:
    """Deletes those of the outputs (call, blob), which emptied messages named, that no other message of the session
    names. Returns how many blobs are no longer named by any row."""
    if not outputs:
        return 0
    key = (space.account, space.user, session_id)
    rows = await tx.fetch(statements.PARTS_WITH_OUTPUTS, *key)
    kept = {
        (part["tool_id"], part[STORED_OUTPUT])
        for row in rows
        for part in json.loads(row["parts"])
        if STORED_OUTPUT in part
    }
    for tool_id, blob in sorted(outputs - kept):
        await tx.execute(statements.DELETE_OUTPUT, *key, tool_id, blob)
    return len({blob for _, blob in outputs} - await sweeps.named(tx, space))


async def _remove(
    tx: Tx, space: Space, session_id: str, table: str, column: str, values: Sequence[str] | Sequence[int]
) -> int:
    statement = statements.delete_in_session(table, column)
    removed = 0
    for some in filled(values):
        removed += await tx.execute(statement, space.account, space.user, session_id, *some)
    return removed


async def _empty(tx: Tx, space: Space, session_id: str, messages: Sequence[Row]) -> None:
    key = (space.account, space.user, session_id)
    for some in filled(row["sequence"] for row in messages):
        await tx.execute(statements.EMPTY_MESSAGES, *key, *some)
    row = await tx.fetchrow(statements.ARCHIVED_SEQUENCE, *key)
    archived = row["archived_sequence"] if row is not None else 0
    live_tokens = sum(row["tokens"] for row in messages if row["sequence"] > archived)
    await tx.execute(statements.SUBTRACT_LIVE_TOKENS, *key, live_tokens, archived)


async def _cancel_empty(tx: Tx, space: Space, session_id: str, archives: Iterable[Row]) -> list[Job]:
    """Cancels the commits of archives that hold only erased messages."""
    cancelled = []
    for archive in archives:
        left = await tx.fetchrow(
            statements.HAS_MESSAGE_BETWEEN,
            space.account,
            space.user,
            session_id,
            archive["first_sequence"],
            archive["last_sequence"],
        )
        open_job = await tx.fetchrow(statements.HAS_OPEN_JOB, space.account, space.user, archive["task_id"])
        if left is None and open_job is not None:
            cancelled.append(await jobs.cancel(tx, space, archive["task_id"], REASON))
    return cancelled
