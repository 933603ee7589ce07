"""Applies a whole output: prepared outside, then one transaction, and once more when a memory moved meanwhile."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from runekeep.v1 import common_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from schemas import failpoints
from schemas.policy import Plan
from schemas.render import index_text
from server.apply.operations import Merger, Outcome
from server.apply.routing import Router
from server.apply.workspace import Draft, Workspace
from server.wire.basics import extractor_json
from server.wire.tasks import usage_json
from storage import apply as storage_apply
from storage import archives, jobs, sessions, sparse
from storage.apply import Applied, PreparedCommit
from storage.database import Space, Tx
from storage.embedders import EmbedderUnavailable
from storage.errors import LeaseLost, VersionConflict
from storage.records import Job, LeaseId, MemoryWrite, Message
from storage.store import Store

PREPARATIONS = 3
"""How often an output is prepared before moved memories make it a conflict of the job."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Output:
    """What a worker sent for one lease, whole."""

    lease: LeaseId
    output_id: str
    operations: Sequence[pb.MemoryOperation]
    summary: common_pb2.Summary
    usage: Sequence[common_pb2.TokenUsage]
    extractor: common_pb2.ExtractorInfo
    dropped_items: int


@dataclass(frozen=True, slots=True)
class NeedsRepair:
    """Operations that are wrong, as LeftOut entries."""

    refused: list[dict[str, Any]]


class Applier:
    """Turns outputs into revisions."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def apply(self, output: Output, *, may_repair: bool) -> Applied | NeedsRepair:
        """Applies the output once, whatever number of times it comes.

        With `may_repair`, wrong operations send the whole output back; without, they are left out and named.
        Raises LeaseLost, VersionConflict (memories kept moving), StoreUnavailable.
        """
        database = self._store.database
        try:
            job = await database.read(jobs.held, output.lease)
        except LeaseLost:
            repeat = await database.read(storage_apply.applied_before, output.lease, output.output_id)
            if repeat is None:
                raise
            return repeat
        batch = await database.read(_batch, job)
        plan = Plan.from_json(json.loads(job.plan))
        for attempt in range(1, PREPARATIONS + 1):
            prepared = await self._prepare(job, plan, batch, output, may_repair)
            if isinstance(prepared, NeedsRepair):
                return prepared
            failpoints.reached(failpoints.APPLY_PREPARED)
            try:
                applied = await database.write(storage_apply.apply, prepared)
            except VersionConflict as conflict:
                log.info("apply_conflict", job=job.job_id, attempt=attempt)
                if attempt == PREPARATIONS:
                    raise conflict
                continue
            failpoints.reached(failpoints.APPLY_AFTER_COMMIT)
            self._store.relay.wake()
            return applied
        raise AssertionError("unreachable")

    async def _prepare(
        self, job: Job, plan: Plan, batch: list[Message], output: Output, may_repair: bool
    ) -> PreparedCommit | NeedsRepair:
        space = jobs.space_of(job)
        workspace = Workspace(self._store.database, space)
        router = Router(plan, batch)
        merger = Merger(self._store.registry, router, workspace, space, job.session_id)
        if plan.allow_self:
            await merger.initial_memories(plan.long_term_types)
        outcome = await merger.merge(output.operations)
        if outcome.rejected and may_repair:
            return NeedsRepair(outcome.rejected)
        changed = [draft for draft in workspace.drafts.values() if draft.changed]
        writes = await self._writes(changed)
        extractor = extractor_json(output.extractor)
        diff = _diff(changed)
        return PreparedCommit(
            lease=output.lease,
            output_id=output.output_id,
            writes=writes,
            abstract=output.summary.abstract,
            overview=output.summary.overview,
            diff=json.dumps({"extractor": extractor, "operations": diff}, ensure_ascii=False),
            extractor=json.dumps(extractor),
            result=_result(output, outcome, changed, diff),
        )

    async def _writes(self, changed: list[Draft]) -> list[MemoryWrite]:
        texts = [
            index_text(draft.type, draft.fields, draft.uri) if draft.fields is not None else "" for draft in changed
        ]
        vectors, model = await self._vectors(texts)
        writes = []
        for draft, text, dense in zip(changed, texts, vectors, strict=True):
            gone = draft.fields is None
            writes.append(
                MemoryWrite(
                    uri=draft.uri,
                    base_version=draft.current.version if draft.current else 0,
                    version=draft.newest_version + 1,
                    memory_type=draft.type.name,
                    peer_id=draft.peer,
                    fields=json.dumps(draft.fields or {}, ensure_ascii=False),
                    content=draft.content(),
                    abstract="" if gone else draft.abstract(),
                    overview="" if gone else draft.overview(),
                    sources=json.dumps(draft.sources),
                    dense=None if gone else dense,
                    dense_model="" if gone or dense is None else model,
                    sparse=sparse.encode_document(text).to_bytes(),
                    deleted=gone,
                )
            )
        return writes

    async def _vectors(self, texts: list[str]) -> tuple[list[bytes | None], str]:
        """Vectors and the embedder's name. When it is down the commit goes on, and the relay brings them later."""
        embedder = self._store.embedder
        if embedder is None or not texts:
            return [None] * len(texts), ""
        try:
            return list(await embedder.embed(texts)), embedder.model
        except EmbedderUnavailable as error:
            log.warning("apply_without_vectors", texts=len(texts), error=str(error))
            return [None] * len(texts), ""


async def _batch(tx: Tx, job: Job) -> list[Message]:
    space: Space = jobs.space_of(job)
    archive = await archives.get(tx, space, job.session_id, job.archive_index)
    return await sessions.messages_between(tx, space, job.session_id, archive.first_sequence, archive.last_sequence)


def _diff(changed: list[Draft]) -> dict[str, list[dict[str, Any]]]:
    """`operations` of memory_diff.json: files before and after."""
    adds, updates, deletes = [], [], []
    for draft in changed:
        entry: dict[str, Any] = {"uri": draft.uri, "memory_type": draft.type.name}
        if draft.fields is None:
            entry["deleted_content"] = draft.file_before()
            deletes.append(entry)
        elif draft.current is None:
            entry["after"] = draft.file()
            adds.append(entry)
        else:
            entry |= {"before": draft.file_before(), "after": draft.file()}
            updates.append(entry)
        entry |= {
            "version": draft.newest_version + 1,
            "reason": "; ".join(dict.fromkeys(filter(None, draft.reasons)))[:500],
            "message_ids": list(dict.fromkeys(draft.message_ids)),
        }
    return {"adds": adds, "updates": updates, "deletes": deletes}


def _result(
    output: Output, outcome: Outcome, changed: list[Draft], diff: dict[str, list[dict[str, Any]]]
) -> dict[str, Any]:
    extracted = Counter(draft.type.name for draft in changed if draft.counted and draft.fields is not None)
    if outcome.rejected or output.dropped_items:
        word = "partly_rejected"
    elif not output.operations:
        word = "nothing_to_extract"
    else:
        word = "applied"
    return {
        "outcome": word,
        "memories_extracted": dict(sorted(extracted.items())),
        "total_adds": len(diff["adds"]),
        "total_updates": len(diff["updates"]),
        "total_deletes": len(diff["deletes"]),
        "unchanged": outcome.unchanged,
        "skipped": outcome.skipped,
        "rejected": outcome.rejected,
        "dropped_items": output.dropped_items,
        "extractor": extractor_json(output.extractor),
        "usage": [usage_json(usage) for usage in output.usage],
    }
