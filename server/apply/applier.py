"""Applies a whole output: prepared outside, then one transaction, and once more when a memory moved meanwhile."""

import json
from dataclasses import dataclass, field
from typing import Any

import structlog

from schemas import failpoints
from schemas.policy import Plan
from schemas.registry import Registry
from server.answer_sizes import DEFAULT_SIZES
from server.apply import counts, images, result, turn_memories
from server.apply.counts import BatchCounts
from server.apply.operations import Merger, Outcome, Rules
from server.apply.output import Output, Unusable, out_of_place, without_secrets
from server.apply.repair import NeedsRepair
from server.apply.routing import Router
from server.apply.turn_outputs import TurnApplier
from server.apply.versions import versions_of
from server.apply.workspace import Draft, Workspace
from server.secret_scan import scan_for_secrets
from server.telemetry import work as telemetry
from server.wire.basics import extractor_json
from storage import apply as storage_apply
from storage import archives, extraction_records, jobs, repairs, sessions, tasks
from storage.apply import Applied, PreparedCommit
from storage.database import Space, Tx
from storage.errors import LeaseLost, SpaceShut, VersionConflict
from storage.jobs import Failure
from storage.memories import LATEST
from storage.records import Job, Message
from storage.relay import MEMORIES, PASSAGES
from storage.store import Store

PREPARATIONS = 3
"""How often an output is prepared before moved memories make it a conflict of the job."""

MAX_DIFF_CHARACTERS = 2 * 1024 * 1024
"""Of texts and message ids in the diff of one commit. It is one row of the store, which is encoded and written within
the transaction: larger ones would delay other calls."""

_Merged = tuple[list[Draft], Outcome]
"""Memories that an output touches, with it worked into them, and what became of its operations."""

log = structlog.get_logger(__name__)


