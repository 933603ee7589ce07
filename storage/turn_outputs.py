"""Outputs of jobs about turns: what one changes and the end of its job are one transaction, and make no revision.

What a fingerprint job may select from is fixed when its worker gets its input, and kept with the job under that lease.

What a bucket job is to cover is fixed when its worker gets its input, and kept with the job under that lease, turn by
turn with the version that was looked at: what is said meanwhile was not, whichever server the output comes to, and is
for the next job. It takes nothing away from what the worker found in the rest.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from schemas import failpoints
from schemas.turns.feedback import Reaction
from schemas.turns.fingerprint import Fingerprint
from schemas.turns.selection import Offer, Selection
from schemas.turns.stored import REACTION
from storage import (
    buckets,
    extraction_records,
    feedback,
    fingerprints,
    jobs,
    selections,
    tasks,
    turn_artifacts,
    turn_jobs,
    turns,
)
from storage.apply import Applied, held_or_applied
from storage.buckets import Stored
from storage.database import Space, Tx
from storage.errors import TooManyReactions
from storage.extraction_records import Made
from storage.records import Job, LeaseId, Turn
from storage.turn_jobs import TAKEN
from storage.turn_memories import TurnMemory, fill_in

MOST_COVERED = 256
"""Fingerprints that one bucket job looks at, those first that changed longest ago."""


@dataclass(frozen=True, slots=True)
class Ending:
    """What ends the job: the output, what its worker told of the attempt, and the task's result."""

    lease: LeaseId
    output_id: str
    result: dict[str, Any]
    usage: list[dict[str, Any]]
    made: Made


@dataclass(frozen=True, slots=True)
class BucketWrite:
    """A bucket whose blob is there. `base`: the blob that it was made of, empty for a new bucket."""

    stored: Stored
    base: str


@dataclass(frozen=True, slots=True)
class Taken:
    """What a bucket job's worker was given: fingerprints as they are by now, by the version that they had then, the
    oldest change first."""

    fingerprints: Sequence[tuple[int, Fingerprint]]

    def covered(self, last_turn_id: str) -> int | None:
        """The version up to which a worker has looked that came as far as this turn, "" for all of them; 0 when there
        were none, None for a turn that was not among them."""
        if not last_turn_id:
            return max((version for version, _ in self.fingerprints), default=0)
        return next((version for version, one in self.fingerprints if one.turn_id == last_turn_id), None)


@dataclass(frozen=True, slots=True)
class TurnFindings:
    """What a fingerprint job found out. `memory`, `selection`: None where it says nothing of them."""

    memory: TurnMemory | None = None
    selection: Selection | None = None
    reactions: Sequence[Reaction] = ()


async def apply_turn(tx: Tx, space: Space, ending: Ending, found: TurnFindings) -> Applied:
    """Stores what a fingerprint job found out, once, whatever number of times it is sent. Of the turn it fills in what
    is missing.

    `result` gets `fingerprints`, `selection_stored` and `feedback`; its `dropped_items` grows by the reactions that are
    not stored. Raises LeaseLost.
    """
    job = await held_or_applied(tx, ending.lease, ending.output_id, space)
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
    # They quote what was said, and nobody runs the job again.
    await turn_jobs.forget_queries(tx, space, job.job_id, job.plan)
    failpoints.reached(failpoints.TURN_BEFORE_COMMIT)
    return Applied(0, job)


async def _select(tx: Tx, space: Space, job: Job, selection: Selection) -> bool:
    """Stores the selection, unless the stored one is of a later turn, or is of no other turn and newer than the job."""
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
    """Stores reactions in place of those that an earlier job found in the same turn; how many. Left out are those to no
    earlier turn, second ones to the same turn, and those to a turn that takes no more."""
    said_in = await turns.get(tx, space, job.session_id, turn_of(job))
    by_target: dict[str, tuple[Turn, Reaction]] = {}
    for one in reactions:
        target = await _target(tx, space, said_in, one)
        if target is not None:
            by_target.setdefault(target.turn_id, (target, one))
    if by_target:
        for row in await feedback.said_in(tx, space, job.session_id, [said_in.turn_id]):
            if row["name"] == _feedback_id(said_in, Reaction.from_text(row["text"]).turn_id):
                await turn_artifacts.remove(tx, space, job.session_id, REACTION, row["name"])
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
    """The earlier turn that the reaction names, or the newest one where it names none."""
    if not reaction.turn_id:
        return next(iter(await turns.before(tx, space, said_in.session_id, said_in.sequence, 1)), None)
    found = (await turns.find(tx, space, said_in.session_id, [reaction.turn_id])).get(reaction.turn_id)
    return found if found is not None and found.sequence < said_in.sequence else None


