"""Applies a whole output: prepares it outside of the transaction, applies it in one, and retries if a memory changed
meanwhile."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from runekeep_common import failpoints
from runekeep_schemas.policy import Plan
from runekeep_schemas.type_files.registry import Registry
from runekeep_server.apply import answers, images, result, telemetry, turn_memories
from runekeep_server.apply.holding import Merged, merge_output
from runekeep_server.apply.output import Output, Unusable, out_of_place, without_secrets
from runekeep_server.apply.repair import NeedsRepair
from runekeep_server.apply.turn_outputs import TurnApplier
from runekeep_server.merging import counts
from runekeep_server.merging.commit_merge import CommitContext, merge_operations
from runekeep_server.merging.counts import BatchCounts
from runekeep_server.merging.operations import Rules
from runekeep_server.merging.outcome import Outcome
from runekeep_server.merging.versions import versions_of
from runekeep_server.merging.workspace import Draft
from runekeep_server.protocol.answer_sizes import DEFAULT_SIZES
from runekeep_server.protocol.secret_scan import scan_for_secrets
from runekeep_server.wire.basics import extractor_json
from runekeep_storage.database import Space, Tx
from runekeep_storage.errors import LeaseLost, SpaceShut, VersionConflict
from runekeep_storage.jobs import extraction_records, jobs, repairs, tasks
from runekeep_storage.jobs.jobs import Failure
from runekeep_storage.memories import apply as storage_apply
from runekeep_storage.memories.apply import Applied, PreparedCommit
from runekeep_storage.records import Job, Message
from runekeep_storage.relay.relay import MEMORIES, PASSAGES
from runekeep_storage.sessions import archives, sessions
from runekeep_storage.store import Store

MAX_APPLY_ATTEMPTS = 3
"""Attempts to prepare an output, before changed memories count as a conflict of the job."""

MAX_DIFF_CHARACTERS = 2 * 1024 * 1024
"""Maximum characters of texts and message ids in the diff of one commit. The diff is one row, which is encoded and
written within the transaction, so larger ones would delay other calls."""

log = structlog.get_logger(__name__)


class Applier:
    """Turns outputs of commits into revisions, and outputs about turns into turn memory; checks answers to questions.

    `withhold_secrets`: secrets such as keys and passwords are removed from memories. `max_memory_bytes`: maximum size
    of a memory in an answer. `review_superseded`: memories that a new one supersedes are kept and reported, not
    deleted.
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
        """Applies an output exactly once, however often it is sent.

        If the first output of a lease has invalid operations, it is sent back as a whole for repair. Invalid operations
        of the second output are left out and reported, even if only its summary remains. Raises LeaseLost,
        StoreUnavailable, and VersionConflict if memories kept changing, or changed since the attempt began such that an
        operation no longer applies.
        """
        if self._withhold_secrets:
            # Scanned in a thread or process: a long output would block every call.
            output = await scan_for_secrets(without_secrets, output)
        database = self._store.all_spaces
        try:
            begun = await database.read_global(
                _begin, self._store.registry, self._rules, self._withhold_secrets, output
            )
        except LeaseLost:
            repeat = await database.read_global(storage_apply.applied_before, output.lease, output.output_id)
            if repeat is None:
                raise
            return repeat
        job = begun.job
        if misplaced := out_of_place(job.kind, output):
            return Unusable(misplaced, {})
        with telemetry.applying(job, output.traceparent) as applying:
            applied: Applied | NeedsRepair | Unusable
            if job.kind == jobs.COMMIT:
                applied = await self._commit(job, output, begun)
            elif job.kind == jobs.ASK:
                applied = await answers.apply(database, job, output, withhold_secrets=self._withhold_secrets)
            else:
                applied = await self._turns.apply(job, output)
            applying.came_to(applied)
        return applied

    async def _commit(self, job: Job, output: Output, begun: "_LoadedJob") -> Applied | NeedsRepair | Unusable:
        database = self._store.all_spaces
        earlier = begun.earlier
        if earlier is not None and earlier.output_id == output.output_id:
            # The worker did not get the verdict on this same output.
            return earlier
        context, merged = begun.context, begun.merged
        assert context is not None, "only a repeat of a refused output has none"
        for attempt in range(1, MAX_APPLY_ATTEMPTS + 1):
            if merged is None:
                merged = await database.read(_merge, jobs.space_of(job), context, job, output)
            prepared = await self._prepare(job, earlier, context, output, merged)
            # Merged with memories that may have changed meanwhile.
            merged = None
            if isinstance(prepared, NeedsRepair):
                await database.write(_ask_repair, jobs.space_of(job), output, prepared)
                return prepared
            if isinstance(prepared, Unusable):
                return prepared
            failpoints.reached(failpoints.APPLY_PREPARED)
            try:
                applied = await database.write(storage_apply.apply, jobs.space_of(job), prepared)
            except VersionConflict as conflict:
                telemetry.CONFLICTS.inc()
                log.info("apply_conflict", job=job.job_id, attempt=attempt)
                if attempt == MAX_APPLY_ATTEMPTS:
                    raise conflict
                continue
            failpoints.reached(failpoints.APPLY_AFTER_COMMIT)
            # Wakes passages too: an image description needs a vector.
            self._store.relay.wake(MEMORIES, *([PASSAGES] if prepared.captioned else []))
            return applied
        raise AssertionError("unreachable")

    async def _prepare(
        self, job: Job, earlier: NeedsRepair | None, context: CommitContext, output: Output, merged: Merged
    ) -> PreparedCommit | NeedsRepair | Unusable:
        drafts, outcome, batch = merged.drafts, merged.outcome, context.batch
        if outcome.rejected:
            await self._check_moved(job, context, output, outcome)
            if earlier is None:
                return NeedsRepair.of(output.output_id, outcome)
        about_turns = await self._about_turns(batch, output)
        described, wrong = images.described(batch, output.image_descriptions)
        # Invalid or unreadable operations are left out and the rest is applied, even if that is only the summary:
        # another attempt would cost tokens for the same result. Without a summary nothing would remain.
        empty = not (outcome.operations or earlier or output.duplicates or about_turns.memories or described)
        if empty and output.dropped_items and not output.summary.ByteSize():
            why = f"none of the output's items could be read: {output.dropped_items} were dropped"
            return Unusable(why, {"dropped_items": output.dropped_items})
        if earlier is not None:
            outcome.rejected += earlier.given_up(outcome)
        changed = [draft for draft in drafts if draft.changed]
        writes = await versions_of(self._store, jobs.space_of(job), changed)
        extractor = extractor_json(output.extractor)
        diff, encoded_diff = await asyncio.to_thread(_encoded_diff, changed, extractor)
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
            diff=encoded_diff,
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
            captioned=await images.recaptioned(
                self._store, jobs.space_of(job), batch, described, withhold_secrets=self._withhold_secrets
            ),
            turn_memories=about_turns.memories,
            proposal=merged.proposal,
        )

    async def _about_turns(self, batch: Sequence[Message], output: Output) -> turn_memories.Read:
        if not output.turn_memories:
            return turn_memories.Read()
        return await scan_for_secrets(
            turn_memories.of_batch, batch, output.turn_memories, withhold_secrets=self._withhold_secrets
        )

    async def _check_moved(self, job: Job, context: CommitContext, output: Output, outcome: Outcome) -> None:
        """Raises VersionConflict for an operation that was valid at the attempt's base revision and no longer is.

        Nobody is at fault. A repair would blame an extractor that reads at its base revision and cannot see the change.
        Another attempt can.
        """
        _, at_base = await self._store.database.read(
            merge_operations, jobs.space_of(job), context, output.operations, job.revision
        )
        wrong = {entry["operation_index"] for entry in at_base.rejected}
        for entry in outcome.rejected:
            if entry["operation_index"] not in wrong:
                raise VersionConflict(entry["uri"])


