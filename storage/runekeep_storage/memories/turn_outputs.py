"""Applies the outputs of jobs about turns. One transaction stores the output and ends the job; it makes no revision.

When the worker gets its input, the scope of the job is stored with it under that lease: for a fingerprint job what it
may select from, for a bucket job the turns that it covers, each with the version that the worker was given. A turn that
changes meanwhile is left to the next job, whichever server receives the output; the findings in the other turns stay
valid.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from runekeep_common import failpoints
from runekeep_schemas.turns.feedback import Reaction
from runekeep_schemas.turns.fingerprint import Fingerprint
from runekeep_schemas.turns.selection import Offer, Selection
from runekeep_schemas.turns.stored import REACTION
from runekeep_storage.database import Space, Tx
from runekeep_storage.errors import TooManyReactions
from runekeep_storage.jobs import extraction_records, jobs, tasks
from runekeep_storage.jobs.extraction_records import AttemptRecord
from runekeep_storage.memories import statements
from runekeep_storage.memories.apply import Applied, held_or_applied
from runekeep_storage.records import Job, LeaseId, Turn
from runekeep_storage.turns import (
    artifacts,
    buckets,
    feedback,
    fingerprints,
    selections,
    turns,
)
from runekeep_storage.turns import (
    jobs as turn_jobs,
)
from runekeep_storage.turns.buckets import Stored
from runekeep_storage.turns.jobs import TAKEN
from runekeep_storage.turns.memories import TurnMemory, fill_in

MAX_COVERED = 256
"""Maximum number of fingerprints for one bucket job, least recently changed first."""


@dataclass(frozen=True, slots=True)
class TurnJobEnd:
    """What ends a job: the output id, the record of the attempt and the result of the task."""

    lease: LeaseId
    output_id: str
    result: dict[str, Any]
    usage: list[dict[str, Any]]
    made: AttemptRecord


@dataclass(frozen=True, slots=True)
class BucketWrite:
    """A bucket whose blob is stored. `base`: the blob that it was derived from, empty for a new bucket."""

    stored: Stored
    base: str


@dataclass(frozen=True, slots=True)
class GivenFingerprints:
    """The fingerprints that a bucket job's worker was given: each as it is now, with the version that it had then, the
    oldest change first."""

    fingerprints: Sequence[tuple[int, Fingerprint]]

    def covered(self, last_turn_id: str) -> int | None:
        """Returns the version that a worker has covered if `last_turn_id` is the last turn that it looked at ("": it
        looked at all). Returns 0 if there were no fingerprints, None if the turn was not among them."""
        if not last_turn_id:
            return max((version for version, _ in self.fingerprints), default=0)
        return next((version for version, one in self.fingerprints if one.turn_id == last_turn_id), None)


@dataclass(frozen=True, slots=True)
class TurnFindings:
    """The findings of a fingerprint job. `memory` and `selection` are None if the output has none."""

    memory: TurnMemory | None = None
    selection: Selection | None = None
    reactions: Sequence[Reaction] = ()


async def apply_turn(tx: Tx, space: Space, ending: TurnJobEnd, found: TurnFindings) -> Applied:
    """Stores the findings of a fingerprint job exactly once, however often they are sent. Turn memory gets only what it
    lacks.

    Sets `fingerprints`, `selection_stored` and `feedback` in `result`, and adds the reactions that are not stored to
    `dropped_items`. Raises LeaseLost.
    """
    job = await held_or_applied(tx, space, ending.lease, ending.output_id)
    if isinstance(job, Applied):
        return job
    filled = await fill_in(tx, space, job.session_id, [found.memory]) if found.memory is not None else None
    result: dict[str, Any] = {"fingerprints": filled.changed if filled else 0}
    if found.selection is not None:
        result["selection_stored"] = await _select(tx, space, job, found.selection)
    if found.reactions:
        result["feedback"] = await _react(tx, space, job, found.reactions)
        result["dropped_items"] = ending.result["dropped_items"] + len(found.reactions) - result["feedback"]
    await _end(tx, space, job, ending, result)
    # The queries quote messages, and the job does not run again.
    await turn_jobs.forget_queries(tx, space, job.job_id, job.plan)
    failpoints.reached(failpoints.TURN_BEFORE_COMMIT)
    return Applied(0, job)


async def _select(tx: Tx, space: Space, job: Job, selection: Selection) -> bool:
    """Stores the selection and returns True, unless the stored one is of a later turn, or concerns no other turn and is
    newer than the job."""
    before = await selections.get(tx, space, job.session_id)
    if before is not None:
        turn_id = turn_of(job)
        found = await turns.find(tx, space, job.session_id, [turn_id, before.current_turn_id])
        other = found.get(before.current_turn_id)
        if other is not None and other.turn_id != turn_id:
            stays = other.sequence > found[turn_id].sequence
        else:
            stays = before.last_reconciled_at > job.created_at
        if stays:
            return False
    await selections.put(tx, space, job.session_id, replace(selection, last_reconciled_at=tx.now()))
    return True


async def _react(tx: Tx, space: Space, job: Job, reactions: Sequence[Reaction]) -> int:
    """Replaces the reactions that an earlier job found in the same turn. Returns the number stored. Skips reactions to
    turns that are not earlier, second reactions to the same turn, and reactions to a turn that takes no more."""
    said_in = await turns.get(tx, space, job.session_id, turn_of(job))
    by_target: dict[str, tuple[Turn, Reaction]] = {}
    for one in reactions:
        target = await _target(tx, space, said_in, one)
        if target is not None:
            by_target.setdefault(target.turn_id, (target, one))
    if by_target:
        for row in await feedback.said_in(tx, space, job.session_id, [said_in.turn_id]):
            if row["name"] == _feedback_id(said_in, Reaction.from_text(row["text"]).turn_id):
                await artifacts.remove(tx, space, job.session_id, REACTION, row["name"])
    stored = 0
    for target, one in by_target.values():
        said = replace(one, feedback_id=_feedback_id(said_in, target.turn_id), from_turn_id=said_in.turn_id)
        try:
            await feedback.put(tx, space, job.session_id, target, said)
            stored += 1
        except TooManyReactions:
            continue
    return stored


async def _target(tx: Tx, space: Space, said_in: Turn, reaction: Reaction) -> Turn | None:
    """Returns the earlier turn that the reaction names, or the newest earlier one if it names none."""
    if not reaction.turn_id:
        return next(iter(await turns.before(tx, space, said_in.session_id, said_in.sequence, 1)), None)
    found = (await turns.find(tx, space, said_in.session_id, [reaction.turn_id])).get(reaction.turn_id)
    return found if found is not None and found.sequence < said_in.sequence else None


def _feedback_id(said_in: Turn, target_id: str) -> str:
    """Returns the id of a reaction that jobs found in a turn. It separates them from reactions that callers submit."""
    return str(uuid5(NAMESPACE_OID, f"{said_in.session_id}/{said_in.turn_id}/{target_id}"))


async def apply_buckets(
    tx: Tx, space: Space, ending: TurnJobEnd, writes: Sequence[BucketWrite], covered: int
) -> Applied:
    """Stores buckets once and moves the covered version to `covered`; 0 leaves it where it is.

    Sets `turns_left` in `result`. Raises LeaseLost, and VersionConflict if a bucket is not at its base; the caller must
    then prepare the output again.
    """
    job = await held_or_applied(tx, space, ending.lease, ending.output_id)
    if isinstance(job, Applied):
        return job
    for write in writes:
        stored = write.stored
        await buckets.write(tx, space, job.session_id, stored.bucket, stored.blob, stored.hosted_uri, base=write.base)
    if covered:
        await fingerprints.cover(tx, space, job.session_id, covered)
    await _end(tx, space, job, ending, {"turns_left": await fingerprints.left(tx, space, job.session_id)})
    failpoints.reached(failpoints.BUCKET_BEFORE_COMMIT)
    return Applied(0, job)


async def take_context(tx: Tx, space: Space, lease: LeaseId, offer: str) -> None:
    """Stores the offer to a fingerprint job's worker. The last offer under one lease counts. Raises LeaseLost."""
    job = await jobs.held(tx, lease, space)
    taken = {"token": job.token, "offer": offer}
    await tx.execute(
        statements.STORE_PLAN,
        space.account,
        space.user,
        job.job_id,
        json.dumps({**json.loads(job.plan), TAKEN: taken}, ensure_ascii=False),
    )


