"""Applies outputs of jobs about turns: what a turn said, what is selected for it, and what becomes of a session's
buckets."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import structlog

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import turn_memory_service_pb2 as turn_pb
from schemas import failpoints
from schemas.secrets import withhold
from schemas.turns.checks import withheld_bucket
from schemas.turns.feedback import MACHINE, MAX_FOUND_REACTIONS, TEXT_LENGTH, Reaction, refusal
from schemas.turns.fingerprint import Fingerprint
from schemas.turns.folding import Changes, Folded, folded
from schemas.turns.selection import choose
from schemas.turns.text import cut
from server.apply import turn_memories
from server.apply.output import Output, Unusable
from server.apply.turn_memories import Read
from server.errors import ApiError
from server.secret_scan import scan_for_secrets
from server.wire.basics import extractor_json
from server.wire.turns import bucket_from_wire, reaction_from_wire, selection_from_wire
from storage import buckets, jobs, turn_jobs, turn_outputs
from storage.apply import Applied
from storage.database import Space, Tx
from storage.errors import VersionConflict
from storage.records import Job, LeaseId
from storage.store import Store
from storage.turn_jobs import Reconciliation
from storage.turn_outputs import BucketWrite, Ending, Taken, TurnFindings

PREPARATIONS = 3
"""How often buckets are folded before edits of their owner make it a conflict of the job."""

log = structlog.get_logger(__name__)


class TurnApplier:
    """`withhold_secrets`: keys, passwords and their like never come into turn memory."""

    def __init__(self, store: Store, *, withhold_secrets: bool) -> None:
        self._store = store
        self._withhold_secrets = withhold_secrets

    async def apply(self, job: Job, output: Output) -> Applied | Unusable:
        """Applies an output of a TURN_FINGERPRINT or BUCKET_RECONCILE, that holds items of its kind alone, once.

        Raises LeaseLost, StoreUnavailable, and VersionConflict: buckets kept moving.
        """
        if job.kind == jobs.TURN_FINGERPRINT:
            return await self._turn(job, output)
        return await self._buckets(job, output)

    async def _turn(self, job: Job, output: Output) -> Applied | Unusable:
        turn_id = turn_outputs.turn_of(job)
        if len(output.turn_memories) > 1 or any(one.turn_id != turn_id for one in output.turn_memories):
            return _unusable(output, "the output holds more than the memory of the one turn that was asked for")
        if unasked := _unasked(turn_jobs.reconciliation_of(job.plan), output):
            return _unusable(output, unasked)
        read = Read()
        for memory in output.turn_memories:
            try:
                await scan_for_secrets(turn_memories.take, read, memory, withhold_secrets=self._withhold_secrets)
            except ApiError as error:
                return _unusable(output, f"the turn memory cannot be read: {error.message}")
        selection = None
        for wish in output.selections:
            offer = turn_outputs.offered(job)
            if offer is None:
                return _unusable(output, "the output selects from what was not in the job's input")
            # The time is that of its transaction.
            selection, unfit = choose(offer, replace(selection_from_wire(wish), current_turn_id=turn_id), now=0)
            read.dropped += len(unfit)
            if unfit and selection.is_empty:
                # Stored, it would say that nothing earlier matters.
                selection = None
        reactions = await scan_for_secrets(_reactions, output.feedback, withhold_secrets=self._withhold_secrets)
        read.dropped += len(output.feedback) - len(reactions)
        dropped = output.dropped_items + read.dropped
        if dropped and not (read.memories or selection is not None or reactions):
            return _unusable(output, f"nothing of the output could be read: {dropped} parts were dropped", read.dropped)
        ending = _ending(output, {"dropped_items": dropped})
        found = TurnFindings(read.memories[0] if read.memories else None, selection, reactions)
        applied = await self._store.all_spaces.write(turn_outputs.apply_turn, jobs.space_of(job), ending, found)
        failpoints.reached(failpoints.TURN_AFTER_COMMIT)
        return applied

    async def _buckets(self, job: Job, output: Output) -> Applied | Unusable:
        if len(output.bucket_changes) > 1:
            return _unusable(output, "the output holds changes of buckets more than once")
        if output.dropped_items and not output.bucket_changes:
            return _unusable(output, f"nothing of the output could be read: {output.dropped_items} parts were dropped")
        told = output.bucket_changes[0] if output.bucket_changes else pb.BucketChanges()
        try:
            changes = await scan_for_secrets(_changes, told, withhold_secrets=self._withhold_secrets)
        except ApiError as error:
            return _unusable(output, f"the changes cannot be read: {error.message}")
        for attempt in range(1, PREPARATIONS + 1):
            looked_at, now = await self._store.all_spaces.read(_looked_at, jobs.space_of(job), output.lease)
            covered = looked_at.covered(changes.last_covered_turn_id) if looked_at is not None else None
            if looked_at is None or covered is None:
                return _unusable(output, "the output is about turns that were not in the job's input")
            writes, result = await self._fold(job, changes, [one for _, one in looked_at.fingerprints], now)
            ending = _ending(output, {**result, "dropped_items": result["dropped_items"] + output.dropped_items})
            try:
                applied = await self._store.all_spaces.write(
                    turn_outputs.apply_buckets, jobs.space_of(job), ending, writes, covered
                )
            except VersionConflict as conflict:
                log.info("apply_conflict", job=job.job_id, attempt=attempt)
                if attempt == PREPARATIONS:
                    raise conflict
                continue
            failpoints.reached(failpoints.BUCKET_AFTER_COMMIT)
            return applied
        raise AssertionError("unreachable")

    async def _fold(
        self, job: Job, changes: Changes, looked_at: list[Fingerprint], now: int
    ) -> tuple[list[BucketWrite], dict[str, int]]:
        """Buckets to be written, their blobs there, on the buckets as they are now; and the counts of the result."""
        if not (changes.changed or changes.added or changes.disabled):
            return [], _counts(Folded())
        space, blobs = jobs.space_of(job), self._store.blobs
        there = await buckets.load(self._store.all_spaces, blobs, space, job.session_id)
        made = await asyncio.to_thread(folded, [one.bucket for one in there], changes, looked_at, now)
        bases = {one.bucket.bucket_id: one.blob for one in there}
        writes = []
        for bucket in made.written:
            stored = await buckets.keep(self._store.all_spaces, blobs, space, bucket)
            writes.append(BucketWrite(stored, bases.get(bucket.bucket_id, "")))
            failpoints.reached(failpoints.BUCKET_BLOB_WRITTEN)
        return writes, _counts(made)


def _unasked(wanted: Reconciliation, output: Output) -> str:
    """Says what is in the output of a fingerprint job that its caller did not ask for; empty when nothing is."""
    if len(output.selections) > wanted.selection:
        return "the output holds more selections than were asked for"
    if output.feedback and not wanted.feedback:
        return "the output holds feedback that was not asked for"
    return ""


def _reactions(told: Sequence[turn_pb.Feedback], *, withhold_secrets: bool) -> list[Reaction]:
    """Returns the valid reactions as those of a machine, one for each turn, at most MAX_FOUND_REACTIONS."""
    kept: dict[str, Reaction] = {}
    for one in told:
        reaction = reaction_from_wire(one, "")
        if reaction.origin != MACHINE or refusal(reaction) is not None or reaction.turn_id in kept:
            continue
        if len(kept) == MAX_FOUND_REACTIONS:
            break
        text = withhold(reaction.text)[0] if withhold_secrets else reaction.text
        kept[reaction.turn_id] = replace(reaction, text=cut(text, TEXT_LENGTH))
    return list(kept.values())


def _changes(told: pb.BucketChanges, *, withhold_secrets: bool) -> Changes:
    """Raises ApiError for values that are no JSON."""
    changed = [bucket_from_wire(f"changed[{number}]", one) for number, one in enumerate(told.changed)]
    added = [bucket_from_wire(f"added[{number}]", one) for number, one in enumerate(told.added)]
    if withhold_secrets:
        changed, added = list(map(withheld_bucket, changed)), list(map(withheld_bucket, added))
    return Changes(tuple(changed), tuple(added), tuple(told.disabled), told.last_covered_turn_id)


def _counts(made: Folded) -> dict[str, int]:
    return {
        "buckets_changed": made.changed,
        "buckets_added": made.added,
        "buckets_disabled": made.disabled,
        "dropped_items": made.dropped,
    }


async def _looked_at(tx: Tx, space: Space, lease: LeaseId) -> tuple[Taken | None, int]:
    """What the job's worker got as input under this lease, and the store's time."""
    return await turn_outputs.taken(tx, space, lease), tx.now()


def _ending(output: Output, result: dict[str, Any]) -> Ending:
    told = {**result, "extractor": extractor_json(output.extractor)}
    return Ending(output.lease, output.output_id, told, output.usage, output.made)


def _unusable(output: Output, why: str, dropped: int = 0) -> Unusable:
    extractor = extractor_json(output.extractor)
    return Unusable(why, {"dropped_items": output.dropped_items + dropped, "extractor": extractor})