class Applier:
    """Turns outputs into revisions, and those about turns into turn memory.

    `withhold_secrets`: keys, passwords and their like never come into memories. `max_memory_bytes`: of a memory as an
    answer has it. `review_superseded`: what a new memory supersedes is kept and named, and not deleted.
    """

    def __init__(
        self,
        store: Store,
        *,
        withhold_secrets: bool = True,
        review_superseded: bool = False,
        max_memory_bytes: int = DEFAULT_SIZES.memory,
    ) -> None:
        self._store = store
        self._withhold_secrets = withhold_secrets
        self._rules = Rules(max_memory_bytes, review_superseded)
        self._turns = TurnApplier(store, withhold_secrets=withhold_secrets)

    async def apply(self, output: Output) -> Applied | NeedsRepair | Unusable:
        """Applies the output once, whatever number of times it comes.

        Wrong operations send the first output of a lease back whole; of the second they are left out and named, also
        where nothing but its summary is left.
        Raises LeaseLost, StoreUnavailable, and VersionConflict: memories kept moving, or had moved since the attempt
        began so that an operation fits no more.
        """
        if self._withhold_secrets:
            # Elsewhere: a long output would hold up every call.
            output = await scan_for_secrets(without_secrets, output)
        database = self._store.all_spaces
        try:
            begun = await database.read(_begin, self._store.registry, self._rules, self._withhold_secrets, output)
        except LeaseLost:
            repeat = await database.read(storage_apply.applied_before, output.lease, output.output_id)
            if repeat is None:
                raise
            return repeat
        job = begun.job
        if misplaced := out_of_place(job.kind, output):
            return Unusable(misplaced, {})
        with telemetry.applying(job, output.traceparent) as applying:
            if job.kind == jobs.COMMIT:
                applied = await self._commit(job, output, begun)
            else:
                applied = await self._turns.apply(job, output)
            applying.came_to(applied)
        return applied

    async def _commit(self, job: Job, output: Output, begun: "_Begun") -> Applied | NeedsRepair | Unusable:
        database = self._store.all_spaces
        earlier = begun.earlier
        if earlier is not None and earlier.output_id == output.output_id:
            # The answer to this very output was lost on its way.
            return earlier
        plan, merged = Plan.from_json(json.loads(job.plan)), begun.merged
        for attempt in range(1, PREPARATIONS + 1):
            merged = merged or await self._merged(job, plan, begun, output, LATEST)
            prepared = await self._prepare(job, plan, begun, output, merged)
            # Worked into memories as they were then.
            merged = None
            if isinstance(prepared, NeedsRepair):
                await database.write(_ask_repair, jobs.space_of(job), output, prepared)
                return prepared
            if isinstance(prepared, Unusable):
                return prepared
            failpoints.reached(failpoints.APPLY_PREPARED)
            try:
                applied = await database.write(_apply, jobs.space_of(job), prepared)
            except VersionConflict as conflict:
                telemetry.CONFLICTS.inc()
                log.info("apply_conflict", job=job.job_id, attempt=attempt)
                if attempt == PREPARATIONS:
                    raise conflict
                continue
            failpoints.reached(failpoints.APPLY_AFTER_COMMIT)
            # Passages: what an image shows has a vector to get.
            self._store.relay.wake(MEMORIES, *([PASSAGES] if prepared.captioned else []))
            return applied
        raise AssertionError("unreachable")

    async def _prepare(
        self, job: Job, plan: Plan, begun: "_Begun", output: Output, merged: _Merged
    ) -> PreparedCommit | NeedsRepair | Unusable:
        earlier, batch = begun.earlier, begun.batch
        drafts, outcome = merged
        if outcome.rejected:
            await self._check_moved(job, plan, begun, output, outcome)
            if earlier is None:
                return NeedsRepair.of(output.output_id, outcome)
        about_turns = await self._about_turns(batch, output)
        described, wrong = images.described(batch, output.image_descriptions)
        # What is refused again, or could not be read, is left out, and the rest is applied, even if that is the summary
        # alone: another attempt would be paid for to come to the same. Without a summary there is no rest.
        empty = not (outcome.operations or earlier or output.duplicates or about_turns.memories or described)
        if empty and output.dropped_items and not output.summary.ByteSize():
            why = f"none of the output's items could be read: {output.dropped_items} were dropped"
            return Unusable(why, {"dropped_items": output.dropped_items})
        if earlier is not None:
            outcome.rejected += earlier.given_up(outcome)
        changed = [draft for draft in drafts if draft.changed]
        writes = await versions_of(self._store, jobs.space_of(job), changed)
        extractor = extractor_json(output.extractor)
        diff = _diff(changed)
        outcome.rejected += [*wrong, *about_turns.refused]
        told = result.of_applied(
            outcome,
            changed,
            diff,
            output.dropped_items + about_turns.dropped,
            kept_besides=bool(output.duplicates or about_turns.memories or described),
        )
        if output.skipped_rules:
            told["skipped_rules"] = dict(output.skipped_rules)
        return PreparedCommit(
            lease=output.lease,
            output_id=output.output_id,
            writes=writes,
            abstract=output.summary.abstract,
            overview=output.summary.overview,
            diff=json.dumps({"extractor": extractor, "operations": diff}, ensure_ascii=False),
            extractor=json.dumps(extractor),
            result={
                **told,
                "extractor": extractor,
                "duplicates": output.duplicates,
                "secrets_withheld": output.secrets_withheld + about_turns.secrets,
            },
            usage=output.usage,
            made=output.made,
            described=described,
            captioned=await images.recaptioned(self._store, jobs.space_of(job), batch, described),
            turn_memories=about_turns.memories,
        )

    async def _merged(self, job: Job, plan: Plan, begun: "_Begun", output: Output, revision: int) -> _Merged:
        """The memories of a revision that the output touches, with it worked into them. One transaction reads them all,
        and where the store has threads for reading, the work is done in one."""
        return await self._store.database.read(
            _merge,
            jobs.space_of(job),
            self._store.registry,
            self._rules,
            job,
            Router(plan, begun.batch),
            plan,
            begun.counts,
            output,
            revision,
        )

    async def _about_turns(self, batch: list[Message], output: Output) -> turn_memories.Read:
        if not output.turn_memories:
            return turn_memories.Read()
        return await scan_for_secrets(
            turn_memories.of_batch, batch, output.turn_memories, withhold_secrets=self._withhold_secrets
        )

    async def _check_moved(self, job: Job, plan: Plan, begun: "_Begun", output: Output, outcome: Outcome) -> None:
        """Raises VersionConflict for an operation that fitted what its attempt could read and fits no more.

        That is nobody's fault: to send it back for repair would blame an extractor that reads at its base revision
        and so cannot see what has changed. Another attempt can.
        """
        _, at_base = await self._merged(job, plan, begun, output, job.revision)
        wrong = {entry["operation_index"] for entry in at_base.rejected}
        for entry in outcome.rejected:
            if entry["operation_index"] not in wrong:
                raise VersionConflict(entry["uri"])