def _feedback_id(said_in: Turn, target_id: str) -> str:
    """Tells what jobs found in a turn from what callers submit."""
    return str(uuid5(NAMESPACE_OID, f"{said_in.session_id}/{said_in.turn_id}/{target_id}"))


async def apply_buckets(tx: Tx, space: Space, ending: Ending, writes: Sequence[BucketWrite], covered: int) -> Applied:
    """Stores buckets and moves what they cover to the version `covered`, once; 0: it stays where it is.

    `result` gets `turns_left`. Raises LeaseLost, and VersionConflict when a bucket is not at its base: prepare again.
    """
    job = await held_or_applied(tx, ending.lease, ending.output_id, space)
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
    """Keeps what a fingerprint job's worker is offered: the last offer under one lease counts. Raises LeaseLost."""
    job = await jobs.held(tx, lease, space)
    taken = {"token": job.token, "offer": offer}
    await tx.execute(
        "UPDATE jobs SET plan = $4 WHERE account = $1 AND user_id = $2 AND job_id = $3",
        space.account,
        space.user,
        job.job_id,
        json.dumps({**json.loads(job.plan), TAKEN: taken}, ensure_ascii=False),
    )


def offered(job: Job) -> Offer | None:
    """What `take_context` kept under the job's lease; None when its worker has not asked for its input."""
    taken = json.loads(job.plan).get(TAKEN)
    return Offer.decode(taken["offer"]) if taken and taken["token"] == job.token else None


def turn_of(job: Job) -> str:
    """The turn that a fingerprint job is about."""
    turn_id: str = json.loads(job.plan)["turn_id"]
    return turn_id


async def take_uncovered(tx: Tx, space: Space, lease: LeaseId) -> list[Fingerprint]:
    """Fingerprints that a bucket job is to look at, the oldest change first; the same ones each time under one lease,
    but for such as have changed since: they are for the next job. Raises LeaseLost.
    """
    job = await jobs.held(tx, lease, space)
    versions = _versions(job)
    found = await fingerprints.uncovered(tx, space, job.session_id, MOST_COVERED)
    if versions is not None:
        return [one for version, one in found if versions.get(one.turn_id) == version]
    plan = {"token": lease.token, "versions": {one.turn_id: version for version, one in found}}
    await tx.execute(
        "UPDATE jobs SET plan = $4 WHERE account = $1 AND user_id = $2 AND job_id = $3",
        space.account,
        space.user,
        job.job_id,
        json.dumps(plan),
    )
    return [one for _, one in found]


async def taken(tx: Tx, space: Space, lease: LeaseId) -> Taken | None:
    """What `take_uncovered` gave under this lease; None when nobody has asked it. Raises LeaseLost."""
    job = await jobs.held(tx, lease, space)
    versions = _versions(job)
    if versions is None:
        return None
    known = await fingerprints.of(tx, space, job.session_id, versions)
    return Taken([(version, known[turn_id]) for turn_id, version in versions.items()])


def _versions(job: Job) -> dict[str, int] | None:
    """What was taken under the job's lease, by turn, the oldest change first; at most MOST_COVERED."""
    plan = json.loads(job.plan)
    versions: dict[str, int] | None = plan["versions"] if plan.get("token") == job.token else None
    return versions


async def _end(tx: Tx, space: Space, job: Job, ending: Ending, found: dict[str, Any]) -> None:
    await tasks.spent(tx, space, job.job_id, job.token, ending.usage)
    await extraction_records.keep(tx, job, ending.made, None)
    await jobs.succeed(tx, job, ending.output_id, 0, {**ending.result, **found})
