"""Applies outputs of jobs about turns: the turn's memory, its selection, and changes of a session's buckets."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import structlog

from runekeep.v1 import extractor_service_pb2 as pb
from runekeep.v1 import turn_memory_service_pb2 as turn_pb
from runekeep_common import failpoints
from runekeep_schemas.secrets import withhold
from runekeep_schemas.turns.checks import withheld_bucket
from runekeep_schemas.turns.feedback import MACHINE, MAX_FOUND_REACTIONS, TEXT_LENGTH, Reaction, refusal
from runekeep_schemas.turns.fingerprint import Fingerprint
from runekeep_schemas.turns.folding import Changes, Folded, folded
from runekeep_schemas.turns.selection import choose
from runekeep_schemas.turns.text import cut
from runekeep_server.apply import turn_memories
from runekeep_server.apply.output import Output, Unusable
from runekeep_server.apply.turn_memories import Read
from runekeep_server.protocol.api_error import ApiError
from runekeep_server.protocol.secret_scan import scan_for_secrets
from runekeep_server.wire.basics import extractor_json
from runekeep_server.wire.turns import bucket_from_wire, reaction_from_wire, selection_from_wire
from runekeep_storage.database import Space, Tx
from runekeep_storage.errors import VersionConflict
from runekeep_storage.jobs import jobs
from runekeep_storage.memories import turn_outputs
from runekeep_storage.memories.apply import Applied
from runekeep_storage.memories.turn_outputs import BucketWrite, GivenFingerprints, TurnFindings, TurnJobEnd
from runekeep_storage.records import Job, LeaseId
from runekeep_storage.store import Store
from runekeep_storage.turns import buckets
from runekeep_storage.turns import jobs as turn_jobs
from runekeep_storage.turns.jobs import Reconciliation

MAX_APPLY_ATTEMPTS = 3
"""Attempts to merge bucket changes, before edits of the owner count as a conflict of the job."""

log = structlog.get_logger(__name__)


class TurnApplier:
    """Applies outputs about turns. `withhold_secrets`: secrets such as keys and passwords are removed from turn
    memory."""

    def __init__(self, store: Store, *, withhold_secrets: bool) -> None:
        self._store = store
        self._withhold_secrets = withhold_secrets

    async def apply(self, job: Job, output: Output) -> Applied | Unusable:
        """Applies an output of a TURN_FINGERPRINT or BUCKET_RECONCILE job exactly once. It must contain only items of
        its kind. Raises LeaseLost, StoreUnavailable, and VersionConflict if buckets kept changing."""
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
            # The transaction sets the time.
            selection, unfit = choose(offer, replace(selection_from_wire(wish), current_turn_id=turn_id), now=0)
            read.dropped += len(unfit)
            if unfit and selection.is_empty:
                # A stored empty selection would mean that nothing earlier matters.
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
        for attempt in range(1, MAX_APPLY_ATTEMPTS + 1):
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
                if attempt == MAX_APPLY_ATTEMPTS:
                    raise conflict
                continue
            failpoints.reached(failpoints.BUCKET_AFTER_COMMIT)
            return applied
        raise AssertionError("unreachable")

    async def _fold(
        self, job: Job, changes: Changes, looked_at: list[Fingerprint], now: int
    ) -> tuple[list[BucketWrite], dict[str, int]]:
        """Merges the changes into the current buckets and stores their blobs. Returns the buckets to write, and the
        counts of the result."""
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
    """Names the items in the output of a fingerprint job that its caller did not request; empty if there are none."""
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
    """Returns the bucket changes. Raises ApiError for values that are not JSON."""
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


async def _looked_at(tx: Tx, space: Space, lease: LeaseId) -> tuple[GivenFingerprints | None, int]:
    """Returns the input that the job's worker got under this lease, and the store's time."""
    return await turn_outputs.taken(tx, space, lease), tx.now()


def _ending(output: Output, result: dict[str, Any]) -> TurnJobEnd:
    told = {**result, "extractor": extractor_json(output.extractor)}
    return TurnJobEnd(output.lease, output.output_id, told, output.usage, output.made)


def _unusable(output: Output, why: str, dropped: int = 0) -> Unusable:
    extractor = extractor_json(output.extractor)
    return Unusable(why, {"dropped_items": output.dropped_items + dropped, "extractor": extractor})