def offered(job: Job) -> Offer | None:
    """Returns the offer that `take_context` stored under the job's lease; None if the worker has not asked for its
    input."""
    taken = json.loads(job.plan).get(TAKEN)
    return Offer.decode(taken["offer"]) if taken and taken["token"] == job.token else None


def turn_of(job: Job) -> str:
    """Returns the id of the turn that a fingerprint job is about."""
    turn_id: str = json.loads(job.plan)["turn_id"]
    return turn_id


async def take_uncovered(tx: Tx, space: Space, lease: LeaseId) -> list[Fingerprint]:
    """Returns the fingerprints that a bucket job must look at, the oldest change first. Repeated calls under one lease
    return the same ones, except those that have changed since, which are left to the next job. Raises LeaseLost."""
    job = await jobs.held(tx, lease, space)
    versions = _versions(job)
    found = await fingerprints.uncovered(tx, space, job.session_id, MAX_COVERED)
    if versions is not None:
        return [one for version, one in found if versions.get(one.turn_id) == version]
    plan = {"token": lease.token, "versions": {one.turn_id: version for version, one in found}}
    await tx.execute(statements.STORE_PLAN, space.account, space.user, job.job_id, json.dumps(plan))
    return [one for _, one in found]


async def taken(tx: Tx, space: Space, lease: LeaseId) -> GivenFingerprints | None:
    """Returns what `take_uncovered` returned under this lease; None if it was not called. Raises LeaseLost."""
    job = await jobs.held(tx, lease, space)
    versions = _versions(job)
    if versions is None:
        return None
    known = await fingerprints.of(tx, space, job.session_id, versions)
    return GivenFingerprints([(version, known[turn_id]) for turn_id, version in versions.items()])


def _versions(job: Job) -> dict[str, int] | None:
    """Returns the versions taken under the job's lease by turn, the oldest change first; at most MAX_COVERED."""
    plan = json.loads(job.plan)
    versions: dict[str, int] | None = plan["versions"] if plan.get("token") == job.token else None
    return versions


async def _end(tx: Tx, space: Space, job: Job, ending: TurnJobEnd, found: dict[str, Any]) -> None:
    await tasks.spent(tx, space, job.job_id, job.token, ending.usage)
    await extraction_records.keep(tx, job, ending.made, None)
    await jobs.succeed(tx, job, ending.output_id, 0, {**ending.result, **found})
