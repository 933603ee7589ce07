"""Applies a whole output: prepared outside, then one transaction, and once more when a memory moved meanwhile."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from runekeep.v1 import common_pb2
from runekeep.v1 import extractor_service_pb2 as pb
from schemas import failpoints
from schemas.policy import Plan
from server.apply import result
from server.apply.operations import Merger, Outcome
from server.apply.repair import NeedsRepair
from server.apply.routing import Router
from server.apply.versions import versions_of
from server.apply.workspace import Draft, Workspace
from server.wire.basics import extractor_json
from storage import apply as storage_apply
from storage import archives, jobs, sessions, tasks
from storage.apply import Applied, PreparedCommit
from storage.database import Space, Tx
from storage.errors import LeaseLost, VersionConflict
from storage.memories import LATEST
from storage.records import Job, LeaseId, Message
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
    usage: list[dict[str, Any]]
    extractor: common_pb2.ExtractorInfo
    dropped_items: int


@dataclass(frozen=True, slots=True)
class Unusable:
    """An output with something in it of which nothing is right. `left_out`: what the task's result tells of it."""

    why: str
    left_out: dict[str, Any]


class Applier:
    """Turns outputs into revisions."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def apply(self, output: Output) -> Applied | NeedsRepair | Unusable:
        """Applies the output once, whatever number of times it comes.

        Wrong operations send the first output of a lease back whole; of the second they are left out and named.
        Raises LeaseLost, StoreUnavailable, and VersionConflict: memories kept moving, or had moved since the attempt
        began so that an operation fits no more.
        """
        database = self._store.database
        try:
            job = await database.read(jobs.held, output.lease)
        except LeaseLost:
            repeat = await database.read(storage_apply.applied_before, output.lease, output.output_id)
            if repeat is None:
                raise
            return repeat
        earlier, batch = await database.read(_before, job)
        if earlier is not None and earlier.output_id == output.output_id:
            # The answer to this very output was lost on its way.
            return earlier
        plan = Plan.from_json(json.loads(job.plan))
        for attempt in range(1, PREPARATIONS + 1):
            prepared = await self._prepare(job, plan, batch, output, earlier)
            if isinstance(prepared, NeedsRepair):
                await database.write(_ask_repair, output, prepared)
                return prepared
            if isinstance(prepared, Unusable):
                return prepared
            failpoints.reached(failpoints.APPLY_PREPARED)
            try:
                applied = await database.write(_apply, jobs.space_of(job), prepared)
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
        self, job: Job, plan: Plan, batch: list[Message], output: Output, earlier: NeedsRepair | None
    ) -> PreparedCommit | NeedsRepair | Unusable:
        workspace, outcome = await self._merged(job, plan, batch, output, LATEST)
        if outcome.rejected:
            await self._check_moved(job, plan, batch, output, outcome)
            if earlier is None:
                return NeedsRepair(output.output_id, outcome.operations, outcome.rejected)
        usable = outcome.operations - len(outcome.rejected)
        if earlier is not None:
            outcome.rejected += earlier.given_up(outcome)
        if not usable and (outcome.rejected or output.dropped_items):
            left_out = result.of_unusable(outcome, output.dropped_items)
            return Unusable(result.why_unusable(outcome, output.dropped_items), left_out)
        changed = [draft for draft in workspace.drafts.values() if draft.changed]
        writes = await versions_of(self._store, changed)
        extractor = extractor_json(output.extractor)
        diff = _diff(changed)
        told = result.of_applied(outcome, changed, diff, output.dropped_items)
        return PreparedCommit(
            lease=output.lease,
            output_id=output.output_id,
            writes=writes,
            abstract=output.summary.abstract,
            overview=output.summary.overview,
            diff=json.dumps({"extractor": extractor, "operations": diff}, ensure_ascii=False),
            extractor=json.dumps(extractor),
            result={**told, "extractor": extractor},
            usage=output.usage,
        )

    async def _merged(
        self, job: Job, plan: Plan, batch: list[Message], output: Output, revision: int
    ) -> tuple[Workspace, Outcome]:
        """The output worked into the memories of a revision."""
        space = jobs.space_of(job)
        workspace = Workspace(self._store.database, space, revision)
        merger = Merger(self._store.registry, Router(plan, batch), workspace, space, job.session_id)
        if plan.allow_self:
            await merger.initial_memories(plan.long_term_types)
        return workspace, await merger.merge(output.operations)

    async def _check_moved(self, job: Job, plan: Plan, batch: list[Message], output: Output, outcome: Outcome) -> None:
        """Raises VersionConflict for an operation that fitted what its attempt could read and fits no more.

        That is nobody's fault: to send it back for repair would blame an extractor that reads at its base revision
        and so cannot see what has changed. Another attempt can.
        """
        _, at_base = await self._merged(job, plan, batch, output, job.revision)
        wrong = {entry["operation_index"] for entry in at_base.rejected}
        for entry in outcome.rejected:
            if entry["operation_index"] not in wrong:
                raise VersionConflict(entry["uri"])


async def _apply(tx: Tx, space: Space, prepared: PreparedCommit) -> Applied:
    """`space` is that of the job: told of it, the store lets other accounts write meanwhile."""
    return await storage_apply.apply(tx, prepared)


async def _before(tx: Tx, job: Job) -> tuple[NeedsRepair | None, list[Message]]:
    """What was refused of an earlier output under this lease, and the batch."""
    space: Space = jobs.space_of(job)
    repair = await jobs.repair_asked(tx, job)
    archive = await archives.get(tx, space, job.session_id, job.archive_index)
    batch = await sessions.messages_between(tx, space, job.session_id, archive.first_sequence, archive.last_sequence)
    return NeedsRepair.from_json(repair) if repair else None, batch


async def _ask_repair(tx: Tx, output: Output, repair: NeedsRepair) -> None:
    job = await jobs.ask_repair(tx, output.lease, repair.as_json())
    # Kept now: the worker may not live to send its second output.
    await tasks.spent(tx, jobs.space_of(job), job.job_id, job.token, output.usage)


def _diff(changed: list[Draft]) -> result.Changes:
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