async def _merge(
    tx: Tx,
    space: Space,
    registry: Registry,
    rules: Rules,
    job: Job,
    router: Router,
    plan: Plan,
    counts: BatchCounts,
    output: Output,
    revision: int,
) -> _Merged:
    workspace = Workspace(tx, space, revision)
    merger = Merger(registry, router, workspace, space, job.session_id, rules, counts)
    if plan.allow_self:
        await merger.initial_memories(plan.long_term_types)
    outcome = await merger.merge(output.operations)
    await merger.drop_empty_memories(plan.long_term_types if plan.allow_self else ())
    return list(workspace.drafts.values()), outcome


async def _apply(tx: Tx, space: Space, prepared: PreparedCommit) -> Applied:
    """`space` is that of the job: told of it, the store lets other accounts write meanwhile."""
    return await storage_apply.apply(tx, prepared)


@dataclass(frozen=True, slots=True)
class _Begun:
    """The job of an output, and of a commit what was refused of an earlier one under this lease, the batch, what it
    records of tools and skills, and the output worked into the memories; None where there is nothing to be worked in.
    """

    job: Job
    earlier: NeedsRepair | None = None
    batch: list[Message] = field(default_factory=list)
    counts: BatchCounts = field(default_factory=BatchCounts)
    merged: _Merged | None = None


async def _begin(tx: Tx, registry: Registry, rules: Rules, withhold_secrets: bool, output: Output) -> _Begun:
    """Raises LeaseLost, SpaceShut."""
    job = await jobs.held(tx, output.lease)
    if job.kind != jobs.COMMIT or out_of_place(job.kind, output):
        return _Begun(job)
    space: Space = jobs.space_of(job)
    repair = await repairs.asked(tx, job)
    archive = await archives.get(tx, space, job.session_id, job.archive_index)
    batch = await sessions.messages_between(tx, space, job.session_id, archive.first_sequence, archive.last_sequence)
    earlier = NeedsRepair.from_json(repair) if repair else None
    if earlier is not None and earlier.output_id == output.output_id:
        return _Begun(job, earlier, batch)
    if tx.is_shut(space):
        # As whoever names the space is told: it became known here.
        raise SpaceShut(space.user)
    plan = Plan.from_json(json.loads(job.plan))
    runs = await counts.skill_runs(tx, space, job)
    counted = BatchCounts.of_batch(batch, runs, withhold_secrets=withhold_secrets)
    merged = await _merge(tx, space, registry, rules, job, Router(plan, batch), plan, counted, output, LATEST)
    return _Begun(job, earlier, batch, counted, merged)


async def _ask_repair(tx: Tx, space: Space, output: Output, repair: NeedsRepair) -> None:
    job = await repairs.ask(tx, space, output.lease, repair.as_json())
    # Kept now: the worker may not live to send its second output.
    await tasks.spent(tx, jobs.space_of(job), job.job_id, job.token, output.usage)
    asked = Failure("rejected_output", f"{len(repair.refused)} operations were refused and sent back for repair")
    await extraction_records.keep(tx, job, output.made, asked)


def _diff(changed: list[Draft]) -> result.Changes:
    """`operations` of memory_diff.json: files before and after, as far as MAX_DIFF_CHARACTERS go. A change beyond has
    neither texts nor messages, and says so."""
    adds, updates, deletes = [], [], []
    room = MAX_DIFF_CHARACTERS
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
        }
        texts = [name for name in ("before", "after", "deleted_content") if name in entry]
        size = sum(len(entry[name]) for name in texts) + draft.named_characters
        if draft.named_omitted or size > room:
            entry |= dict.fromkeys(texts, "")
            entry |= {"message_ids": [], "shortened": True}
        else:
            entry["message_ids"] = draft.named_ids()
            room -= size
    return {"adds": adds, "updates": updates, "deletes": deletes}
