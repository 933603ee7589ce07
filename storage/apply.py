"""Commits, phase 2: everything that a commit changes, in one transaction that makes one revision of the space."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from schemas import failpoints
from storage import captions, extraction_records, image_descriptions, jobs, revisions, sessions, tasks
from storage.captions import Captioned
from storage.database import Space, Tx
from storage.errors import LeaseLost, NotFound
from storage.extraction_records import Made
from storage.image_descriptions import Described
from storage.leases import may_use
from storage.records import Job, LeaseId, MemoryWrite
from storage.revisions import Origin
from storage.turn_memories import TurnMemory, fill_in


@dataclass(frozen=True, slots=True)
class PreparedCommit:
    """An output, checked, merged, rendered and embedded on the versions that `writes` name as their bases."""

    lease: LeaseId
    output_id: str
    writes: list[MemoryWrite]
    abstract: str
    overview: str
    diff: str
    extractor: str
    result: dict[str, Any]
    usage: list[dict[str, Any]]
    made: Made
    described: Sequence[Described] = ()
    captioned: Sequence[Captioned] = ()
    turn_memories: Sequence[TurnMemory] = ()


@dataclass(frozen=True, slots=True)
class Applied:
    """`again`: this very output had been applied before. `result`: of the task; empty where it was applied before."""

    revision: int
    job: Job
    again: bool = False
    result: Mapping[str, Any] = field(default_factory=dict)


async def apply(tx: Tx, prepared: PreparedCommit) -> Applied:
    """Applies the output once, whatever number of times it is sent.

    `result` gets `revision`, `active_count_updated` and `fingerprints` from this transaction.
    Raises LeaseLost, and VersionConflict when a memory is not at its base: prepare again then.
    """
    job = await held_or_applied(tx, prepared.lease, prepared.output_id)
    if isinstance(job, Applied):
        return job
    space = jobs.space_of(job)
    origin = Origin("commit", job.job_id, job.session_id, job.archive_index)
    revision = await revisions.make(tx, space, prepared.writes, prepared.extractor, origin)
    counted = await _count_uses(tx, space, job)
    now = tx.now()
    await tx.execute(
        "UPDATE archives SET state = 'done', abstract = $5, overview = $6, diff = $7, revision = $8, done_at = $9"
        " WHERE account = $1 AND user_id = $2 AND session_id = $3 AND archive_index = $4",
        space.account,
        space.user,
        job.session_id,
        job.archive_index,
        prepared.abstract,
        prepared.overview,
        prepared.diff,
        revision,
        now,
    )
    filled = await fill_in(tx, space, job.session_id, prepared.turn_memories)
    told = {"revision": revision, "active_count_updated": counted, "fingerprints": filled.made}
    await tasks.spent(tx, space, job.job_id, job.token, prepared.usage)
    await extraction_records.keep(tx, job, prepared.made, None)
    await image_descriptions.keep(tx, space, job.session_id, prepared.described)
    await captions.rewrite(tx, space, job.session_id, job.archive_index, job.job_id, revision, prepared.captioned)
    result = {**prepared.result, **told}
    await jobs.succeed(tx, job, prepared.output_id, revision, result)
    failpoints.reached(failpoints.APPLY_BEFORE_COMMIT)
    return Applied(revision, job, result=result)


async def held_or_applied(tx: Tx, lease: LeaseId, output_id: str, space: Space | None = None) -> Job | Applied:
    """The job of a lease that is held, or what this output of it has done already; `space`: see `jobs.held`.

    Raises LeaseLost.
    """
    try:
        return await jobs.held(tx, lease, space)
    except LeaseLost:
        repeat = await applied_before(tx, lease, output_id)
        if repeat is None:
            raise
        return repeat


async def applied_before(tx: Tx, lease: LeaseId, output_id: str) -> Applied | None:
    """Whether this output of this lease is applied already; a verdict may have been lost on its way."""
    job = await _succeeded(tx, lease)
    return Applied(job.revision, job, again=True) if job is not None and job.output_id == output_id else None


async def was_applied(tx: Tx, lease: LeaseId) -> bool:
    """Whether an output of this lease, whichever, is applied."""
    return await _succeeded(tx, lease) is not None


async def _succeeded(tx: Tx, lease: LeaseId) -> Job | None:
    try:
        job = await jobs.get(tx, lease.job_id)
    except NotFound:
        return None
    # Ending the job moved its token on by one: a later lease has a higher one and is somebody else's.
    return job if job.state == "succeeded" and job.token == lease.token + 1 and may_use(job, lease) else None


async def _count_uses(tx: Tx, space: Space, job: Job) -> int:
    """Adds the uses that the commit took to the active counts; how many contexts and skills that were."""
    uris = await sessions.used_uris(tx, space, job.session_id, job.archive_index)
    for uri in uris:
        await tx.execute(
            "INSERT INTO active_counts (account, user_id, uri, uses) VALUES ($1, $2, $3, 1)"
            " ON CONFLICT (account, user_id, uri) DO UPDATE SET uses = active_counts.uses + 1",
            space.account,
            space.user,
            uri,
        )
    return len(uris)