async def _merge(tx: Tx, space: Space, context: CommitContext, job: Job, output: Output) -> Merged:
    return await merge_output(tx, space, context, job, output.operations, json.dumps(extractor_json(output.extractor)))


@dataclass(frozen=True, slots=True)
class _LoadedJob:
    """The job of an output. For a commit also the earlier refusal under this lease; unless that is of the same output,
    what its operations are merged with, and the result."""

    job: Job
    earlier: NeedsRepair | None = None
    context: CommitContext | None = None
    merged: Merged | None = None


async def _begin(tx: Tx, registry: Registry, rules: Rules, withhold_secrets: bool, output: Output) -> _LoadedJob:
    """Reads the job of an output. Raises LeaseLost, SpaceShut."""
    job = await jobs.held(tx, output.lease)
    if job.kind != jobs.COMMIT or out_of_place(job.kind, output):
        return _LoadedJob(job)
    space: Space = jobs.space_of(job)
    repair = await repairs.asked(tx, job)
    earlier = NeedsRepair.from_json(repair) if repair else None
    if earlier is not None and earlier.output_id == output.output_id:
        return _LoadedJob(job, earlier)
    if tx.is_shut(space):
        # The space becomes known only here, so the lock is checked here.
        raise SpaceShut(space.user)
    archive = await archives.get(tx, space, job.session_id, job.archive_index)
    batch = await sessions.messages_between(tx, space, job.session_id, archive.first_sequence, archive.last_sequence)
    runs = await counts.skill_runs(tx, space, job)
    counted = BatchCounts.of_batch(batch, runs, withhold_secrets=withhold_secrets)
    plan = Plan.from_json(json.loads(job.plan))
    context = CommitContext(registry, rules, job.session_id, batch, plan, counted)
    return _LoadedJob(job, earlier, context, await _merge(tx, space, context, job, output))


async def _ask_repair(tx: Tx, space: Space, output: Output, repair: NeedsRepair) -> None:
    job = await repairs.ask(tx, space, output.lease, repair.as_json())
    # Stored now: the worker may die before it sends its second output.
    await tasks.spent(tx, space, job.job_id, job.token, output.usage)
    asked = Failure("rejected_output", f"{len(repair.refused)} operations were refused and sent back for repair")
    await extraction_records.keep(tx, job, output.made, asked)


def _encoded_diff(changed: list[Draft], extractor: dict[str, Any]) -> tuple[result.Changes, str]:
    """Returns the result of `_diff`, and memory_diff.json. Call it in a thread: it may have megabytes."""
    diff = _diff(changed)
    # Entry by entry: the encoder holds the interpreter's lock while it encodes one value.
    lists = ", ".join(
        f"{json.dumps(kind)}: [{', '.join(json.dumps(entry, ensure_ascii=False) for entry in entries)}]"
        for kind, entries in diff.items()
    )
    return diff, f'{{"extractor": {json.dumps(extractor, ensure_ascii=False)}, "operations": {{{lists}}}}}'


def _diff(changed: list[Draft]) -> result.Changes:
    """Returns `operations` of memory_diff.json: files before and after, up to MAX_DIFF_CHARACTERS. A change beyond has
    neither texts nor message ids, and is marked as shortened."""
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
