"""Rollback: takes back exactly what one revision changed, as a new revision.

The previous state of each memory is in its rows: fields, views, sources and vectors are written again as they were.
Nothing is rendered, embedded or checked against its type again.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from runekeep.v1 import history_service_pb2 as pb
from runekeep.v1.session_service_pb2 import MemoryChange
from runekeep_schemas.documents.uris import UriError, parse_archive
from runekeep_schemas.type_files.registry import Registry
from runekeep_server.history.memory_states import says_the_same, text_of
from runekeep_server.protocol.errors import (
    commit_not_finished,
    invalid,
    revision_moved,
    rollback_conflict,
    write_not_allowed,
)
from runekeep_server.protocol.idempotency import prepare_and_mutate
from runekeep_server.protocol.pagination import fitting
from runekeep_server.wire.basics import canonical
from runekeep_storage.database import Space, Tx
from runekeep_storage.history import history, rollbacks
from runekeep_storage.history.rollbacks import Before, Touched
from runekeep_storage.index import sparse
from runekeep_storage.memories import revisions
from runekeep_storage.memories.revisions import Origin
from runekeep_storage.records import Memory, MemoryWrite
from runekeep_storage.sessions import archives
from runekeep_storage.spaces import spaces
from runekeep_storage.store import Store

ENGINE = "rollback"
"""The engine name in versions that a rollback wrote."""

# Bytes of a length prefix (varint), enough for the size of an answer.
_LENGTH_BYTES = 4
_EXTRACTOR = json.dumps({"engine": ENGINE, "model": "", "version": ""})


@dataclass(slots=True)
class Plan:
    """The writes of a rollback. `settled`: memories that already have their state from before the revision, with their
    versions; 0 if they do not exist. `later`: by URI, the later revisions whose changes would be lost."""

    revision: int
    writes: list[MemoryWrite] = field(default_factory=list)
    changes: list[MemoryChange] = field(default_factory=list)
    settled: list[tuple[str, int]] = field(default_factory=list)
    later: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def answer(self, most_bytes: int, *, revision: int = 0, newest: int = 0) -> pb.RollbackRevisionResponse:
        answer = pb.RollbackRevisionResponse(revision=revision, newest_revision=newest)
        fill(answer, self.changes, self.later, most_bytes)
        return answer


def fill(
    answer: pb.RollbackRevisionResponse | pb.RollbackSessionResponse,
    all_changes: Sequence[MemoryChange],
    later: Mapping[str, Sequence[int]],
    most_bytes: int,
) -> None:
    """Adds changes, and later revisions by URI, to an answer of at most `most_bytes`, because a larger one would not
    arrive and the rollback would look like a failure. Texts that do not fit are left out, then changes and conflicts
    whose names do not fit."""
    conflicts = [pb.RollbackConflict(uri=uri, revisions=numbers) for uri, numbers in later.items()]
    changes = list(map(_without_texts, all_changes))
    shown, told = fitting(changes, most_bytes // 2), fitting(conflicts, most_bytes // 2)
    answer.changes.extend(changes[:shown])
    answer.conflicts.extend(conflicts[:told])
    answer.changes_omitted = len(changes) - shown
    answer.conflicts_omitted = len(conflicts) - told
    whole = _texts_added(answer.changes, all_changes[:shown], most_bytes - answer.ByteSize())
    answer.texts_omitted = not whole or shown < len(changes)


def _without_texts(change: MemoryChange) -> MemoryChange:
    return MemoryChange(uri=change.uri, memory_type=change.memory_type, version=change.version)


def _texts_added(shown: Sequence[MemoryChange], changes: Sequence[MemoryChange], room: int) -> bool:
    """Adds both texts to each shown change, or none if they do not fit. Returns whether all changes have their
    texts."""
    whole = True
    for bare, change in zip(shown, changes, strict=True):
        # The length prefix of the change grows with it.
        more = change.ByteSize() - bare.ByteSize() + _LENGTH_BYTES
        if more <= room:
            room -= more
            bare.before, bare.after = change.before, change.after
        else:
            whole = False
    return whole


async def roll_back(
    store: Store, space: Space, request: pb.RollbackRevisionRequest, most_bytes: int
) -> pb.RollbackRevisionResponse:
    """Takes back a revision, or returns a preview. `most_bytes`: maximum size of the answer.

    Raises ApiError, NotFound, RequestReused, VersionConflict (memories kept changing), StoreUnavailable.
    """
    if request.preview:
        newest, plan = await _plan(store, space, request)
        return plan.answer(most_bytes, newest=newest)

    async def prepare() -> Plan:
        _, plan = await _plan(store, space, request)
        if plan.later and not request.force:
            raise rollback_conflict(f"revision {plan.revision}", plan.later, revision=str(plan.revision))
        return plan

    async def work(plan: Plan, tx: Tx) -> pb.RollbackRevisionResponse:
        await checked_newest(tx, space, request.expected_revision)
        return plan.answer(most_bytes, revision=await write(tx, space, plan))

    answer = await prepare_and_mutate(store.database, space, request, pb.RollbackRevisionResponse, prepare, work)
    store.relay.wake()
    return answer


async def _plan(store: Store, space: Space, request: pb.RollbackRevisionRequest) -> tuple[int, Plan]:
    """Returns the newest revision, and what the rollback changes."""
    newest, revision, touched = await store.database.read(_read, space, request)
    model = store.attachment.models.main
    return newest, await asyncio.to_thread(planned, revision, touched, store.registry, model)


async def _read(tx: Tx, space: Space, request: pb.RollbackRevisionRequest) -> tuple[int, int, list[Touched]]:
    """Returns the newest revision, the one to take back, and the memories that it touched."""
    archive_uri = canonical("archive_uri", request.archive_uri, space.user) if request.archive_uri else ""
    newest = await checked_newest(tx, space, request.expected_revision)
    number = await _of_archive(tx, space, archive_uri) if archive_uri else request.revision
    revision = await history.get(tx, space, number)
    if revision.origin == "erasure":
        what = f"Revision {number} is an erasure, and what it took away is nowhere any more"
        raise write_not_allowed(f"revision {number}", what, "Write anew what is to be there")
    return newest, number, await rollbacks.touched_by(tx, space, number)


async def checked_newest(tx: Tx, space: Space, expected: int) -> int:
    """Returns the newest revision of the space. Raises ApiError VERSION_MISMATCH unless it is `expected`; 0 means
    any."""
    newest, _ = await spaces.revisions(tx, space)
    if expected and newest != expected:
        raise revision_moved(expected, newest)
    return newest


async def _of_archive(tx: Tx, space: Space, uri: str) -> int:
    """Returns the revision that the commit of the archive made."""
    try:
        place = parse_archive(uri)
    except UriError as error:
        raise invalid("archive_uri", error.reason, "Take it from CommitSession or ListArchives") from error
    archive = await archives.get(tx, space, place.session, place.index)
    if archive.state != "done":
        raise commit_not_finished(uri)
    return archive.revision


async def write(tx: Tx, space: Space, plan: Plan) -> int:
    """Writes the rollback. Returns its revision, or 0 if there is nothing to change. Raises VersionConflict."""
    for uri, version in plan.settled:
        await revisions.check_base(tx, space, uri, version)
    if not plan.writes:
        return 0
    return await revisions.make(tx, space, plan.writes, _EXTRACTOR, Origin("rollback", rolled_back=plan.revision))


def planned(revision: int, touched: Sequence[Touched], registry: Registry, model: str) -> Plan:
    """Plans the rollback of a revision. `model`: the current embedding model. Vectors of other models are dropped, and
    made again after the write."""
    plan = Plan(revision)
    for one in touched:
        before = one.before.memory if one.before else None
        current = None if one.newest.deleted else one.newest
        if says_the_same(current, before):
            plan.settled.append((one.newest.uri, current.version if current else 0))
            continue
        made = None if one.made.deleted else one.made
        # If later revisions undid each other, nothing of them is lost.
        if one.later and not says_the_same(current, made):
            plan.later[one.newest.uri] = one.later
        write = _again(one.newest, one.before, model) if one.before else _gone(one.newest)
        plan.writes.append(write)
        plan.changes.append(
            MemoryChange(
                uri=write.uri,
                memory_type=write.memory_type,
                before=text_of(current, registry),
                after=text_of(before, registry),
                version=write.version,
            )
        )
    return plan


def _again(newest: Memory, before: Before, model: str) -> MemoryWrite:
    old = before.memory
    searched = before.dense_model == model
    return MemoryWrite(
        uri=old.uri,
        base_version=0 if newest.deleted else newest.version,
        version=newest.version + 1,
        memory_type=old.memory_type,
        peer_id=old.peer_id,
        fields=old.fields,
        content=old.content,
        abstract=old.abstract,
        overview=old.overview,
        sources=old.sources,
        dense=before.dense if searched else None,
        dense_model=before.dense_model if searched else "",
        sparse=before.sparse,
        happened_at=old.happened_at,
        tags=tuple(json.loads(old.tags)),
        created_at=old.created_at,
    )


def _gone(newest: Memory) -> MemoryWrite:
    """Returns a write that deletes the memory."""
    return MemoryWrite(
        uri=newest.uri,
        base_version=newest.version,
        version=newest.version + 1,
        memory_type=newest.memory_type,
        peer_id=newest.peer_id,
        fields="{}",
        content="",
        abstract="",
        overview="",
        sources="[]",
        dense=None,
        dense_model="",
        sparse=sparse.encode_document("").to_bytes(),
        deleted=True,
    )
