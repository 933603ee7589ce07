"""Applies phase 2 of a commit: one transaction makes all its changes and one revision of the space."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runekeep_common import failpoints
from runekeep_storage.database import Space, Tx
from runekeep_storage.errors import LeaseLost, NotFound
from runekeep_storage.indexing import captions
from runekeep_storage.indexing.captions import Captioned
from runekeep_storage.jobs import extraction_records, jobs, tasks
from runekeep_storage.jobs.extraction_records import AttemptRecord
from runekeep_storage.jobs.lease_holders import may_use
from runekeep_storage.memories import revisions, statements
from runekeep_storage.memories.revisions import Origin
from runekeep_storage.proposals import proposals
from runekeep_storage.proposals.proposals import Proposal
from runekeep_storage.records import Job, LeaseId, MemoryWrite
from runekeep_storage.sessions import image_descriptions, sessions
from runekeep_storage.sessions.image_descriptions import Described
from runekeep_storage.turns.memories import TurnMemory, fill_in


@dataclass(frozen=True, slots=True)
class PreparedCommit:
    """An extractor output that is checked, merged, rendered and embedded. Its `writes` are based on the versions that
    they name. `proposal`: operations that wait for review."""

    lease: LeaseId
    output_id: str
    writes: list[MemoryWrite]
    abstract: str
    overview: str
    diff: str
    extractor: str
    result: dict[str, Any]
    usage: list[dict[str, Any]]
    made: AttemptRecord
    described: Sequence[Described] = ()
    captioned: Sequence[Captioned] = ()
    turn_memories: Sequence[TurnMemory] = ()
    proposal: Proposal | None = None


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of an apply. `again`: this output was applied before. `result`: the result of the task, empty if
    `again`."""

    revision: int
    job: Job
    again: bool = False
    result: Mapping[str, Any] = field(default_factory=dict)


async def apply(tx: Tx, space: Space, prepared: PreparedCommit) -> Applied:
    """Applies the output exactly once, however often it is sent.

    Adds `revision`, `active_count_updated` and `fingerprints` of this transaction to `result`. Raises LeaseLost, and
    VersionConflict if a memory is not at its base version; the caller must then prepare the output again.
    """
    job = await held_or_applied(tx, space, prepared.lease, prepared.output_id)
    if isinstance(job, Applied):
        return job
    origin = Origin("commit", job.job_id, job.session_id, job.archive_index)
    revision = await revisions.make(tx, space, prepared.writes, prepared.extractor, origin)
    counted = await _count_uses(tx, space, job)
    now = tx.now()
    await tx.execute(
        statements.FINISH_ARCHIVE,
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
    if prepared.proposal is not None:
        await proposals.create(tx, space, prepared.proposal)
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


async def held_or_applied(tx: Tx, space: Space, lease: LeaseId, output_id: str) -> Job | Applied:
    """Returns the job of a held lease, or the result if this output was already applied under the lease. Raises
    LeaseLost, also for a job of another space."""
    try:
        return await jobs.held(tx, lease, space)
    except LeaseLost:
        repeat = await applied_before(tx, lease, output_id)
        if repeat is None:
            raise
        return repeat


async def applied_before(tx: Tx, lease: LeaseId, output_id: str) -> Applied | None:
    """Returns the earlier result if this output of this lease is already applied, else None: the answer to the first
    call may have been lost."""
    job = await _succeeded(tx, lease)
    return Applied(job.revision, job, again=True) if job is not None and job.output_id == output_id else None


async def was_applied(tx: Tx, lease: LeaseId) -> bool:
    """Returns whether any output of this lease is applied."""
    return await _succeeded(tx, lease) is not None


async def _succeeded(tx: Tx, lease: LeaseId) -> Job | None:
    try:
        job = await jobs.get(tx, lease.job_id)
    except NotFound:
        return None
    # Ending the job increments its token by one. A higher token belongs to somebody else's later lease.
    return job if job.state == "succeeded" and job.token == lease.token + 1 and may_use(job, lease) else None


async def _count_uses(tx: Tx, space: Space, job: Job) -> int:
    """Adds the uses recorded in the commit to the active counts. Returns the number of contexts and skills used."""
    uris = await sessions.used_uris(tx, space, job.session_id, job.archive_index)
    for uri in uris:
        await tx.execute(statements.ADD_USE, space.account, space.user, uri)
    return len(uris)
